"""Compiled objects by the digest of everything that decides them, verified each time one is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elfkiln.io.canonical import sha256_hex
from elfkiln.io.files import storage_refusal, write_atomic


@dataclass(frozen=True, slots=True)
class ObjectCache:
    """A folder of objects named `<key>.<sha256 of the bytes>.o`: a name says what its bytes must be.

    Entries appear by rename, so processes may share the folder; two that miss at once both compile, to equal bytes.
    """

    folder: Path

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the object of a key, from the cache if its bytes verify, else from `make`, which is then kept.

        Raises `Refused` when the folder cannot be used, and whatever `make` raises.
        """
        for path in sorted(self.folder.glob(f"{key}.*.o")):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise storage_refusal(path, error) from error
            if path.name == _name(key, data):
                return data
            path.unlink(missing_ok=True)
        data = make()
        write_atomic(self.folder / _name(key, data), data)
        return data


def _name(key: str, data: bytes) -> str:
    return f"{key}.{sha256_hex(data)}.o"
