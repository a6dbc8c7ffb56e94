"""Who says what about an artifact: provenance, signatures, and policies that ask for them.

A statement is about an ELF's digest. `sign` seals what the store has to say about names (their provenance, and the
results of verify and other checks) with a key, `sign_as` as an identity; `require_signed` holds names against a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from elfkiln.errors import Differs, one_line
from elfkiln.io.canonical import canonical_json
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.project import Project
from elfkiln.store.artifacts import artifact_of
from elfkiln.store.attestations import Attestation, attest, attest_bundle, attestations
from elfkiln.store.blobs import MANIFEST_TYPE, Descriptor, Store
from elfkiln.store.dsse import seal
from elfkiln.store.model_index import ModelIndex
from elfkiln.store.policy import Policy
from elfkiln.store.provenance import provenance
from elfkiln.store.registry import Entry, load_registry
from elfkiln.store.statement_types import PROVENANCE
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.asked import Asked, asked_by_model
from elfkiln.work.gaps import CheckReport, Gap
from elfkiln.work.lookup import Found, lookup_set

if TYPE_CHECKING:
    from elfkiln.store.sigstore_signer import IdentitySigner


@dataclass(frozen=True, slots=True)
class Said:
    """What is said about one registered name."""

    key: str
    entry: Entry
    attestations: tuple[Attestation, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: every statement whole, and whether somebody signed it."""
        return {
            "name": self.key,
            "elf": f"sha256:{self.entry.elf}",
            "manifest": f"sha256:{self.entry.manifest}",
            "attestations": [
                {
                    "manifest": f"sha256:{one.manifest}",
                    "predicate_type": one.predicate_type,
                    "result": one.result or None,
                    "signatures": one.signatures,
                    "identity": one.bundle.claimed.name if one.bundle else None,
                    "issuer": one.bundle.claimed.issuer if one.bundle else None,
                    "statement": dict(one.statement),
                }
                for one in self.attestations
            ],
        }

    def summary(self) -> dict[str, Any]:
        """Return the JSON form without the statements themselves."""
        rows = self.to_json()
        return rows | {
            "attestations": [{key: row[key] for key in row if key != "statement"} for row in rows["attestations"]]
        }

    def text(self) -> str:
        """Return the lines for a person."""
        lines = [f"{self.key}  sha256:{self.entry.elf}"]
        for one in self.attestations:
            signed = f"{one.signatures} signatures" if one.envelope else "not signed"
            if one.bundle:
                signed = f"sigstore bundle in the name of {one_line(one.bundle.claimed)}"
            result = f" {one.result}" if one.result else ""
            result += f" ({one.tool})" if one.tool else ""
            lines.append(f"  {one.predicate_type}{result}, {signed}, sha256:{one.manifest}")
        return "\n".join(lines) if self.attestations else f"{lines[0]}\n  nothing is said about it"


def attest_provenance(store: Store, entries: Iterable[Entry]) -> int:
    """Store the provenance of artifacts that have none yet; return how many got one."""
    wanted = {entry.manifest: entry for entry in entries}
    known = attestations(store, wanted)
    made = 0
    for manifest in sorted(wanted):
        if not any(one.predicate_type == PROVENANCE for one in known[manifest]):
            descriptor = Descriptor(MANIFEST_TYPE, manifest, 0)
            artifact = artifact_of(store.manifest(descriptor), descriptor)
            recipe = parse_strict_json(store.read(artifact.recipe), "recipe")
            attest(store, manifest, provenance(artifact, recipe), signed=False)
            made += 1
    return made


def said_of(project: Project, rows: Iterable[Found]) -> tuple[Said, ...]:
    """Return what is said about registered names; raises `Differs` for one that is not registered."""
    found = [(row.key, _entry_of(row)) for row in rows]
    store = Store(project.store)
    known = attestations(store, {entry.manifest for _, entry in found})
    return tuple(Said(key, entry, known[entry.manifest]) for key, entry in found)


def said_of_digest(project: Project, elf: str) -> tuple[Said, ...]:
    """Return what is said about the registered names, of any target, whose ELF has this sha256."""
    targets = load_registry(project.registry_file).targets
    found = [(key, entry) for rows in targets.values() for key, entry in sorted(rows.items()) if entry.elf == elf]
    known = attestations(Store(project.store), {entry.manifest for _, entry in found}) if found else {}
    return tuple(Said(key, entry, known[entry.manifest]) for key, entry in found)


