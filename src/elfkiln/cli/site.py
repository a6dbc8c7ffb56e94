"""`elfkiln site`: the catalogue as a static site, written to a folder."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of
from elfkiln.errors import EXIT_DONE, one_line
from elfkiln.work.site.placing import make_site


def run(arguments: Arguments) -> int:
    """Write the site, and say where its first page is."""
    project = project_of(arguments)
    out = arguments.keys.get("out")
    made = make_site(project, Path(out) if out else project.out / "site")
    if arguments.json:
        print_json(made.to_json())
    else:
        print(f"{made.pages} pages, {made.files} files, {made.bytes:,} bytes; open {one_line(made.out / 'index.html')}")
    return EXIT_DONE
