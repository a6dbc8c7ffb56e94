"""Attestations: in-toto statements about an ELF's digest, kept as OCI referrers of its artifact's manifest.

A statement is stored as it is, or sealed in a DSSE envelope when a key signed it, or in a sigstore bundle when an
identity did. All are manifests with a `subject`, so push, pull and other OCI tools carry them along. Nothing of a
statement holds a time or a host name unless whoever makes it puts it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elfkiln.errors import Differs, Refused, refusal
from elfkiln.io.canonical import canonical_json
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.blobs import MANIFEST_TYPE, Descriptor, Store, descriptor_of, manifest_bytes, parse_digest
from elfkiln.store.statement_types import (
    ATTESTATION_TYPES,
    BUNDLE_TYPE,
    ENVELOPE_TYPE,
    PAYLOAD_TYPE,
    STATEMENT_TYPE,
    attestation_ref,
)

if TYPE_CHECKING:
    from elfkiln.store.dsse import Envelope
    from elfkiln.store.sigstore_bundle import SigstoreBundle

EMPTY_CONFIG_TYPE = "application/vnd.oci.empty.v1+json"
PREDICATE = "in-toto.io/predicate-type"
"""The annotation by which other tools tell what an attestation is about."""
_BUNDLE_CONTENT = "dev.sigstore.bundle.content"
_BUNDLE_PREDICATE = "dev.sigstore.bundle.predicateType"


@dataclass(frozen=True, slots=True)
class Attestation:
    """One stored attestation: its manifest's digest, the statement, and the envelope or bundle when it was signed."""

    manifest: str
    statement: Mapping[str, Any]
    envelope: Envelope | None
    bundle: SigstoreBundle | None = None

    @property
    def signed(self) -> Envelope | SigstoreBundle | None:
        """The statement as somebody signed it; None for a bare one."""
        return self.envelope or self.bundle

    @property
    def signatures(self) -> int:
        """How many signatures there are on it, whoever made them."""
        return len(self.envelope.signatures) if self.envelope else int(self.bundle is not None)

    @property
    def predicate_type(self) -> str:
        """What kind of statement it is, as a URI."""
        return str(self.statement.get("predicateType", ""))

    @property
    def result(self) -> str:
        """PASSED, WARNED or FAILED of a test result; empty for other kinds."""
        predicate = self.statement.get("predicate")
        return str(predicate.get("result", "")) if isinstance(predicate, dict) else ""

    @property
    def tool(self) -> str:
        """Which check a test result is of, with its seed, as its configuration says; empty for other kinds."""
        predicate = self.statement.get("predicate")
        rows = predicate.get("configuration") if isinstance(predicate, dict) else None
        named = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        notes = [row.get("annotations") for row in named]
        names = [str(row.get("name", "")) for row in named]
        seeds = [f"seed {one['seed']}" for one in notes if isinstance(one, dict) and "seed" in one]
        tools = [name for name in names if name.startswith("elfkiln ")] or ["device"] * ("device" in names)
        return ", ".join([*tools[:1], *seeds[:1]])


