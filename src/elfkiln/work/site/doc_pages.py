"""docs/ as pages: CommonMark with tables, links between the pages, and the navigation that docs/index.md says.

docs/index.md is a page like the others; its headings and lists of links are the navigation too, so that what a reader
of the repository finds there and what the site shows are one text. Raw HTML in a page is shown as text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from elfkiln.io.reading import read_text

INDEX = "index.md"
MAX_BYTES = 4 << 20
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_NOT_IN_ANCHORS = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of a page and the words below it; `level` is 1 for the page's title."""

    level: int
    anchor: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class DocPage:
    """One page of docs/: its file name, title, HTML, sections, and the checkout's files it links to."""

    file: str
    title: str
    body: Markup
    sections: tuple[Section, ...]
    files: tuple[str, ...]

    @property
    def url(self) -> str:
        """The page's address below the site."""
        return f"docs/{self.file.removesuffix('.md')}.html"


Navigation = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""(heading, (text, file) of each page below it)."""


def doc_pages(root: Path) -> tuple[tuple[DocPage, ...], Navigation]:
    """Return the pages of a checkout's docs/, sorted by file name, and their navigation; none where there is no docs/.

    Pages that index.md does not list stand under "More". Raises `Refused` for a page that is not UTF-8 text.
    """
    folder = root / "docs"
    files = sorted(path.name for path in folder.glob("*.md")) if folder.is_dir() else []
    parser = _parser()
    tokens = {
        file: parser.parse(read_text(folder / file, limit=MAX_BYTES, remedy="mend the page or take it out of docs/"))
        for file in files
    }
    pages = tuple(_page(parser, root, file, tokens[file], files) for file in files)
    navigation = _navigation(tokens[INDEX], files) if INDEX in tokens else ()
    listed = {file for _, links in navigation for _, file in links} | {INDEX}
    others = tuple((page.title, page.file) for page in pages if page.file not in listed)
    return pages, (*navigation, ("More", others)) if others else navigation


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    renderer: Any = parser.renderer
    rules = renderer.rules
    rules["table_open"] = lambda *_: '<div class="scroll" role="region" aria-label="Table" tabindex="0">\n<table>\n'
    rules["table_close"] = lambda *_: "</table>\n</div>\n"
    rules["fence"] = rules["code_block"] = lambda tokens, number, *_: _code(tokens[number])
    return parser


def _code(token: Token) -> str:
    return f'<pre tabindex="0"><code>{escape(token.content)}</code></pre>\n'


def _page(parser: MarkdownIt, root: Path, file: str, tokens: list[Token], files: Sequence[str]) -> DocPage:
    sections = _sections(tokens)
    linked: list[str] = []
    for token in _every(tokens):
        if token.type == "link_open":
            token.attrs["href"] = _address(root, str(token.attrs["href"]), files, linked)
        elif token.type in ("th_open", "td_open") and "style" in token.attrs:
            # The policy of the pages allows no styles but the one sheet's.
            token.attrs["class"] = "number" if "right" in str(token.attrs.pop("style")) else ""
    body = Markup(parser.renderer.render(tokens, parser.options, {}))
    title = sections[0].title if sections else file.removesuffix(".md")
    return DocPage(file, title, body, sections, tuple(dict.fromkeys(linked)))


def _every(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


def _sections(tokens: list[Token]) -> tuple[Section, ...]:
    """Give every heading its anchor, and return the sections."""
    found: list[tuple[int, str, str, list[str]]] = []
    taken: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            title = _words(tokens[number + 1])
            anchor = _anchor(title, taken)
            token.attrs["id"] = anchor
            found.append((int(token.tag[1:]), anchor, title, []))
        elif found and (token.type in ("fence", "code_block") or token.type == "inline"):
            found[-1][3].append(token.content if token.type != "inline" else _words(token))
    return tuple(
        Section(level, anchor, title, " ".join(" ".join(text).split())) for level, anchor, title, text in found
    )


def _words(token: Token) -> str:
    return "".join(" " if one.type == "softbreak" else one.content for one in token.children or ())


def _anchor(title: str, taken: dict[str, int]) -> str:
    """Return a heading's anchor, spelt as code hosts do it, so that `page.md#heading` leads to the same place."""
    anchor = _NOT_IN_ANCHORS.sub("", title.lower()).replace(" ", "-") or "section"
    count = taken.get(anchor, 0)
    taken[anchor] = count + 1
    return f"{anchor}-{count}" if count else anchor


def _address(root: Path, href: str, files: Sequence[str], linked: list[str]) -> str:
    """Return where a link of a page leads on the site: to a page, or to a file of the checkout, shown as text."""
    path, mark, anchor = href.partition("#")
    if _SCHEME.match(href) or not path:
        return href
    if path in files:
        return f"{quote(path.removesuffix('.md'))}.html{mark}{anchor}"
    below = posixpath.normpath(posixpath.join("docs", path))
    if below.startswith(("../", "/")) or below == ".." or not (root / below).is_file():
        return href
    linked.append(below)
    return f"../files/{quote(below)}.html{mark}{anchor}"


def _navigation(tokens: list[Token], files: Sequence[str]) -> Navigation:
    groups: list[tuple[str, list[tuple[str, str]]]] = []
    for number, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            groups.append((_words(tokens[number + 1]), []))
        elif token.type == "inline" and groups:
            groups[-1][1].extend(_links(token, files))
    return tuple((heading, tuple(links)) for heading, links in groups if links)


def _links(token: Token, files: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield (text, file) of the links to pages in an inline token, whose addresses were rewritten."""
    by_url: Mapping[str, str] = {f"{quote(file.removesuffix('.md'))}.html": file for file in files}
    children = token.children or []
    for number, child in enumerate(children):
        file = by_url.get(str(child.attrs.get("href", ""))) if child.type == "link_open" else None
        if file is not None:
            yield children[number + 1].content, file
