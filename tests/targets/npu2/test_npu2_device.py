"""ELFs on the device, with a stand-in pyxrt over the simulator: checks, traps, faults, and what stays of a series.

Nothing here ran on an NPU: the stand-in has the traps that the sources of XRT and the driver show.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from elf_assembler import assemble, gemm_stream, parts
from elfkiln.errors import Refused
from elfkiln.io.canonical import sha256_hex
from elfkiln.targets.npu2.device import session
from elfkiln.targets.npu2.device.faults import CAUSES, fault_of
from elfkiln.targets.npu2.device.machine_state import MachineState, read_state
from elfkiln.targets.npu2.device.results import DeviceCheck, Timing, table
from elfkiln.targets.npu2.device.series import (
    DeviceCase,
    DeviceInstance,
    DeviceOptions,
    run_series,
    write_trial,
)
from elfkiln.targets.npu2.full_elf import BadElf, parse_full_elf
from gemm_designs import Shape, panel_b8
from processes import gone
from projects import SUPPORT
from sealed_designs import SEALED
from simulating import blocked, coordinates, mm_i8, mm_pb16i, packed_ternary, product

EXAMPLE = SUPPORT.parent / "examples" / "full-elf" / "panel_gemm.2026-08.elf"
LARGE = Shape(32, 128, 256, 2, 2, m=16)
TWIN = Shape(16, 128, 256, 1, 2, m=16)
INFO = {
    "name": "NPU Strix Halo",
    "bdf": "0000:c5:00.1",
    "platform": json.dumps({"platforms": [{"status": {"power_mode": "performance"}}]}),
    "host": json.dumps({"version": "2.21.75", "hash": "abc", "drivers": [{"name": "amdxdna", "version": "2.21.0"}]}),
}


@pytest.fixture(scope="module")
def elves(simulator, tmp_path_factory):
    """Full ELFs and, by their sha256, the sim ELF of the same design."""
    folder = tmp_path_factory.mktemp("elves")
    pdi, _ = parts(EXAMPLE)
    made = {}
    for name, shape in (("large", LARGE), ("twin", TWIN)):
        design = panel_b8(shape)
        data = assemble(pdi, [("seq", gemm_stream(design))])
        path = folder / f"{name}.elf"
        path.write_bytes(data)
        made[name] = (path, sha256_hex(data), simulator.path(design, mm_i8(16)))
    return made


@cache
def read(path):
    """What the stand-in would read of a full ELF in every child; None where it shall see for itself."""
    try:
        kernel = parse_full_elf(path.read_bytes()).kernels[0]
    except BadElf:
        return None
    return kernel.name, kernel.arguments, {one.name: bool(one.loads) for one in kernel.instances}


@dataclass
class Npu:
    """A machine with the stand-in pyxrt."""

    folder: Path
    elves: dict
    scenario: dict = field(default_factory=dict)
    environ: dict = field(default_factory=dict)

    def says(self, **scenario):
        """Write what goes wrong."""
        self.scenario |= scenario
        table_ = {
            "info": INFO,
            "elves": {sha: str(sim) for _, sha, sim in self.elves.values()},
            "read": {sha: read(path) for path, sha, _ in self.elves.values()},
            **self.scenario,
        }
        (self.folder / "fake" / "scenario.json").write_text(json.dumps(table_))
        return self

    def machine(self, **state):
        """Set what outlives a process."""
        (self.folder / "fake" / "machine.json").write_text(
            json.dumps({"others": 0, "wedged": False, "runs": 0} | state)
        )
        return self

    @property
    def trace(self):
        """What a caller did."""
        path = self.folder / "fake" / "trace.txt"
        return path.read_text().splitlines() if path.exists() else []

    def case(self, name, shape, trials):
        """A case of one instance."""
        path, sha, _ = self.elves[name]
        instance = DeviceInstance("seq", None, shape.M, shape.K, shape.N, trials)
        return DeviceCase((f"{name}.elf",), path, sha, (instance,))

    def trials(self):
        """Random weights and those that code their place."""
        rng = np.random.default_rng(11)

        def anything(shape):
            return rng.integers(-128, 128, shape, dtype=np.int8)

        made = []
        for what, a, b in (
            (
                "random",
                rng.integers(-128, 128, (32, 128), dtype=np.int8),
                rng.integers(-128, 128, (128, 256), dtype=np.int8),
            ),
            ("coordinates", coordinates(32, 128), coordinates(128, 256)),
        ):
            made.append(write_trial(self.folder / "inputs", what, a, blocked(b), product(a, b)))
        return tuple(made)

    def run(self, *names, **options):
        """Run a series."""
        trials = self.trials()
        shapes = {"large": LARGE, "twin": TWIN}
        chosen = {"root": self.folder / "sys", "smi": None, "lock": self.folder / "npu.lock", "iterations": 5} | options
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        return run_series(
            [self.case(name, shapes[name], trials) for name in names or ("large",)],
            seed=11,
            folder=work,
            options=DeviceOptions(**chosen),
            environ={"ELFKILN_PYXRT": str(self.folder / "fake"), **self.environ},
        )


@pytest.fixture
def npu(tmp_path, elves):
    shutil.copytree(SUPPORT / "fake_npu", tmp_path / "fake", ignore=shutil.ignore_patterns("__pycache__"))
    return Npu(tmp_path, elves).says().machine()


def only(series):
    (result,) = series.results
    return result


# What is right.


def test_a_right_elf_is_right_on_every_input_and_every_run(npu):
    series = npu.run()
    result = only(series)
    assert (series.exit_code, result.outcome, result.fault, series.left) == (0, "right", None, ())
    assert [(c.inputs, c.when) for c in result.checks] == [
        ("random", "first"),
        ("random", "again"),
        ("coordinates", "first"),
        ("coordinates", "again"),
        ("random", "after"),
    ]
    assert {(c.elements, c.mismatched, c.untouched) for c in result.checks} == {(32 * 256, 0, 0)}
    (timing,) = result.timings
    assert (timing.instance, len(timing.nanoseconds)) == ("main:seq", 5)
    # Nothing was done that only looks right: no view outlived its buffer, no undefined call, the context given back.
    assert npu.trace == ["context released"]
    assert (result.before.power_mode, result.before.xrt, result.before.device) == (
        "performance",
        "2.21.75 abc",
        "NPU Strix Halo",
    )


def test_the_twin_is_compared_with_the_large_one_on_the_device(npu):
    series = npu.run("large", "twin")
    (twin,) = series.twins
    assert (twin.twin, twin.other, twin.elements, twin.mismatched) == ("twin.elf", "large.elf", 16 * 256, 0)
    assert "right    twin.elf against large.elf: mismatched=0 maxdiff=0 of 4096" in table(series, {})


def test_verify_without_timing_and_bench_with_warm_up(npu):
    assert only(npu.run(iterations=0)).timings == ()
    npu.machine()
    result = only(npu.run(iterations=3, warmup=2))
    assert [len(t.nanoseconds) for t in result.timings] == [3]
    # 4 checks, 5 timed or warm runs, 1 check.
    assert json.loads((npu.folder / "fake" / "machine.json").read_text())["runs"] == 10


# What is wrong.


@pytest.mark.parametrize("place", [0, 4242, 32 * 256 - 1])
def test_one_wrong_int32_is_found_and_told_with_its_place(place, npu):
    result = only(npu.says(wrong=[{"how": "one", "place": place}]).run())
    assert (result.outcome, result.timings) == ("wrong", ())
    check = result.checks[0]
    assert check.mismatched == check.largest == 1
    row, column, expected, found = check.first
    assert (row, column, found - expected) == (*divmod(place, 256), 1)
    assert (
        f"1 of 8192 int32 differ, first at row {row} column {column}: expected {expected}, found {found}" in check.line
    )


@pytest.mark.parametrize(
    ("how", "hint"),
    [("zeros", "all zeros: nothing was computed"), ("untouched", "8192 were never written")],
)
def test_a_c_that_was_not_computed_is_seen(how, hint, npu):
    result = only(npu.says(wrong=[{"how": how, "place": 0}]).run())
    assert result.outcome == "wrong"
    assert hint in result.checks[0].line


def test_a_design_that_is_right_on_a_fresh_array_only_is_told_so(npu):
    result = only(npu.says(wrong=[{"how": "one", "place": 7, "elided": True}]).run())
    assert [check.mismatched for check in result.checks[:2]] == [0, 1]
    assert "the first run was right: the design is right on a fresh array only" in result.checks[1].line
    assert result.timings == ()


def test_right_before_the_times_and_wrong_after_them_is_wrong(npu):
    # Runs 1 to 4 are checks, 5 to 9 timed, 10 the check after.
    result = only(npu.says(wrong=[{"how": "one", "place": 3, "runs": [10]}]).run())
    assert (result.outcome, [c.when for c in result.checks if c.mismatched]) == ("wrong", ["after"])


def test_swapped_inputs_of_one_size_are_wrong(npu, monkeypatch):
    trials = npu.trials()
    swapped = tuple(replace(trial, a=trials[1 - i].a) for i, trial in enumerate(trials))
    monkeypatch.setattr(Npu, "trials", lambda _self: swapped)
    assert only(npu.run()).outcome == "wrong"


# What goes wrong: every cause by its own words.

BEYOND = "DRM_IOCTL_AMDXDNA_CREATE_HWCTX IOCTL failed (err=-22): Invalid argument"
HEAP = "mmap(addr=0x7f, len=67108864, prot=3, flags=8209, offset=0) failed (err=-11): Resource temporarily unavailable"


@pytest.mark.parametrize(
    ("scenario", "kind", "remedy"),
    [
        ({"import_error": "Python version mismatch"}, "other-python", "install XRT and the amdxdna plugin"),
        ({"release": "2.20"}, "old-xrt", "XRT 2.21.75 or newer"),
        ({"fail": {"device": ["RuntimeError", " No such device with index '0'"]}}, "no-device", "/dev/accel/accel0"),
        (
            {"fail": {"device": ["RuntimeError", "Open /dev/accel/accel0 failed (err=-13): Permission denied"]}},
            "no-permission",
            "--group-add",
        ),
        ({"fail": {"device": ["RuntimeError", HEAP]}}, "memlock", "ulimit -l unlimited"),
        ({"fail": {"context": ["RuntimeError", BEYOND]}}, "no-context", "every hardware context is taken"),
        ({"fail": {"context": ["RuntimeError", BEYOND.replace("-22", "22")]}}, "no-context", "reboot"),
        ({"fail": {"run": ["RuntimeError", "exec failed (err=-95): Operation not supported"]}}, "not-supported", "0.6"),
        ({"TIMEOUT": [1]}, "timeout", "the array hung"),
        ({"TIMEOUT": [3], "health": True}, "timeout", "reboot before the next run"),
        ({"ABORT": [1]}, "abort", "firmware and driver do not fit"),
        ({"ERROR": [2]}, "error", "dmesg"),
        ({"silent": [2]}, "no-answer", "reboot"),
        ({"crash_at": 2}, "crashed", "crashed inside XRT"),
    ],
)
def test_each_cause_has_its_words_and_its_remedy_and_ends_the_series(scenario, kind, remedy, npu):
    series = npu.says(**scenario).run("large", "twin")
    result = only(series)
    assert result.outcome == "fault"
    assert (result.fault.kind, remedy in result.fault.line) == (kind, True)
    assert "\n" not in result.fault.line
    assert (series.exit_code, series.left) == (1, ("twin.elf",))
    assert series.stopped.startswith(f"large.elf: {kind}; ")


def test_the_health_lines_of_the_driver_are_kept(npu):
    fault = only(npu.says(TIMEOUT=[1], health=True).run()).fault
    assert "ERT_CMD_STATE_TIMEOUT) txn_op_idx = 0x12 ctx_pc = 0x34" in fault.text


def test_what_was_found_before_a_hang_stays(npu):
    result = only(npu.says(TIMEOUT=[3]).run())
    assert [(c.inputs, c.when, c.mismatched) for c in result.checks] == [("random", "first", 0), ("random", "again", 0)]


def test_a_wait_that_never_ends_is_killed_from_outside(npu):
    started = time.monotonic()
    series = npu.says(stuck=[2]).run("large", "twin", seconds=6)
    result = only(series)
    assert (result.fault.kind, series.left) == ("killed", ("twin.elf",))
    assert len(result.checks) == 1
    assert time.monotonic() - started < 60


def test_without_pyxrt_the_folder_and_the_python_to_name_are_told(npu, tmp_path):
    npu.environ["ELFKILN_PYXRT"] = str(tmp_path)
    fault = only(npu.run()).fault
    assert fault.kind == "no-pyxrt"
    assert "ELFKILN_DEVICE_PYTHON" in fault.line


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"xclbin2\0" + bytes(5000), "not-an-elf"),
        (b"", "not-an-elf"),
        (b"\x7fELF\x02\x01\x01\x00" + bytes(5000), "other-machine"),
        (b"\x7fELF\x01\x01\x01\x45\x02" + bytes(5000), "instruction-only"),
    ],
)
def test_a_file_that_is_no_full_elf_is_called_that_and_the_next_is_run(data, kind, npu, tmp_path):
    path = tmp_path / "bad.elf"
    path.write_bytes(data)
    good, _, sim = npu.elves["large"]
    npu.elves = {"large": (path, "0" * 64, sim), "twin": npu.elves["twin"]}
    npu.says()
    bad, twin = npu.run("large", "twin").results
    assert (bad.fault.kind, bad.fault.stops, twin.outcome) == (kind, False, "right")
    assert good.is_file()


def test_the_pool_of_contexts_is_the_whole_machines_and_ours_is_given_back(npu):
    npu.machine(others=15)
    assert only(npu.run()).outcome == "right"
    npu.machine(others=16)
    assert only(npu.run()).fault.kind == "no-context"
    npu.machine(others=15)
    assert [result.outcome for result in npu.run("large", "twin").results] == ["right", "right"]


# Sealed ELFs.


@pytest.fixture(scope="module")
def sealed(simulator, tmp_path_factory):
    """A sealed full ELF of two geometries and its sim ELF."""
    design, kernels = SEALED, (mm_pb16i(16, "mm_pb16i_16x64x128.o"),)
    geometries = ((128, 256), (256, 512))
    places = {}
    for number, one in enumerate([*design.buffers, *design.locks]):
        base = one.tile.col << 25 | one.tile.row << 20
        places[one.name] = base | (0x1F000 + 0x10 * number if one in design.locks else 0x8000 + 0x100 * number)
    pdi, _ = parts(EXAMPLE)
    streams = [
        (sequence.name, gemm_stream(replace(design, sequences=(sequence,)), places=places))
        for sequence in design.sequences
    ]
    data = assemble(pdi, streams)
    path = tmp_path_factory.mktemp("sealed") / "pb16i_sealed.elf"
    path.write_bytes(data)
    return path, sha256_hex(data), simulator.path(design, *kernels), geometries


def sealed_case(npu, sealed, before="init"):
    path, sha, sim, geometries = sealed
    npu.elves = {"sealed": (path, sha, sim)}
    npu.says()
    rng = np.random.default_rng(5)
    instances = []
    for K, N in geometries:
        a = rng.integers(-128, 128, (16, K), dtype=np.int8)
        b = rng.integers(-1, 2, (K, N), dtype=np.int8)
        trial = write_trial(npu.folder / f"{K}x{N}", "random", a, packed_ternary(b), product(a, b))
        instances.append(DeviceInstance(f"seq_K{K}_N{N}", before, 16, K, N, (trial,)))
    return DeviceCase(("pb16i_sealed.elf",), path, sha, tuple(instances))


def run_sealed(npu, case):
    (npu.folder / "work").mkdir()
    options = DeviceOptions(iterations=3, root=npu.folder, smi=None, lock=npu.folder / "npu.lock")
    environ = {"ELFKILN_PYXRT": str(npu.folder / "fake")}
    return only(run_series([case], seed=5, folder=npu.folder / "work", options=options, environ=environ))


def test_a_sealed_elf_is_configured_once_and_every_sequence_is_right(npu, sealed):
    result = run_sealed(npu, sealed_case(npu, sealed))
    assert result.fault is None
    assert (result.outcome, len(result.timings)) == ("right", len(sealed[3]))
    assert {check.instance for check in result.checks} == {f"main:seq_K{K}_N{N}" for K, N in sealed[3]}


def test_a_sealed_sequence_without_init_hangs_and_is_a_timeout(npu, sealed):
    assert run_sealed(npu, sealed_case(npu, sealed, before=None)).fault.kind == "timeout"


def test_a_sealed_elf_that_slept_between_runs_is_configured_again(npu, sealed):
    """Comparing took longer than the 5 s after which the device forgets: `init` comes before each run then."""
    case = sealed_case(npu, sealed)
    npu.says(seconds_after_a_run=6)
    result = run_sealed(npu, case)
    assert (result.outcome, result.fault) == ("right", None)


def test_a_device_that_slept_when_nobody_knew_hangs_a_sealed_elf_alone(npu, sealed):
    """Run 1 is init, 2 the sequence; before 3 the device was put to sleep, by another context's command, say."""
    case = sealed_case(npu, sealed)
    npu.says(idle_before=[3])
    result = run_sealed(npu, case)
    assert (result.fault.kind, [check.when for check in result.checks]) == ("timeout", ["first"])


