"""The catalogue: what its pages say, that they are whole and valid, and that they work in a real browser."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urljoin

import pytest
from tinyhtml5.parser import HTMLParser

from elfkiln.cli import main
from elfkiln.errors import BuildFailed, Refused
from elfkiln.io.canonical import sha256_hex
from elfkiln.models.requirement import Use
from elfkiln.project import Project
from elfkiln.store.registry import load_registry
from elfkiln.work.site import design_facts
from elfkiln.work.site.doc_pages import doc_pages
from elfkiln.work.site.pages import layers_text, site_files
from elfkiln.work.site.placing import MARK, make_site
from elfkiln.work.site.text_pages import numbered
from programs import need_program
from projects import CHECKOUT
from site_world import HOSTILE, QKV, QKV_RM, G, U, make_site_world

HTML = "{http://www.w3.org/1999/xhtml}"
PAGE = f"names/sim/{QKV}.html"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_site_world(tmp_path_factory.mktemp("site") / "project")


@pytest.fixture(scope="module")
def files(project):
    return site_files(project)


@pytest.fixture(scope="module")
def trees(files):
    """Return each page's tree; a page that breaks HTML's syntax fails here."""
    found = {}
    for path, data in files.items():
        if path.endswith(".html"):
            parser = HTMLParser()
            found[path] = parser.parse(data.decode())
            assert parser.errors == [], path
    return found


def words_of(tree):
    """Return an element's text, its words apart wherever an element begins or ends that is not `wbr`."""
    parts = []

    def walk(one):
        parts.append(one.text or "")
        for child in one:
            apart = "" if child.tag == f"{HTML}wbr" else " "
            parts.append(apart)
            walk(child)
            parts.append(apart + (child.tail or ""))

    walk(tree)
    return re.sub(r" ([,.])", r"\1", " ".join("".join(parts).split()))


def test_every_name_model_recipe_and_document_has_its_page(files, project):
    entries = load_registry(project.registry_file).entries("sim")
    expected = {"index.html", "models/index.html", "models/tiny.html", "search.html"}
    expected |= {f"names/sim/{key}.html" for key in entries}
    expected |= {f"recipes/{entry.recipe}.html" for entry in entries.values()}
    expected |= {f"designs/{entry.design}.html" for entry in entries.values()}
    expected |= {"docs/index.html", "docs/first.html", "docs/tables.html", "files/registry.yaml.html"}
    assert expected <= files.keys()
    # Two designs: QKV's own, and the one that all others share; only the first can be drawn.
    pictures = [path for path in files if path.startswith("designs/") and path.endswith(".svg")]
    assert pictures == [f"designs/{entries[QKV].design}.svg"]


def test_a_name_says_what_stands_behind_it(trees, project):
    entry = load_registry(project.registry_file).entries("sim")[QKV]
    text = words_of(trees[PAGE])
    for word in (entry.elf, entry.recipe, entry.design, entry.manifest):
        assert f"sha256:{word}" in text
    assert f"{entry.size:,} bytes" in text
    assert "M=128 K=256 N=768, 8-bit contiguous weights" in text
    # Two layers of the role table, in its own layout.
    assert "tiny b8 2 full layers QKV 2 kernels/" in text
    assert "Clean: no error, no warning." in text
    assert "https://in-toto.io/attestation/test-result/v0.1 PASSED, not signed" in text
    assert (
        f"The same GEMM in other layouts Against this name Name Layout Bytes Predicted ms of this one's {QKV_RM}"
        in text
    )


def test_the_taps_are_those_of_the_geometry(trees):
    rows = [
        [words_of(cell) for cell in row]
        for row in trees[PAGE].iter(f"{HTML}tr")
        if len(row) == 8 and words_of(row[0]) in ("A", "B", "C")
    ]
    # 2 x 2 cores of 32 x 128: C has 2 x 3 groups, so A (128 x 256) is walked thrice and B (256 x 768) twice; C once,
    # in words of 4 bytes.
    assert [(row[0], row[-1]) for row in rows] == [("A", "98,304"), ("B", "393,216"), ("C", "393,216")]
    assert [row[1] for row in rows] == ["memref<32768xi8>", "memref<196608xi8>", "memref<98304xi32>"]


