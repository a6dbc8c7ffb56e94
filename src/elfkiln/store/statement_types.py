"""The types of statements and envelopes, and the name of one in the store's index. No cryptography is imported here."""

from __future__ import annotations

PAYLOAD_TYPE = "application/vnd.in-toto+json"
ENVELOPE_TYPE = "application/vnd.dsse.envelope.v1+json"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
ATTESTATION_TYPES = (PAYLOAD_TYPE, ENVELOPE_TYPE, BUNDLE_TYPE)
"""What a referrer holds that says something about an ELF: a bare statement, one under keys, one of an identity."""
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
SUMMARY = "https://slsa.dev/verification_summary/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"


def attestation_ref(manifest: str, digest: str) -> str:
    """Return the name in index.json of a statement or envelope (its sha256) about an artifact."""
    return f"attestation-{manifest}-{digest[:32]}"
