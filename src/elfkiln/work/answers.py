"""Answers kept in small files below out/index, each proven current before it is used; and hashing files in parts.

An answer's file is text, tab-separated:

    elfkiln-answer/1
    file    <path below the root>  <stamp>
    bytes   <path below the root>  <sha256 of the file>
    tree    <folder>  stamps|bytes  <sha256 over all its files>
    folder  <path>  <stamp>
    python  <prefix>  <version>
    answer
    ...                            the answer's own lines
    sha256 <of everything above>

It is current iff its last line fits and every input is what it was. A stamp is inode, size, mtime and ctime: no edit
leaves all four alone, except one within the clock tick of the edit before it. So what had changed less than `SLACK_NS`
before the answer was worked out is proven by its bytes instead (git calls this case racily clean). The folder of a
`tree` is one below the root, or `.` for this package: the code that worked the answer out. A `folder` is the one of
installed packages: its own stamp changes when one comes or goes.

Nothing heavy is imported here: a command that finds its answer is done in the time Python takes to start.
"""

from __future__ import annotations

import os
import sys

from elfkiln.io.reading import Unreadable, open_sized, read_bytes, reason_of
from elfkiln.project import INDEX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

try:
    # What hashlib itself takes, without its other algorithms: they cost as much as hashing a small set.
    from _hashlib import openssl_sha256 as sha256
except ImportError:
    from hashlib import sha256

HEADER = "elfkiln-answer/1"
SLACK_NS = 2_000_000_000
ABSENT = "absent"
IRREGULAR = "irregular"
_MOST_BYTES = 1 << 28
_PART = 1 << 20
_MOST_DEPTH = 20
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")
# Below this a pool of threads costs more than it saves.
_POOL_BYTES = 4 << 20
# A thread hands the interpreter's lock over at each open, read and close: with files shorter than this the threads wait
# for one another longer than they hash, and the longer the more files there are.
_POOL_FILE_BYTES = 32 << 10
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Proof:
    """What has been looked at already by this process, so that answers that share inputs look once."""

    __slots__ = ("root", "seen")

    def __init__(self, root: str) -> None:
        """Take the project's root."""
        self.root = root
        self.seen: dict[tuple[str, str], str] = {}

    def of(self, kind: str, place: str) -> str:
        """Return the stamp of a file, its sha256, or that of a tree's stamps or bytes, by `kind`."""
        key = (kind, place)
        if key not in self.seen:
            if kind == "file":
                self.seen[key] = stamp_of(os.path.join(self.root, place))
            elif kind == "bytes":
                self.seen[key] = digest_of(os.path.join(self.root, place))
            elif kind == "folder":
                self.seen[key] = folder_stamp(place)
            else:
                folder = _PACKAGE if place == "." else os.path.join(self.root, place)
                self.seen[key] = _tree_bytes(folder) if kind == "tree bytes" else _tree_stamps(folder)[0]
        return self.seen[key]


def answer_name(verb: str, model: str, target: str | None, layout: str | None) -> str | None:
    """Return the file name of the answer to a question, None for words that could name another file."""
    words = [model, target or "", layout or ""]
    if not model or model.startswith(".") or not all(_LETTERS.issuperset(word) for word in words):
        return None
    return f"{verb}/{'@'.join(words).rstrip('@')}.txt"


def read_answer(proof: Proof, name: str) -> list[str] | None:
    """Return the lines of an answer if there is one and it is current, else None."""
    try:
        data = read_bytes(os.path.join(proof.root, INDEX, name), _MOST_BYTES)
    except OSError:
        return None
    body = sealed_body(data)
    if body is None:
        return None
    # The seal holds, so these are the bytes that were written; anything unknown is another version's.
    lines = body.decode("utf-8", "surrogateescape").split("\n")
    if lines[0] != HEADER:
        return None
    for number, line in enumerate(lines):
        if line == "answer":
            return lines[number + 1 : -1]
        if number and not _holds(proof, line.split("\t")):
            return None
    return None


def sealed_body(data: bytes) -> bytes | None:
    """Return an answer's bytes without their seal, None when the seal is not theirs."""
    body, mark, last = data.rpartition(b"sha256\t")
    return body if mark and last == sha256(body).hexdigest().encode() + b"\n" else None


def _holds(proof: Proof, fields: list[str]) -> bool:
    kind, *rest = fields
    if kind in ("file", "bytes", "folder") and len(rest) == 2:
        return proof.of(kind, rest[0]) == rest[1]
    if kind == "python":
        return rest == python_in_use()
    if kind == "tree" and len(rest) == 3 and rest[1] in ("stamps", "bytes"):
        return proof.of(f"tree {rest[1]}", rest[0]) == rest[2]
    return False


def inputs_of(root: str, files: Iterable[str], trees: Iterable[str], now_ns: int) -> list[str]:
    """Return the lines that stand for the state of these inputs at `now_ns`, files and folders relative to the root."""
    lines = []
    young = now_ns - SLACK_NS
    for place in files:
        path = os.path.join(root, place)
        stamp = stamp_of(path)
        # A stamp ends in mtime and ctime.
        changed = max(map(int, stamp.split(" ")[2:]), default=0)
        lines.append(f"bytes\t{place}\t{digest_of(path)}" if changed > young else f"file\t{place}\t{stamp}")
    for place in trees:
        folder = _PACKAGE if place == "." else os.path.join(root, place)
        stamps, changed = _tree_stamps(folder)
        proof = f"bytes\t{_tree_bytes(folder)}" if changed > young else f"stamps\t{stamps}"
        lines.append(f"tree\t{place}\t{proof}")
    return lines