def test_who_else_uses_a_digest(trees):
    text = words_of(trees[f"names/sim/{G}.html"])
    assert f"Same ELF {U}" in text
    # The others that share the unreadable design are named as well.
    assert "Same design" in text
    assert "expected" in text  # the reader's own line says why nothing is drawn


def test_what_is_wrong_is_said(trees):
    first = words_of(trees["index.html"])
    assert "What is wrong full_i8_D_K512_N256_b8.elf : blob sha256:" in first
    assert "9 registered names" in first
    assert "refused: " in words_of(trees["models/index.html"])
    assert "damaged" in words_of(trees["names/sim/full_i8_D_K512_N256_b8.elf.html"])


def test_two_layouts_are_compared(trees):
    text = words_of(trees["models/tiny-b8-rm-sim.html"])
    assert "QKV K=256 N=768 M=128" in text
    assert "1 of 8 names have other bytes" in text
    assert "not both registered" in text


def test_generations_are_compared(trees, project):
    """The world was made in three steps: the build of tiny, a name in another layout, and other bytes under it."""
    assert "3 generations of the registry" in words_of(trees["index.html"])
    overview = words_of(trees["generations/index.html"])
    # Eight names gained; then one; then one changed. The latest is first.
    assert re.findall(r" (\d) (\d) (\d) [0-9a-f]{12}\b", overview) == [
        ("0", "1", "0"),
        ("1", "0", "0"),
        ("8", "0", "0"),
    ]
    assert f"the {HOSTILE} rm (registry.yaml now)" in overview
    first, second, third = (words_of(trees[f"generations/generation-{number}.html"]) for number in (1, 2, 3))
    assert (first.count("(sim)"), second.count("(sim)")) == (8, 1)
    assert f"Gained {QKV_RM} (sim)" in second
    entry = load_registry(project.registry_file).entries("sim")[QKV_RM]
    before = sha256_hex(b"\x7fELF row-major first")
    assert f"{QKV_RM} sim {before[:12]} {entry.elf[:12]} {len(HOSTILE) - 5:+}" in third


def test_a_recipe_page_has_what_went_in(trees, project):
    entry = load_registry(project.registry_file).entries("sim")[QKV]
    text = words_of(trees[f"recipes/{entry.recipe}.html"])
    assert "Step 1 makes out.elf" in text
    assert "generator.py" in text
    assert "built with care" in text


def test_hostile_texts_are_inert(files, trees):
    pages = {path for path, tree in trees.items() if HOSTILE in "".join(tree.itertext())}
    assert PAGE in pages  # an attestation
    assert "docs/first.html" in pages
    assert any(path.startswith("recipes/") for path in pages)  # a build log
    assert any(path.startswith("designs/") for path in pages)
    assert "bad <b>model" in words_of(trees["models/index.html"])
    for path, tree in trees.items():
        scripts = [one.get("src") for one in tree.iter(f"{HTML}script")]
        assert all(source and source.split("/")[-1] in ("site.js", "search-index.js") for source in scripts), path
        assert not list(tree.iter(f"{HTML}b")), path
        assert not [one for one in tree.iter(f"{HTML}a") if one.get("href", "").startswith("javascript:")], path
    assert b"</script>" not in files["assets/search-index.js"]


def test_links_hold_and_nothing_comes_from_elsewhere(files, trees):
    anchors = {path: {one.get("id") for one in tree.iter() if one.get("id")} for path, tree in trees.items()}
    broken, outside = [], []
    for path, tree in trees.items():
        for one in tree.iter():
            for name in ("href", "src", "action"):
                address = one.get(name)
                if address is None:
                    continue
                if re.match(r"[a-z]+:", address):
                    # A link may lead elsewhere; what a page needs to be shown may not.
                    outside += [] if one.tag == f"{HTML}a" else [(path, address)]
                    continue
                target, _, anchor = unquote(urljoin(path, address)).partition("#")
                if target not in files or (anchor and target in anchors and anchor not in anchors[target]):
                    broken.append((path, address))
    assert broken == []
    assert outside == []
    assert not re.search(rb"url\(|@import|https?://", files["assets/site.css"])
    # The names of XML's vocabularies are the only addresses in pictures.
    for path, data in files.items():
        if path.endswith(".svg"):
            assert set(re.findall(rb'https?://[^"]*', data)) == {b"http://www.w3.org/2000/svg"}, path


