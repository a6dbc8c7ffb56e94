"""`elfkiln sign`: seal what is said about ELFs with a key or as an identity, or vouch for an installed set."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.attestations import rows_of
from elfkiln.cli.common import print_json, project_of
from elfkiln.errors import EXIT_DONE, Refused, one_line
from elfkiln.store.signing_keys import load_key
from elfkiln.store.sigstore_signer import IdentitySigner, find_token
from elfkiln.work.lock_signatures import sign_lock
from elfkiln.work.trust import sign, sign_as


def run(arguments: Arguments) -> int:
    """Sign, and say how many statements were sealed."""
    if "dir" in arguments.keys:
        return _sign_folder(arguments)
    if "identity" in arguments.keys or "trust" in arguments.keys:
        return _sign_as(arguments)
    project = project_of(arguments)
    key = load_key(Path(arguments.keys["key"]) if "key" in arguments.keys else None)
    rows = rows_of(arguments, "sign")
    made = sign(project, rows, key)
    if arguments.json:
        print_json({"names": len(rows), "signed": made})
    else:
        print(f"{len(rows)} names: {made} statements signed")
    return EXIT_DONE


def _sign_as(arguments: Arguments) -> int:
    keys = arguments.keys
    if "key" in keys:
        raise Refused("sign: takes key=, or identity= and trust=, not both")
    if "identity" not in keys or "trust" not in keys:
        raise Refused(
            "sign: identity= and trust= go together: who signs, and the services of which sigstore make it so"
        )
    project, rows = project_of(arguments), rows_of(arguments, "sign")
    signer = IdentitySigner(Path(keys["trust"]), find_token(keys["identity"]))
    made = sign_as(project, rows, signer)
    who = signer.identity
    if arguments.json:
        print_json({"names": len(rows), "signed": made, "identity": who.name, "issuer": who.issuer})
    else:
        print(f"{len(rows)} names: {made} statements signed as {one_line(who)}")
    return EXIT_DONE


def _sign_folder(arguments: Arguments) -> int:
    if "identity" in arguments.keys:
        raise Refused("sign: dir= signs for an engine, whose client verifies keys alone; give key=")
    others = [*(f"{key}=" for key in arguments.keys if key not in ("dir", "key", "root")), *arguments.words]
    if others:
        raise Refused(f"sign: dir= vouches for the files of a folder and does not go with {others[0]}")
    key = load_key(Path(arguments.keys["key"]) if "key" in arguments.keys else None)
    done = sign_lock(Path(arguments.keys["dir"]), key)
    if arguments.json:
        print_json(done.to_json())
    else:
        print(
            f"{done.files} files verified; {one_line(done.path)} has {done.envelopes} envelopes on sha256:{done.digest}"
        )
    return EXIT_DONE
