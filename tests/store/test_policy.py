"""Policies: what they accept, and each reason for which a signature does not count, in its words."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from elfkiln.errors import Differs, Refused
from elfkiln.store.attestations import result_predicate, statement
from elfkiln.store.dsse import key_id, read_envelope, seal
from elfkiln.store.policy import parse_policy, read_policy
from elfkiln.store.signing_keys import public_text
from elfkiln.store.statement_types import PROVENANCE, TEST_RESULT

KEYS = {name: Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32)) for name in ("ci", "box", "old", "else")}
DIGEST = "ab" * 32
NOW = datetime(2026, 12, 1, tzinfo=UTC)


def key(name, roles, expires="2027-06-30T00:00:00Z"):
    return {"name": name, "ed25519": public_text(KEYS[name].public_key()), "roles": roles, "expires": expires}


def policy(**changes):
    table = {
        "schema": "elfkiln-policy/1",
        "keys": [
            key("ci", ["builder", "tester"]),
            key("box", ["tester"]),
            key("old", ["builder"], "2026-11-30T00:00:00Z"),
        ],
        "rules": [{"target": "npu2", "predicate": PROVENANCE, "role": "builder", "threshold": 1}],
    }
    return table | changes


def signed(*names, digest=DIGEST, kind=PROVENANCE, predicate=None):
    body = statement("x", digest, kind, predicate or {})
    return read_envelope(seal(body, [KEYS[name] for name in names]), "e")


def require(table, *envelopes, target="npu2", now=NOW):
    parse_policy(table, "policy.json").require(target, DIGEST, envelopes, now, "a.elf")


def test_a_signature_by_the_right_key():
    require(policy(), signed("ci"))
    require(policy(), signed("else"), signed("else", "ci"))


def test_two_keys_are_needed_and_one_counts_once():
    rules = [{"target": "npu2", "predicate": TEST_RESULT, "role": "tester", "threshold": 2}]
    good = result_predicate(["gemm"], [], [], [])
    require(
        policy(rules=rules),
        signed("ci", kind=TEST_RESULT, predicate=good),
        signed("box", kind=TEST_RESULT, predicate=good),
    )
    with pytest.raises(Differs, match=r"expected signatures by 2 of role tester .* found 1"):
        require(policy(rules=rules), *[signed("ci", kind=TEST_RESULT, predicate=good)] * 2)


def test_every_rule_of_a_target_must_be_met():
    rules = [
        {"target": "npu2", "predicate": PROVENANCE, "role": "builder", "threshold": 1},
        {"target": "npu2", "predicate": TEST_RESULT, "role": "tester", "threshold": 1},
    ]
    with pytest.raises(Differs, match=TEST_RESULT):
        require(policy(rules=rules), signed("ci"))


@pytest.mark.parametrize(
    ("envelopes", "words"),
    [
        ([], "it has no signed statement"),
        ([signed("else")], "signed by no key of the policy"),
        ([signed("ci", digest="cd" * 32)], "ci: about another digest"),
        ([signed("old")], "old: expired"),
        ([signed("box")], "box: not of role builder"),
        ([signed("ci", kind=TEST_RESULT, predicate={"result": "PASSED"})], "ci: a statement of type .*test-result"),
        ([signed("ci", kind=TEST_RESULT, predicate={"result": "FAILED"})], "ci: its result is not PASSED"),
    ],
)
def test_why_a_signature_does_not_count(envelopes, words):
    with pytest.raises(Differs, match=words) as caught:
        require(policy(), *envelopes)
    assert str(caught.value).startswith(
        "a.elf: https://slsa.dev/provenance/v1: expected signatures by 1 of role builder"
    )


def test_a_signed_body_that_is_not_a_statement():
    for body in (b"[]", b"{", b'{"_type": "x"}'):
        with pytest.raises(Differs, match=r"not a statement|not an in-toto statement"):
            require(policy(), read_envelope(seal(body, [KEYS["ci"]]), "e"))


def tampered(name):
    """An envelope whose statement was changed behind the signature."""
    table = json.loads(seal(statement("x", "cd" * 32, PROVENANCE, {}), [KEYS[name]]))
    table["payload"] = base64.b64encode(statement("x", DIGEST, PROVENANCE, {})).decode()
    return read_envelope(json.dumps(table).encode(), "e")


def words_of(table, *envelopes):
    with pytest.raises(Differs) as caught:
        require(table, *envelopes)
    return str(caught.value)


def test_each_refusal_has_words_of_its_own():
    found = {
        "tampered": words_of(policy(), tampered("ci")),
        "wrong key": words_of(policy(), signed("else")),
        "another digest": words_of(policy(), signed("ci", digest="cd" * 32)),
        "expired": words_of(policy(), signed("old")),
        "wrong role": words_of(policy(), signed("box")),
    }
    assert found["tampered"].endswith("a signature that names ci and does not fit: statement or signature was changed")
    assert found["wrong key"].endswith("signed by no key of the policy")
    assert found["another digest"].endswith("ci: about another digest")
    assert found["expired"].endswith("old: expired")
    assert found["wrong role"].endswith("box: not of role builder")
    with pytest.raises(Refused, match="payload") as twice:
        read_envelope(seal(b"{}", [KEYS["ci"]]).replace(b'"payload":', b'"payload":"e30=","payload":', 1), "e")
    assert "twice" in str(twice.value)


def test_a_key_id_in_an_envelope_decides_nothing():
    """The id of a key one trusts, on the signature of another, makes words and no trust."""
    table = json.loads(seal(statement("x", DIGEST, PROVENANCE, {}), [KEYS["else"]]))
    table["signatures"][0]["keyid"] = key_id(KEYS["ci"].public_key())
    assert "names ci and does not fit" in words_of(policy(), read_envelope(json.dumps(table).encode(), "e"))
    table = json.loads(seal(statement("x", DIGEST, PROVENANCE, {}), [KEYS["ci"]]))
    table["signatures"][0]["keyid"] = key_id(KEYS["else"].public_key())
    require(policy(), read_envelope(json.dumps(table).encode(), "e"))


@pytest.mark.parametrize(
    ("weaker", "words"),
    [
        (policy(schema="elfkiln-policy/0"), "schema: expected elfkiln-policy/1, found 'elfkiln-policy/0'"),
        (policy(rules=[]), "rules: expected a list of at least 1"),
        (policy(rules=[{"target": "npu2", "predicate": PROVENANCE, "role": "builder", "threshold": 0}]), "threshold"),
        (policy(rules=[{"target": "npu2", "predicate": PROVENANCE, "role": "builder"}]), "threshold"),
        (policy(optional=True), "optional"),
    ],
)
def test_a_policy_that_was_weakened_is_refused(weaker, words):
    with pytest.raises(Refused, match=words):
        parse_policy(weaker, "policy.json")


def test_a_downgraded_policy_and_one_for_another_target():
    with pytest.raises(Differs, match="has no rule for target sim; what no rule speaks of is not trusted"):
        require(policy(), signed("ci"), target="sim")


def without(table, *path):
    inner = table
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return table


def with_rule(**changes):
    rule = {"target": "npu2", "predicate": PROVENANCE, "role": "builder", "threshold": 1}
    return policy(rules=[rule | changes])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([], "expected an object"),
        (policy(schema="elfkiln-policy/2"), "schema: expected elfkiln-policy/1"),
        (policy(treshold=2), "treshold"),
        (policy(keys=[]), "keys: expected a list of at least 1"),
        (policy(keys=[key("ci", ["builder"]) | {"role": "x"}]), "role"),
        (policy(keys=[key("ci", ["builder"]), key("ci", ["tester"])]), "each key with a name of its own"),
        (policy(keys=[key("ci", ["builder"]), key("ci", ["builder"]) | {"name": "again"}]), "name of its own"),
        (policy(keys=[key("ci", [])]), "roles: expected a list of roles"),
        (policy(keys=[key("ci", ["builder"]) | {"ed25519": "AAAA"}]), "ed25519: expected a public key"),
        (policy(keys=[key("ci", ["builder"], "2027-06-30")]), "expires: expected a time"),
        (policy(keys=[key("ci", ["builder"], "2027-13-30T00:00:00Z")]), "expires: expected a time"),
        (without(policy(), "keys", 0, "expires"), "expires"),
        (policy(rules=[]), "rules: expected a list of at least 1"),
        (with_rule(threshold=0), "threshold: expected a whole number from 1 to 2"),
        (with_rule(threshold=3), "threshold: expected a whole number from 1 to 2"),
        (with_rule(role="nobody"), "role: expected a role that a key of the policy has"),
        (with_rule(target=""), "target: expected"),
    ],
)
def test_what_is_not_a_policy(table, words):
    with pytest.raises(Refused, match=words):
        parse_policy(table, "policy.json")


def test_a_file(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy()))
    assert [one.name for one in read_policy(path).keys] == ["ci", "box", "old"]
    path.write_text('{"schema": "elfkiln-policy/1", "schema": "elfkiln-policy/1"}')
    with pytest.raises(Refused, match=r"policy\.json"):
        read_policy(path)
