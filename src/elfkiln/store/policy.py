"""Policies: which keys and identities vouch for what, how many are needed, and until when.

    {"schema": "elfkiln-policy/1",
     "keys":  [{"name": "ci", "ed25519": "<base64 of 32 bytes>", "roles": ["builder"],
                "expires": "2027-06-30T00:00:00Z"}],
     "identities": [{"name": "release", "identity": "build@example.com", "issuer": "https://accounts.example.com",
                     "roles": ["builder"], "expires": "2027-06-30T00:00:00Z",
                     "trusted_root": {"file": "trusted_root.json", "sha256": "<64 hex digits>"}}],
     "rules": [{"target": "npu2", "predicate": "https://slsa.dev/provenance/v1", "role": "builder", "threshold": 1}]}

Every rule of a target must be met by each digest. What no rule speaks of is not trusted; a field that is not known is
refused, since a misspelt one must not weaken a policy. `client/elfkiln.h` reads the same file by the same rules, but
for `identities`: it verifies keys alone, and refuses a policy that has them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from elfkiln.errors import Differs, Refused, brief
from elfkiln.io.checked import Value
from elfkiln.io.strict_json import parse_strict_json, read_strict_json
from elfkiln.store.dsse import Envelope, key_id, signers
from elfkiln.store.sigstore_bundle import Identity, SigstoreBundle
from elfkiln.store.statement_types import STATEMENT_TYPE, SUMMARY, TEST_RESULT

if TYPE_CHECKING:
    from elfkiln.store.sigstore_verifier import BundleVerifier

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
class PolicyIdentity:
    """An identity that a policy knows: its name for people, who it is, as a key has them roles and time, and by what.

    `pattern` is the identity itself, or where `*` stands for letters but `/` and `@`. `verifier` has the trusted root.
    """

    name: str
    pattern: str
    issuer: str
    roles: tuple[str, ...]
    expires: datetime
    verifier: BundleVerifier
    is_pattern: bool = False

    def fits(self, who: Identity) -> bool:
        """Whether somebody is this identity; a pattern must fit from the first letter to the last."""
        if who.issuer != self.issuer:
            return False
        if not self.is_pattern:
            return who.name == self.pattern
        parts = (re.escape(part) for part in self.pattern.split("*"))
        return re.fullmatch("[^/@]+".join(parts), who.name) is not None


@dataclass(frozen=True, slots=True)
class Rule:
    """For a target, `threshold` of a role must have signed a statement with this predicate type."""

    target: str
    predicate: str
    role: str
    threshold: int


@dataclass(frozen=True, slots=True)
class Policy:
    """Keys, identities and rules of one policy file."""

    where: str
    keys: tuple[PolicyKey, ...]
    rules: tuple[Rule, ...]
    identities: tuple[PolicyIdentity, ...] = ()

    @property
    def voters(self) -> tuple[PolicyKey | PolicyIdentity, ...]:
        """All who may vouch for something, each with a name of its own."""
        return (*self.keys, *self.identities)

    def require(
        self,
        target: str,
        digest: str,
        envelopes: Iterable[Envelope | SigstoreBundle],
        now: datetime,
        what: str,
        *,
        no_failures: bool = False,
    ) -> None:
        """Raise `Differs` unless every rule of the target is met for a digest by these envelopes and bundles.

        `what` names the thing in messages. The line says which rule is not met, and why each signature that is there
        does not count: another key, a key of another role, an expired one, another digest, a result that is bad.
        A bundle is verified by the trusted roots that the policy names, without network.
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

    def _able(self, rule: Rule, now: datetime) -> set[str]:
        """Return the names of the keys and identities that may vouch for a rule now."""
        return {one.name for one in self.voters if rule.role in one.roles and now < one.expires}

    def _voters(self, rule: Rule, seen: list[_Seen], now: datetime) -> set[str]:
        able = self._able(rule, now)
        return {
            name
            for one in seen
            if one.problem is None and one.predicate == rule.predicate
            for name in one.counted(able)
        }

    def _adverse(self, rule: Rule, seen: list[_Seen], now: datetime) -> set[str]:
        """Return who could meet a rule and says the opposite: a check that passed hides none that failed."""
        able = self._able(rule, now)
        return {name for one in seen if one.failed and one.predicate == rule.predicate for name in one.counted(able)}

    def _look(self, signed: Envelope | SigstoreBundle, digest: str) -> _Seen:
        who, problem = self._whose(signed) if isinstance(signed, SigstoreBundle) else self._keys_of(signed)
        single = isinstance(signed, SigstoreBundle)
        if problem is not None:
            return _Seen((), "", problem)
        try:
            table = parse_strict_json(signed.payload, "statement")
        except Refused as refused:
            return _Seen(who, "", f"not a statement ({refused})")
        if not isinstance(table, dict) or table.get("_type") != STATEMENT_TYPE:
            return _Seen(who, "", "not an in-toto statement of version 1")
        kind = str(table.get("predicateType", ""))
        if digest not in _subjects(table):
            return _Seen(who, kind, "about another digest")
        if not _favourable(kind, table.get("predicate")):
            return _Seen(who, kind, "its result is not PASSED", _failed(kind, table.get("predicate")), single)
        return _Seen(who, kind, None, single=single)

    def _keys_of(self, envelope: Envelope) -> tuple[tuple[str, ...], str | None]:
        """Return the names of the keys that signed an envelope, or why it counts for nothing."""
        who = signers(envelope, {key.name: key.key for key in self.keys})
        if who:
            return tuple(sorted(who)), None
        named = sorted(key.name for key in self.keys if key_id(key.key) in envelope.hints)
        if named:
            return (), (
                f"a signature that names {', '.join(named)} and does not fit: statement or signature was changed"
            )
        return (), "signed by no key of the policy"

    def _whose(self, bundle: SigstoreBundle) -> tuple[tuple[str, ...], str | None]:
        """Return the names of the identities that a bundle's signer is, or why it counts for nothing."""
        claimed = f"a sigstore bundle in the name of {brief(bundle.claimed, 300)}"
        if not self.identities:
            return (), f"{claimed}, and the policy has no identities"
        who: dict[BundleVerifier, Identity] = {}
        problems = []
        for verifier in dict.fromkeys(one.verifier for one in self.identities):
            try:
                who[verifier] = verifier.signer(bundle)
            except Differs as differs:
                problems.append(str(differs))
        if not who:
            return (), f"{claimed}: {'; '.join(problems)}"
        names = [one.name for one in self.identities if one.verifier in who and one.fits(who[one.verifier])]
        if names:
            return tuple(names), None
        others = [
            one.issuer
            for one in self.identities
            if one.verifier in who and one.fits(Identity(who[one.verifier].name, one.issuer))
        ]
        if others:
            return (), f"{claimed}: another issuer than the policy's {brief(', '.join(dict.fromkeys(others)), 300)}"
        return (), f"{claimed}, who is not one of the policy's identities"

    def _why(self, rule: Rule, good: set[str], seen: list[_Seen], now: datetime) -> str:
        need = f"{rule.threshold} of role {rule.role}"
        line = f"{rule.predicate}: expected signatures by {need} ({self.where}), found {len(good)}"
        if not seen:
            return f"{line}: it has no signed statement"
        reasons = []
        able = self._able(rule, now)
        expires = {one.name: one.expires for one in self.voters}
        for one in seen:
            who = ", ".join(one.signers)
            if one.problem is not None:
                reasons.append(f"{who}: {one.problem}" if who else one.problem)
            elif one.predicate != rule.predicate:
                reasons.append(f"{who}: a statement of type {one.predicate}")
            elif not one.counted(able):
                for name in one.signers:
                    expired = now >= expires[name]
                    reasons.append(f"{name}: {'expired' if expired else f'not of role {rule.role}'}")
        return f"{line}: {'; '.join(dict.fromkeys(reasons)) or 'too few'}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a policy sees in an envelope: who signed, the predicate's type, why it does not count (None: it may).

    A bundle has one signature, so its signer counts for a `single` name, however many identities of the policy he is.
    """

    signers: tuple[str, ...]
    predicate: str
    problem: str | None
    failed: bool = False
    single: bool = False

    def counted(self, able: set[str]) -> tuple[str, ...]:
        """Return the signers among those that may vouch; of a bundle the first alone, so that nobody counts twice."""
        found = tuple(name for name in self.signers if name in able)
        return found[:1] if self.single else found


def read_policy(path: Path) -> Policy:
    """Return the policy of a file; raises `Refused` naming the field that does not fit.

    The trusted roots it names are read too, relative to its folder.
    """
    return parse_policy(read_strict_json(path, limit=_MOST_BYTES), str(path), path.parent)


def parse_policy(raw: Any, where: str, folder: Path = Path()) -> Policy:
    """Return the policy that a parsed JSON value says, as `read_policy` does; `folder` is where its files are."""
    top = Value(raw, where)
    top.table(("schema", "keys", "identities", "rules"), optional=("keys", "identities"))
    top["schema"].choice((SCHEMA,))
    # One of both must be there; where it is an old policy without keys, that is said.
    keyless = top["keys"].absent and not top["identities"].absent
    keys = () if keyless else tuple(_key(item) for item in _some(top["keys"]))
    verifiers: dict[tuple[Path, str | None], BundleVerifier] = {}
    listed = [] if top["identities"].absent else _some(top["identities"])
    found = tuple(_identity(item, folder, verifiers) for item in listed)
    for number, key in enumerate(keys):
        if any(key.name == other.name or key.key == other.key for other in keys[:number]):
            raise top["keys"].refuse("each key with a name of its own", f"{key.name} again")
    for number, one in enumerate(found):
        same = any((one.pattern, one.issuer) == (other.pattern, other.issuer) for other in found[:number])
        if same or one.name in {*(key.name for key in keys), *(other.name for other in found[:number])}:
            raise top["identities"].refuse("each identity once, with a name of its own", f"{one.name} again")
    # Whoever is an identity and fits a pattern, too, is counted as the former.
    identities = tuple(sorted(found, key=lambda one: one.is_pattern))
    voters: tuple[PolicyKey | PolicyIdentity, ...] = (*keys, *identities)
    rules = tuple(_rule(item, voters) for item in _some(top["rules"]))
    return Policy(where, keys, rules, identities)


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


def _identity(value: Value, folder: Path, verifiers: dict[tuple[Path, str | None], BundleVerifier]) -> PolicyIdentity:
    """Read an identity; those of one trusted root share its verifier."""
    fields = ("name", "identity", "identity_pattern", "issuer", "roles", "expires", "trusted_root")
    value.table(fields, optional=("identity", "identity_pattern"))
    is_pattern = value["identity"].absent
    if not is_pattern and not value["identity_pattern"].absent:
        raise value.refuse("identity or identity_pattern", "both")
    who = value["identity_pattern" if is_pattern else "identity"]
    pattern = who.text()
    if is_pattern != ("*" in pattern):
        raise who.refuse("a pattern with a *" if is_pattern else "an identity letter by letter; identity_pattern has *")
    if not pattern.strip("*/@:."):
        raise who.refuse("an identity, or a pattern that says more than *")
    roles = value["roles"].texts()
    if not roles:
        raise value["roles"].refuse("a list of roles that is not empty")
    name, issuer, expires = value["name"].text(), value["issuer"].text(), _time(value["expires"])
    return PolicyIdentity(
        name, pattern, issuer, roles, expires, _root(value["trusted_root"], folder, verifiers), is_pattern
    )


def _root(value: Value, folder: Path, verifiers: dict[tuple[Path, str | None], BundleVerifier]) -> BundleVerifier:
    from elfkiln.store.sigstore_verifier import BundleVerifier, need_sigstore, read_root

    value.table(("file", "sha256"), optional=("sha256",))
    need_sigstore(value.place)
    path = folder / value["file"].text()
    digest = None if value["sha256"].absent else value["sha256"].digest()
    key = (path, digest)
    if key not in verifiers:
        verifiers[key] = BundleVerifier(read_root(path, digest), str(path))
    return verifiers[key]


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


def _rule(value: Value, voters: tuple[PolicyKey | PolicyIdentity, ...]) -> Rule:
    value.table(("target", "predicate", "role", "threshold"))
    role = value["role"].text()
    able = sum(role in one.roles for one in voters)
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
