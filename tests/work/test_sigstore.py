"""Identities: bundles by a sigstore of the tests' own, held against policies, and made by its services on loopback."""

from __future__ import annotations

import base64
import datetime
import io
import json
import logging
import socket
import sys
import threading

import pytest
from cryptography import x509

from elfkiln.cli import main
from elfkiln.cli.json_forms import FORMS, misfit
from elfkiln.errors import Differs, Refused
from elfkiln.io.canonical import sha256_hex
from elfkiln.store.attestations import attest_bundle, attestations, result_predicate, statement
from elfkiln.store.blobs import Store
from elfkiln.store.healing import entries_of_manifests
from elfkiln.store.oci_address import OciAddress
from elfkiln.store.oci_registry import OciRegistry
from elfkiln.store.policy import parse_policy, read_policy
from elfkiln.store.signing_keys import write_key_pair
from elfkiln.store.sigstore_bundle import read_bundle
from elfkiln.store.statement_types import PROVENANCE, TEST_RESULT
from elfkiln.work.archive import export_sets, import_sets
from elfkiln.work.asked import asked_by_model
from elfkiln.work.fsck import fsck
from elfkiln.work.gc import collect
from elfkiln.work.lookup import lookup_set
from elfkiln.work.pull import pull_set
from elfkiln.work.push import push_sets
from elfkiln.work.trust import accepting, untrusted
from fake_sigstore import BUNDLE, ISSUER, SOMEBODY, START, FakeSigstore, b64, changed, compact, serving_sigstore
from kilns import copy_kiln
from oci_server import Registry, serving
from programs import need_package
from projects import TINY_NAMES, TINY_RECIPES, make_project

DIGEST = "ab" * 32
NOW = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
WORKFLOW = "https://ci.example/team/kernels/.ci/release.yml@refs/tags/v1.2"
SAID = statement("x", DIGEST, PROVENANCE, {})
NAME = "full_i8_QKV_K256_N768_b8.elf"


@pytest.fixture(scope="module", autouse=True)
def _extra():
    need_package("sigstore.models", "requirements-sigstore.txt")


@pytest.fixture(scope="module")
def ours():
    return FakeSigstore("ours")


