"""Policies: which keys vouch for what, how many are needed, and until when.

    {"schema": "elfkiln-policy/1",
     "keys":  [{"name": "ci", "ed25519": "<base64 of 32 bytes>", "roles": ["builder"],
                "expires": "2027-06-30T00:00:00Z"}],
     "rules": [{"target": "npu2", "predicate": "https://slsa.dev/provenance/v1", "role": "builder", "threshold": 1}]}

Every rule of a target must be met by each digest. What no rule speaks of is not trusted; a field that is not known is
refused, since a misspelt one must not weaken a policy. `client/elfkiln.h` reads the same file by the same rules.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from elfkiln.errors import Differs, Refused
from elfkiln.io.checked import Value
from elfkiln.io.strict_json import parse_strict_json, read_strict_json
from elfkiln.store.dsse import Envelope, key_id, signers
from elfkiln.store.statement_types import STATEMENT_TYPE, SUMMARY, TEST_RESULT

SCHEMA = "elfkiln-policy/1"
_MOST_BYTES = 1 << 20
_MOST = 32
# The curve of ed25519: its field, its constant, and the lesser y of its points of order 8 (RFC 8032, section 5.1).
_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_ORDER_8_Y = 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """A key that a policy knows: its name for people, itself, what it may vouch as, and until when."""

    name: str
    key: Ed25519PublicKey
    roles: tuple[str, ...]
    expires: datetime


@dataclass(frozen=True, slots=True)
class Rule:
    """For a target, `threshold` keys of a role must have signed a statement with this predicate type."""

    target: str
    predicate: str
    role: str
    threshold: int


@dataclass(frozen=True, slots=True)
class Policy:
    """Keys and rules of one policy file."""

    where: str
    keys: tuple[PolicyKey, ...]
    rules: tuple[Rule, ...]

    def require(
        self,
        target: str,
        digest: str,
        envelopes: Iterable[Envelope],
        now: datetime,
        what: str,
        *,
        no_failures: bool = False,
    ) -> None:
        """Raise `Differs` unless every rule of the target is met for a digest by these envelopes.

        `what` names the thing in messages. The line says which rule is not met, and why each signature that is there
        does not count: another key, a key of another role, an expired one, another digest, a result that is bad.
        With `no_failures` a test result that is FAILED, signed by a key of the role, is not outweighed by others; an
        installed set's signatures (`client/elfkiln.h` reads them too) are judged without.
        """
        rules = [rule for rule in self.rules if rule.target == target]
        if not rules:
            raise Differs(
                f"{what}: {self.where} has no rule for target {target}; what no rule speaks of is not trusted"
            )
        seen = [self._look(envelope, digest) for envelope in envelopes]
        for rule in rules:
            good = self._voters(rule, seen, now)
            if bad := sorted(self._adverse(rule, seen, now)) if no_failures else []:
                raise Differs(
                    f"{what}: {rule.predicate}: {', '.join(bad)} signed a result that is FAILED ({self.where})"
                )
            if len(good) < rule.threshold:
                raise Differs(f"{what}: {self._why(rule, good, seen, now)}")

    def _voters(self, rule: Rule, seen: list[_Seen], now: datetime) -> set[str]:
        able = {key.name for key in self.keys if rule.role in key.roles and now < key.expires}
        return {
            name
            for one in seen
            if one.problem is None and one.predicate == rule.predicate
            for name in one.signers
            if name in able
        }

    def _adverse(self, rule: Rule, seen: list[_Seen], now: datetime) -> set[str]:
        """Return the keys that could meet a rule and say the opposite: a check that passed hides none that failed."""
        able = {key.name for key in self.keys if rule.role in key.roles and now < key.expires}
        return {name for one in seen if one.failed and one.predicate == rule.predicate for name in one.signers & able}

    def _look(self, envelope: Envelope, digest: str) -> _Seen:
        who = signers(envelope, {key.name: key.key for key in self.keys})
        if not who:
            named = sorted(key.name for key in self.keys if key_id(key.key) in envelope.hints)
            if named:
                what = f"names {', '.join(named)} and does not fit: statement or signature was changed"
                return _Seen(who, "", f"a signature that {what}")
            return _Seen(who, "", "signed by no key of the policy")
        try:
            table = parse_strict_json(envelope.payload, "statement")
        except Refused as refused:
            return _Seen(who, "", f"not a statement ({refused})")
        if not isinstance(table, dict) or table.get("_type") != STATEMENT_TYPE:
            return _Seen(who, "", "not an in-toto statement of version 1")
        kind = str(table.get("predicateType", ""))
        if digest not in _subjects(table):
            return _Seen(who, kind, "about another digest")
        if not _favourable(kind, table.get("predicate")):
            return _Seen(who, kind, "its result is not PASSED", failed=_failed(kind, table.get("predicate")))
        return _Seen(who, kind, None)

    def _why(self, rule: Rule, good: set[str], seen: list[_Seen], now: datetime) -> str:
        need = f"{rule.threshold} of role {rule.role}"
        line = f"{rule.predicate}: expected signatures by {need} ({self.where}), found {len(good)}"
        if not seen:
            return f"{line}: it has no signed statement"
        reasons = []
        keys = {key.name: key for key in self.keys}
        for one in seen:
            who = ", ".join(sorted(one.signers))
            if one.problem is not None:
                reasons.append(f"{who}: {one.problem}" if who else one.problem)
            elif one.predicate != rule.predicate:
                reasons.append(f"{who}: a statement of type {one.predicate}")
            else:
                for name in sorted(one.signers - good):
                    expired = now >= keys[name].expires
                    reasons.append(f"{name}: {'expired' if expired else f'not of role {rule.role}'}")
        return f"{line}: {'; '.join(dict.fromkeys(reasons)) or 'too few'}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a policy sees in an envelope: who signed, the predicate's type, why it does not count (None: it may)."""

    signers: frozenset[str]
    predicate: str
    problem: str | None
    failed: bool = False


