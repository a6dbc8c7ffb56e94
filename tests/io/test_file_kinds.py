"""What a download or a checkout leaves in place of a file is called by its name, with what to do."""

import gzip
import json

import pytest

from elfkiln.errors import Refused
from elfkiln.io.file_kinds import disguise
from elfkiln.io.reading import read_text
from elfkiln.io.strict_json import read_strict_json
from elfkiln.io.strict_toml import parse_strict_toml
from elfkiln.io.strict_yaml import read_strict_yaml
from elfkiln.store.registry import load_registry

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
KINDS = {
    "lfs": (POINTER, "a git-lfs pointer; fetch the file it stands for: git lfs pull"),
    "annex": (
        b"/annex/objects/MD5E-s12--aa.json\n",
        "a git-annex pointer; fetch the file it stands for",
    ),
    "html": (b"\n  <!DOCTYPE HTML>\n<title>Sign in</title>", "an HTML page; download the file itself"),
    "html with a BOM": (b"\xef\xbb\xbf<html lang='en'>", "an HTML page; download the file itself"),
    "xml": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "an HTML page; download the file itself"),
    "server": (b"Entry not found", "a server's answer 'entry not found'; download the file again"),
    "gzip": (gzip.compress(b"{}"), "gzip data; unpack it first: gunzip"),
    "zip": (b"PK\x03\x04\x14\x00", "a zip archive; unpack it first: unzip"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00", "zstd data; unpack it first: unzstd"),
    "xz": (b"\xfd7zXZ\x00\x00\x04", "xz data; unpack it first: unxz"),
    "bzip2": (b"BZh91AY&SY", "bzip2 data; unpack it first: bunzip2"),
    "utf-16": ('{"a": 1}'.encode("utf-16"), "UTF-16 text; save it as UTF-8"),
}


def read_toml(path, limit):
    """Read as toolchain.lock."""
    return parse_strict_toml(read_text(path, limit=limit), path.name)


def load_named_registry(path, limit):  # noqa: ARG001 called as the other readers are
    """Read as registry.yaml, whose limit is its own."""
    return load_registry(path)


BOM = b"\xef\xbb\xbf" + json.dumps({"format": "1bit-npu-plan/1"}).encode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", [read_strict_json, read_strict_yaml, read_toml, load_named_registry])
def test_another_kind_of_file_is_called_so(tmp_path, kind, read):
    data, found = KINDS[kind]
    file = tmp_path / "plan.json"
    file.write_bytes(data)
    with pytest.raises(Refused) as caught:
        read(file, limit=4096)
    assert f", found {found}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("read", "language"), [(read_strict_json, "JSON"), (read_toml, "TOML")])
def test_a_byte_order_mark_before_the_text_is_called_so(tmp_path, read, language):
    file = tmp_path / "plan.json"
    file.write_bytes(BOM)
    with pytest.raises(Refused) as caught:
        read(file, limit=4096)
    expected = f"expected {language}, found a byte-order mark before the text; save it as UTF-8 without one"
    assert str(caught.value).removeprefix(f"{file.parent}/") == f"{file.name}: {expected}"


def test_what_is_what_it_seems_is_left_alone(tmp_path):
    for data in (b"", b"{}", b"version 2", b"not found in this list: a", b"PKG", b"\x1f\x8b\x00", b"< html"):
        assert disguise(data) is None
    file = tmp_path / "a.txt"
    file.write_bytes(b"<html> is how a page begins")
    assert read_text(file, limit=4096).startswith("<html>")


def test_numbers_of_thousands_of_digits_are_refused_without_pythons_words(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"hidden_size": ' + "1" * 5000 + "}")
    with pytest.raises(Refused) as caught:
        read_strict_json(file, limit=10_000)
    assert str(caught.value) == f"{file}: expected JSON with numbers of ordinary size, found one of thousands of digits"