def test_pages_can_be_read_aloud_and_by_keyboard(trees):
    for path, tree in trees.items():
        assert tree.get("lang") == "en", path
        ids = Counter(one.get("id") for one in tree.iter() if one.get("id"))
        assert [name for name, count in ids.items() if count > 1] == [], path
        assert all(one.get("alt") is not None for one in tree.iter(f"{HTML}img")), path
        assert len(list(tree.iter(f"{HTML}main"))) == len(list(tree.iter(f"{HTML}h1"))) == 1, path
        tags = [str(one.tag) for one in tree.find(f".//{HTML}main").iter()]
        levels = [int(tag[-1]) for tag in tags if re.fullmatch(r".*}h[1-6]", tag)]
        assert all(below - above <= 1 for above, below in pairwise(levels)), path
        labelled = {one.get("for") for one in tree.iter(f"{HTML}label")}
        inside = [one for label in tree.iter(f"{HTML}label") for one in label.iter(f"{HTML}input")]
        assert all(one.get("id") in labelled or one in inside for one in tree.iter(f"{HTML}input")), path
        for table in tree.iter(f"{HTML}table"):
            assert all(one.get("scope") for one in table.iter(f"{HTML}th")) or path.startswith("docs/"), path
        for one in tree.iter():
            if one.get("class") == "scroll" or one.tag == f"{HTML}pre":
                assert one.get("tabindex") == "0", path
            if one.get("role") == "region" or one.tag == f"{HTML}nav":
                assert one.get("aria-label"), path


def test_docs_have_their_navigation_anchors_and_tables(trees):
    tree = trees["docs/first.html"]
    side = next(one for one in tree.iter(f"{HTML}nav") if one.get("class") == "side")
    links = [(words_of(one), one.get("href")) for one in side.iter(f"{HTML}a")]
    assert links == [
        ("First steps", "first.html"),
        ("Two words", "#two-words"),
        ("Two words", "#two-words-1"),
        ("Tables", "tables.html"),
    ]
    found = {one.get("href") for one in tree.iter(f"{HTML}a")}
    assert {"tables.html#two-words", "../files/registry.yaml.html"} <= found
    cells = [(words_of(one), one.get("class")) for one in trees["docs/tables.html"].iter(f"{HTML}td")]
    assert cells == [("a", None), ("1", "number")]


def test_the_search_index_has_names_digests_and_words(files, project):
    entry = load_registry(project.registry_file).entries("sim")[QKV]
    text = files["assets/search-index.js"].decode()
    rows = json.loads(text.removeprefix("window.elfkilnIndex = ").removesuffix(";\n"))
    assert {row[1].partition("#")[0] for row in rows} <= files.keys()
    assert [row[1] for row in rows if entry.elf in row[3]] == [PAGE]
    assert [row[1] for row in rows if "zebra" in row[3]] == ["docs/first.html#two-words-1"]


def test_the_same_input_gives_the_same_bytes_and_designs_are_read_once(project, files, monkeypatch):
    # As it is where no source was edited in the second before this process began.
    monkeypatch.setattr(design_facts, "package_digest", lambda: "0" * 64)
    assert site_files(project) == files

    def refuse(_):
        raise AssertionError("a design was read again")

    monkeypatch.setattr(design_facts, "tell_facts", refuse)
    assert site_files(project) == files


