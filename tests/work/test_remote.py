"""Builds with a shared cache and remote workers: every way it may fail ends in the right bytes or in one clear line."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time

import pytest

from elfkiln.cli import main
from elfkiln.io.canonical import sha256_hex
from elfkiln.project import Project
from elfkiln.store import reapi_messages as wire
from elfkiln.store.registry import load_registry
from elfkiln.store.signing_keys import write_key_pair
from elfkiln.targets.sim.compiler import Compiler
from elfkiln.targets.sim.remote_build import RemoteBuild
from elfkiln.targets.sim.sim_builder import SimBuilder
from elfkiln.targets.table import builder_for
from elfkiln.targets.target import RemoteSpec
from projects import make_project
from reapi_fake import FakeRemote, aborting, serving_remote

QKV = "full_i8_QKV_K256_N768_b8_m16.elf"
TWIN = "full_i8_D_K512_N256_b8_m16.elf"


class Known:
    """What real compiles came to, by what they were given, so that the tests need not compile again."""

    def __init__(self):
        self.objects, self.elves, self.calls = {}, {}, {}


@pytest.fixture(scope="module")
def known():
    return Known()


@pytest.fixture(scope="module")
def world(tmp_path_factory, known):
    """A project with two ELFs that were compiled here, and a server that was filled with them."""
    project = make_project(tmp_path_factory.mktemp("world") / "project")
    compiled, linked = Compiler.compile_all, Compiler.link

    def compile_all(self, units):
        objects = compiled(self, units)
        known.objects |= {(one.source, one.sources[one.source]): data for one, data in zip(units, objects, strict=True)}
        return objects

    def link(self, objects, exports, name):
        path = linked(self, objects, exports, name)
        known.elves[tuple(objects), exports] = path.read_bytes()
        return path

    whole = RemoteBuild.elf

    def elf(self, name, recipe, design, units, compiler):
        known.calls[recipe] = name, recipe, design, units
        return whole(self, name, recipe, design, units, compiler)

    state = FakeRemote()
    with serving_remote(state) as address, pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimBuilder, "own_processes", False)
        patch.setattr(Compiler, "compile_all", compile_all)
        patch.setattr(Compiler, "link", link)
        patch.setattr(RemoteBuild, "elf", elf)
        for name in (QKV, TWIN):
            words = [f"root={project.root}", f"remote={address}", "--fill", "--json"]
            assert main(["elfs", name, *words]) == 0
    assert len(state.results) == 6, "a runtime, a microkernel, two designs, two links"
    return project, state


@pytest.fixture
def compiled(monkeypatch, known):
    """What is compiled here: its sources, in order."""
    sources = []

    def compile_all(_self, units):
        sources.extend(unit.source for unit in units)
        return [known.objects[unit.source, unit.sources[unit.source]] for unit in units]

    def link(self, objects, exports, name):
        path = self.workdir / name
        path.write_bytes(known.elves[tuple(objects), exports])
        return path

    monkeypatch.setattr(SimBuilder, "own_processes", False)
    monkeypatch.setattr(Compiler, "compile_all", compile_all)
    monkeypatch.setattr(Compiler, "link", link)
    return sources


@pytest.fixture
def remote(world):
    """A server with an empty cache, which executes, and its address."""
    _, filled = world
    state = FakeRemote(dict(filled.blobs), outcomes=dict(filled.results), made=dict(filled.blobs))
    with serving_remote(state) as address:
        yield state, address


@pytest.fixture
def fresh(world, tmp_path):
    """A checkout without artifacts. What the compiler sees of sources is known already, to save time."""
    project, _ = world
    shutil.copytree(project.root, tmp_path / "fresh", ignore=shutil.ignore_patterns("registry*", "objects", "remote"))
    return Project(tmp_path / "fresh")


@pytest.fixture
def elf(tmp_path, remote, world, known, compiled, capsys):  # noqa: ARG001 nothing is compiled but by its stand-in
    """Have one ELF made with the remote, hold it against the reference, and return what was counted and said."""
    toolchain = builder_for(world[0], "sim").toolchain
    entries = load_registry(world[0].registry_file).entries("sim")

    def run(name=QKV, local=0, address=None, expected=None, **options):
        recipe = entries[name].recipe
        spec = RemoteSpec(address or remote[1], tmp_path / "locks", local, expected=expected or {}, **options)
        build = RemoteBuild(spec, toolchain, tmp_path / "cache")
        compiler = Compiler(toolchain, tmp_path / "cache", tmp_path)
        path = build.elf(*known.calls[recipe], compiler)
        # Never a wrong byte: whatever happened, it is the ELF of the reference.
        assert sha256_hex(path.read_bytes()) == entries[name].elf
        build.client.close()
        return {key: value for key, value in build.counts.to_json().items() if value}, capsys.readouterr().err

    return run


def all_results(state):
    state.results.update(state.outcomes)


def test_what_the_cache_has_is_not_compiled(elf, remote, compiled):
    all_results(remote[0])
    report, err = elf()
    assert (report, err, compiled) == ({"cached": 1}, "", [])
    assert "Execute" not in remote[0].asked


def test_what_it_does_not_have_is_executed_there(elf, remote, compiled):
    report, err = elf()
    assert (report, err, compiled) == ({"executed": 1}, "", [])
    # A unit that another recipe shares is not executed again.
    before = remote[0].asked.count("Execute")
    elf(TWIN)
    assert remote[0].asked.count("Execute") - before < before


def test_here_and_there_together(elf, remote, compiled):
    """With a place free here nothing is executed there; with none free, it is."""
    report, _ = elf(local=1)
    assert report == {"here": 1}
    assert len(compiled) == 3
    assert "Execute" not in remote[0].asked


def test_what_is_compiled_here_fills_the_cache_where_that_is_allowed(elf, remote):
    state, _ = remote
    state.executes = False
    report, err = elf(fill=True)
    assert (report, err) == ({"here": 1, "filled": 1}, "")
    assert {state.results[name] == state.outcomes[name] for name in state.results} == {True}
    assert len(state.results) == 4


@pytest.mark.parametrize(
    ("lie", "takes", "line"),
    [
        ({}, False, "takes no results from clients; its cache is not filled"),
        ({"UpdateActionResult": aborting("PERMISSION_DENIED")}, True, "permission denied (told to)"),
        ({"UpdateActionResult": aborting("UNIMPLEMENTED")}, True, "not done by this server (told to)"),
    ],
)
def test_a_server_that_takes_nothing(elf, remote, lie, takes, line):
    state, _ = remote
    state.executes, state.takes_results, state.lie = False, takes, lie
    report, err = elf(fill=True)
    assert report == {"here": 1}
    assert line in err
    assert err.count("\n") == 1


def test_nobody_listens(elf, monkeypatch):
    monkeypatch.setattr("elfkiln.store.reapi._TRIES", 1)
    report, err = elf(address="grpc://127.0.0.1:1")
    assert report == {"here": 1, "failed": 1}
    assert err.startswith("elfkiln: remote grpc://127.0.0.1:1: cannot be reached")
    assert err.endswith("; the rest is compiled here\n")


def executing(*answers):
    """Return a lie of Execute: one of these streams each time, and the truth when they are used up."""
    rest = list(answers)
    return lambda request, context: rest.pop(0)(request, context) if rest else None


def breaks_off(request, context):
    yield wire.message("Operation", name=f"operations/{request.action_digest.hash}")
    context.abort(*_lost())


def _lost():
    from reapi_fake import status

    return status("UNAVAILABLE"), "the worker went away"


def ends_early(request, _context):
    yield wire.message("Operation", name=f"operations/{request.action_digest.hash}")


def worker_died(request, _context):
    error = wire.message("Status", code=10, message="worker lost")
    yield wire.message("Operation", name=f"operations/{request.action_digest.hash}", done=True, error=error)


def garbage(_request, _context):
    yield wire.message("Operation", name="x", done=True, response=wire.message("Any", value=b"\xff\xff\xff"))


def says_nothing(_request, _context):
    yield wire.message("Operation", name="x", done=True)


def ended_with(state, code=0, stderr=b"", output=False):
    """Return a stream whose action ends with an exit code, with or without its output."""

    def stream(request, _context):
        outcome = state.outcomes[request.action_digest.hash]
        result = wire.message("ActionResult", exit_code=code, stderr_raw=stderr)
        if output:
            result.output_files.extend(outcome.output_files)
        yield state.done(request.action_digest.hash, result)

    return stream


@pytest.mark.parametrize("stream", [breaks_off, ends_early, worker_died])
def test_an_execution_that_breaks_off_is_taken_up_again(elf, remote, compiled, stream):
    remote[0].lie["Execute"] = executing(stream)
    report, err = elf()
    assert (report, err, compiled) == ({"executed": 1}, "", [])


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (lambda _: worker_died, "aborted (worker lost); the rest is compiled here"),
        (lambda _: aborting("UNAVAILABLE", "gone"), "cannot be reached (gone); the rest is compiled here"),
        (lambda _: garbage, "an outcome that is no ExecuteResponse"),
        (lambda _: says_nothing, "it says done, and has no outcome"),
        (lambda state: ended_with(state), "it ended with exit code 0 and without out.o"),
        (lambda state: ended_with(state, 1, b"killed\n", output=True), "exit code 1: killed; compiled here"),
        (lambda state: ended_with(state, 97), "a worker whose zig is not the one of toolchain.lock"),
        (lambda _: aborting("RESOURCE_EXHAUSTED", "quota"), "nothing more is taken (quota)"),
        (lambda _: aborting("UNAUTHENTICATED", "who"), "not logged in (who); the rest is compiled here"),
    ],
)
def test_an_execution_that_fails_is_compiled_here(elf, remote, compiled, answers, words):
    state, _ = remote
    answer = answers(state)
    state.lie = {"Execute": answer, "WaitExecution": aborting("NOT_FOUND")}
    report, err = elf()
    assert report == {"here": 1, "failed": 1}
    assert words in err
    assert err.count("\n") == 1
    assert len(compiled) == 3


def test_a_hung_action_is_given_up(elf, remote, monkeypatch):
    hung = []

    def hang(request, context):
        yield wire.message("Operation", name=f"operations/{request.action_digest.hash}")
        hung.append(request)
        while context.is_active():
            time.sleep(0.01)

    monkeypatch.setattr("elfkiln.targets.sim.remote_build.PATIENCE", 0.4)
    remote[0].lie = {"Execute": hang, "WaitExecution": hang}
    report, err = elf()
    assert report == {"here": 1, "failed": 1}
    assert "in time" in err or "was not done after 0.4 s" in err
    assert hung


@pytest.mark.parametrize("way", ["a status of each blob", "the call's own status"])
def test_a_full_store(elf, remote, way):
    state, _ = remote
    state.blobs.clear()

    def full(request, _context):
        error = wire.message("Status", code=8, message="quota")
        answers = [wire.message("UpdateResponse", digest=one.digest, status=error) for one in request.requests]
        return wire.message("BatchUpdateBlobsResponse", responses=answers)

    state.lie["BatchUpdateBlobs"] = full if way.startswith("a") else aborting("RESOURCE_EXHAUSTED", "quota")
    report, err = elf()
    assert report == {"here": 1, "failed": 1}
    assert "nothing more is taken (quota); nothing more is sent there, the rest is compiled here" in err


def elf_output(state):
    """Return the descriptor of QKV's ELF in the results, as it is there."""
    (found,) = [
        result.output_files[0]
        for name, result in state.results.items()
        if result.output_files[0].path == "design.elf" and result.output_files[0].digest.hash == state.qkv
    ]
    return found