def test_a_single_elf_loads_its_pdi_again_after_a_sleep(npu):
    assert only(npu.says(idle_before=[2, 4]).run()).outcome == "right"


@pytest.mark.parametrize(
    ("name", "kind"), [("seq_K1_N1", "wrong-instance"), ("", "several-instances"), ("seq", "wrong-instance")]
)
def test_a_sequence_that_is_not_there_is_told(name, kind, npu, sealed):
    case = sealed_case(npu, sealed)
    case = replace(case, instances=(replace(case.instances[0], name=name),))
    text = "Multiple sub kernels present for given kernel, cannot choose sub kernel\n"
    fault = run_sealed(npu, case).fault
    # `main:` alone is how a bare name looks to XRT: the part behind the colon is empty.
    assert fault.kind == kind or (name == "" and fault_of("kernel", "RuntimeError", text).kind == kind)


# The machine.


def test_another_power_mode_than_asked_for_is_refused_before_anything_runs(npu):
    with pytest.raises(Refused, match=r"^pmode=turbo: the device is in mode performance, and no time is taken"):
        npu.run(power_mode="turbo")
    assert json.loads((npu.folder / "fake" / "machine.json").read_text())["runs"] == 0
    assert only(npu.run(power_mode="performance")).outcome == "right"
    npu.says(info={**INFO, "platform": "no json"})
    with pytest.raises(Refused, match="mode unknown"):
        npu.run(power_mode="performance")


