"""The container's tensor table: read from the header alone, and refused when it does not fit its file."""

import json
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elfkiln.errors import Refused
from elfkiln.models.container import parse_header, read_container
from plan_data import container_header, experts, matrix, write_container

TENSORS = {
    "model.norm.weight": ("BF16", [256]),
    "model.layers.0.self_attn.q_proj.weight": matrix(512, 256),
    "model.layers.0.mlp.gate_exps_proj.weight": experts(4, 64, 256, "q4k"),
}


def refused(file):
    with pytest.raises(Refused) as caught:
        read_container(file)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def container(tmp_path):
    """A sound container file."""
    file = tmp_path / "model.q4nx"
    write_container(file, TENSORS)
    return file


def test_the_table_is_read_in_order(container):
    read = read_container(container)
    assert list(read.tensors) == list(TENSORS)
    assert read.metadata == {"format": "q4nx"}
    query = read.tensors["model.layers.0.self_attn.q_proj.weight"]
    assert (query.dtype, query.shape, query.begin, query.size) == ("I8", (16, 5120), 512, 16 * 5120)
    assert query.chunk_kind.name == "q4_1"
    assert query.weights == 512 * 256
    pooled = read.tensors["model.layers.0.mlp.gate_exps_proj.weight"]
    assert (pooled.chunk_kind.name, pooled.weights) == ("q4k", 4 * 64 * 256)
    assert read.tensors["model.norm.weight"].weights == 256


def test_an_entry_stands_where_safetensors_puts_it(container):
    """The framing by hand: eight little-endian bytes, then that many of JSON."""
    data = container.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    assert json.loads(data[8 : 8 + length])["model.norm.weight"]["data_offsets"] == [0, 512]
    assert read_container(container).data_bytes == len(data) - 8 - length


def test_the_payload_is_never_read(tmp_path):
    """Seven gigabytes of payload that take no room on the disk are read in no time and no memory."""
    file = tmp_path / "model.q4nx"
    write_container(file, {"w": ("I8", [1_400_000, 5120])})
    assert file.stat().st_size > 7_000_000_000
    assert read_container(file).tensors["w"].weights == 1_400_000 * 8192


def test_quarter_rows_are_counted_in_whole_chunks():
    # one published container stores 1,280-byte rows, four to a chunk
    header = json.dumps({"w": {"dtype": "I8", "shape": [576, 1280], "data_offsets": [0, 576 * 1280]}}).encode()
    tensor = parse_header(header, 576 * 1280, "c").tensors["w"]
    assert tensor.chunk_kind is None
    assert tensor.weights == 576 // 4 * 8192


def test_chunks_of_unknown_size_have_no_weights():
    header = json.dumps({"w": {"dtype": "I8", "shape": [4, 3000], "data_offsets": [0, 12000]}}).encode()
    assert parse_header(header, 12000, "c").tensors["w"].weights is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: b"", "expected at least 8 bytes, found 0 bytes"),
        (lambda data: data[:7], "expected at least 8 bytes, found 7 bytes"),
        (lambda data: data[:8], "header length: expected at most the 0 bytes left"),
        (lambda data: data[:100], "header length: expected at most the 92 bytes left"),
        (lambda data: struct.pack("<Q", 2**63) + data[8:], f"found {2**63}"),
        (lambda data: struct.pack("<Q", 0) + data[8:], "header: expected JSON"),
        (lambda data: data[:-1], "an end within the"),
        (lambda data: data[:8] + data[8:].replace(b"BF16", b"BF1\xff", 1), "is not UTF-8"),
        (lambda data: data.replace(b'{"__m', b'["__m', 1), "header: expected JSON"),
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused(container, change, said):
    container.write_bytes(change(container.read_bytes()))
    assert said in refused(container)


def test_an_absurd_header_is_refused_before_it_is_read(tmp_path):
    file = tmp_path / "model.q4nx"
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", 8 * 1024 * 1024 + 1))
        stream.truncate(200 * 1024 * 1024)
    assert "header length: expected at most 8388608 bytes, found 8388609" in refused(file)


def test_things_that_are_no_container_are_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert "missing" in refused(tmp_path / "absent")
    assert "not a regular file (a folder)" in refused(tmp_path / "folder")
    assert "not a regular file (a pipe)" in refused(tmp_path / "pipe")
    assert refused(tmp_path / "nul\0")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:11\nsize 7\n", "a git-lfs pointer; fetch the file"),
        (b"<!DOCTYPE html>\n<html><head>" + b"x" * 4096, "an HTML page; download the file itself"),
        (b"\x1f\x8b\x08\x00" + b"\x00" * 4096, "gzip data; unpack it first"),
        (b"PK\x03\x04" + b"\xff" * 100, "a zip archive; unpack it first"),
        (b"Entry not found", "a server's answer 'entry not found'; download the file again"),
    ],
)
def test_another_kind_of_file_in_its_place_is_called_so(tmp_path, data, found):
    file = tmp_path / "model.q4nx"
    file.write_bytes(data)
    assert refused(file).startswith(f"model.q4nx: expected a container, found {found}")


