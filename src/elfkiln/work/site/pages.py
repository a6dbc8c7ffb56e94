"""The site's files from what was gathered: every page's HTML, the pictures, the style, the script, the search index.

All text goes through templates that escape it; nothing names a time, a machine or a place, so equal input gives equal
bytes. Addresses are relative: the folder works from a disk as well as from a server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from elfkiln.engine import contract
from elfkiln.io.reading import read_text
from elfkiln.models.requirement import Requirement, Use
from elfkiln.project import Project
from elfkiln.work.site.doc_pages import INDEX, MAX_BYTES, DocPage, Navigation, doc_pages
from elfkiln.work.site.gathering import HERE, Catalogue, LayoutSet, ModelPage, NameRow, gather
from elfkiln.work.site.text_pages import numbered

ASSETS = ("site.css", "site.js", "icon.svg")
_HERE = Path(__file__).parent
_SEARCH = "assets/search-index.js"
_NAMES = [("Names", "../index.html")]


@dataclass(frozen=True, slots=True)
class Row:
    """A name as the templates show it: everything a `NameRow` has, its page's address and words."""

    base: NameRow

    def __getattr__(self, name: str) -> Any:
        """Return what the name's row has."""
        return getattr(self.base, name)

    @property
    def url(self) -> str:
        """Its page's address below the site."""
        return f"names/{self.base.target}/{self.base.key}.html"

    @property
    def layout(self) -> str:
        """The layout its name stands for; a sealed ELF's is that of the model that asks for it."""
        name = self.base.name
        return name.layout if name else ", ".join(sorted({one.layout for one in self.base.asked})) or "–"

    @property
    def meaning(self) -> str:
        """What it computes, in words; "" where the name does not say."""
        name = self.base.name
        if name is None:
            return "A sealed ELF: one array configuration that runs several geometries."
        rows = "16 rows, a decode twin" if name.m16 else "128 rows, prefill"
        meaning = next((one.meaning for one in contract.ROLES if one.name == name.role), name.role)
        return f"Projection {name.role} ({meaning}), K={name.K}, N={name.N}, {rows}, weights in layout {name.layout}."

    @property
    def mark(self) -> str:
        """The class of its mark."""
        return "bad" if self.base.fault else "good" if self.base.state == HERE else "open"

    @property
    def short_state(self) -> str:
        """Its state in a word or two."""
        if self.base.fault and self.base.state == HERE:
            return "contradicts its manifest"
        return "verified" if self.base.state == HERE else self.base.state

    @property
    def asked_own(self) -> bool:
        """Whether the first model that asks for it does so in a layout of its own."""
        return bool(self.base.asked) and self.base.asked[0].own


@dataclass(frozen=True, slots=True)
class Compared:
    """One line of a comparison: what is compared, both names (None: only the other has it), and how they differ."""

    what: str
    left: Row | None
    right: Row | None

    @property
    def bytes(self) -> str:
        """Whether both stand for the same bytes."""
        one, other = (row.entry if row else None for row in (self.left, self.right))
        if one is None or other is None:
            return "not both registered"
        return "same" if one.elf == other.elf else "differs"

    @property
    def size(self) -> str:
        """By how many bytes the right one is larger; "–" unless both are there."""
        one, other = (row.entry if row else None for row in (self.left, self.right))
        return "–" if one is None or other is None else _change(other.size, one.size)

    @property
    def left_seconds(self) -> float | None:
        """Predicted seconds of the left one."""
        return self.left.seconds if self.left else None

    @property
    def right_seconds(self) -> float | None:
        """Predicted seconds of the right one."""
        return self.right.seconds if self.right else None


def site_files(project: Project) -> dict[str, bytes]:
    """Return every file of the site by its path below the folder, sorted.

    Raises `Refused` for a registry, toolchain.lock or page of docs/ that cannot be read.
    """
    catalogue = gather(project)
    docs, navigation = doc_pages(project.root)
    files = dict(_Site(project, catalogue, docs, navigation).files())
    for asset in ASSETS:
        files[f"assets/{asset}"] = (_HERE / "assets" / asset).read_bytes()
    return dict(sorted(files.items()))