def test_a_power_mode_that_changes_meanwhile_is_a_note(npu):
    result = only(npu.says(power_modes=["performance", "default"]).run())
    assert result.notes == ("power mode changed during the run: performance before, default after",)


@pytest.mark.parametrize("name", ["RyzenAI-npu1", "NPU Phoenix"])
def test_another_generations_device_is_refused(name, npu):
    with pytest.raises(Refused, match=rf"expected an XDNA2 NPU .*, found {name}$"):
        npu.says(info={**INFO, "name": name}).run()
    assert only(npu.says(info={**INFO, "name": "RyzenAI-npu5"}).run()).outcome == "right"


def test_what_the_machine_says_of_itself_is_recorded(tmp_path):
    for name, text in {
        "sys/class/accel/accel0/device/fw_version": "1.1.2.64\n",
        "sys/module/amdxdna/version": "2.21.0_20251207,abcdef\n",
        "sys/module/amdxdna/srcversion": "0123\n",
        "sys/module/amdxdna/parameters/tdr_timeout_ms": "2000\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    smi = tmp_path / "xrt-smi"
    contexts = [{"pid": "4711", "context_id": "2", "status": "Active"}]
    report = {"devices": [{"aie_partitions": {"partitions": [{"hw_contexts": contexts}]}}]}
    smi.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "if '-o' not in sys.argv or '--force' not in sys.argv: sys.exit('ERROR: JSON needs -o')\n"
        f"open(sys.argv[sys.argv.index('-o') + 1], 'w').write({json.dumps(report)!r})\n"
    )
    smi.chmod(0o755)
    state = read_state(INFO, tmp_path, str(smi))
    assert state.to_json() | {"memlock": 0} == {
        "device": "NPU Strix Halo",
        "bdf": "0000:c5:00.1",
        "power_mode": "performance",
        "driver": "2.21.0_20251207,abcdef",
        "driver_build": "0123",
        "firmware": "1.1.2.64",
        "xrt": "2.21.75 abc",
        "tdr_timeout_ms": "2000",
        "memlock": 0,
        "others": ("process 4711 context 2 Active",),
    }
    after = replace(state, firmware="1.1.2.65", others=("process 1 context 1 Active",))
    assert state.changed(after) == (
        "firmware changed during the run: 1.1.2.64 before, 1.1.2.65 after",
        "other processes used the NPU during the run: process 1 context 1 Active",
    )