def read_policy(path: Path) -> Policy:
    """Return the policy of a file; raises `Refused` naming the field that does not fit."""
    return parse_policy(read_strict_json(path, limit=_MOST_BYTES), str(path))


def parse_policy(raw: Any, where: str) -> Policy:
    """Return the policy that a parsed JSON value says, as `read_policy` does."""
    top = Value(raw, where)
    top.table(("schema", "keys", "rules"))
    top["schema"].choice((SCHEMA,))
    keys = tuple(_key(item) for item in _some(top["keys"]))
    for number, key in enumerate(keys):
        if any(key.name == other.name or key.key == other.key for other in keys[:number]):
            raise top["keys"].refuse("each key with a name of its own", f"{key.name} again")
    rules = tuple(_rule(item, keys) for item in _some(top["rules"]))
    return Policy(where, keys, rules)


def _some(value: Value) -> list[Value]:
    items = value.items(least=1)
    if len(items) > _MOST:
        raise value.refuse(f"at most {_MOST} of them", len(items))
    return items


def _key(value: Value) -> PolicyKey:
    value.table(("name", "ed25519", "roles", "expires"))
    text = value["ed25519"].text()
    try:
        raw = base64.b64decode(text, validate=True)
        key = Ed25519PublicKey.from_public_bytes(raw) if base64.b64encode(raw) == text.encode() else None
    except ValueError:
        key = None
    if key is None:
        raise value["ed25519"].refuse("a public key: base64 of 32 bytes", "something else")
    if not _is_sound(raw):
        raise value["ed25519"].refuse("a point of the curve, of the full order", "another one")
    roles = value["roles"].texts()
    if not roles:
        raise value["roles"].refuse("a list of roles that is not empty")
    return PolicyKey(value["name"].text(), key, roles, _time(value["expires"]))


def _is_sound(raw: bytes) -> bool:
    """Whether 32 bytes are a point of the curve, in its one spelling, whose order does not divide 8.

    A key of such an order accepts one signature for many messages, so in a policy it would vouch for anything; the
    library that verifies takes it all the same. There are eight of them, with five values of y.
    """
    number = int.from_bytes(raw, "little")
    y, odd = number % 2**255, number >> 255
    if y >= _P or min(y, _P - y) in (0, 1, _ORDER_8_Y):
        return False
    x_squared = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    return pow(x_squared, (_P - 1) // 2, _P) == 1 and (x_squared != 0 or not odd)


def _rule(value: Value, keys: tuple[PolicyKey, ...]) -> Rule:
    value.table(("target", "predicate", "role", "threshold"))
    role = value["role"].text()
    able = sum(role in key.roles for key in keys)
    if not able:
        raise value["role"].refuse("a role that a key of the policy has", role)
    threshold = value["threshold"].whole(least=1, most=able)
    return Rule(value["target"].text(), value["predicate"].text(), role, threshold)


def _time(value: Value) -> datetime:
    text = value.text()
    try:
        time = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        time = None
    # One spelling of a time: strptime also takes figures without their zeros.
    if time is None or time.year < 1970 or text != f"{time:%Y-%m-%dT%H:%M:%SZ}":
        raise value.refuse("a time as YYYY-MM-DDTHH:MM:SSZ, not before 1970", text)
    return time


def _subjects(table: dict[str, Any]) -> set[str]:
    subjects = table.get("subject")
    if not isinstance(subjects, list):
        return set()
    found = set()
    for one in subjects:
        digests = one.get("digest") if isinstance(one, dict) else None
        if isinstance(digests, dict) and isinstance(digests.get("sha256"), str):
            found.add(digests["sha256"])
    return found


def _failed(kind: str, predicate: object) -> bool:
    """Whether a statement about the digest says that a test of it failed."""
    return kind == TEST_RESULT and isinstance(predicate, dict) and predicate.get("result") == "FAILED"


def _favourable(kind: str, predicate: object) -> bool:
    """Whether a statement says something good: predicates that carry a result must say PASSED."""
    table = predicate if isinstance(predicate, dict) else {}
    if kind == TEST_RESULT:
        return bool(table.get("result") == "PASSED")
    if kind == SUMMARY:
        return bool(table.get("verificationResult") == "PASSED")
    return True
