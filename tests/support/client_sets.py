"""Model folders for the client's tests, and DSSE signatures on them, made by hand."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import random

import ed25519_signer as ed
from plan_data import plan_data

QKV = "full_i8_QKV_K256_N1024_b8.elf"
TWIN = "full_i8_QKV_K256_N1024_b8_m16.elf"
# What plan_data() asks for, without tag and ending.
GEMMS = (
    *("QKV_K256_N1024", "QKV_K256_N1280", "Z_K256_N512", "O_K512_N256"),
    *("G_K256_N768", "U_K256_N768", "D_K768_N256"),
)
PATHS = (
    *(f"kernels/full_i8_{name}_b8.elf" for name in GEMMS),
    *(f"kernels-m16/full_i8_{name}_b8_m16.elf" for name in GEMMS),
)
VSA = "https://slsa.dev/verification_summary/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
STATEMENT = "https://in-toto.io/Statement/v1"
IN_TOTO = "application/vnd.in-toto+json"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def make_set(folder, **changes):
    """Write plan.json (`changes` as in plan_data), the ELFs it asks for and kernels.lock.json; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan_data(**changes)))
    rng = random.Random(3)
    for path in PATHS:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"\x7fELF" + rng.randbytes(rng.randrange(5000, 9000)))
    write_lock(folder, PATHS)
    return folder


def write_lock(folder, paths, target="sim"):
    """Write kernels.lock.json over files that are there."""
    rows = {}
    for path in paths:
        data = (folder / path).read_bytes()
        rows[path] = {"elf": f"sha256:{sha256(data)}", "size": len(data), "recipe": f"sha256:{'0' * 64}"}
    write_lock_table(folder, lock_table(rows, target))


def lock_table(artifacts, target="sim"):
    """Return the table of a kernels.lock.json."""
    sets = [{"model": "tiny", "layout": "b8"}]
    return {"schema": "elfkiln-kernels-lock/1", "target": target, "sets": sets, "artifacts": artifacts}


def read_lock_table(folder):
    return json.loads((folder / "kernels.lock.json").read_bytes())


def write_lock_table(folder, table):
    (folder / "kernels.lock.json").write_text(json.dumps(table, indent=2, sort_keys=True) + "\n")


def places(value, place=()):
    """Yield the keys and positions that lead to every value within a value."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*place, key))


def mutant(rng, table, values, keys):
    """Return a copy of a JSON object with up to three of its fields dropped, added or changed."""
    table = copy.deepcopy(table)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        *parents, last = rng.choice([place for place in places(table) if place])
        where = table
        for step in parents:
            where = where[step]
        match rng.randrange(4):
            case 0:
                del where[last]
            case 1 if isinstance(where[last], dict):
                where[last][rng.choice(keys)] = copy.deepcopy(rng.choice(values))
            case 2 if type(where[last]) is int:
                where[last] = where[last] * rng.choice([1, 2, 3]) + rng.choice([0, 1, 64, 128])
            case _:
                where[last] = copy.deepcopy(rng.choice(values))
    return table


# --- signatures ---


def seed_of(name):
    """Return the secret key of a name."""
    return hashlib.sha256(name.encode()).digest()


def policy_key(name, *roles, expires="2100-01-01T00:00:00Z", **changes):
    """Return a key of a policy."""
    key = base64.b64encode(ed.public_key(seed_of(name))).decode()
    return {"name": name, "ed25519": key, "roles": list(roles), "expires": expires} | changes


def policy_rule(role, threshold=1, predicate=VSA, target="sim"):
    """Return a rule of a policy."""
    return {"target": target, "predicate": predicate, "role": role, "threshold": threshold}


def policy_table(keys, rules):
    """Return a policy."""
    return {"schema": "elfkiln-policy/1", "keys": keys, "rules": rules}


def statement(digest, predicate=VSA, **changes):
    """Return an in-toto statement about a kernels.lock.json of that digest."""
    says = {"verificationResult": "PASSED"} if predicate == VSA else {"result": "PASSED"}
    return {
        "_type": STATEMENT,
        "subject": [{"name": "kernels.lock.json", "digest": {"sha256": digest}}],
        "predicateType": predicate,
        "predicate": says,
    } | changes


def pae(kind, payload):
    """Return what a DSSE signature is over."""
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)


def envelope(payload, *signers, kind=IN_TOTO, keyid=None):
    """Return a DSSE envelope over bytes, or over a statement as JSON."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    signatures = [
        {"keyid": keyid or name, "sig": base64.b64encode(ed.sign(seed_of(name), pae(kind, data))).decode()}
        for name in signers
    ]
    return {"payloadType": kind, "payload": base64.b64encode(data).decode(), "signatures": signatures}


def write_signatures(folder, *envelopes):
    """Write the envelopes beside the folder's lock, one a line."""
    lines = [one if isinstance(one, str) else json.dumps(one) for one in envelopes]
    (folder / "kernels.lock.intoto.jsonl").write_text("".join(f"{line}\n" for line in lines))


def lock_digest(folder):
    return sha256((folder / "kernels.lock.json").read_bytes())