class _Site:
    """Renders pages; what they share is here."""

    def __init__(
        self, project: Project, catalogue: Catalogue, docs: tuple[DocPage, ...], navigation: Navigation
    ) -> None:
        self.project = project
        self.catalogue = catalogue
        self.docs = docs
        self.navigation = navigation
        self.rows = {(row.target, row.key): Row(row) for row in catalogue.names}
        self.index: list[tuple[str, str, str, str]] = []
        self.generators = {one.digest for one in catalogue.recipes if one.generator is not None}
        self.environment = _environment()

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield (path, bytes) of every page, picture and of the search index, which is last."""
        yield from self.overview()
        yield from self.models()
        yield from self.generations()
        yield from self.names()
        yield from self.recipes()
        yield from self.designs()
        yield from self.documents()
        yield self.page("search.html", "search.html", "Search", "")
        # Whoever puts the script into a page by hand must not end it by a text of ours.
        index = json.dumps(self.index, separators=(",", ":")).replace("</", "<\\/")
        yield _SEARCH, f"window.elfkilnIndex = {index};\n".encode()

    def page(self, path: str, template: str, title: str, section: str, **values: Any) -> tuple[str, bytes]:
        """Return a page's path and bytes."""
        given = {
            "root": "../" * path.count("/"),
            "title": title,
            "section": section,
            "crumbs": (),
            "has_docs": any(page.file == INDEX for page in self.docs),
            **values,
        }
        return path, self.environment.get_template(template).render(given).encode()

    def of(self, row: NameRow) -> Row:
        """Return a name as templates take it."""
        return self.rows[row.target, row.key]

    def overview(self) -> Iterator[tuple[str, bytes]]:
        # What is registered comes first: that is what a reader came for.
        rows = sorted(self.rows.values(), key=lambda row: row.entry is None)
        yield self.page(
            "index.html",
            "index.html",
            "Kernel ELFs by name",
            "names",
            rows=rows,
            registered=sum(row.entry is not None for row in rows),
            open=sum(row.entry is None for row in rows),
            recipes=len(self.catalogue.recipes),
            models=len(self.catalogue.models),
            faults=[row for row in rows if row.fault],
            generations=len(self.catalogue.generations),
        )

    def models(self) -> Iterator[tuple[str, bytes]]:
        models = self.catalogue.models
        yield self.page("models/index.html", "models.html", "Models", "models", models=models)
        for model in models:
            if model.refused:
                continue
            pairs = [(one, other) for one, other in combinations(model.sets, 2) if one.target == other.target]
            comparisons = [(f"{a.layout} against {b.layout}", _compare_path(model, a, b)) for a, b in pairs]
            sets = [
                {
                    "layout": one.layout,
                    "own": one.own,
                    "target": one.target,
                    "registered": one.registered,
                    "set_digest": one.set_digest,
                    "passes": one.passes,
                    "passes_refused": one.passes_refused,
                    "rows": [
                        (need, self.of(row), one.problems.get(need.path), layers_text(need.layers))
                        for need, row in one.rows
                    ],
                }
                for one in model.sets
            ]
            path = f"models/{model.model}.html"
            digests = " ".join(one.set_digest or "" for one in model.sets)
            layouts = " ".join(one.layout for one in model.sets)
            self.index.append((model.model, path, "model", f"{layouts} {digests}"))
            yield self.page(
                path,
                "model.html",
                model.model,
                "models",
                crumbs=[("Models", "index.html")],
                model=model,
                sets=sets,
                comparisons=comparisons,
            )
            for one, other in pairs:
                yield self.comparison(model, one, other)

    def comparison(self, model: ModelPage, one: LayoutSet, other: LayoutSet) -> tuple[str, bytes]:
        """Return the page of the differences between two layouts of a model."""
        left, right = ({_gemm(need): self.of(row) for need, row in side.rows} for side in (one, other))
        rows = [Compared(what, left.get(what), right.get(what)) for what in dict.fromkeys((*left, *right))]
        ratios = [row.right_seconds / row.left_seconds for row in rows if row.right_seconds and row.left_seconds]
        title = f"{model.model}: {one.layout} against {other.layout}"
        path = _compare_path(model, one, other)
        self.index.append((title, path, "difference", ""))
        return self.page(
            path,
            "compare.html",
            title,
            "models",
            crumbs=[("Models", "index.html"), (model.model, f"{model.model}.html")],
            heading=title,
            left=one.layout,
            right=other.layout,
            rows=rows,
            changed=sum(row.bytes == "differs" for row in rows),
            faster=sum(ratio < 1 for ratio in ratios),
            slower=sum(ratio > 1 for ratio in ratios),
        )

    def generations(self) -> Iterator[tuple[str, bytes]]:
        pages = self.catalogue.generations
        if not pages:
            return
        path = "generations/index.html"
        given = {"current": self.catalogue.current, "damaged": self.catalogue.damaged}
        yield self.page(path, "generations.html", "Generations", "names", crumbs=_NAMES, pages=pages, **given)
        for page in pages:
            found = page.difference
            gained, changed, lost = found.parts if found else ((), (), ())
            number = page.generation.number
            yield self.page(
                f"generations/generation-{number}.html",
                "generation.html",
                f"Generation {number}",
                "names",
                crumbs=[*_NAMES, ("Generations", "index.html")],
                page=page,
                parts=[
                    (heading, [(*pair, self.rows.get(pair)) for pair in pairs])
                    for heading, pairs in (("Gained", gained), ("Lost", lost))
                ],
                changed=[(target, key, was, now, self.rows.get((target, key))) for target, key, was, now in changed],
            )

    def names(self) -> Iterator[tuple[str, bytes]]:
        for row in self.rows.values():
            entry = row.entry
            digests = entry.digests if entry else ()
            who = sorted({word for one in row.asked for word in (one.model, one.layout)})
            self.index.append((row.key, row.url, f"name, {row.target}", " ".join((*digests, *who, row.binds))))
            root = "../" * row.url.count("/")
            yield self.page(
                row.url,
                "name.html",
                row.key,
                "names",
                crumbs=[("Names", f"{root}index.html")],
                row=row,
                asked=[(one, layers_text(one.need.layers)) for one in row.asked],
                design_url=f"designs/{entry.design}.html" if entry and entry.design in self.catalogue.designs else "",
                generator_url=f"generators/{entry.recipe}.html" if entry and entry.recipe in self.generators else "",
                same_elf=[self.of(one) for one in self.catalogue.with_elf(row.base)],
                same_design=[self.of(one) for one in self.catalogue.with_design(row.base)],
                other_layouts=[self.of(one) for one in self.catalogue.other_layouts(row.base)],
                tiles=_like_tiles(row.facts.linted["tiles"]) if row.facts else [],
            )

    def recipes(self) -> Iterator[tuple[str, bytes]]:
        for recipe in self.catalogue.recipes:
            path = f"recipes/{recipe.digest}.html"
            names = [self.of(row) for row in recipe.names]
            generator = f"generators/{recipe.digest}.html" if recipe.generator is not None else ""
            first = names[0]
            crumbs = [*_NAMES, (first.key, f"../{first.url}")]
            self.index.append((f"recipe {recipe.digest[:12]}", path, "recipe", f"{recipe.digest} {first.key}"))
            yield self.page(
                path,
                "recipe.html",
                f"Recipe {recipe.digest[:12]}",
                "names",
                crumbs=crumbs,
                recipe=recipe,
                names=names,
                generator_url=generator,
            )
            if recipe.generator is not None:
                yield self.text(generator, f"Generator of {first.key}", recipe.generator, crumbs)

    def designs(self) -> Iterator[tuple[str, bytes]]:
        first: dict[str, Row] = {}
        for row in self.rows.values():
            if row.entry is not None:
                first.setdefault(row.entry.design, row)
        for digest, text in self.catalogue.designs.items():
            row = first[digest]
            crumbs = [*_NAMES, (row.key, f"../{row.url}")]
            yield self.text(f"designs/{digest}.html", f"Design of {row.key}", text, crumbs)
            facts = self.catalogue.facts.get(digest)
            if facts and facts.svg:
                yield f"designs/{digest}.svg", facts.svg.encode()

    def text(self, path: str, heading: str, text: str, crumbs: Iterable[tuple[str, str]]) -> tuple[str, bytes]:
        """Return a page of a text with numbered lines."""
        body, count = numbered(text)
        return self.page(path, "text.html", heading, "names", crumbs=crumbs, heading=heading, body=body, count=count)

    def documents(self) -> Iterator[tuple[str, bytes]]:
        by_file = {page.file: page for page in self.docs}
        links = [
            (heading, [(text, by_file[file].url.removeprefix("docs/")) for text, file in pages])
            for heading, pages in self.navigation
        ]
        shown: dict[str, str] = {}
        for page in self.docs:
            shown |= dict.fromkeys(page.files, page.title)
            headings = [(one.anchor, one.title) for one in page.sections if one.level == 2]
            for one in page.sections:
                anchor = "" if one.level == 1 else f"#{one.anchor}"
                self.index.append((one.title, f"{page.url}{anchor}", f"docs, {page.title}", one.text))
            yield self.page(
                page.url,
                "doc.html",
                page.title,
                "docs",
                body=page.body,
                headings=headings,
                navigation=links,
                here=page.url.removeprefix("docs/"),
            )
        for file in sorted(shown):
            path = f"files/{file}.html"
            text = read_text(self.project.root / file, limit=MAX_BYTES, remedy="link to a text file")
            yield self.text(path, file, text, [("Docs", f"{'../' * path.count('/')}docs/index.html")])


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "breakable": _breakable,
        "change": _change,
        "count": lambda number: f"{number:,}",
        "ms": lambda seconds: "–" if seconds is None else f"{seconds * 1e3:.2f}",
        "ratio": lambda one, other: "–" if not one or not other else f"{one / other:.2f}",
        "json": lambda value: json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False),
    }
    return environment