def test_a_machine_of_which_nothing_is_known_is_no_error(tmp_path):
    state = read_state({"name": None, "platform": "nonsense", "host": None}, tmp_path, None)
    assert replace(state, memlock=None) == MachineState()
    smi = tmp_path / "xrt-smi"
    smi.write_text("#!/bin/sh\nexit 1\n")
    smi.chmod(0o755)
    assert read_state({}, tmp_path, str(smi)).others is None


def test_one_series_at_a_time(npu):
    done = []
    with FileLock(npu.folder / "npu.lock"):
        other = threading.Thread(target=lambda: done.append(npu.run(iterations=0)))
        other.start()
        time.sleep(1.0)
        assert done == []
        assert json.loads((npu.folder / "fake" / "machine.json").read_text())["runs"] == 0
    other.join()
    assert done[0].exit_code == 0


# The parts.


def test_every_cause_says_what_to_do():
    for cause in CAUSES[1:]:
        assert cause.remedy, cause.kind
        assert "\n" not in cause.remedy


@pytest.mark.parametrize(
    ("stage", "type_name", "text", "kind"),
    [
        ("device", "RuntimeError", HEAP.replace("8209", "8193"), "memlock"),
        ("kernel", "RuntimeError", "no module found with given kernel name in ctx", "wrong-kernel"),
        ("kernel", "RuntimeError", "no ELF found with given kernel name in ctx", "wrong-kernel"),
        ("kernel", "RuntimeError", "Doesn't have prefix _Z, not a mangled kernel name", "stub"),
        ("run", "IndexError", "vector::_M_range_check: __n (which is 3)", "argument"),
        ("run", "RuntimeError", "DRM_IOCTL_AMDXDNA_GET_INFO IOCTL failed (err=-22): Invalid argument", "asleep"),
        ("context", "RuntimeError", "DRM_IOCTL_AMDXDNA_CREATE_HWCTX IOCTL failed (err=-2): No such file", "no-context"),
        ("run", "RuntimeError", "something new", "unknown"),
    ],
)
def test_causes_are_told_by_type_text_and_stage(stage, type_name, text, kind):
    assert fault_of(stage, type_name, text).kind == kind


