"""Puts the site into its folder: written beside it, then renamed into its place, so that no reader meets a half of it.

A folder of ours bears a mark (`.elfkiln-site`). Nothing else is ever replaced: a folder without the mark is refused
unless it is empty, and so is a file or a symbolic link.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import brief, refusal
from elfkiln.io.files import PART, storage_refusal
from elfkiln.io.locking import locked
from elfkiln.io.reading import kind_of
from elfkiln.io.workspace import private_folder, sweep
from elfkiln.project import Project
from elfkiln.work.site.pages import site_files

MARK = ".elfkiln-site"
_MARK_TEXT = b"elfkiln-site/1: made by `elfkiln site`, which replaces this folder as a whole\n"


@dataclass(frozen=True, slots=True)
class PlacedSite:
    """A site that was written: its folder, how many files and bytes, and how many of the files are pages."""

    out: Path
    files: int
    pages: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"out": str(self.out), "files": self.files, "pages": self.pages, "bytes": self.bytes}


def make_site(project: Project, out: Path) -> PlacedSite:
    """Write the site of a project to the folder `out`, in place of an earlier one.

    Raises `Refused` when `out` is something that `elfkiln site` did not make, lies where it would hide the project, or
    cannot be written, and what `site_files` raises; the earlier site then stands as it was.
    """
    place = out.absolute()
    _require_ours(place)
    if project.root.resolve().is_relative_to(place.resolve()):
        raise refusal("out", expected="a folder of its own", found=f"{brief(out)}, which holds the checkout")
    files = site_files(project)
    with locked(place.parent / f".{place.name}.lock", f"the site in {brief(out)}", keep=False):
        _replace(place, files)
    pages = sum(path.endswith(".html") for path in files)
    return PlacedSite(out, len(files), pages, sum(map(len, files.values())))


def _replace(place: Path, files: Mapping[str, bytes]) -> None:
    prefix = f"{PART}{place.name}-"
    sweep(place.parent, begins=(prefix,))
    with private_folder(place.parent, prefix) as work:
        made, old = work / "new", work / "old"
        try:
            for path, data in (*files.items(), (MARK, _MARK_TEXT)):
                target = made / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            _require_ours(place)
            if place.exists():
                place.rename(old)
            made.rename(place)
        except OSError as error:
            raise storage_refusal(place, error) from error
        finally:
            if old.exists() and not place.exists():
                old.rename(place)


def _require_ours(place: Path) -> None:
    """Raise `Refused` unless a place is a folder of ours, an empty one, or nothing."""
    try:
        mode = place.lstat().st_mode
        if stat.S_ISDIR(mode):
            if (place / MARK).is_file() or not any(place.iterdir()):
                return
            found = f"a folder without {MARK}, which `elfkiln site` did not make"
        else:
            found = kind_of(mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_refusal(place, error) from error
    raise refusal(
        f"out={brief(place)}",
        expected="a folder that `elfkiln site` made, an empty one, or nothing",
        found=found,
        remedy="name another folder",
    )