@pytest.fixture
def poisoned(remote, world):
    """The server with every result in its cache, and QKV's ELF among them."""
    state, _ = remote
    state.results = {name: wire.message("ActionResult") for name in state.outcomes}
    for name, result in state.results.items():
        result.CopyFrom(state.outcomes[name])
    state.qkv = load_registry(world[0].registry_file).entries("sim")[QKV].elf
    state.executes = False
    return state


def other_bytes(state, _world):
    """The store sends other bytes than asked for."""
    state.blobs[state.qkv] = state.blobs[state.qkv][:-1] + b"\1"


def another_elf(state, world):
    """The result names a sound ELF of another design."""
    other = load_registry(world[0].registry_file).entries("sim")[TWIN].elf
    elf_output(state).digest.CopyFrom(state.digest(state.blobs[other]))


def no_elf(state, _world):
    """The result names something that is no ELF."""
    state.blobs[(wrong := state.digest(b"#!/bin/sh\n")).hash] = b"#!/bin/sh\n"
    elf_output(state).digest.CopyFrom(wrong)


def huge(state, _world):
    """The result names 8 EiB."""
    elf_output(state).digest.size_bytes = 2**62


def no_digest(state, _world):
    """The result names something that is no digest."""
    elf_output(state).digest.hash = "../../etc/passwd"