@pytest.fixture(scope="module")
def theirs():
    """Another sigstore, which gives anybody any name."""
    return FakeSigstore("theirs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, ours, theirs):
    """The folder of the policies, with the trusted roots they name."""
    folder = tmp_path_factory.mktemp("policies")
    # An authority for time stamps is in ours, once it was asked.
    ours.timestamp(b"first", folder)
    (folder / "root.json").write_text(json.dumps(ours.trusted_root()))
    (folder / "theirs.json").write_text(json.dumps(theirs.trusted_root()))
    return folder


def identity(name="release", who=SOMEBODY, **changes):
    row = {
        "name": name,
        "identity_pattern" if "*" in who else "identity": who,
        "issuer": ISSUER,
        "roles": ["builder"],
        "expires": "2027-06-30T00:00:00Z",
        "trusted_root": {"file": "root.json"},
    }
    return row | changes


def rule(**changes):
    return {"target": "npu2", "predicate": PROVENANCE, "role": "builder", "threshold": 1} | changes


def policy(*identities, rules=None, **changes):
    return {
        "schema": "elfkiln-policy/1",
        "identities": list(identities) or [identity()],
        "rules": rules or [rule()],
    } | changes


def taken(bundle):
    return read_bundle(json.dumps(bundle).encode(), "b")


def require(folder, table, *bundles, target="npu2", **how):
    parse_policy(table, "policy.json", folder).require(
        target, DIGEST, [taken(one) for one in bundles], NOW, "a.elf", **how
    )


def words_of(folder, table, *bundles, **how):
    with pytest.raises(Differs) as caught:
        require(folder, table, *bundles, **how)
    return str(caught.value)


# --- what a policy takes --------------------------------------------------------------------------------------------


def test_an_identity_vouches_without_any_network(folder, ours, monkeypatch):
    bundles = [ours.bundle(SAID), ours.bundle(SAID, stamped=folder)]

    def connect(*_):
        raise AssertionError("the network was used")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    # By the log's promise (Rekor v1) and by a time stamp of openssl's (Rekor v2).
    for bundle in bundles:
        require(folder, policy(), bundle)


def test_keys_and_identities_count_towards_one_threshold(folder, ours, tmp_path):
    key = {"name": "ci", "ed25519": write_key_pair(tmp_path / "ci"), "roles": ["builder"]}
    keys = [key | {"expires": "2027-06-30T00:00:00Z"}]
    table = policy(keys=keys, rules=[rule(threshold=2)])
    from elfkiln.store.dsse import read_envelope, seal
    from elfkiln.store.signing_keys import load_key

    envelope = read_envelope(seal(SAID, [load_key(tmp_path / "ci")]), "e")
    bundle = taken(ours.bundle(SAID))
    parsed = parse_policy(table, "policy.json", folder)
    parsed.require("npu2", DIGEST, [envelope, bundle], NOW, "a.elf")
    for signed in ([envelope], [bundle, bundle], [bundle, taken(ours.bundle(SAID))]):
        with pytest.raises(Differs, match=r"expected signatures by 2 of role builder .* found 1"):
            parsed.require("npu2", DIGEST, signed, NOW, "a.elf")


def test_nobody_counts_twice_by_being_two_of_the_policy_s_identities(folder, ours):
    both = policy(identity("any", "*@example.com"), identity(), rules=[rule(threshold=2)])
    found = words_of(folder, both, ours.bundle(SAID), ours.bundle(SAID))
    assert "found 1" in found
    require(folder, both, ours.bundle(SAID), ours.bundle(SAID, "other@example.com"))


@pytest.mark.parametrize(
    ("pattern", "who", "fits"),
    [
        ("https://ci.example/team/kernels/.ci/release.yml@refs/tags/v*", WORKFLOW, True),
        ("https://ci.example/team/*/.ci/release.yml@refs/tags/v*", WORKFLOW, True),
        ("https://ci.example/team/*@refs/tags/v*", WORKFLOW, False),
        ("https://ci.example/team/kernels/.ci/release.yml@refs/*", WORKFLOW, False),
        ("https://ci.example/team/kernels/.ci/release.yml@refs/tags/v1.2*", WORKFLOW, False),
        ("https://ci.example/team/kernels/.ci/release.yml@refs/tags/v*", f"{WORKFLOW}\n", True),
        ("https://ci-example/team/kernels/.ci/release.yml@refs/tags/v*", WORKFLOW, False),
        ("https://ci.example/team/kernels/.ci/release.yml@refs/tags/v*", f"https://x.example/?{WORKFLOW}", False),
        ("*@example.com", SOMEBODY, True),
        ("*@example.com", "a@b@example.com", False),
        ("*@example.com", "build@example.com.evil.example", False),
        ("*@example.com", "build@exampleXcom", False),
    ],
)
def test_a_pattern(folder, pattern, who, fits):
    from elfkiln.store.sigstore_bundle import Identity

    (one,) = parse_policy(policy(identity(who=pattern)), "p", folder).identities
    assert one.fits(Identity(who, ISSUER)) is fits
    assert not one.fits(Identity(who, "https://issuer.example.evil"))


def test_an_identity_without_a_star_is_a_letter_by_letter_one(folder, ours):
    require(folder, policy(identity(who=WORKFLOW)), ours.bundle(SAID, WORKFLOW))
    found = words_of(folder, policy(identity(who=WORKFLOW)), ours.bundle(SAID, WORKFLOW.replace("v1.2", "v1x2")))
    assert found.endswith(f"v1x2 (by {ISSUER}), who is not one of the policy's identities")


def test_a_name_that_is_neither_mail_nor_uri(folder, ours):
    """Fulcio's own kind of name, OtherName 1.3.6.1.4.1.57264.1.7 with a UTF8String."""
    oid = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.7")
    names = [x509.OtherName(oid, b"\x0c\x04team")]
    require(folder, policy(identity(who="team")), ours.bundle(SAID, names))


def test_a_result_that_an_identity_calls_bad_is_not_outweighed(folder, ours):
    good = statement("x", DIGEST, TEST_RESULT, result_predicate(["gemm"], [], [], []))
    bad = statement("x", DIGEST, TEST_RESULT, result_predicate([], ["gemm"], [], []))
    table = policy(rules=[rule(predicate=TEST_RESULT)])
    require(folder, table, ours.bundle(good), no_failures=True)
    found = words_of(folder, table, ours.bundle(good), ours.bundle(bad), no_failures=True)
    assert "release signed a result that is FAILED" in found


# --- and what it refuses, each in its words -------------------------------------------------------------------------


def other_statement(bundle):
    return changed(bundle, "dsseEnvelope", "payload", to=b64(statement("x", DIGEST, PROVENANCE, {"by": "me"})))


ENTRY = ("verificationMaterial", "tlogEntries", 0)
PROOF = (*ENTRY, "inclusionProof")


def flipped(text):
    """Base64 of the same bytes but for the last bit."""
    data = base64.b64decode(text)
    return b64(data[:-1] + bytes((data[-1] ^ 1,)))


def without(bundle, *path):
    made = changed(bundle, *path, to=None)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return made


def swapped(bundle, other, *path):
    """A bundle with one field of another one."""
    for step in path:
        other = other[step]
    return changed(bundle, *path, to=other)


REFUSED = {
    "no bundle": (lambda _o, _t: [], "found 0: it has no signed statement"),
    "wrong identity": (
        lambda o, _: [o.bundle(SAID, "eve@example.com")],
        f"a sigstore bundle in the name of eve@example.com (by {ISSUER}), who is not one of the policy's identities",
    ),
    "wrong issuer": (
        lambda o, _: [o.bundle(SAID, issuer="https://login.example")],
        f"{SOMEBODY} (by https://login.example): another issuer than the policy's {ISSUER}",
    ),
    "other digest": (
        lambda o, _: [o.bundle(statement("x", "cd" * 32, PROVENANCE, {}))],
        "release: about another digest",
    ),
    "tampered statement": (lambda o, _: [other_statement(o.bundle(SAID))], "statement or signature was changed"),
    "tampered signature": (
        lambda o, _: [changed(o.bundle(SAID), "dsseEnvelope", "signatures", 0, "sig", to=flipped)],
        "statement or signature was changed",
    ),
    "another authority": (
        lambda _, t: [t.bundle(SAID)],
        "its certificate is by no authority of {folder}/root.json for that time",
    ),
    "a certificate of another bundle": (
        lambda o, _: [swapped(o.bundle(SAID), o.bundle(SAID), "verificationMaterial", "certificate")],
        "statement or signature was changed",
    ),
    "no certificate log": (
        lambda o, _: [o.bundle(SAID, logged=False)],
        "its certificate is in no certificate log of {folder}/root.json",
    ),
    "log entry of another log": (
        lambda o, t: [changed(o.bundle(SAID), *ENTRY, to=lambda e: t.enter(base64.b64decode(e["canonicalizedBody"])))],
        "its log entry is in no log of {folder}/root.json, or forged",
    ),
    "log entry with another root": (
        lambda o, _: [changed(o.bundle(SAID), *PROOF, "rootHash", to=flipped)],
        "its log entry is in no log of {folder}/root.json, or forged",
    ),
    "log entry with a shorter proof": (
        lambda o, _: [changed(o.bundle(SAID), *PROOF, "hashes", to=lambda hashes: hashes[1:])],
        "its log entry is in no log of {folder}/root.json, or forged",
    ),
    "log entry with another promise": (
        lambda o, _: [changed(o.bundle(SAID), *ENTRY, "integratedTime", to=lambda text: str(int(text) - 1))],
        "its log entry is in no log of {folder}/root.json, or forged",
    ),
    "log entry about something else": (
        lambda o, _: [swapped(o.bundle(SAID), o.bundle(SAID), *ENTRY)],
        "its log entry is about something else",
    ),
    "log entry without a proof": (
        lambda o, _: [without(o.bundle(SAID), *PROOF, "checkpoint")],
        "its log entry has no proof",
    ),
    "a field that is not of the format": (
        lambda o, _: [changed(o.bundle(SAID), *ENTRY, "logIndex", to="first")],
        "(verificationMaterial.tlogEntries.0.logIndex: Value error, invalid literal for int() with base 10: 'first')",
    ),
    "no time": (
        lambda o, _: [without(o.bundle(SAID), *ENTRY, "inclusionPromise")],
        "no log or timestamp authority says when it was signed",
    ),
    "a predicate that the rule is not about": (
        lambda o, _: [o.bundle(statement("x", DIGEST, TEST_RESULT, {"result": "PASSED"}))],
        f"release: a statement of type {TEST_RESULT}",
    ),
    "an entry of a kind that binds no statement": (
        lambda o, _: [
            changed(
                o.bundle(SAID), *ENTRY, to=lambda e: o.enter(base64.b64decode(e["canonicalizedBody"]), "hashedrekord")
            )
        ],
        "its log entry is of a kind that does not bind a statement",
    ),
    "not a statement": (lambda o, _: [o.bundle(b"[]")], "release: not an in-toto statement of version 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_why_a_bundle_does_not_count(folder, ours, theirs, case):
    make, words = REFUSED[case]
    found = words_of(folder, policy(), *make(ours, theirs))
    assert found.startswith(f"a.elf: {PROVENANCE}: expected signatures by 1 of role builder (policy.json), found 0: ")
    assert found.endswith(words.replace("{folder}", str(folder)))
    assert "\n" not in found


def test_an_entry_that_was_made_after_the_certificate_ended(folder, ours):
    """A certificate is of ten minutes. A key that leaks afterwards signs nothing that counts."""
    bundle = ours.bundle(SAID)
    ours.now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=11)
    try:
        late = changed(bundle, *ENTRY, to=lambda entry: ours.enter(base64.b64decode(entry["canonicalizedBody"])))
    finally:
        ours.now = None
    assert "its certificate is by no authority of" in words_of(folder, policy(), late)


LATER, BEFORE = "2100-01-01T00:00:00Z", "2020-06-01T00:00:00Z"
ROOT_PARTS = {
    "authority": (("certificateAuthorities", 0, "validFor"), "its certificate is by no authority of"),
    "log": (("tlogs", 0, "publicKey", "validFor"), "its log entry is in no log of"),
    "certificate log": (("ctlogs", 0, "publicKey", "validFor"), "its certificate is in no certificate log of"),
    "time stamp authority": (("timestampAuthorities", 0, "validFor"), "no log or timestamp authority of"),
}


@pytest.mark.parametrize("part", ROOT_PARTS)
def test_what_a_root_has_retired_vouches_for_nothing_made_since(folder, ours, tmp_path, part):
    """Whoever gets the key of a retired authority or log makes no identity with it today."""
    place, words = ROOT_PARTS[part]
    root = json.loads((folder / "root.json").read_text())
    bundle = ours.bundle(SAID, **({"stamped": folder} if part == "time stamp authority" else {}))
    file = tmp_path / "root.json"
    file.write_text(json.dumps(changed(root, *place, to={"start": START, "end": LATER})))
    require(tmp_path, policy(), bundle)
    file.write_text(json.dumps(changed(root, *place, to={"start": START, "end": BEFORE})))
    assert f"{words} {file}" in words_of(tmp_path, policy(), bundle)
    # Beside one that counts still, by the same key or another.
    rows = root[place[0]]
    both = root | {place[0]: [*json.loads(file.read_text())[place[0]], *rows]}
    file.write_text(json.dumps(both))
    require(tmp_path, policy(), bundle)


def test_roles_times_targets_and_roots(folder, ours, theirs):
    bundle = ours.bundle(SAID)
    expired = policy(identity(expires="2026-12-01T00:00:00Z"))
    assert words_of(folder, expired, bundle).endswith("release: expired")
    tester = policy(identity(roles=["tester"]), identity("other", "else@example.com"))
    assert words_of(folder, tester, bundle).endswith("release: not of role builder")
    assert "has no rule for target sim" in words_of(folder, policy(), bundle, target="sim")
    # An identity is one by its own root alone: the same name by another sigstore is somebody else.
    two = policy(identity(), identity("lab", "lab@example.com", trusted_root={"file": "theirs.json"}))
    found = words_of(folder, two, theirs.bundle(SAID))
    assert "who is not one of the policy's identities" in found
    require(folder, two, theirs.bundle(SAID, "lab@example.com"))
    assert "no identities" in words_of(folder, keyed(), bundle)


def keyed():
    key = base64.b64encode(bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")).decode()
    row = {"name": "ci", "ed25519": key, "roles": ["builder"], "expires": "2027-06-30T00:00:00Z"}
    return {"schema": "elfkiln-policy/1", "keys": [row], "rules": [rule()]}


# --- bundles that are none, read without sigstore -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda b: b | {"mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.2"},
            "mediaType: expected app",
        ),
        (lambda b: b | {"mediaType": "application/vnd.dev.sigstore.bundle.v0.4+json"}, f"expected {BUNDLE}, found"),
        (lambda b: b | {"messageSignature": {"signature": "AAAA"}}, "found messageSignature"),
        (lambda b: b | {"dsse_envelope": b["dsseEnvelope"]}, "found dsse_envelope"),
        (lambda b: changed(b, "dsseEnvelope", "signatures", to=lambda s: s * 2), "signatures: expected one signature"),
        (lambda b: changed(b, "dsseEnvelope", "signatures", to=[]), "expected one signature, found 0"),
        (lambda b: changed(b, "dsseEnvelope", "payload_type", to="x"), "found payload_type"),
        (lambda b: changed(b, "dsseEnvelope", "payloadType", to="text/plain"), "payloadType: expected"),
        (lambda b: changed(b, "dsseEnvelope", "payload", to="!!"), "payload: expected base64"),
        (lambda b: changed(b, "verificationMaterial", "tlogEntries", to=[]), "expected one entry of a log, found 0"),
        (
            lambda b: changed(b, "verificationMaterial", "tlogEntries", to=lambda e: e * 2),
            "one entry of a log, found 2",
        ),
        (lambda b: changed(b, "verificationMaterial", "certificate", "rawBytes", to="AAAA"), "a certificate of one"),
        (lambda b: without(b, "verificationMaterial", "certificate"), "no certificate"),
        (lambda b: changed(b, "verificationMaterial", "publicKey", to={"hint": "x"}), "found publicKey"),
        (lambda _: [], "expected an object"),
    ],
)
def test_what_is_not_a_bundle(ours, change, words):
    with pytest.raises(Refused) as caught:
        taken(change(ours.bundle(SAID)))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("who", "issuer", "words"),
    [
        ([x509.RFC822Name("a@example.com"), x509.RFC822Name("b@example.com")], ISSUER, "2 names"),
        ([x509.DNSName("example.com")], ISSUER, "a name of another kind"),
        ([x509.OtherName(x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.7"), b"\x04\x04team")], ISSUER, "not a UTF8String"),
        (SOMEBODY, None, "0 issuers"),
    ],
)
def test_a_certificate_of_no_single_identity(ours, who, issuer, words):
    with pytest.raises(Refused, match=words):
        taken(ours.bundle(SAID, who, issuer))


def test_a_field_twice_and_a_cut_bundle(ours):
    data = json.dumps(ours.bundle(SAID)).encode()
    twice = data.replace(b'"payload":', b'"payload": "e30=", "payload":', 1)
    with pytest.raises(Refused, match="'payload' twice"):
        read_bundle(twice, "b")
    for size in (0, 1, len(data) // 2, len(data) - 1):
        with pytest.raises(Refused, match="JSON"):
            read_bundle(data[:size], "b")


def test_a_bundle_on_a_plain_message_states_nothing(ours):
    plain = without(ours.bundle(SAID), "dsseEnvelope") | {"messageSignature": {"signature": "AAAA"}}
    assert read_bundle(json.dumps(plain).encode(), "b") is None


# --- policies that are none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (policy(identity(trusted_root={"file": "absent.json"})), "absent.json: missing"),
        (policy(identity(trusted_root={"file": "."})), "folder"),
        (
            policy(identity(trusted_root={"file": "root.json", "sha256": "00" * 32})),
            "expected sha256:0000.*find out who",
        ),
        (policy(identity(trusted_root={"file": "root.json", "sha256": "x"})), "64 lower-case hex digits"),
        (policy(identity(trusted_root={"file": "root.json", "url": "https://x"})), "found url"),
        (policy(identity(trusted_root="public-good")), "trusted_root: expected an object"),
        (policy(without(identity(), "trusted_root")), "no trusted_root"),
        (policy(without(identity(), "issuer")), "no issuer"),
        (policy(without(identity(), "expires")), "no expires"),
        (policy(without(identity(), "identity")), "identity_pattern: expected a string"),
        (policy(identity(identity_pattern="*@example.com")), "expected identity or identity_pattern, found both"),
        (policy(identity(who="a") | {"identity": "a*"}), "letter by letter"),
        (policy(without(identity(), "identity") | {"identity_pattern": "a"}), "a pattern with a \\*"),
        (policy(identity(who="*@*")), "says more than"),
        (policy(identity(roles=[])), "a list of roles"),
        (policy(identity(role="x")), "found role"),
        (policy(identity(), identity(who="b@example.com")), "each identity once.*release again"),
        (policy(identity(), identity("again")), "each identity once.*again again"),
        (policy(identity("ci"), keys=keyed()["keys"]), "each identity once.*ci again"),
        (policy(identities=[]), "identities: expected a list of at least 1"),
        (policy(rules=[rule(threshold=2)]), "from 1 to 1"),
        (policy(rules=[rule(role="tester")]), "role: expected a role that a key"),
        (policy(keys=[]), "keys: expected a list of at least 1"),
    ],
)
def test_what_is_not_a_policy(folder, table, words):
    with pytest.raises(Refused, match=words):
        parse_policy(table, "policy.json", folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: b"trusted", "expected JSON"),
        (lambda data: data[:-9], "expected JSON"),
        (lambda data: data.replace(b'"tlogs":', b'"tlogs": [], "tlogs":', 1), "'tlogs' twice"),
        (lambda data: data.replace(b"version=0.1", b"version=0.9"), "mediaType: expected"),
        (
            lambda data: compact(changed(json.loads(data), "certificateAuthorities", to=[])),
            "certificateAuthorities: exp",
        ),
        (lambda data: compact(changed(json.loads(data), "tlogs", to=[])), "tlogs: expected a list of at least 1"),
        (
            lambda data: compact(changed(json.loads(data), "ctlogs", 0, "publicKey", to={})),
            "a trusted root of sigstore",
        ),
        (lambda data: compact(json.loads(data) | {"more": 1}), "a trusted root of sigstore"),
        (lambda _: b"[]", "expected an object"),
    ],
)
def test_a_trusted_root_that_is_none(folder, tmp_path, change, words):
    data = (folder / "root.json").read_bytes()
    (tmp_path / "root.json").write_bytes(change(data))
    with pytest.raises(Refused, match=words) as caught:
        parse_policy(policy(), "policy.json", tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'root.json'}: ")
    # A root that is named by its digest is that one or none.
    pinned = policy(identity(trusted_root={"file": "root.json", "sha256": sha256_hex(data)}))
    parse_policy(pinned, "policy.json", folder)
    with pytest.raises(Refused, match="find out who changed the root"):
        parse_policy(pinned, "policy.json", tmp_path)