def test_figures_of_times():
    figures = Timing("main:seq", 2, (50, 10, 30, 20, 40)).to_json()
    # Of 10 to 50: the middle, the middle of the distances 20 10 0 10 20, the 96th of 100.
    assert (figures["median_ns"], figures["mad_ns"], figures["p95_ns"]) == (30, 10, 50)
    assert (figures["min_ns"], figures["max_ns"], figures["runs"], figures["warmup"]) == (10, 50, 5, 2)


def test_the_poison_is_no_sum_of_a_gemm():
    largest = 128 * 128 * 17408
    assert -largest > session.POISON
    assert session.POISON % 256 != 0


def test_the_session_needs_nothing_of_elfkiln():
    text = Path(session.__file__).read_text()
    assert "elfkiln" not in text.partition('"""')[2].partition('"""')[2].replace("nothing of elfkiln", "")


def test_a_check_that_is_right_after_all_has_no_hint():
    check = DeviceCheck("main:seq", "random", "first", 10, 1, 5, (0, 1, 2, 7), 0, zero=False)
    assert check.line == "main:seq, random, first: 1 of 10 int32 differ, first at row 0 column 1: expected 2, found 7"


def test_ctrl_c_while_waiting_leaves_no_process(npu):
    import signal
    import subprocess

    npu.says(stuck=[1])
    trials = npu.trials()
    del trials
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from pathlib import Path\n"
        "from test_npu2_device import Npu\n"
        "import json\n"
        "table = json.loads(Path(sys.argv[3], 'elves.json').read_text())\n"
        "Npu(Path(sys.argv[3]), {k: (Path(p), s, m) for k, (p, s, m) in table.items()}).run(seconds=300)\n"
    )
    elves_ = {name: [str(path), sha, str(sim)] for name, (path, sha, sim) in npu.elves.items()}
    (npu.folder / "elves.json").write_text(json.dumps(elves_))
    words = [sys.executable, "-c", program, str(Path(__file__).parent), str(SUPPORT), str(npu.folder)]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    machine = npu.folder / "fake" / "machine.json"
    deadline = time.monotonic() + 60
    while json.loads(machine.read_text() or "{}").get("runs", 0) < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    needle = str(npu.folder / "work" / "request.json")
    sessions = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and needle in command_line(p)]
    assert sessions
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(30) != 0
    assert all(gone(pid) for pid in sessions)


def command_line(process):
    try:
        return (process / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