def dropped(state, _world):
    """The cache remembers a result whose output the store has dropped."""
    del state.blobs[state.qkv]


def without_output(state, _world):
    """A result of exit code 0 that names no output."""
    for result in state.results.values():
        del result.output_files[:]


def failed_result(state, _world):
    """A failure was cached."""
    for result in state.results.values():
        result.exit_code = 1


@pytest.mark.parametrize(
    "poison", [other_bytes, another_elf, no_elf, huge, no_digest, dropped, without_output, failed_result]
)
@pytest.mark.parametrize("executes", [False, True])
def test_a_poisoned_cache_entry(elf, poisoned, world, compiled, poison, executes):
    """Where it cannot be executed it is compiled here; where it can, it is executed anew, past the cache."""
    poison(poisoned, world)
    poisoned.executes = executes and poison is not other_bytes
    report, err = elf()
    assert "cached" not in report
    assert report.get("here", 0) + report.get("executed", 0) == 1
    assert len(compiled) == 3 * report.get("here", 0)
    assert err.count("\n") == report.get("failed", 0) <= 1


def test_a_sound_elf_of_this_design_that_is_not_the_registered_one(elf, poisoned, world):
    """What only registry.yaml can tell: the same design, other code."""
    data = poisoned.blobs[poisoned.qkv]
    at = data.rindex(b"\x00" * 16)
    other = data[:at] + b"\x90" * 8 + data[at + 8 :]
    poisoned.blobs[(wrong := poisoned.digest(other)).hash] = other
    elf_output(poisoned).digest.CopyFrom(wrong)
    entry = load_registry(world[0].registry_file).entries("sim")[QKV]
    report, err = elf(expected={entry.recipe: entry.elf})
    assert report == {"here": 1, "failed": 1}
    assert f"expected the ELF sha256:{poisoned.qkv[:12]} (registry.yaml), it made or kept sha256:" in err


