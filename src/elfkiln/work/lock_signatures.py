"""kernels.lock.intoto.jsonl: who vouches for a model folder's kernels.lock.json, and with it for every ELF it lists.

The file is an in-toto attestation bundle: DSSE envelopes, one a line. Each holds a statement whose subject is
kernels.lock.json by sha256. That file binds names, digests and target, so one signature holds for the whole set, and no
right file can be passed off under another name. `client/elfkiln.h` holds it against an engine's policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from elfkiln.errors import Differs, Refused, refusal
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.files import write_atomic
from elfkiln.io.locking import locked
from elfkiln.io.reading import read_regular, reason_of, sha256_of
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.attestations import statement
from elfkiln.store.dsse import Envelope, read_envelope, seal
from elfkiln.store.statement_types import SUMMARY
from elfkiln.work.kernels_lock import LOCK_NAME, MAX_BYTES, KernelsLock, read_kernels_lock

SIGNATURES_NAME = "kernels.lock.intoto.jsonl"
MOST_ENVELOPES = 64
_VERIFIER = "urn:elfkiln:sign:1"
_POLICY = "urn:elfkiln:kernels-lock:1"


@dataclass(frozen=True, slots=True)
class SignedLock:
    """What signing a folder's lock came to: the file written, the lock's digest, its rows, and all envelopes on it."""

    path: str
    digest: str
    files: int
    envelopes: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "path": self.path,
            "lock": f"sha256:{self.digest}",
            "files": self.files,
            "envelopes": self.envelopes,
        }


def sign_lock(folder: Path, key: Ed25519PrivateKey) -> SignedLock:
    """Verify that a model folder holds what its kernels.lock.json lists, and say so under a key.

    The statement is a verification summary (SLSA VSA v1) with the result PASSED. Envelopes of other keys on the same
    lock stay; those on an earlier lock go. Raises `Differs` naming the first file that is missing or has other bytes,
    and `Refused` for a folder without a lock of elfkiln's own spelling.
    """
    lock_file, path = folder / LOCK_NAME, folder / SIGNATURES_NAME
    if not folder.is_dir():
        raise refusal(f"dir={folder}", expected="a model folder", found="no folder of that name")
    with locked(folder / f".{LOCK_NAME}.lock", f"the folder {folder}", keep=False):
        lock = read_kernels_lock(lock_file)
        if lock is None:
            raise Refused(f"{lock_file}: missing; install the set first")
        data = read_regular(lock_file, limit=MAX_BYTES)
        if data != lock.to_bytes():
            raise refusal(str(lock_file), expected="the file as install writes it", found="another spelling")
        _verify(folder, lock)
        digest = sha256_hex(data)
        predicate = {
            "verifier": {"id": _VERIFIER},
            "resourceUri": f"urn:elfkiln:target:{lock.target}",
            "policy": {"uri": _POLICY},
            "verificationResult": "PASSED",
            "verifiedLevels": [],
        }
        line = seal(statement(LOCK_NAME, digest, SUMMARY, predicate), [key])
        earlier = [one for one in _lines(path) if _is_about(read_envelope(one, str(path)), digest)]
        lines = list(dict.fromkeys((*earlier, line)))
        if len(lines) > MOST_ENVELOPES:
            raise refusal(str(path), expected=f"at most {MOST_ENVELOPES} envelopes", found=len(lines))
        write_atomic(path, b"".join(one + b"\n" for one in lines))
    return SignedLock(str(path), digest, len(lock.rows), len(lines))


def _lines(path: Path) -> list[bytes]:
    if not path.exists() and not path.is_symlink():
        return []
    lines = [line for line in read_regular(path, limit=MAX_BYTES, remedy="move it away").split(b"\n") if line]
    if len(lines) > MOST_ENVELOPES:
        raise refusal(str(path), expected=f"at most {MOST_ENVELOPES} envelopes", found=len(lines))
    return lines


def _verify(folder: Path, lock: KernelsLock) -> None:
    for path, row in sorted(lock.rows.items()):
        place = folder / path
        try:
            found = sha256_of(place, limit=row.size)
        except OSError as error:
            raise Differs(f"missing full ELF {place} ({reason_of(error)}); nothing was signed") from error
        if found != row.elf:
            why = f"expected sha256:{row.elf}, found sha256:{found}"
            raise Differs(f"missing full ELF {place} ({why}); nothing was signed")


def _is_about(envelope: Envelope, digest: str) -> bool:
    """Whether an envelope's statement is about a lock of that digest; whether it is to be trusted is not asked."""
    try:
        table = parse_strict_json(envelope.payload, "statement")
    except Refused:
        return False
    subjects = table.get("subject") if isinstance(table, dict) else None
    digests = [one.get("digest") for one in subjects if isinstance(one, dict)] if isinstance(subjects, list) else []
    return any(isinstance(one, dict) and one.get("sha256") == digest for one in digests)