def test_a_policy_names_its_root_from_its_own_folder(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder / "p.json").write_text(json.dumps(policy()))
    assert [one.name for one in read_policy(folder / "p.json").identities] == ["release"]


def test_sigstore_s_public_root_is_one_that_a_policy_can_name(tmp_path):
    """The root of the public-good instance as sigstore-python carries it; no policy takes it without naming it."""
    from sigstore._utils import read_embedded

    data = read_embedded("trusted_root.json", "https://tuf-repo-cdn.sigstore.dev")
    (tmp_path / "root.json").write_bytes(data)
    parse_policy(policy(), "policy.json", tmp_path)


# --- without the extra ----------------------------------------------------------------------------------------------


def test_without_the_extra_an_identity_is_refused_and_keys_go_on(folder, monkeypatch, project, capsys):
    monkeypatch.setitem(sys.modules, "sigstore.models", None)
    parse_policy(keyed(), "policy.json", folder)
    (folder / "p.json").write_text(json.dumps(policy()))
    line = "needs sigstore, which is not installed; pip install 'elfkiln[sigstore]'"
    words = ["model=tiny", f"root={project.root}"]
    assert main(["check-missing", *words, f"policy={folder / 'p.json'}"]) == 2
    assert f"p.json: identities[0].trusted_root: {line}" in capsys.readouterr().err
    (folder / "token").write_text("x.y.z")
    assert main(["sign", *words, f"identity={folder / 'token'}", "trust=x"]) == 2
    assert f"sign: identity=: {line}" in capsys.readouterr().err