def answer_bytes(inputs: list[str], lines: list[str]) -> bytes:
    """Return the bytes of an answer's file."""
    body = "\n".join([HEADER, *inputs, "answer", *lines, ""]).encode("utf-8", "surrogateescape")
    return body + b"sha256\t" + sha256(body).hexdigest().encode() + b"\n"


def stamp_of(path: str) -> str:
    """Return a regular file's inode, size, mtime and ctime (ns) as text, `absent` or `irregular` otherwise."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return ABSENT
    if state.st_mode & 0o170000 != 0o100000:
        return IRREGULAR
    return f"{state.st_ino} {state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}"


def folder_stamp(path: str) -> str:
    """Return the stamp of a folder itself, which changes with what it holds by name."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return ABSENT
    return f"{state.st_ino} {state.st_mtime_ns} {state.st_ctime_ns}"


def python_in_use() -> list[str]:
    """Return the prefix and the version of the Python that runs."""
    return [sys.prefix, str(sys.hexversion)]


def _files_below(folder: str) -> list[tuple[str, os.DirEntry[str]]]:
    """Return every file of a tree with its relative path, sorted; what Python and editors leave behind is left out."""
    found = []
    folders = [(folder, "", 0)]
    while folders:
        path, prefix, depth = folders.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = entry.name
                    if name[0] == "." or name == "__pycache__":
                        continue
                    if not entry.is_dir():
                        found.append((prefix + name, entry))
                    elif depth < _MOST_DEPTH:
                        # Deeper there is a link that leads upwards.
                        folders.append((entry.path, f"{prefix}{name}/", depth + 1))
        except OSError:
            continue
    found.sort(key=lambda pair: pair[0])
    return found


def _tree_stamps(folder: str) -> tuple[str, int]:
    """Return the sha256 over the stamps of all files of a tree, and when the last of them changed (ns)."""
    last = 0
    stamps: list[tuple[str, int, int, int, int]] = []
    for name, entry in _files_below(folder):
        try:
            state = entry.stat()
        except OSError:
            stamps.append((name, 0, 0, 0, 0))
            continue
        mtime, ctime = state.st_mtime_ns, state.st_ctime_ns
        last = max(last, mtime, ctime)
        stamps.append((name, state.st_ino, state.st_size, mtime, ctime))
    return sha256(repr(stamps).encode("utf-8", "surrogateescape")).hexdigest(), last


def _tree_bytes(folder: str) -> str:
    """Return the sha256 over names and bytes of all files of a tree."""
    parts = [(name, digest_of(entry.path)) for name, entry in _files_below(folder)]
    return sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()


def digest_of(path: str) -> str:
    """Return a regular file's sha256 in hex, or `absent` when there is none that can be read."""
    found = look_at(path, None)
    return found if len(found) == 64 else ABSENT


def look_at(path: str, size: int | None, *, follow: bool = True) -> str:
    """Return a regular file's sha256 in hex, or in words that no sha256 begins with why there is none.

    `absent: ...`, `irregular: <what it is>`, or `size: <bytes>` when `size` is given and it has another one: then no
    byte is read. With `follow` off a symbolic link is irregular too. The file is read in parts, whatever its size.
    """
    try:
        descriptor, left = open_sized(path, follow=follow)
    except (FileNotFoundError, NotADirectoryError):
        return f"{ABSENT}: no such file"
    except Unreadable as error:
        reason = reason_of(error)
        kind = reason.removeprefix("not a regular file (").removesuffix(")")
        return f"{ABSENT}: {reason}" if kind == reason else f"{IRREGULAR}: {kind}"
    except OSError as error:
        return f"{ABSENT}: cannot be read ({reason_of(error)})"
    try:
        if size is not None and left != size:
            return f"size: {left}"
        digest = sha256()
        # One byte more than there should be: so that a file that grows meanwhile is hashed to its end, and the end of
        # one that does not is seen without asking again.
        while part := os.read(descriptor, asked := min(left + 1, _PART)):
            digest.update(part)
            left = max(left - len(part), 0)
            if not left and len(part) < asked:
                break
        return digest.hexdigest()
    except OSError as error:
        return f"{ABSENT}: cannot be read ({reason_of(error)})"
    finally:
        os.close(descriptor)


def look_at_all(wanted: dict[str, int], *, follow: bool = True) -> dict[str, str]:
    """Return `look_at` of every path, given with the size it should have; long files of large sets on all cores.

    hashlib lets go of the interpreter's lock while it hashes, so threads are enough. Short files are hashed by the
    caller's thread alone.
    """

    def look(path: str) -> str:
        return look_at(path, wanted[path], follow=follow)

    shared: dict[str, int] = {}
    if sum(wanted.values()) >= _POOL_BYTES:
        shared = {path: size for path, size in wanted.items() if size >= _POOL_FILE_BYTES}
    if len(shared) < 2 or sum(shared.values()) < _POOL_BYTES:
        shared = {}
    found = _on_all_cores(look, shared) if shared else {}
    for path in wanted:
        if path not in shared:
            found[path] = look(path)
    return found


def _on_all_cores(look: Callable[[str], str], wanted: dict[str, int]) -> dict[str, str]:
    from threading import Thread

    # The longest first, so that no thread is left with one at the end.
    rest = iter(sorted(wanted, key=lambda path: -wanted[path]))
    found: dict[str, str] = {}

    def work() -> None:
        # One iterator for all: `next` on it is one step under the interpreter's lock.
        for path in rest:
            found[path] = look(path)

    threads = [Thread(target=work) for _ in range(min(os.cpu_count() or 1, len(wanted)) - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    return found