def test_with_a_policy_only_registered_bytes_are_taken(elf, remote, world):
    all_results(remote[0])
    entry = load_registry(world[0].registry_file).entries("sim")[QKV]
    assert elf(only_registered=True) == ({"here": 1}, "")
    assert elf(only_registered=True, expected={entry.recipe: entry.elf}) == ({"cached": 1}, "")


def test_from_the_command_line(fresh, remote, compiled, capsys, tmp_path):
    all_results(remote[0])
    words = ["elfs", QKV, f"root={fresh.root}", f"remote={remote[1]}"]
    text = write_key_pair(tmp_path / "ci")
    key = {"name": "ci", "ed25519": text, "roles": ["builder"], "expires": "2100-01-01T00:00:00Z"}
    rule = {"target": "sim", "predicate": "https://slsa.dev/provenance/v1", "role": "builder", "threshold": 1}
    (tmp_path / "policy.json").write_text(json.dumps({"schema": "elfkiln-policy/1", "keys": [key], "rules": [rule]}))
    assert main([*words, f"policy={tmp_path / 'policy.json'}"]) == 0
    assert f"remote {remote[1]}: 0 ELFs from its cache, 0 executed there, 1 compiled here, " in capsys.readouterr().out
    assert len(compiled) == 3
    # Now it is registered, so the policy has nothing to decide; the store is lost, and the cache has it.
    shutil.rmtree(fresh.store)
    assert main([*words, f"policy={tmp_path / 'policy.json'}", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["remote"] == {"address": remote[1], "cached": 1, "executed": 0, "failed": 0, "filled": 0, "here": 0}
    assert report["built"] == [QKV]
    assert len(compiled) == 3


def test_a_token_goes_as_a_header_and_not_in_the_clear(elf, remote, monkeypatch):
    monkeypatch.setenv("ELFKILN_REMOTE_TOKEN", "secret")
    all_results(remote[0])
    assert elf()[0] == {"cached": 1}
    assert {one.get("authorization") for one in remote[0].headers} == {"Bearer secret"}
    assert main(["elfs", QKV, "remote=grpc://example.org:1", "target=sim"]) == 2


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["remote=http://a:1"], "remote: expected grpc://HOST:PORT[/INSTANCE]"),
        (["remote=grpc://a:99999"], "remote: expected grpc://"),
        (["remote=grpc://a:1/../x y"], "remote: expected grpc://"),
        (["--fill"], "--fill goes with remote="),
        (["--local", "2"], "--local goes with remote="),
        (["remote=grpc://127.0.0.1:1", "--local", "-1"], "--local: expected a number"),
        (["remote=grpc://127.0.0.1:1", "--rebuild"], "--rebuild builds here"),
    ],
)
def test_words_that_do_not_fit(fresh, capsys, words, line):
    assert main(["elfs", QKV, f"root={fresh.root}", *words]) == 2
    assert line in capsys.readouterr().err


