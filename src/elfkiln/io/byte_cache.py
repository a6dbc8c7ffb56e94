"""What was made before, by the digest of everything that decides it, verified each time it is used; safe to delete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elfkiln.io.canonical import sha256_hex
from elfkiln.io.files import storage_refusal, write_atomic
from elfkiln.io.locking import free_lock, locked


@dataclass(frozen=True, slots=True)
class ByteCache:
    """A folder of files named `<key>.<sha256 of the bytes><suffix>`: a name says what its bytes must be.

    Entries appear by rename, so processes may share the folder; of two that miss at once one makes it, and the other
    waits.
    """

    folder: Path
    suffix: str

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the bytes of a key, from the cache if they verify, else from `make`, which are then kept.

        Raises `Refused` when the folder cannot be used, and whatever `make` raises.
        """
        found = self.find(key)
        if found is None:
            # Who makes it is most often another process of the same build: nothing to tell anybody.
            with locked(self._lock(key), f"the cache entry {key[:12]}", note=lambda _: None):
                found = self._made(key, make)
        return found

    def try_get(self, key: str, make: Callable[[], bytes]) -> bytes | None:
        """Return what `get` does, but None at once when another process is just making it."""
        found = self.find(key)
        if found is not None:
            return found
        lock = self._lock(key)
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_refusal(lock.parent, error) from error
        with free_lock(lock) as free:
            return self._made(key, make) if free else None

    def _made(self, key: str, make: Callable[[], bytes]) -> bytes:
        # Another process may have made it while this one waited.
        found = self.find(key)
        if found is None:
            found = make()
            self.keep(key, found)
        return found

    def _lock(self, key: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.locks") / f"{key}.lock"

    def find(self, key: str) -> bytes | None:
        """Return the bytes kept for a key, None when there are none; what does not verify is removed."""
        for path in sorted(self.folder.glob(f"{key}.*{self.suffix}")):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise storage_refusal(path, error) from error
            if path.name == self._name(key, data):
                return data
            path.unlink(missing_ok=True)
        return None

    def keep(self, key: str, data: bytes) -> None:
        """Keep the bytes of a key; `Refused` when they cannot be written."""
        write_atomic(self.folder / self._name(key, data), data)

    def _name(self, key: str, data: bytes) -> str:
        return f"{key}.{sha256_hex(data)}{self.suffix}"
