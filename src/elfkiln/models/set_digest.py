"""One digest for a set of files, as coreutils would make it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from elfkiln.errors import refusal
from elfkiln.io.canonical import sha256_hex

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


def set_digest(entries: Iterable[tuple[str, str]]) -> str:
    """Return one digest for a set of files, whatever their order.

    `entries` are (path below the model folder, sha256 of the bytes). The digest is the sha256 of the lines
    `<sha256>  <path>` sorted as bytes, each ended by a newline: what `sha256sum FILES | LC_ALL=C sort | sha256sum`
    prints. Raises `Refused` for a digest that is not a sha256, a path that is absolute or has a line break, and one
    path under two digests; a repeated equal entry counts once.

    >>> set_digest([("kernels/a.elf", "0" * 64), ("b.elf", "1" * 64)]) == set_digest([("b.elf", "1" * 64),
    ...                                                                             ("kernels/a.elf", "0" * 64)])
    True
    """
    digests: dict[str, str] = {}
    for path, digest in entries:
        if _SHA256.fullmatch(digest) is None:
            raise refusal(f"digest of {path}", expected="a sha256 in hex", found=repr(digest))
        if not path or path.startswith("/") or "\\" in path or not path.isprintable():
            raise refusal("set of files", expected="relative paths on one line", found=repr(path))
        if digests.setdefault(path, digest) != digest:
            raise refusal(f"set of files: {path}", expected="one digest", found=f"{digests[path]} and {digest}")
    lines = sorted(f"{digest}  {path}\n".encode() for path, digest in digests.items())
    return sha256_hex(b"".join(lines))