def test_without_grpc_the_extra_is_named(fresh, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert main(["elfs", QKV, f"root={fresh.root}", "remote=grpc://127.0.0.1:1"]) == 2
    assert "needs gRPC, which is not installed; pip install 'elfkiln[remote]'" in capsys.readouterr().err


# Why a miss was a miss.


def explained(fresh, address, capsys):
    main(["explain", QKV, f"root={fresh.root}", f"remote={address}", "--json"])
    far = json.loads(capsys.readouterr().out)["remote"]
    explained.server = {key: value for key, value in far.items() if key not in ("address", "steps")}
    return {step["step"].rpartition("/")[2]: step for step in far["steps"]}


@pytest.mark.usefixtures("compiled")
def test_explain_says_why_a_remote_miss_was_a_miss(remote, fresh, capsys):
    _, address = remote
    steps = explained(fresh, address, capsys)
    assert {step["state"] for step in steps.values()} == {"miss"}
    assert steps["design.c"]["why"] == "the action was sent there, and has no result"
    assert steps["link"]["why"].startswith("its objects are not known: design.c, ")
    assert main(["elfs", QKV, f"root={fresh.root}", f"remote={address}", "--local", "0"]) == 0
    capsys.readouterr()
    assert {step["state"] for step in explained(fresh, address, capsys).values()} == {"hit"}
    # A microkernel is edited: its own action is another, and the link waits for it.
    kernel = next(path for path in fresh.kernels.glob("*.cc") if path.name in steps)
    kernel.write_text(kernel.read_text() + "\nint one_more_symbol;\n")
    steps = explained(fresh, address, capsys)
    assert steps[kernel.name]["why"].startswith("it is another action than the last one that was known there: ")
    assert [change["input"] for change in steps[kernel.name]["changes"]] == [f"kernels/{kernel.name}"]
    assert steps["design.c"]["state"] == "hit"
    assert steps["link"]["state"] == "miss"


@pytest.mark.usefixtures("compiled")
def test_explain_tells_dropped_outputs_and_results(remote, fresh, capsys):
    state, address = remote
    assert main(["elfs", QKV, f"root={fresh.root}", f"remote={address}", "--local", "0"]) == 0
    capsys.readouterr()
    steps = explained(fresh, address, capsys)
    qkv = load_registry(fresh.registry_file).entries("sim")[QKV].elf
    del state.blobs[qkv]
    steps = explained(fresh, address, capsys)
    assert steps["link"]["why"] == f"it has a result, and has dropped its output sha256:{qkv}"
    state.results.clear()
    steps = explained(fresh, address, capsys)
    assert steps["design.c"]["why"] == "this action was known there: the cache has dropped it"
    steps = explained(fresh, "grpc://127.0.0.1:1", capsys)
    assert {step["state"] for step in steps.values()} == {"failed"}
    assert all("cannot be reached" in step["why"] for step in steps.values())
    assert set(explained.server) == {"executes", "takes_results", "refused"}
    assert explained.server["executes"] is explained.server["takes_results"] is None
    assert "cannot be reached" in explained.server["refused"]


@pytest.mark.usefixtures("compiled")
def test_explain_asks_the_server_which_part_of_an_unknown_action_is_new_there(remote, fresh, capsys):
    """The second checkout has never asked this server, so what it says comes from the server's store alone."""
    state, address = remote
    state.executes = state.takes_results = False
    unit = next(path for path in fresh.kernels.glob("*.cc") if path.read_bytes() in state.blobs.values())
    head = "nobody has filled or executed this action, and no earlier one is known here: "

    def drop(part):
        # With it goes whatever names it: an action names its command by digest.
        gone = [digest for digest, data in state.blobs.items() if part in data]
        for digest in gone:
            if state.blobs.pop(digest, None) is not None:
                drop(digest.encode())

    drop(b"ELFKILN_ZIG")
    assert explained(fresh, address, capsys)[unit.name]["why"] == (
        f"{head}the server has all its inputs, and not its command: others build with another zig or other flags"
    )
    assert explained.server == {"executes": False, "takes_results": False, "refused": None}
    main(["explain", QKV, f"root={fresh.root}", f"remote={address}"])
    last = "  it executes nothing, and takes no results from clients: a miss stays one until its owner changes that\n"
    assert capsys.readouterr().out.endswith(last)
    drop(unit.read_bytes())
    why = explained(fresh, address, capsys)[unit.name]["why"]
    assert re.fullmatch(
        rf"{head}of its \d+ inputs the server lacks kernels/{unit.name}: it was never built from these bytes", why
    )
    state.blobs.clear()
    assert f"{head}the server has none of its inputs (" in explained(fresh, address, capsys)[unit.name]["why"]
    state.lie = {"GetCapabilities": aborting("UNIMPLEMENTED")}
    assert explained(fresh, address, capsys)["design.c"]["state"] == "miss"
    assert "not done by this server" in explained.server["refused"]
    state.lie = {"GetActionResult": aborting("PERMISSION_DENIED")}
    step = explained(fresh, address, capsys)["design.c"]
    assert (step["state"], "permission denied" in step["why"]) == ("failed", True)
