"""`verify on=device` and `bench`: registered ELFs of a set on the stand-in NPU, the table, the JSON, the exit codes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from elf_assembler import assemble, gemm_stream, parts
from elfkiln.cli import main
from elfkiln.cli.json_forms import FORMS, misfit
from elfkiln.design.reader import read_design
from elfkiln.models.catalogue import model_requirements
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.project import Project
from elfkiln.store.attestations import attestations
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry, register, shape_of
from elfkiln.targets.npu2.device.faults import Fault
from elfkiln.targets.npu2.device.machine_state import MachineState
from elfkiln.targets.npu2.device.results import DeviceCheck, DeviceResult, DeviceSeries
from elfkiln.targets.npu2.device.series import DeviceOptions
from elfkiln.work.device_statements import state_series
from elfkiln.work.on_device import run_on_device
from kilns import keep_rows
from projects import SUPPORT, make_project
from sealed_designs import SEALED
from simulating import example, mm_pb16i
from stored import entry_of, stored

EXAMPLE = SUPPORT.parent / "examples" / "full-elf" / "panel_gemm.2026-08.elf"
INFO = {
    "name": "NPU Strix Halo",
    "platform": json.dumps({"platforms": [{"status": {"power_mode": "default"}}]}),
}

# QKV, and G = U, each at M = 128 and M = 16.
NAMES, RECIPES = 6, 4


@pytest.fixture(scope="module")
def built(sim_kiln, tmp_path_factory):
    """A project whose model `tiny` is registered for npu2, with the sim ELFs of the same designs."""
    project = keep_rows(make_project(tmp_path_factory.mktemp("device") / "project"), "QKV", "G", "U")
    store = Store(project.store)
    pdi, _ = parts(EXAMPLE)
    wanted = model_requirements(project, "tiny")
    kiln = Store(sim_kiln.store)
    simulated = load_registry(sim_kiln.registry_file).entries("sim")
    entries, elves = {}, {}
    for need in wanted.requirements:
        one = simulated[need.file_name]
        text = kiln.read(one.design).decode()
        data = assemble(pdi, [("seq", gemm_stream(read_design(text)))])
        made = stored(store, text, data, text, columns=need.columns, shape=str(shape_of(need.file_name)))
        elves[made.elf] = str(kiln.path(one.elf))
        entries[need.file_name] = entry_of(made)
    register(project.registry_file, "npu2", entries)
    shutil.copytree(project.root, project.root.with_name("pristine"))
    return project, elves


@pytest.fixture
def device(built, tmp_path, monkeypatch):
    """The project with a stand-in NPU: a function that says what goes wrong on it."""
    project, elves = built
    fake = tmp_path / "fake"
    shutil.copytree(SUPPORT / "fake_npu", fake, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("ELFKILN_PYXRT", str(fake))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def says(**scenario):
        (fake / "scenario.json").write_text(json.dumps({"info": INFO, "elves": elves} | scenario))
        (fake / "machine.json").write_text(json.dumps({"others": 0, "wedged": False, "runs": 0}))
        return project

    return says


def run(capsys, *words):
    code = main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_every_elf_of_a_model_is_checked_and_each_twin_with_its_large_one(device, capsys):
    project = device()
    words = ("verify", "model=tiny", "target=npu2", "on=device", f"root={project.root}")
    code, out, err = run(capsys, *words)
    assert (code, err.count("elfkiln: right ")) == (0, RECIPES)
    lines = out.splitlines()
    assert lines[0] == "tiny b8, target npu2, on the device"
    # 4 kinds of input, each on a fresh and on a used array, and once more after the timed runs.
    assert sum("9 of 9 checks right" in line for line in lines) == RECIPES
    twins = [line for line in lines if "mismatched=0 maxdiff=0" in line]
    assert len(twins) == RECIPES // 2
    assert all("_m16.elf against full_i8_" in line for line in twins)


def test_the_json_has_every_check_time_and_state(device, capsys):
    project = device()
    words = ("bench", "model=tiny", "target=npu2", "iterations=3", "warmup=1", f"root={project.root}", "--json")
    code, out, _ = run(capsys, *words)
    assert misfit(json.loads(out), FORMS["bench"][0]) is None
    (found,) = json.loads(out)["sets"]
    assert (code, found["schema"], found["model"], found["left"], found["stopped"]) == (
        0,
        "elfkiln-device/1",
        "tiny",
        [],
        "",
    )
    names = {name for result in found["results"] for name in result["names"]}
    assert len(names) == NAMES
    entries = load_registry(project.registry_file).entries("npu2")
    for result in found["results"]:
        assert {f"sha256:{entries[name].elf}" for name in result["names"]} == {result["elf"]}
        (timing,) = result["timings"]
        assert (timing["runs"], timing["warmup"], len(timing["nanoseconds"])) == (3, 1, 3)
        assert result["before"]["power_mode"] == "default"
    elves = {result["elf"] for result in found["results"]}
    assert {row["elf"] for row in found["predicted"]} == elves
    assert all(row["instance"] == "main:seq" and row["seconds"] > 0 for row in found["predicted"])


def test_bench_prints_measured_beside_predicted(device, capsys):
    project = device()
    code, out, _ = run(capsys, "bench", "model=tiny", "target=npu2", "iterations=2", f"root={project.root}")
    rows = [line for line in out.splitlines() if "main:seq: median " in line]
    assert (code, len(rows)) == (0, RECIPES)
    assert all(", predicted " in row and "2 runs" in row for row in rows)


def test_a_wrong_elf_is_not_timed_and_the_others_are(device, capsys):
    project = device(wrong=[{"how": "one", "place": 5, "runs": [1]}])
    code, out, _ = run(capsys, "bench", "model=tiny", "target=npu2", "iterations=2", "warmup=0", f"root={project.root}")
    assert code == 1
    assert sum(line.startswith("wrong ") for line in out.splitlines()) == 2  # the ELF, and its pair of twins
    assert out.count("main:seq: median ") == RECIPES - 1


def test_a_hang_ends_the_series_and_says_what_was_not_run(device, capsys):
    project = device(TIMEOUT=[12])
    code, out, _ = run(capsys, "verify", "model=tiny", "target=npu2", "on=device", f"root={project.root}")
    lines = out.splitlines()
    assert code == 1
    assert lines[-1].startswith("stopped: ")
    assert "timeout; the array hung" in lines[-1]
    assert sum(line.startswith("not run ") for line in lines) > 0


def said(project):
    """Return {registered name: (result, or "times", and statement) of each} of what is said about ELFs of npu2."""
    entries = load_registry(project.registry_file).entries("npu2")
    found = attestations(Store(project.store), {entry.manifest for entry in entries.values()})
    return {
        name: [(one.result or one.predicate_type.rpartition(":")[0], one.statement) for one in found[entry.manifest]]
        for name, entry in entries.items()
    }


@pytest.fixture
def own(device, tmp_path):
    """The stand-in NPU on a project of its own, whose store begins without statements."""

    def says(**scenario):
        shutil.copytree(device(**scenario).root.with_name("pristine"), tmp_path / "own")
        return Project(tmp_path / "own")

    return says


def test_results_are_kept_as_attestations_once(own, capsys):
    project = own()
    words = ("model=tiny", "target=npu2", f"root={project.root}")
    code, _, err = run(capsys, "bench", "iterations=2", "warmup=0", *words)
    assert (code, err.splitlines()[-1].split(";")[0]) == (0, f"elfkiln: {2 * RECIPES} statements kept")
    for name, found in said(project).items():
        assert sorted(what for what, _ in found) == ["PASSED", "urn:elfkiln:device-times"], name
        tested, timed = (statement["predicate"] for _, statement in sorted(found, key=lambda one: one[0]))
        # 4 kinds of input on a fresh and a used array, one run after the times; a twin's rows beside them.
        assert len(tested["passedTests"]) == 9 + name.endswith("_m16.elf")
        assert "main:seq, one-hot, again" in tested["passedTests"]
        assert tested["failedTests"] == []
        seed, machine = tested["configuration"]
        assert seed["annotations"]["seed"].isdigit()
        assert machine["annotations"]["device"] == "NPU Strix Halo"
        (timing,) = timed["timings"]
        assert (timing["instance"], timing["runs"]) == ("main:seq", 2)
        assert timed["predicted_seconds"]["main:seq"] > 0


def test_equal_outcomes_are_one_statement_and_faults_of_machines_are_none(tmp_path):
    store = Store(tmp_path / "store")
    entry = entry_of(stored(store, "text", b"\x7fELF", "module {}"))
    check = DeviceCheck("main:seq", "random", "first", 4, 0, 0, None, 0, False)
    good = DeviceResult(("a.elf",), entry.elf, 7, (check,), (), None, MachineState(), MachineState(memlock=1))
    never = replace(good, checks=(), fault=Fault("no-device", "open", "no node", "load the driver", True))
    half = replace(good, fault=Fault("timeout", "first", "hung", "reboot", True))
    digests = [
        state_series(store, DeviceSeries((one,), ()), [entry], {}, times=True) for one in (good, good, never, half)
    ]
    assert digests[0] == digests[1]
    assert digests[2] == ()
    results = {one.result: one.statement["predicate"] for one in attestations(store, [entry.manifest])[entry.manifest]}
    assert results["PASSED"]["passedTests"] == ["main:seq, random, first"]
    assert results["PASSED"]["configuration"][1]["annotations"] == {}
    assert results["FAILED"]["failedTests"] == ["runs to its end: timeout"]


def test_what_was_wrong_is_stated_and_has_no_times(own, capsys):
    project = own(wrong=[{"how": "one", "place": 5, "runs": [1]}], TIMEOUT=[12])
    words = ("bench", "model=tiny", "target=npu2", "iterations=2", "warmup=0", f"root={project.root}")
    assert run(capsys, *words)[0] == 1
    found = said(project)
    first = found["full_i8_QKV_K256_N768_b8.elf"]
    assert [what for what, _ in first] == ["FAILED"]
    assert first[0][1]["predicate"]["failedTests"][0] == "main:seq, random, first"
    # What the hang left was not run, and nothing is said of it.
    assert [] in found.values()


def test_names_that_are_not_registered_are_left(device):
    project = device()
    other = model_requirements(project, "tiny", layout="rm")
    found = run_on_device(project, "npu2", other, DeviceOptions(iterations=0))
    assert len(found.series.left) == NAMES
    assert found.series.exit_code == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("verify", "on=device", "target=sim"), "target: expected one whose ELFs run on a device: npu2, found sim"),
        (("verify", "on=gpu", "target=npu2"), "on: expected device"),
        (("verify", "on=device", "target=npu2", "-n", "2"), "-n does not go with on=device"),
        (("bench", "target=sim"), "target: expected one whose ELFs run on a device: npu2, found sim"),
        (("bench", "target=npu2", "pmode=fast"), "pmode: expected one of default, powersaver"),
        (("bench", "target=npu2", "pmode=turbo"), "pmode=turbo: the device is in mode default"),
        (("bench", "target=npu2", "iterations=0"), "iterations: expected 1 or more, found 0"),
        (("bench", "target=npu2", "warmup=-1"), "warmup: expected a number up to 100000, found -1"),
    ],
)
def test_what_cannot_be_asked_is_refused(words, line, device, capsys):
    project = device()
    verb, *rest = words
    code, _, err = run(capsys, verb, "model=tiny", *rest, f"root={project.root}")
    assert (code, line in err) == (2, True), err


def test_a_damaged_elf_is_not_run(device, capsys):
    project = device()
    elf = load_registry(project.registry_file).entries("npu2")["full_i8_QKV_K256_N768_b8.elf"].elf
    path = Store(project.store).path(elf)
    data = path.read_bytes()
    path.chmod(0o644)
    try:
        path.write_bytes(data[:-1] + b"x")
        code, _, err = run(capsys, "bench", "model=tiny", "target=npu2", f"root={project.root}")
    finally:
        path.write_bytes(data)
    assert code == 1
    assert "full_i8_QKV_K256_N768_b8.elf: blob sha256:" in err


def test_a_sealed_elf_runs_every_sequence_and_is_its_own_twin_of_nothing(simulator, device):
    project = device()
    places = {}
    for number, one in enumerate([*SEALED.buffers, *SEALED.locks]):
        base = one.tile.col << 25 | one.tile.row << 20
        places[one.name] = base | (0x1F000 + 0x10 * number if one in SEALED.locks else 0x8000 + 0x100 * number)
    streams = [
        (sequence.name, gemm_stream(replace(SEALED, sequences=(sequence,)), places=places))
        for sequence in SEALED.sequences
    ]
    store = Store(project.store)
    data = assemble(parts(EXAMPLE)[0], streams)
    geometries = ((128, 256), (256, 512))
    made = stored(store, "sealed", data, example("sequences_rtp"), sealed=geometries)
    sim = simulator.path(SEALED, mm_pb16i(16, "mm_pb16i_16x64x128.o"))
    device(elves={made.elf: str(sim)})
    need = Requirement("pb16i_sealed.elf", ".", None, 2, None, (), geometries)
    register(project.registry_file, "npu2", {"small/pb16i_sealed.elf": entry_of(made)})
    found = run_on_device(project, "npu2", RequirementSet("small", "pb16i", (need,)), DeviceOptions(iterations=2))
    (result,) = found.series.results
    assert (result.outcome, result.fault, found.series.twins, found.series.left) == ("right", None, (), ())
    assert {(c.instance, c.inputs) for c in result.checks} == {
        (f"main:seq_K{K}_N{N}", kind) for K, N in geometries for kind in ("random", "-127", "one-hot", "coordinates")
    }
    assert [timing.instance for timing in result.timings] == ["main:seq_K128_N256", "main:seq_K256_N512"]