# --- signing --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(sim_kiln, tmp_path_factory, ours):
    """A built project, the URL of the services, and a folder with their trust config, a token and a policy."""
    folder = tmp_path_factory.mktemp("world")
    project = copy_kiln(sim_kiln, folder / "project")
    with serving_sigstore(ours) as url:
        (folder / "sigstore.json").write_text(json.dumps(ours.trust_config(url)))
        (folder / "root.json").write_text(json.dumps(ours.trusted_root()))
        (folder / "token").write_text(f"{ours.token()}\n")
        table = policy(rules=[rule(target="sim"), rule(target="sim", predicate=TEST_RESULT)])
        (folder / "policy.json").write_text(json.dumps(table))
        yield project, folder


@pytest.fixture
def here(world, tmp_path):
    return copy_kiln(world[0], tmp_path / "here")


def signing(project, folder, **changes):
    given = {"model": "tiny", "root": project.root, "identity": folder / "token", "trust": folder / "sigstore.json"}
    return main(["sign", *(f"{key}={value}" for key, value in (given | changes).items() if value is not None)])


def rows(project):
    return lookup_set(project, "sim", asked_by_model(project, "tiny").wanted)


def test_from_a_token_to_a_set_that_is_checked(here, world, capsys):
    folder = world[1]
    words = ["model=tiny", f"root={here.root}"]
    checked = ["check-missing", *words, f"policy={folder / 'policy.json'}", "--require-signed"]
    assert main(checked) == 1
    capsys.readouterr()
    assert signing(here, folder) == 0
    made = 2 * TINY_RECIPES
    assert capsys.readouterr().out == f"{TINY_NAMES} names: {made} statements signed as {SOMEBODY} (by {ISSUER})\n"
    assert main(checked) == 0
    # Once is enough, whoever asks again.
    capsys.readouterr()
    assert main(["sign", *words, f"identity={folder / 'token'}", f"trust={folder / 'sigstore.json'}", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table == {"names": TINY_NAMES, "signed": 0, "identity": SOMEBODY, "issuer": ISSUER}
    assert misfit(table, FORMS["sign"][1]) is None
    assert main(["attestations", NAME, f"root={here.root}"]) == 0
    out = capsys.readouterr().out
    assert f"{PROVENANCE}, sigstore bundle in the name of {SOMEBODY} (by {ISSUER}), sha256:" in out
    assert f"{PROVENANCE}, not signed" in out
    for verb in ("attestations", "inspect"):
        assert main([verb, NAME, f"root={here.root}", "--json"]) == 0
        table = json.loads(capsys.readouterr().out)
        assert misfit(table, FORMS[verb][0]) is None
        (said,) = table if verb == "attestations" else table["attestations"]
        found = {(one["signatures"], one["identity"], one["issuer"]) for one in said["attestations"]}
        assert found == {(0, None, None), (1, SOMEBODY, ISSUER)}
    # A key signs what an identity signed, too, and the other way round.
    write_key_pair(folder / "ci")
    assert main(["sign", *words, f"key={folder / 'ci'}"]) == 0
    assert f": {made} statements signed" in capsys.readouterr().out


def test_a_bundle_is_stored_as_cosign_stores_it_and_travels(here, world, tmp_path):
    folder = world[1]
    assert signing(here, folder) == 0
    store, entry = Store(here.store), next(row.entry for row in rows(here) if row.key == NAME)
    tables = [store.manifest(one) for one in store.refs().values()]
    bundles = [one for one in tables if one.get("artifactType") == BUNDLE]
    (one,) = [
        one
        for one in bundles
        if one["subject"]["digest"] == f"sha256:{entry.manifest}"
        and one["annotations"]["dev.sigstore.bundle.predicateType"] == PROVENANCE
    ]
    assert one["subject"]["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert one["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
    assert [layer["mediaType"] for layer in one["layers"]] == [BUNDLE]
    assert one["annotations"]["dev.sigstore.bundle.content"] == "dsse-envelope"
    # The store's index can be made anew from the manifests, these too.
    healed = {one.digest: dict(one.annotations) for one in entries_of_manifests(store)}
    named = {descriptor.digest: name for name, descriptor in store.refs().items()}
    assert {digest: notes["org.opencontainers.image.ref.name"] for digest, notes in healed.items()} == named
    allowed = read_policy(folder / "policy.json")
    with serving(Registry()) as host:
        registry = OciRegistry(OciAddress.parse(f"oci://{host}/a"), plain_http=True, environment={})
        push_sets(here, registry, [asked_by_model(here, "tiny")])
        pulled = make_project(tmp_path / "pulled")
        pull_set(pulled, registry, "tiny-sim", accepting(pulled, allowed))
    archive = io.BytesIO()
    export_sets(here, [asked_by_model(here, "tiny")], archive)
    imported = make_project(tmp_path / "imported")
    import_sets(imported, io.BytesIO(archive.getvalue()), "a.tar", accepting(imported, allowed))
    # What nothing reaches goes after a while, and a bundle is reached by the artifact it is about.
    collect(imported, delete=True, grace=0)
    assert fsck(imported).exit_code == 0
    for project in (pulled, imported):
        assert untrusted(project, "sim", rows(project), allowed) == {}
        others = read_policy_of(folder, identity(who="eve@example.com"))
        assert len(untrusted(project, "sim", rows(project), others)) == TINY_NAMES


def read_policy_of(folder, *identities):
    return parse_policy(policy(*identities, rules=[rule(target="sim")]), "policy.json", folder)


def test_a_signature_by_cosign_beside_ours_is_passed_over_and_a_broken_bundle_named(here, ours):
    store, entry = Store(here.store), rows(here)[0].entry
    plain = without(ours.bundle(SAID), "dsseEnvelope") | {"messageSignature": {"signature": "AAAA"}}
    before = attestations(store, [entry.manifest])
    # As another tool would have put it there: the same manifest, with other content.
    put_raw(store, entry.manifest, plain)
    assert attestations(store, [entry.manifest]) == before
    broken = ours.bundle(SAID) | {"mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.2"}
    put_raw(store, entry.manifest, broken)
    with pytest.raises(Differs, match=r"attestation sha256:.*mediaType: expected .*bundle\.v0\.3\+json"):
        attestations(store, [entry.manifest])
    with pytest.raises(Refused, match="one on a plain message"):
        attest_bundle(store, entry.manifest, json.dumps(plain).encode())


def put_raw(store, manifest, bundle):
    from elfkiln.store.attestations import EMPTY_CONFIG_TYPE
    from elfkiln.store.blobs import MANIFEST_TYPE, descriptor_of, manifest_bytes, referrer_ref

    layer, empty = store.add_bytes(json.dumps(bundle).encode()), store.add_bytes(b"{}")
    subject = descriptor_of(store, manifest, MANIFEST_TYPE)
    config = descriptor_of(store, empty, EMPTY_CONFIG_TYPE)
    made = store.add_bytes(manifest_bytes(BUNDLE, config, (descriptor_of(store, layer, BUNDLE),), {}, subject))
    store.name_manifests({referrer_ref(made): made})


def test_a_run_that_was_cut_short_goes_on_where_it_stopped(here, world, ours, monkeypatch, capsys):
    answers = iter([True] * 4)
    whole = ours.answer

    def answer(path, headers, body):
        if next(answers, None) is None:
            raise ConnectionError("closed for lunch")
        return whole(path, headers, body)

    monkeypatch.setattr(ours, "answer", answer)
    assert signing(here, world[1]) == 1
    assert "no bundle from the transparency log: 503: closed for lunch; run again" in capsys.readouterr().err
    monkeypatch.undo()
    assert signing(here, world[1]) == 0
    assert f": {2 * TINY_RECIPES - 3} statements signed" in capsys.readouterr().out


def test_what_the_services_make_is_verified_before_it_is_kept(here, world, ours, theirs, monkeypatch, capsys):
    # The log answers with an entry of another log's.
    monkeypatch.setattr(ours, "log_key", theirs.log_key)
    assert signing(here, world[1]) == 1
    err = capsys.readouterr().err
    assert "what the services made cannot be verified by their own root: its log entry is in no log of" in err
    assert not any(
        one.get("artifactType") == BUNDLE for one in map(Store(here.store).manifest, Store(here.store).refs().values())
    )


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v2/signingCert", "no certificate for the identity token by"),
        ("/api/v1/log/entries", "no bundle from the transparency log:"),
    ],
)
def test_a_service_that_says_nothing_is_not_waited_for(here, world, ours, monkeypatch, capsys, path, words):
    monkeypatch.setattr("elfkiln.store.sigstore_signer.SECONDS", 0.3)
    end, whole = threading.Event(), ours.answer

    def answer(asked, headers, body):
        if asked == path:
            end.wait(20)
        return whole(asked, headers, body)

    monkeypatch.setattr(ours, "answer", answer)
    try:
        assert signing(here, world[1]) == 1
    finally:
        end.set()
    err = capsys.readouterr().err
    assert words in err
    assert "timed out" in err.lower()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "x"}, "sign: takes key=, or identity= and trust=, not both"),
        ({"trust": None}, "sign: identity= and trust= go together"),
        ({"identity": None}, "sign: identity= and trust= go together"),
        ({"dir": "{folder}", "model": None}, "whose client verifies keys alone; give key="),
        ({"identity": "{folder}/absent"}, "absent: missing; name a file with an identity token, or ambient"),
        ({"identity": "{folder}/empty"}, "empty: expected an identity token, one word, found something else"),
        ({"identity": "{folder}/no-token"}, "identity token: expected one for sigstore, in its time"),
        (
            {"identity": "{folder}/late"},
            "identity token: expected one for sigstore, in its time (Signature has expired",
        ),
        ({"identity": "ambient"}, "expected ELFKILN_IDENTITY_TOKEN or a CI that offers an identity, found neither"),
        ({"trust": "{folder}/absent"}, "absent: missing; name a client trust config of sigstore"),
        ({"trust": "{folder}/root.json"}, "mediaType: expected application/vnd.dev.sigstore.clienttrustconfig"),
        ({"trust": "{folder}/clear.json"}, "caUrls[0].url: expected https://HOST, or http:// on this machine, found"),
        ({"trust": "{folder}/none.json"}, "expected a client trust config of sigstore, found No valid Rekor"),
        ({"trust": "{folder}/away.json"}, "no certificate for the identity token by "),
    ],
)
def test_words_and_files_that_do_not_fit(world, ours, monkeypatch, capsys, changes, words):
    project, folder = world
    monkeypatch.delenv("ELFKILN_IDENTITY_TOKEN", raising=False)
    monkeypatch.setattr("sigstore.oidc.detect_credential", lambda: None)
    config = json.loads((folder / "sigstore.json").read_text())
    service = ("signingConfig", "caUrls", 0, "url")
    for name, table in {
        "clear.json": changed(config, *service, to="http://fulcio.example"),
        "none.json": changed(config, "signingConfig", "rekorTlogUrls", to=[]),
        "away.json": changed(config, *service, to="http://127.0.0.1:9"),
    }.items():
        (folder / name).write_text(json.dumps(table))
    tokens = {"empty": "\n", "no-token": "x.y.z", "late": ours.token(seconds=-60)}
    for name, text in tokens.items():
        (folder / name).write_text(text)
    given = {key: value and value.format(folder=folder) for key, value in changes.items()}
    assert signing(project, folder, **given) == (1 if "away.json" in str(changes) else 2)
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    # Not a word of a token, whichever it was.
    assert not any(text.strip() in err for text in (*tokens.values(), ours.token()) if len(text) > 9)