def statement(name: str, digest: str, predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a statement about an ELF: in-toto Statement v1, one subject."""
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": digest}}],
            "predicateType": predicate_type,
            "predicate": dict(predicate),
        }
    )


def result_predicate(
    passed: list[str], failed: list[str], warned: list[str], configuration: list[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the predicate of a test result: PASSED without failures, WARNED with warnings alone, else FAILED.

    `configuration` are resource descriptors of what was tested with: name and digest, or annotations (seeds).
    """
    result = "FAILED" if failed else "WARNED" if warned else "PASSED"
    table: dict[str, Any] = {"result": result, "configuration": [dict(one) for one in configuration]}
    return table | {"passedTests": passed, "failedTests": failed, "warnedTests": warned}


def attest(store: Store, manifest: str, data: bytes, *, signed: bool) -> str:
    """Store a statement (or, `signed`, an envelope) as a referrer of an artifact's manifest; return its digest.

    The same statement twice is one attestation.
    """
    return attest_all(store, manifest, [data], signed=signed)[0]


def attest_all(store: Store, manifest: str, texts: Sequence[bytes], *, signed: bool = False) -> tuple[str, ...]:
    """Store several statements about one artifact as `attest` does; the store's index is written once."""
    with store.in_use():
        made = put_statements(store, descriptor_of(store, manifest, MANIFEST_TYPE), texts, signed=signed)
        store.name_manifests(made)
        return tuple(made.values())


def attest_bundle(store: Store, manifest: str, data: bytes) -> str:
    """Store a sigstore bundle as a referrer of an artifact's manifest, as cosign does; return the referrer's digest."""
    with store.in_use():
        made = _put(store, descriptor_of(store, manifest, MANIFEST_TYPE), [data], BUNDLE_TYPE)
        store.name_manifests(made)
        return next(iter(made.values()))


def put_statements(
    store: Store, subject: Descriptor, texts: Sequence[bytes], *, signed: bool = False
) -> dict[str, str]:
    """Store statements about a manifest, without naming them: return the digest of each referrer by its ref name."""
    return _put(store, subject, texts, ENVELOPE_TYPE if signed else PAYLOAD_TYPE)


def _put(store: Store, subject: Descriptor, texts: Sequence[bytes], kind: str) -> dict[str, str]:
    empty_digest, *digests = store.add_all((b"{}", *texts))
    empty = descriptor_of(store, empty_digest, EMPTY_CONFIG_TYPE)
    manifests = []
    for data, digest in zip(texts, digests, strict=True):
        opened = _opened(data, kind, "attestation")
        if opened is None:
            raise refusal("attestation", expected="a bundle on a statement", found="one on a plain message")
        notes = {PREDICATE: parse_strict_json(opened[2], "statement").get("predicateType", "")}
        if kind == BUNDLE_TYPE:
            notes |= {_BUNDLE_CONTENT: "dsse-envelope", _BUNDLE_PREDICATE: notes[PREDICATE]}
        manifests.append(manifest_bytes(kind, empty, (descriptor_of(store, digest, kind),), notes, subject))
    made = store.add_all(manifests)
    return {attestation_ref(subject.digest, digest): one for digest, one in zip(digests, made, strict=True)}


def attestations(store: Store, manifests: Iterable[str]) -> dict[str, tuple[Attestation, ...]]:
    """Return what the store has about some artifacts, by their manifests' digests, each sorted by predicate type.

    The store is walked once, however many are asked for. Raises `Differs` for an attestation that is damaged or cannot
    be read.
    """
    found: dict[str, dict[str, Attestation]] = {manifest: {} for manifest in manifests}
    for descriptor in store.refs().values():
        table = store.manifest(descriptor)
        subject = table.get("subject")
        digest = str(subject.get("digest", "")).removeprefix("sha256:") if isinstance(subject, dict) else ""
        if digest in found and table.get("artifactType") in ATTESTATION_TYPES:
            one = _read(store, descriptor, table)
            if one is not None:
                found[digest][descriptor.digest] = one
    return {
        manifest: tuple(sorted(all_of.values(), key=lambda one: (one.predicate_type, one.manifest)))
        for manifest, all_of in found.items()
    }


def _opened(data: bytes, kind: str, where: str) -> tuple[Envelope | None, SigstoreBundle | None, bytes] | None:
    """Return the envelope or bundle of an attestation and the statement's bytes; None for a bundle that states nothing.

    What is signed is met by few verbs, and the library for signatures costs more than they do.
    """
    if kind == ENVELOPE_TYPE:
        from elfkiln.store.dsse import read_envelope

        envelope = read_envelope(data, where)
        return envelope, None, envelope.payload
    if kind == BUNDLE_TYPE:
        from elfkiln.store.sigstore_bundle import read_bundle

        bundle = read_bundle(data, where)
        return None if bundle is None else (None, bundle, bundle.payload)
    return None, None, data


def _read(store: Store, descriptor: Descriptor, table: Mapping[str, Any]) -> Attestation | None:
    where = f"attestation sha256:{descriptor.digest}"
    try:
        data = store.read(parse_digest(table["layers"][0]["digest"]))
        opened = _opened(data, table["artifactType"], where)
        if opened is None:
            return None
        envelope, bundle, body = opened
        content = parse_strict_json(body, where)
    except (KeyError, IndexError, TypeError, Refused) as error:
        raise Differs(f"{where}: cannot be read ({error}); remove it or take it anew") from error
    if not isinstance(content, dict):
        raise Differs(f"{where}: expected a statement, found something else")
    return Attestation(descriptor.digest, content, envelope, bundle)