def _change(now: int, before: int) -> str:
    return f"{now - before:+,}" if now != before else "0"


def _breakable(text: str) -> Markup:
    """Return a name that a narrow screen may break behind `_` and `/`."""
    return Markup(str(escape(text)).replace("_", "_<wbr>").replace("/", "/<wbr>"))


def _compare_path(model: ModelPage, one: LayoutSet, other: LayoutSet) -> str:
    return f"models/{model.model}-{one.layout}-{other.layout}-{one.target}.html"


def _gemm(need: Requirement) -> str:
    """Return what names of two layouts are compared by: role, geometry and rows, or a sealed ELF's file name."""
    name = need.name
    return f"{name.role} K={name.K} N={name.N} M={name.M}" if name else need.file_name


def layers_text(uses: Iterable[Use]) -> list[str]:
    """Return what runs an artifact, layers of one kind and projection on one line.

    >>> layers_text([Use("qkv", "gdn", layer=0), Use("qkv", "gdn", layer=1), Use("qkv", "gdn", layer=4)])
    ['gdn qkv: layers 0-1, 4']
    >>> layers_text([Use("QKV", "full", count=16)])
    ['16 full layers QKV']
    """
    lines: list[str] = []
    numbered_uses: dict[tuple[str, str], list[int]] = {}
    for use in uses:
        if use.layer is None:
            lines.append(str(use))
        else:
            numbered_uses.setdefault((use.kind, use.projection), []).append(use.layer)
    for (kind, projection), layers in numbered_uses.items():
        word = "layer" if len(layers) == 1 else "layers"
        lines.append(f"{kind} {projection}: {word} {_ranges(layers)}")
    return lines


def _ranges(numbers: Iterable[int]) -> str:
    parts = []
    for _, group in groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(parts)


def _like_tiles(tiles: Iterable[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (tiles in words, one of their budgets) for each group of tiles that have taken the same."""
    fields = ("used", "memory", "stack", "s2mm", "mm2s", "descriptors", "locks")
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for tile in tiles:
        groups.setdefault(tuple(tile[field] for field in fields), []).append(tile)
    return [(_tiles_text([str(tile["tile"]) for tile in group]), group[0]) for group in groups.values()]


def _tiles_text(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} tiles, {names[0]} to {names[-1]}"