def test_the_ambient_identity(here, world, ours, monkeypatch, capsys):
    token = ours.token("ci@example.com")
    monkeypatch.setenv("ELFKILN_IDENTITY_TOKEN", token)
    assert signing(here, world[1], identity="ambient") == 0
    assert f"{2 * TINY_RECIPES} statements signed as ci@example.com" in capsys.readouterr().out
    # Else what the CI offers: as another identity, everything is signed once more.
    monkeypatch.delenv("ELFKILN_IDENTITY_TOKEN")
    for variable in ("GITLAB_CI", "SIGSTORE_ID_TOKEN"):
        monkeypatch.setenv(variable, ours.token("gitlab@example.com"))
    assert signing(here, world[1], identity="ambient") == 0
    assert f"{2 * TINY_RECIPES} statements signed as gitlab@example.com" in capsys.readouterr().out


def test_sigstore_s_warnings_are_not_lines_of_ours(folder, tmp_path, capfd):
    """A root with a key of a kind that the library cannot use is still a root; nothing is printed about it."""
    root = json.loads((folder / "root.json").read_text())
    other = changed(root["ctlogs"][0], "publicKey", "keyDetails", to="PKIX_ED25519_PH")
    (tmp_path / "root.json").write_text(json.dumps(root | {"ctlogs": [*root["ctlogs"], other]}))
    logging.getLogger("sigstore").warning("")
    parse_policy(policy(), "policy.json", tmp_path)
    assert capfd.readouterr().err == ""
