"""elfkiln.h and signatures: a policy, DSSE envelopes on kernels.lock.json, and every way in which they do not fit."""

from __future__ import annotations

import base64
import datetime
import json
import os
import random

import pytest

import ed25519_signer as ed
from client_sets import (
    IN_TOTO,
    QKV,
    STATEMENT,
    TEST_RESULT,
    VSA,
    envelope,
    lock_digest,
    policy_key,
    policy_rule,
    policy_table,
    read_lock_table,
    seed_of,
    sha256,
    statement,
    write_lock_table,
    write_signatures,
)
from elfkiln.cli import main
from elfkiln.errors import Differs, Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.dsse import read_envelope
from elfkiln.store.policy import read_policy
from elfkiln.store.signing_keys import write_key_pair
from elfkiln.work.build import build_elfs
from elfkiln.work.install import install
from projects import TINY_NAMES

NOW = 1_800_000_000  # 2027-01-15T08:00:00Z
POLICY = policy_table([policy_key("ci", "builder")], [policy_rule("builder")])


@pytest.fixture
def opened(probe, client_folder, tmp_path):
    """Open the folder under a policy; return `ok`, or the word, text and detail of the refusal."""

    def run(policy=POLICY, target="sim", now=NOW):
        path = tmp_path / "policy.json"
        path.write_bytes(policy if isinstance(policy, bytes) else json.dumps(policy).encode())
        row = probe.rows(dir=client_folder, target=target, policy=path, now=now)[0]
        return "ok" if row[0] == "name" else tuple(row[2:])

    return run


def sign(folder, *signers, predicate=VSA, **changes):
    """Return an envelope on the folder's lock."""
    return envelope(statement(lock_digest(folder), predicate, **changes), *signers)


def test_a_signed_set_opens_and_hands_out_elfs(probe, client_folder, opened, tmp_path):
    write_signatures(client_folder, sign(client_folder, "ci"))
    assert opened() == "ok"
    row = probe.get(QKV, dir=client_folder, target="sim", policy=tmp_path / "policy.json", now=NOW)
    assert row[0] == "artifact"
    # The policy as bytes that the engine carries, and the clock's own time.
    assert probe.get(QKV, dir=client_folder, target="sim", policy_bytes=json.dumps(POLICY))[0] == "artifact"


def test_without_signatures_a_policy_refuses(client_folder, opened):
    word, text, _ = opened()
    assert (word, text) == ("unsigned", f"{client_folder / 'kernels.lock.intoto.jsonl'}: missing")


def test_an_empty_signature_file_vouches_for_nothing(client_folder, opened):
    write_signatures(client_folder)
    word, text, _ = opened()
    assert word == "untrusted"
    assert text.endswith(f": expected 1 of role builder to vouch for kernels.lock.json with {VSA}, found 0")
    path = client_folder / "kernels.lock.intoto.jsonl"
    path.unlink()
    os.mkfifo(path)
    assert opened()[0] == "untrusted"


def tampered(text):
    one = json.loads(text)
    data = bytearray(base64.b64decode(one["payload"]))
    data[-3] ^= 1
    return json.dumps(one | {"payload": base64.b64encode(data).decode()})


def spelt_again(text):
    """The same statement in other bytes: what was signed are bytes, not their meaning."""
    one = json.loads(text)
    data = base64.b64decode(one["payload"]).replace(b": ", b":")
    return json.dumps(one | {"payload": base64.b64encode(data).decode()})


