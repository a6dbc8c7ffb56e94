"""sign dir=: an installed set is verified and vouched for, and nothing is signed that does not hold."""

from __future__ import annotations

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from elfkiln.cli import main
from elfkiln.errors import Differs, Refused
from elfkiln.io.canonical import sha256_hex
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.dsse import read_envelope
from elfkiln.store.signing_keys import write_key_pair
from elfkiln.work.build import build_elfs
from elfkiln.work.install import install
from elfkiln.work.lock_signatures import SIGNATURES_NAME, sign_lock
from projects import TINY_NAMES

QKV = "full_i8_QKV_K256_N768_b8.elf"
KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))


@pytest.fixture
def folder(built, tmp_path):
    """A model folder with the installed set of the model tiny."""
    place = tmp_path / "model"
    install(built, "sim", model_requirements(built, "tiny"), place)
    return place


def statements(folder):
    lines = (folder / SIGNATURES_NAME).read_bytes().splitlines()
    return [json.loads(read_envelope(line, "line").payload) for line in lines]


def test_a_whole_set_is_signed_once_by_each_key(folder):
    done = sign_lock(folder, KEY)
    digest = sha256_hex((folder / "kernels.lock.json").read_bytes())
    assert (done.digest, done.files, done.envelopes) == (digest, TINY_NAMES, 1)
    first = (folder / SIGNATURES_NAME).read_bytes()
    assert sign_lock(folder, KEY).envelopes == 1
    assert (folder / SIGNATURES_NAME).read_bytes() == first
    assert sign_lock(folder, OTHER).envelopes == 2
    assert (folder / SIGNATURES_NAME).read_bytes().startswith(first)
    assert [one["subject"] for one in statements(folder)] == [
        [{"name": "kernels.lock.json", "digest": {"sha256": digest}}]
    ] * 2
    assert {one["predicate"]["verificationResult"] for one in statements(folder)} == {"PASSED"}
    assert {one["predicateType"] for one in statements(folder)} == {"https://slsa.dev/verification_summary/v1"}
    # DSSE: the signature is over type and payload with their lengths.
    line = json.loads(first)
    payload = base64.b64decode(line["payload"])
    signed = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    KEY.public_key().verify(base64.b64decode(line["signatures"][0]["sig"]), signed)


def test_signatures_on_an_earlier_lock_go_when_a_new_one_is_signed(built, stand_in, folder):
    sign_lock(folder, KEY)
    assert build_elfs(built, stand_in, [model_requirements(built, "tiny", "rm")]).exit_code == 0
    install(built, "sim", model_requirements(built, "tiny", "rm"), folder)
    assert sign_lock(folder, OTHER).envelopes == 1
    digest = sha256_hex((folder / "kernels.lock.json").read_bytes())
    assert [one["subject"][0]["digest"]["sha256"] for one in statements(folder)] == [digest]


@pytest.mark.parametrize("damage", ["flip", "missing", "folder", "longer"])
def test_a_set_that_is_not_whole_is_not_signed(folder, damage):
    path = folder / "kernels" / QKV
    data = path.read_bytes()
    path.unlink()
    if damage == "flip":
        path.write_bytes(data[:-1] + b"\1")
    elif damage == "folder":
        path.mkdir()
    elif damage == "longer":
        path.write_bytes(data + b"\0")
    why = f"longer than {len(data)} bytes" if damage == "longer" else ".*"
    with pytest.raises(Differs, match=f"^missing full ELF {path} .{why}.; nothing was signed$"):
        sign_lock(folder, KEY)
    assert not (folder / SIGNATURES_NAME).exists()


def test_a_folder_without_a_lock_or_with_another_spelling_of_one_is_refused(folder, tmp_path):
    with pytest.raises(Refused, match="expected a model folder"):
        sign_lock(tmp_path / "nowhere", KEY)
    assert not (tmp_path / "nowhere").exists()
    lock = folder / "kernels.lock.json"
    lock.write_text(json.dumps(json.loads(lock.read_text())))
    with pytest.raises(Refused, match="as install writes it"):
        sign_lock(folder, KEY)
    lock.unlink()
    with pytest.raises(Refused, match="install the set first"):
        sign_lock(folder, KEY)
    assert sorted(path.name for path in folder.iterdir()) == ["kernels", "kernels-m16"]


def test_a_signature_file_that_is_none_is_refused_and_left_alone(folder):
    path = folder / SIGNATURES_NAME
    path.write_bytes(b"{}\n")
    with pytest.raises(Refused, match="payloadType"):
        sign_lock(folder, KEY)
    assert path.read_bytes() == b"{}\n"
    sign_lock_line = b"x" * 10 + b"\n"
    path.write_bytes(sign_lock_line * 65)
    with pytest.raises(Refused, match="at most 64 envelopes"):
        sign_lock(folder, KEY)


def test_the_verb(built, folder, tmp_path, capsys):
    write_key_pair(tmp_path / "ci.key")
    words = ["sign", f"root={built.root}", f"dir={folder}", f"key={tmp_path / 'ci.key'}"]
    assert main(words) == 0
    digest = sha256_hex((folder / "kernels.lock.json").read_bytes())
    said = f"{TINY_NAMES} files verified; {folder / SIGNATURES_NAME} has 1 envelopes on sha256:{digest}\n"
    assert capsys.readouterr().out == said
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": str(folder / SIGNATURES_NAME),
        "lock": f"sha256:{digest}",
        "files": TINY_NAMES,
        "envelopes": 1,
    }
    assert main([*words, "model=tiny"]) == 2
    assert "does not go with model=" in capsys.readouterr().err
    assert main([*words, QKV]) == 2
    assert f"does not go with {QKV}" in capsys.readouterr().err
