"use strict";
// Sorting, filtering and searching; the pages say everything without it.
(() => {
  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (wanted, text) => wanted.every((word) => text.includes(word));

  for (const form of document.querySelectorAll(".find, .filter")) form.hidden = false;
  for (const text of document.querySelectorAll(".scriptless")) text.hidden = true;

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => {
          const cell = row.cells[column] ?? row.cells[row.cells.length - 1];
          const text = cell.textContent.trim();
          const value = cell.dataset.value ?? text.replaceAll(",", "");
          return { row, text, number: value === "" ? NaN : Number(value) };
        });
        rows.sort((one, other) => {
          const both = !Number.isNaN(one.number) && !Number.isNaN(other.number);
          if (both) return down ? other.number - one.number : one.number - other.number;
          // What has no number stands last either way.
          if (!Number.isNaN(one.number)) return -1;
          if (!Number.isNaN(other.number)) return 1;
          return (down ? -1 : 1) * one.text.localeCompare(other.text, "en", { numeric: true });
        });
        body.append(...rows.map(({ row }) => row));
      });
    });
  }

  for (const input of document.querySelectorAll("input[data-filters]")) {
    const rows = [...document.getElementById(input.dataset.filters).tBodies[0].rows];
    const count = document.querySelector(`[data-count="${input.dataset.filters}"]`);
    const texts = rows.map((row) =>
      [row.textContent, ...[...row.querySelectorAll("[title]")].map((one) => one.title)].join(" ").toLowerCase());
    input.addEventListener("input", () => {
      const wanted = words(input.value);
      let shown = 0;
      rows.forEach((row, number) => {
        row.hidden = !fits(wanted, texts[number]);
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = wanted.length ? `${shown} of ${rows.length}` : "";
    });
  }

  const query = document.getElementById("query");
  if (query) {
    const most = 100;
    const entries = window.elfkilnIndex.map(([title, url, kind, text]) =>
      ({ title, url, kind, low: title.toLowerCase(), text: `${title} ${kind} ${text}`.toLowerCase() }));
    const found = document.getElementById("found");
    const results = document.getElementById("results");
    const show = () => {
      const wanted = words(query.value);
      const rank = (entry) => (fits(wanted, entry.low) ? 0 : 1);
      const hits = wanted.length ? entries.filter((entry) => fits(wanted, entry.text)) : [];
      hits.sort((one, other) => rank(one) - rank(other));
      found.textContent = !wanted.length ? "" : hits.length > most
        ? `${hits.length} found, the first ${most} shown` : `${hits.length} found`;
      results.replaceChildren(...hits.slice(0, most).map((entry) => {
        const item = document.createElement("li");
        const link = document.createElement("a");
        link.href = entry.url;
        link.textContent = entry.title;
        const kind = document.createElement("small");
        kind.textContent = ` ${entry.kind}`;
        item.append(link, kind);
        return item;
      }));
    };
    query.value = new URLSearchParams(location.search).get("q") ?? "";
    query.addEventListener("input", show);
    query.form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
    show();
  }
})();