def test_children_tell_the_same_as_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(design_facts, "package_digest", lambda: None)
    texts = {digest * 64: f"module {{}} // {digest}\n\u00e9" for digest in "abcd"}
    found = design_facts.design_facts(Project(tmp_path), texts, "sim")
    assert list(found) == list(texts)
    monkeypatch.setattr(design_facts, "_FEW", 4)
    assert design_facts.design_facts(Project(tmp_path), texts, "sim") == found


def test_a_child_that_dies_is_one_line(monkeypatch):
    monkeypatch.setattr(design_facts, "_START", "import sys; sys.exit('no memory')")
    with pytest.raises(BuildFailed, match=r"^reading designs: ended with exit code 1; no memory$"):
        design_facts._tell_all([(digest, "module {}", "sim") for digest in "abc"])


def test_lines_are_numbered_and_linked():
    body, count = numbered("a < b\n\n\x0cc\n")
    assert count == 3
    assert body.count("<span") == 3
    assert '<span id="L1"><a href="#L1" tabindex="-1">1</a>a &lt; b\n</span>' in body
    assert numbered("")[1] == 1


def test_layers_are_put_together():
    uses = [Use("qkv", "gdn", layer=layer) for layer in (0, 1, 2, 4, 6, 5)] + [Use("qkv", "full", layer=3)]
    assert layers_text(uses) == ["gdn qkv: layers 0-2, 4-6", "full qkv: layer 3"]


@contextmanager
def without_files(monkeypatch):
    """Make sites of one page: the folder is the subject."""
    with monkeypatch.context() as patched:
        patched.setattr("elfkiln.work.site.placing.site_files", lambda _: {"index.html": b"new", "a/b.html": b""})
        yield


def test_a_folder_of_ours_is_replaced_as_a_whole(project, tmp_path, monkeypatch, capsys):
    out = tmp_path / "www" / "kernels"
    with without_files(monkeypatch):
        assert main(["site", f"out={out}", f"root={project.root}", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"out": str(out), "files": 2, "pages": 2, "bytes": 3}
        (out / "stale.html").write_text("old")
        # What a killed run left beside it goes; what is somebody else's stays.
        (out.parent / ".part-kernels-0").mkdir()
        (out.parent / "build-of-mine").mkdir()
        make_site(project, out)
    assert sorted(path.name for path in out.rglob("*")) == [MARK, "a", "b.html", "index.html"]
    assert sorted(path.name for path in out.parent.iterdir()) == ["build-of-mine", "kernels"]


@pytest.mark.parametrize("what", ["folder", "file", "link", "checkout"])
def test_nothing_else_is_replaced(project, tmp_path, monkeypatch, what):
    out = tmp_path / "out"
    if what == "folder":
        out.mkdir()
        (out / "thesis.txt").write_text("mine")
    elif what == "file":
        out.write_text("mine")
    elif what == "link":
        (tmp_path / "real").mkdir()
        out.symlink_to("real")
    else:
        out = project.root
    before = sorted(os.listdir(tmp_path))
    with without_files(monkeypatch), pytest.raises(Refused, match="expected a folder that `elfkiln site` made"):
        make_site(project, out)
    assert sorted(os.listdir(tmp_path)) == before


def test_an_earlier_site_stands_when_the_new_one_cannot_be_put_in_place(project, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with without_files(monkeypatch):
        make_site(project, out)
        (out / "index.html").write_text("earlier")
        rename = Path.rename

        def fail(self, target):
            if self.name == "new":
                raise OSError(5, "Input/output error")
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", fail)
        with pytest.raises(Refused, match="Input/output error"):
            make_site(project, out)
    assert (out / "index.html").read_text() == "earlier"
    assert os.listdir(tmp_path) == ["out"]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    program = need_program("chromium")
    with sync_playwright() as playwright:
        # Chromium's own sandbox does not run as root, which CI is; a container's /dev/shm may be small.
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def site(project, files, tmp_path_factory):
    out = tmp_path_factory.mktemp("www") / "site"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("elfkiln.work.site.placing.site_files", lambda _: files)
        make_site(project, out)
    return out


@contextmanager
def opened(browser, site, path="index.html", **options):
    """Open a page from the disk, and fail on whatever the browser has to complain of or asks for elsewhere."""
    said = []
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    # What is not loaded yet when the test goes on to the next page is given up, which is no failure.
    page.on("requestfailed", lambda one: None if one.failure == "net::ERR_ABORTED" else said.append(one.url))
    page.on("request", lambda one: None if one.url.startswith(site.as_uri()) else said.append(f"elsewhere: {one.url}"))
    page.goto((site / path).as_uri())
    yield page
    context.close()
    assert said == []


def test_every_page_loads_on_a_desk_and_fits_a_phone(browser, site, files):
    paths = [path for path in files if path.endswith(".html")]
    phone = {"viewport": {"width": 390, "height": 800}, "is_mobile": True}
    with opened(browser, site, **phone) as page:
        for path in paths:
            page.goto((site / path).as_uri())
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    with opened(browser, site, PAGE, color_scheme="dark") as page:
        assert page.evaluate("document.querySelector('figure img').naturalWidth") == 1240
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, re.findall(r"\d+", ground))) < 64
        page.get_by_role("img", name="The array").scroll_into_view_if_needed()


