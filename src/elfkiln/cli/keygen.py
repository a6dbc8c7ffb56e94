"""`elfkiln keygen FILE`: make a signing key."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json
from elfkiln.errors import EXIT_DONE, Refused, one_line
from elfkiln.store.signing_keys import write_key_pair


def run(arguments: Arguments) -> int:
    """Write the pair, and print the public key as a policy takes it."""
    path = Path(arguments.words[0])
    public = write_key_pair(path, _passphrase() if "--passphrase" in arguments.flags else None)
    if arguments.json:
        print_json({"file": str(path), "ed25519": public})
    else:
        print(f"{one_line(path)}: private, keep it out of the repository\n{one_line(path)}.pub: {public}")
    return EXIT_DONE


def _passphrase() -> bytes:
    if not sys.stdin.isatty():
        raise Refused("keygen: --passphrase asks on a terminal, and this is not one")
    first, second = getpass.getpass("passphrase: "), getpass.getpass("again: ")
    if not first or first != second:
        raise Refused("keygen: the two passphrases differ, or are empty; run again")
    return first.encode()