def test_a_header_whose_length_looks_like_another_kind_is_a_header(tmp_path):
    """0x088b1f bytes of header: the length's first bytes are those of gzip data."""
    entry = json.dumps({"w": {"dtype": "I8", "shape": [8], "data_offsets": [0, 8]}}).encode()
    header = entry + b" " * (0x088B1F - len(entry))
    file = tmp_path / "model.q4nx"
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    assert file.read_bytes()[:3] == b"\x1f\x8b\x08"
    assert list(read_container(file).tensors) == ["w"]


ENTRY = {"dtype": "I8", "shape": [2, 4], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dtype": None}, "tensor w: dtype: expected a string, found nothing"),
        ({"shape": None}, "tensor w: shape: expected at most 8 whole numbers, found nothing"),
        ({"dtype": True}, "tensor w: dtype: expected a string, found true"),
        ({"dtype": ""}, "tensor w: dtype"),
        ({"dtype": "Q9"}, "tensor w: dtype: expected one of BOOL, U8, I8, "),
        ({"dtype": "i8"}, "tensor w: dtype: expected one of BOOL, U8, I8, "),
        ({"dtype": "F64"}, "expected 64 bytes, as F64 [2, 4] takes, found 8"),
        ({"shape": "2x4"}, "tensor w: shape: expected at most 8 whole numbers"),
        ({"shape": [2, -4]}, "tensor w: shape"),
        ({"shape": [2, 4.0]}, "tensor w: shape"),
        ({"shape": [True, 8]}, "tensor w: shape"),
        ({"shape": [1] * 9}, "tensor w: shape"),
        ({"shape": [2, 5]}, "tensor w: data_offsets: expected 10 bytes, as I8 [2, 5] takes, found 8"),
        ({"dtype": "BF16"}, "expected 16 bytes, as BF16 [2, 4] takes, found 8"),
        ({"data_offsets": [8, 0]}, "tensor w: data_offsets: expected two whole numbers, the first not larger"),
        ({"data_offsets": [0]}, "data_offsets"),
        ({"data_offsets": [0, 8, 16]}, "data_offsets"),
        ({"data_offsets": [-8, 0]}, "data_offsets"),
        ({"data_offsets": None}, "data_offsets"),
        ({"data_offsets": [16, 24]}, "an end within the 20 bytes of data, found 24"),
        ({"data_offsets": [2**64, 2**64 + 8]}, "data_offsets"),
    ],
)
def test_bad_entries_are_refused(change, said):
    header = json.dumps({"w": ENTRY | change}).encode()
    with pytest.raises(Refused) as caught:
        parse_header(header, 20, "c")
    assert said in str(caught.value)


def test_overlapping_tensors_are_refused():
    table = {"b": {**ENTRY, "data_offsets": [7, 15]}, "a": ENTRY}
    with pytest.raises(Refused, match="tensor b: data_offsets: expected a begin of at least 8, where a ends, found 7"):
        parse_header(json.dumps(table).encode(), 20, "c")
    touching = {
        "b": {**ENTRY, "data_offsets": [8, 16]},
        "a": ENTRY,
        "none": {**ENTRY, "shape": [0], "data_offsets": [3, 3]},
    }
    assert len(parse_header(json.dumps(touching).encode(), 20, "c").tensors) == 3


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"[]", "expected an object, found a list of 0"),
        (b"{}", "expected at least one tensor"),
        (b'{"__metadata__": {"a": "b"}}', "expected at least one tensor"),
        (b'{"__metadata__": {"a": 1}, "w": 1}', "__metadata__: expected an object of strings"),
        (b'{"w": 1}', "tensor w: expected an object, found 1"),
        (b'{"w": {}, "w": {}}', "'w' twice"),
        (b'{"w": ' + b"[" * 100_000, "nesting"),
    ],
)
def test_bad_headers_are_refused(header, said):
    with pytest.raises(Refused) as caught:
        parse_header(header, 100, "c")
    assert said in str(caught.value)


@settings(deadline=None)
@given(st.data())
def test_a_sound_header_with_changed_bytes_is_read_or_refused(data):
    header, payload = container_header(TENSORS)
    changed = bytearray(header)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = parse_header(bytes(changed), payload, "c")
    except Refused as error:
        assert "\n" not in str(error)
    else:
        assert all(tensor.end <= payload for tensor in read.tensors.values())