REFUSED = {
    # what is written beside the lock, and what the detail says
    "another key": (lambda f: [sign(f, "stranger")], "1 envelopes; 1 that no key of the policy signed"),
    "another key under the right keyid": (
        lambda f: [envelope(statement(lock_digest(f)), "stranger", keyid="ci")],
        "1 that no key of the policy signed",
    ),
    "a flipped bit in the payload": (
        lambda f: [tampered(json.dumps(sign(f, "ci")))],
        "1 that no key of the policy signed",
    ),
    "another spelling of the payload": (
        lambda f: [spelt_again(json.dumps(sign(f, "ci")))],
        "1 that no key of the policy signed",
    ),
    "another file": (lambda _: [envelope(statement(sha256(b"")), "ci")], "1 about another file"),
    "no subject": (lambda f: [sign(f, "ci", subject=[])], "1 about another file"),
    "a subject that is no list": (
        lambda f: [sign(f, "ci", subject={"digest": {"sha256": lock_digest(f)}})],
        "1 about another file",
    ),
    "a digest of another algorithm": (
        lambda f: [sign(f, "ci", subject=[{"digest": {"sha512": lock_digest(f)}}])],
        "1 about another file",
    ),
    "a digest in capitals": (
        lambda f: [sign(f, "ci", subject=[{"digest": {"sha256": lock_digest(f).upper()}}])],
        "1 about another file",
    ),
    "another predicate": (lambda f: [sign(f, "ci", predicate=TEST_RESULT)], "key ci signed another predicate"),
    "a verification that failed": (
        lambda f: [envelope(statement(lock_digest(f)) | {"predicate": {"verificationResult": "FAILED"}}, "ci")],
        "1 whose result is not PASSED",
    ),
    "a verification without a result": (
        lambda f: [envelope(statement(lock_digest(f)) | {"predicate": {}}, "ci")],
        "1 whose result is not PASSED",
    ),
    "another kind of statement": (
        lambda f: [sign(f, "ci", _type="https://in-toto.io/Statement/v0.1")],
        "1 that are no in-toto statement v1",
    ),
    "a payload of another type": (
        lambda f: [envelope(statement(lock_digest(f)), "ci", kind="application/json")],
        "1 that are no in-toto statement v1",
    ),
    "a payload said to be of another type": (
        lambda f: [envelope(statement(lock_digest(f)), "ci", kind="text/plain") | {"payloadType": IN_TOTO}],
        "1 that no key of the policy signed",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_vouch(client_folder, opened, case):
    write, said = REFUSED[case]
    write_signatures(client_folder, *write(client_folder))
    word, text, detail = opened()
    assert (word, text.rpartition(", ")[2]) == ("untrusted", "found 0")
    assert detail.endswith(said), detail
    # Beside a good one the rest does no harm.
    write_signatures(client_folder, *write(client_folder), sign(client_folder, "ci"))
    assert opened() == "ok"


def test_a_lock_that_changed_after_it_was_signed(client_folder, opened):
    write_signatures(client_folder, sign(client_folder, "ci"))
    table = read_lock_table(client_folder)
    table["sets"].append({"model": "other", "layout": "b8"})
    write_lock_table(client_folder, table)
    assert opened()[2].endswith("1 about another file")


def test_signatures_come_before_the_lock_is_read(client_folder, opened):
    (client_folder / "kernels.lock.json").write_bytes(b"{")
    assert opened()[0] == "unsigned"
    write_signatures(client_folder, sign(client_folder, "ci"))
    assert opened()[0] == "bad lock"


MALFORMED = {
    "no JSON": lambda _: "{",
    "a key twice, two payloads": lambda one: json.dumps(one)[:-1] + f', "payload": "{one["payload"]}"}}',
    "a list": lambda one: json.dumps([one]),
    "no payload": lambda one: json.dumps({k: v for k, v in one.items() if k != "payload"}),
    "no type": lambda one: json.dumps({k: v for k, v in one.items() if k != "payloadType"}),
    "no signatures": lambda one: json.dumps(one | {"signatures": []}),
    "nine signatures": lambda one: json.dumps(one | {"signatures": one["signatures"] * 9}),
    "signatures that are none": lambda one: json.dumps(one | {"signatures": [one["signatures"][0]["sig"]]}),
    "a payload without padding": lambda one: json.dumps(one | {"payload": one["payload"].rstrip("=") + "A"}),
    "a payload that is no base64": lambda one: json.dumps(one | {"payload": "\u00e9" + one["payload"]}),
    "a signature that is no base64": lambda one: json.dumps(one | {"signatures": [{"sig": "!"}]}),
    "two on a line": lambda one: json.dumps(one) * 2,
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_line_refuses_the_whole_file(client_folder, opened, case):
    good = sign(client_folder, "ci")
    write_signatures(client_folder, good, MALFORMED[case](good))
    word, text, _ = opened()
    assert word == "untrusted"
    assert text.startswith(f"{client_folder / 'kernels.lock.intoto.jsonl'}: expected ")


def test_a_trusted_key_on_something_that_is_no_statement(client_folder, opened):
    for payload in (b"", b"hello", b'{"a": 1, "a": 2}', b"\xff"):
        write_signatures(client_folder, envelope(payload, "ci"), sign(client_folder, "ci"))
        assert opened()[0] == "untrusted"
    # JSON that is no statement is one that says nothing.
    write_signatures(client_folder, envelope(b"[1]", "ci"), sign(client_folder, "ci"))
    assert opened() == "ok"


def test_signatures_of_other_algorithms_and_blank_lines_are_passed_over(client_folder, opened):
    one = sign(client_folder, "ci")
    foreign = {"keyid": "ecdsa", "sig": base64.b64encode(b"\x30" * 71).decode()}
    one["signatures"].insert(0, foreign)
    write_signatures(client_folder, "", one, "")
    assert opened() == "ok"
    url = sign(client_folder, "ci")
    url["payload"] = url["payload"].replace("+", "-").replace("/", "_")
    url["signatures"][0]["sig"] = url["signatures"][0]["sig"].replace("+", "-").replace("/", "_")
    url["unknown"] = {"x": 1}
    write_signatures(client_folder, json.dumps(url) + "\r")
    assert opened() == "ok"


def test_64_envelopes_and_no_more(client_folder, opened):
    strange = envelope(b"{}", "stranger")
    write_signatures(client_folder, *[strange] * 63, sign(client_folder, "ci"))
    assert opened() == "ok"
    write_signatures(client_folder, *[strange] * 64, sign(client_folder, "ci"))
    assert opened()[1].endswith("expected at most 64 envelopes, found more")


def test_two_of_a_role_must_be_two_keys(client_folder, opened):
    keys = [policy_key("one", "tester"), policy_key("two", "tester"), policy_key("three", "tester")]
    policy = policy_table(keys, [policy_rule("tester", 2)])
    one, two = sign(client_folder, "one"), sign(client_folder, "two")
    write_signatures(client_folder, one, one, sign(client_folder, "one", "one"))
    word, text, _ = opened(policy)
    assert (word, text.rpartition(", ")[2]) == ("untrusted", "found 1")
    write_signatures(client_folder, one, two)
    assert opened(policy) == "ok"
    write_signatures(client_folder, sign(client_folder, "three", "two"))
    assert opened(policy) == "ok"


def test_a_key_serves_in_its_roles_alone(client_folder, opened):
    keys = [policy_key("ci", "builder"), policy_key("lab", "tester")]
    rules = [policy_rule("builder"), policy_rule("tester", predicate=TEST_RESULT)]
    policy = policy_table(keys, rules)
    built, tested = sign(client_folder, "ci"), sign(client_folder, "lab", predicate=TEST_RESULT)
    write_signatures(client_folder, built, tested)
    assert opened(policy) == "ok"
    write_signatures(client_folder, sign(client_folder, "lab"), tested)
    word, text, detail = opened(policy)
    assert word == "untrusted"
    assert "expected 1 of role builder" in text
    assert detail.endswith("key lab is of another role")
    write_signatures(client_folder, built, sign(client_folder, "ci", predicate=TEST_RESULT))
    assert "expected 1 of role tester" in opened(policy)[1]
    # A test that warned is not one that passed.
    warned = statement(lock_digest(client_folder), TEST_RESULT) | {"predicate": {"result": "WARNED"}}
    write_signatures(client_folder, built, envelope(warned, "lab"))
    assert "; 1 whose result is not PASSED" in opened(policy)[2]


def test_a_predicate_without_a_result_vouches_by_being_signed(client_folder, opened):
    predicate = "https://slsa.dev/provenance/v1"
    policy = policy_table([policy_key("ci", "builder")], [policy_rule("builder", predicate=predicate)])
    write_signatures(client_folder, envelope(statement(lock_digest(client_folder), predicate), "ci"))
    assert opened(policy) == "ok"


def test_a_key_ends_with_its_last_second(client_folder, opened):
    policy = policy_table([policy_key("ci", "builder", expires="2027-01-15T08:00:00Z")], [policy_rule("builder")])
    write_signatures(client_folder, sign(client_folder, "ci"))
    assert opened(policy, now=NOW - 1) == "ok"
    word, _, detail = opened(policy, now=NOW)
    assert word == "untrusted"
    assert detail.endswith("key ci has expired")


def test_rules_of_other_targets_do_not_count(client_folder, opened):
    write_signatures(client_folder, sign(client_folder, "ci"))
    other = policy_rule("builder", target="npu2")
    policy = policy_table([policy_key("ci", "builder")], [other])
    word, text, _ = opened(policy)
    assert word == "bad policy"
    assert "expected one for target sim, found none" in text
    strict = policy_table(
        [policy_key("ci", "builder"), policy_key("lab", "tester")],
        [policy_rule("builder"), policy_rule("tester", target="npu2")],
    )
    assert opened(strict) == "ok"
    # A lock for another target than the engine's is refused however well it is signed.
    assert opened(policy, target="npu2")[0] == "wrong target"


GOOD_KEY, GOOD_RULE = policy_key("ci", "builder"), policy_rule("builder")
BAD_POLICIES = {
    "a misspelt field": policy_table([GOOD_KEY], [GOOD_RULE | {"treshold": 1}]),
    "a misspelt key field": policy_table([GOOD_KEY | {"expire": "2100-01-01T00:00:00Z"}], [GOOD_RULE]),
    "a field more": POLICY | {"comment": "x"},
    "another schema": POLICY | {"schema": "elfkiln-policy/2"},
    "no schema": {k: v for k, v in POLICY.items() if k != "schema"},
    "a list": [POLICY],
    "no keys": policy_table([], [GOOD_RULE]),
    "33 keys": policy_table([policy_key(f"k{i}", "builder") for i in range(33)], [GOOD_RULE]),
    "no rules": policy_table([GOOD_KEY], []),
    "33 rules": policy_table([GOOD_KEY], [GOOD_RULE] * 33),
    "a threshold of 0": policy_table([GOOD_KEY], [policy_rule("builder", 0)]),
    "a threshold below 0": policy_table([GOOD_KEY], [policy_rule("builder", -1)]),
    "a threshold of true": policy_table([GOOD_KEY], [policy_rule("builder", True)]),
    "a threshold that no keys reach": policy_table([GOOD_KEY], [policy_rule("builder", 2)]),
    "a role that no key has": policy_table([GOOD_KEY], [policy_rule("tester")]),
    "a key twice": policy_table([GOOD_KEY, GOOD_KEY | {"name": "again"}], [GOOD_RULE]),
    "a name twice": policy_table([GOOD_KEY, policy_key("other", "builder") | {"name": "ci"}], [GOOD_RULE]),
    "no expiry": policy_table([{k: v for k, v in GOOD_KEY.items() if k != "expires"}], [GOOD_RULE]),
    "an expiry without a zone": policy_table([GOOD_KEY | {"expires": "2100-01-01T00:00:00"}], [GOOD_RULE]),
    "no roles": policy_table([GOOD_KEY | {"roles": []}], [GOOD_RULE]),
    "a role that is no text": policy_table([GOOD_KEY | {"roles": [1]}], [GOOD_RULE]),
    "roles in one text": policy_table([GOOD_KEY | {"roles": "builder"}], [GOOD_RULE]),
    "an empty name": policy_table([GOOD_KEY | {"name": ""}], [GOOD_RULE]),
    "an empty target": policy_table([GOOD_KEY], [GOOD_RULE | {"target": ""}]),
    "a key of 31 bytes": policy_table([GOOD_KEY | {"ed25519": base64.b64encode(b"1" * 31).decode()}], [GOOD_RULE]),
    "a key in hex": policy_table([GOOD_KEY | {"ed25519": ed.public_key(seed_of("ci")).hex()}], [GOOD_RULE]),
    "a key that is no point": policy_table(
        [GOOD_KEY | {"ed25519": base64.b64encode(b"\2" + bytes(31)).decode()}], [GOOD_RULE]
    ),
    "a key of small order": policy_table(
        [GOOD_KEY | {"ed25519": base64.b64encode(b"\1" + bytes(31)).decode()}], [GOOD_RULE]
    ),
    "no JSON": b"keys:",
    "nothing": b"",
}


@pytest.mark.parametrize("case", BAD_POLICIES)
def test_a_policy_is_read_to_the_letter(client_folder, opened, tmp_path, case):
    write_signatures(client_folder, sign(client_folder, "ci"))
    word, text, _ = opened(BAD_POLICIES[case])
    assert word == "bad policy"
    assert text.startswith(f"{tmp_path / 'policy.json'}: ")


def test_a_policy_with_identities_is_refused_in_words_of_its_own(client_folder, opened, tmp_path):
    """The client verifies keys alone. What an identity would have to say is never left out in silence."""
    write_signatures(client_folder, sign(client_folder, "ci"))
    for identities in ([], [{"name": "release"}], None):
        word, text, _ = opened(POLICY | {"identities": identities})
        assert word == "bad policy"
        assert text.startswith(f"{tmp_path / 'policy.json'}: identities: expected a policy of keys alone, as the ")


def test_the_point_that_is_none_is_none():
    assert ed.decode(b"\2" + bytes(31)) is None
    assert ed.decode(b"\1" + bytes(31)) == ed.NEUTRAL


@pytest.mark.parametrize("case", BAD_POLICIES)
def test_elfkiln_reads_a_policy_to_the_same_letter(tmp_path, case):
    policy = BAD_POLICIES[case]
    path = tmp_path / "policy.json"
    path.write_bytes(policy if isinstance(policy, bytes) else json.dumps(policy).encode())
    with pytest.raises(Refused):
        read_policy(path)


def test_elfkiln_and_the_client_say_the_same_of_signatures(client_folder, opened, tmp_path):
    """The rules are written twice: for engines in C, and for check-missing, install and pull in Python."""
    expired = policy_key("old", "builder", "tester", expires="2027-01-15T08:00:00Z")
    keys = [policy_key("ci", "builder"), policy_key("lab", "tester"), policy_key("lab2", "tester", "builder"), expired]
    rules = [
        policy_rule("builder"),
        policy_rule("builder", 2),
        policy_rule("tester", 2, TEST_RESULT),
        policy_rule("tester", 1, "https://slsa.dev/provenance/v1"),
        policy_rule("tester", target="npu2"),
    ]
    digest, rng, outcomes = lock_digest(client_folder), random.Random(2), []
    for _ in range(60):
        table = policy_table(keys, rng.sample(rules[:4], rng.randrange(1, 3)) + rules[4:])
        envelopes = []
        for _ in range(rng.randrange(1, 4)):
            predicate = rng.choice([VSA, VSA, TEST_RESULT, "https://slsa.dev/provenance/v1"])
            one = statement(rng.choice([digest, digest, digest, sha256(b"")]), predicate)
            if rng.random() < 0.2:
                one["predicate"] = {"result": "FAILED", "verificationResult": "FAILED"}
            signers = rng.sample(["ci", "lab", "lab2", "old", "stranger"], rng.randrange(1, 3))
            envelopes.append(envelope(one, *signers))
        write_signatures(client_folder, *envelopes)
        (tmp_path / "policy.json").write_text(json.dumps(table))
        try:
            read_policy(tmp_path / "policy.json").require(
                "sim",
                digest,
                [
                    read_envelope(line, "line")
                    for line in (client_folder / "kernels.lock.intoto.jsonl").read_bytes().splitlines()
                ],
                datetime.datetime.fromtimestamp(NOW, datetime.UTC),
                "kernels.lock.json",
            )
            expected = True
        except Differs:
            expected = False
        outcomes.append(expected)
        assert (opened(table) == "ok") == expected, (table, envelopes)
    # Both answers occur.
    assert 3 <= sum(outcomes) <= 57


def test_a_set_that_elfkiln_signed_opens(project, stand_in, probe, tmp_path):
    """From keygen to an engine: build, install, sign dir=, and the client under a policy."""
    assert build_elfs(project, stand_in, [model_requirements(project, "tiny")]).exit_code == 0
    folder = tmp_path / "model"
    install(project, "sim", model_requirements(project, "tiny"), folder)
    public = write_key_pair(tmp_path / "host.key")
    assert main(["sign", f"root={project.root}", f"dir={folder}", f"key={tmp_path / 'host.key'}"]) == 0
    key = policy_key("host", "installer", ed25519=public)
    (tmp_path / "policy.json").write_text(json.dumps(policy_table([key], [policy_rule("installer")])))
    options = {"dir": folder, "target": "sim", "without_plan": 1, "policy": tmp_path / "policy.json", "now": NOW}
    names = probe.names(**options)
    assert len(names) == TINY_NAMES
    assert {row[0] for row in probe.rows(*names, **options)} == {"name", "artifact"}
    path = folder / "kernels" / names[0] if "_m16" not in names[0] else folder / "kernels-m16" / names[0]
    path.unlink()
    path.write_bytes(bytes(5000))
    assert probe.get(names[0], **options)[2] == "wrong bytes"


def test_a_policy_that_is_not_there(probe, client_folder, tmp_path):
    write_signatures(client_folder, sign(client_folder, "ci"))
    path = tmp_path / "none.json"
    assert probe.refusal(dir=client_folder, target="sim", policy=path) == ("bad policy", f"{path}: missing")
    assert probe.refusal(dir=client_folder, target="sim", policy=tmp_path)[0] == "bad policy"


def test_a_statement_names_what_trust_says_it_should():
    """The forms of this file are the published ones: a change here would be one for everybody."""
    one = statement("0" * 64)
    assert one["_type"] == STATEMENT == "https://in-toto.io/Statement/v1"
    assert envelope(one, "ci")["payloadType"] == "application/vnd.in-toto+json"