def test_search_finds_names_digests_and_docs(browser, site, project):
    elf = load_registry(project.registry_file).entries("sim")[QKV].elf
    with opened(browser, site, "docs/index.html") as page:
        box = page.get_by_role("searchbox", name="Search")
        box.fill("zebra")
        box.press("Enter")
        page.get_by_text("1 found").wait_for()
        page.get_by_label("Words, names or digests").fill(elf[:20])
        page.get_by_role("link", name=QKV).click()
        assert page.get_by_role("heading", level=1).inner_text() == QKV
        page.goto(f"{(site / 'search.html').as_uri()}?q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
        page.get_by_text("0 found").wait_for()


def test_names_are_filtered_and_sorted_by_keyboard(browser, site):
    with opened(browser, site) as page:
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "to.main"
        page.get_by_label("Show names with").fill("qkv tiny")
        page.get_by_label("Show names with").fill("QKV")
        # QKV at M = 128 and 16, and in rm; the twin in rm is asked for and not registered.
        page.get_by_text("4 of 16", exact=True).wait_for()
        heads = page.get_by_role("columnheader", name="Bytes")
        heads.get_by_role("button").focus()
        for order in ("ascending", "descending"):
            page.keyboard.press("Enter")
            assert heads.get_attribute("aria-sort") == order
            sizes = page.evaluate(
                "[...document.querySelectorAll('#names td[data-value]:nth-of-type(3)')].map(x => +x.dataset.value)"
            )
            assert len(sizes) == 9
            assert sizes == sorted(sizes, reverse=order == "descending")


def test_it_can_be_read_without_javascript(browser, site):
    with opened(browser, site, java_script_enabled=False) as page:
        assert page.locator("#names tbody tr").count() == 16
        # What needs a script does not show.
        assert page.get_by_role("searchbox").count() == 0
        page.get_by_role("link", name=QKV, exact=True).click()
        page.get_by_role("link", name="Generator").click()
        assert page.locator("#L1").inner_text().startswith("1")
        page.goto((site / "search.html").as_uri())
        assert page.get_by_text("Search needs JavaScript").is_visible()


def test_the_projects_own_docs_are_in_their_navigation_and_their_links_hold():
    pages, navigation = doc_pages(CHECKOUT)
    linked = [file for _, links in navigation for _, file in links]
    assert sorted(linked) == sorted(page.file for page in pages if page.file != "index.md")
    for page in pages:
        known = {one.anchor for other in pages for one in other.sections if other.file == page.file}
        broken = [
            href
            for href in re.findall(r'href="([^"]+)"', page.body)
            if not re.match(r"https?:", href)
            and not (href.startswith("#") and href[1:] in known)
            and href.partition("#")[0].removesuffix(".html") not in {other.file[:-3] for other in pages}
            and href.removeprefix("../files/").removesuffix(".html") not in page.files
        ]
        assert broken == [], page.file