def named_file(project: Project, key: str, target: str | None) -> Path | None:
    """Return the stored ELF of a registered name; None where it is not registered or not in the store."""
    registered = load_registry(project.registry_file)
    entry = registered.entries(read_lock(project.lock_file).target(target).name).get(key)
    if entry is None:
        return None
    store = Store(project.store)
    return store.path(entry.elf) if store.holds(entry.elf) else None


def sign(project: Project, rows: Iterable[Found], key: Ed25519PrivateKey) -> int:
    """Seal every unsigned statement about some names with a key, their provenance among them; return how many.

    What the same key sealed before is not sealed again. Raises `Differs` for a name that is not registered.
    """
    store = Store(project.store)
    made = 0
    for manifest, all_of in _to_sign(store, rows):
        sealed = {attestation.manifest for attestation in all_of if attestation.envelope is not None}
        for one in all_of:
            if one.signed is None:
                digest = attest(store, manifest, seal(canonical_json(dict(one.statement)), [key]), signed=True)
                made += digest not in sealed
    return made


def sign_as(project: Project, rows: Iterable[Found], signer: IdentitySigner) -> int:
    """Have every unsigned statement about some names signed as an identity, as `sign` does; return how many.

    What the same identity signed before is not signed again, so a run that was cut short goes on where it stopped.
    Raises `Differs` for a name that is not registered, and when a service fails; what was signed until then stays.
    """
    store = Store(project.store)
    made = 0
    for manifest, all_of in _to_sign(store, rows):
        bundles = [one.bundle for one in all_of if one.bundle is not None]
        for one in all_of:
            if one.signed is None:
                payload = canonical_json(dict(one.statement))
                if not any(bundle.payload == payload and signer.made(bundle) for bundle in bundles):
                    attest_bundle(store, manifest, signer.seal(payload))
                    made += 1
    return made


def _to_sign(store: Store, rows: Iterable[Found]) -> list[tuple[str, tuple[Attestation, ...]]]:
    """Return what is said about names, by manifest, with provenance; `Differs` for one that is not registered."""
    found = [_entry_of(row) for row in rows]
    attest_provenance(store, found)
    return sorted(attestations(store, {entry.manifest for entry in found}).items())


def untrusted(
    project: Project, target: str, rows: Iterable[Found], policy: Policy, now: datetime | None = None
) -> dict[str, str]:
    """Return why a policy does not vouch for registered names, by key; names without an entry are passed over.

    `now` is the time at which keys must not have expired (default: the clock's).
    """
    found = [(row.key, row.entry) for row in rows if row.entry is not None]
    known = attestations(Store(project.store), {entry.manifest for _, entry in found})
    moment = now or datetime.now(UTC)
    why = {}
    for key, entry in found:
        envelopes = [one.signed for one in known[entry.manifest] if one.signed is not None]
        try:
            policy.require(target, entry.elf, envelopes, moment, key, no_failures=True)
        except Differs as differs:
            why[key] = str(differs).removeprefix(f"{key}: ")
    return why


def require_signed(project: Project, target: str, rows: Iterable[Found], policy: Policy) -> None:
    """Raise `Differs` with the first reason, unless a policy vouches for every registered name now."""
    for key, reason in untrusted(project, target, rows, policy).items():
        raise Differs(f"{key}: {reason}")


def accepting(project: Project, policy: Policy | None) -> Callable[[ModelIndex], None] | None:
    """Return what a pulled or imported set must pass before it is named: a policy, or None without one."""
    if policy is None:
        return None

    def accept(index: ModelIndex) -> None:
        rows = [Found(index.target, index.paths[key], key, entry) for key, entry in sorted(index.entries.items())]
        require_signed(project, index.target, rows, policy)

    return accept


def add_untrusted(project: Project, report: CheckReport, policy: Policy, plan: Asked | None = None) -> None:
    """Add a gap to a report of check-missing for each name that is there and that a policy does not vouch for.

    `plan` is what was asked for when it was a plan; else the report's models say it.
    """
    for one in report.sets:
        if one.refused is None:
            asked = plan or asked_by_model(project, one.model, target=report.target, layout=one.layout or None)
            rows = lookup_set(project, report.target, asked.wanted)
            gone = {gap.name for gap in one.gaps}
            paths = {row.key: row.path for row in rows}
            for key, why in untrusted(project, report.target, rows, policy).items():
                if key not in gone:
                    one.gaps.append(Gap(key, paths[key], "untrusted", why))


def _entry_of(row: Found) -> Entry:
    if row.entry is None:
        raise Differs(f"{row.key}: {row.unregistered}; build it with doit elfs")
    return row.entry
