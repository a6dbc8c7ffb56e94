"""Signing keys: ed25519 private keys in PEM files that only their owner can read, and the texts of public ones.

A key comes from a file path or from an environment variable that holds the PEM; it never enters the repository, a log
or a message. A passphrase is asked for on a terminal only.
"""

from __future__ import annotations

import base64
import getpass
import os
import stat
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from elfkiln.errors import Refused, refusal
from elfkiln.io.files import storage_refusal, sync_folder
from elfkiln.io.reading import read_regular

ENVIRONMENT = "ELFKILN_SIGNING_KEY"
_MOST_BYTES = 1 << 16
_PRIVATE = 0o600


def write_key_pair(path: Path, passphrase: bytes | None = None) -> str:
    """Make a key, write it to the new file `path` (mode 0600) and its public text to `path`.pub; return that text.

    Raises `Refused` when one of them is there already: a key is never overwritten.
    """
    key = Ed25519PrivateKey.generate()
    public = public_text(key.public_key())
    hidden: KeySerializationEncryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)
    other = path.with_name(f"{path.name}.pub")
    _write_new(other, f"{public}\n".encode(), 0o644)
    try:
        _write_new(path, pem, _PRIVATE)
    except Refused:
        other.unlink(missing_ok=True)
        raise
    return public


def public_text(key: Ed25519PublicKey) -> str:
    """Return a public key as a policy has it: base64 of its 32 bytes."""
    return base64.b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def load_key(path: Path | None) -> Ed25519PrivateKey:
    """Return the private key of a file, or of the environment variable when there is no path.

    Raises `Refused` for a file that others can read, that is not an ed25519 key in PEM, or whose passphrase is wrong
    or cannot be asked for.
    """
    if path is None:
        text = os.environ.get(ENVIRONMENT, "")
        if not text:
            raise Refused(
                f"key=: expected a key file, or the PEM in {ENVIRONMENT}, found neither; make one with keygen"
            )
        return _parse(text.encode(), ENVIRONMENT)
    data = read_regular(path, limit=_MOST_BYTES, remedy="name a key that keygen made")
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise storage_refusal(path, error) from error
    if mode & 0o077:
        raise refusal(f"{path}: mode", expected="0600", found=f"{mode:04o}", remedy=f"run chmod 600 {path}")
    return _parse(data, str(path))


def _parse(data: bytes, where: str) -> Ed25519PrivateKey:
    try:
        try:
            key = load_pem_private_key(data, password=None)
        except TypeError:
            key = load_pem_private_key(data, password=_ask(where))
    except ValueError:
        raise Refused(f"{where}: expected an ed25519 key in PEM (and its passphrase), found something else") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise refusal(where, expected="an ed25519 key", found="a key of another kind")
    return key


def _ask(where: str) -> bytes:
    if not sys.stdin.isatty():
        raise Refused(f"{where}: has a passphrase, which is asked for on a terminal only; use a key without one here")
    return getpass.getpass(f"passphrase of {where}: ").encode()


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with open(descriptor, "wb") as stream:
            # Whatever the umask says: a private key is its owner's, a public one everybody's.
            os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(path.parent)
    except FileExistsError:
        raise refusal(str(path), expected="a new file", found="one that is there", remedy="name another") from None
    except OSError as error:
        raise storage_refusal(path, error) from error
