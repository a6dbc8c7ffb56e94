"""Driving the toolchain, with stand-in tools that hand out recorded outputs of the real ones or do a thing wrong."""

import json
import os
import re
import shutil
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from elfkiln.design.reader import canonical_text, parse_design_module, read_design
from elfkiln.errors import BuildFailed, ElfkilnError, Refused
from elfkiln.families.family import KernelObject, RenderedGenerator
from elfkiln.io.child import KEPT_BYTES
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.npu2 import tool_run
from elfkiln.targets.npu2.driver import build_full_elf, foreign_dialect, steps_of
from elfkiln.targets.npu2.install_toolchain import install
from elfkiln.targets.npu2.microkernel import read_sources
from elfkiln.targets.npu2.pin import read_pin
from elfkiln.targets.table import builder_for
from npu2_standins import EXAMPLES, OLD_HELP, copy_installed, make_standins, this_python, unpack

DESIGN = "panel_gemm.2026-08"
PRETTY = (EXAMPLES / "npu2" / f"{DESIGN}.mlir").read_text()
GENERIC = (EXAMPLES / "iron" / f"{DESIGN}.generic.mlir").read_text()
ELF = (EXAMPLES / "full-elf" / f"{DESIGN}.elf").read_bytes()
KERNEL = KernelObject("mm_16x64x128.o", "mm.cc", {"DIM_N": "128", "DIM_M": "16", "DIM_K": "64"})


def installed_standins(folder, **arguments):
    standins = make_standins(folder / "wheels", **arguments)
    changes = {"aiecc_generation": "generate-full-elf"} if arguments.get("help_text") == OLD_HELP else {}
    # What pip does is test_npu2_install's.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("elfkiln.targets.npu2.install_toolchain.run_pip", unpack)
        return install(standins.project(folder / "project", **changes), wheels=standins.folder, find=this_python)


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory):
    return installed_standins(tmp_path_factory.mktemp("toolchain"))


@pytest.fixture
def own(toolchain, tmp_path):
    root = tmp_path / "own"
    root.mkdir()
    shutil.copy(toolchain.folder.parents[2] / "toolchain.lock", root)
    shutil.copytree(toolchain.folder.parents[2] / "kernels", root / "kernels")
    return copy_installed(toolchain, root)


def generator(*wrong, design=DESIGN, kernels=(KERNEL,)):
    return RenderedGenerator(f"import aie\naie.emit({design!r}, *{wrong!r})\n", kernels)


def build(toolchain, folder, *wrong, text=None, kernels=(KERNEL,), **arguments):
    wanted = generator(*wrong, kernels=kernels) if text is None else RenderedGenerator(text, kernels)
    kernel_root = toolchain.folder.parents[2] / "kernels"
    return build_full_elf(wanted, kernel_root=kernel_root, toolchain=toolchain, workdir=folder, **arguments)


def fails(toolchain, folder, *wrong, kind=BuildFailed, **arguments):
    """Build, which must fail in one line; return the line and the log that hangs on the error."""
    with pytest.raises(kind) as error:
        build(toolchain, folder, *wrong, **arguments)
    assert "\n" not in str(error.value)
    return str(error.value), "\n".join(getattr(error.value, "__notes__", ()))


# A build that goes well.


def test_the_elf_and_both_forms_of_the_design_come_out(toolchain, tmp_path):
    built = build(toolchain, tmp_path / "build")
    assert built.path.read_bytes() == ELF
    assert built.path == tmp_path / "build" / "aiecc.out" / "aie.elf"
    assert built.design == GENERIC
    assert built.pretty == PRETTY


def test_aiecc_gets_the_command_line_of_its_generation(toolchain, tmp_path):
    build(toolchain, tmp_path / "build", jobs=3)
    assert (tmp_path / "build" / "arguments.txt").read_text().splitlines() == [
        "--get-full-elf",
        "--full-elf-name=aie.elf",
        "--tmpdir=aiecc.tmp",
        "--output-dir=aiecc.out",
        f"--peano={toolchain.site}/llvm-aie",
        "--alloc-scheme=basic-sequential",
        "-j",
        "3",
        "design.mlir",
    ]


def test_the_microkernel_is_compiled_where_aiecc_finds_it_first(toolchain, tmp_path):
    build(toolchain, tmp_path / "build")
    assert (tmp_path / "build" / "clang.txt").read_text().splitlines() == [
        "-std=c++20",
        "-O2",
        "--target=aie2p-none-unknown-elf",
        f"-ffile-prefix-map={toolchain.site}=.",
        f"-ffile-prefix-map={tmp_path / 'build'}=.",
        f"-I{toolchain.site}/mlir_aie/include",
        "-Ikernels",
        "-DDIM_K=64",
        "-DDIM_M=16",
        "-DDIM_N=128",
        "-c",
        "kernels/mm.cc",
        "-o",
        "mm_16x64x128.o",
    ]
    copied = sorted(path.name for path in (tmp_path / "build" / "kernels").iterdir())
    assert copied == ["mm.cc", "mm.h"]


def test_tools_see_the_locks_variables_and_no_others(toolchain, tmp_path, monkeypatch):
    for name in ("PEANO_INSTALL_DIR", "PYTHONPATH", "LD_PRELOAD_NOT", "XILINX_XRT", "AIECC_JOBS", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("ELFKILN_TEST_PASSED", "through")
    built = build(toolchain, tmp_path / "build")
    variables = json.loads((tmp_path / "build" / "variables.json").read_text())
    variables.pop("LC_CTYPE", None)  # Python's own, set when it starts
    assert variables == {
        "ELFKILN_TEST_PASSED": "through",
        "HOME": str(tmp_path / "build" / "home"),
        "LC_ALL": "C.UTF-8",
        "PATH": os.pathsep.join(
            [
                str(toolchain.site / "mlir_aie" / "bin"),
                str(toolchain.site / "llvm-aie" / "bin"),
                str(toolchain.folder / "venv" / "bin"),
            ]
        ),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPYCACHEPREFIX": str(tmp_path / "build" / "home" / "pycache"),
        "TMPDIR": str(tmp_path / "build" / "home"),
    }
    assert built.volatile["passed"] == ["ELFKILN_TEST_PASSED"]


def test_log_and_bytes_are_the_same_in_another_folder_with_other_jobs(toolchain, tmp_path):
    one = build(toolchain, tmp_path / "one", jobs=1)
    two = build(toolchain, tmp_path / "elsewhere" / "two", jobs=7)
    assert (one.log, one.design, one.path.read_bytes()) == (two.log, two.design, two.path.read_bytes())
    assert (one.volatile["jobs"], two.volatile["jobs"]) == (1, 7)
    assert set(one.volatile["seconds"]) == {"generator", "aie-opt", "clang++", "aiecc"}


def test_the_log_says_what_ran_and_what_came_of_it(toolchain, tmp_path):
    log = build(toolchain, tmp_path / "build").log
    assert str(tmp_path) not in log
    assert str(toolchain.folder) not in log
    site = f"<toolchain>/venv/lib/{toolchain.site.parent.name}/site-packages"
    assert f"$ {site}/mlir_aie/bin/aie-opt --mlir-print-op-generic design.mlir\naie-opt: exit code 0\n" in log
    assert f"--peano={site}/llvm-aie --alloc-scheme=basic-sequential -j <jobs> design.mlir\naiecc: exit code 0\n" in log
    assert "aiecc stdout: wrote <build>/aiecc.out/aie.elf\n" in log
    assert f"toolchain npu2 sha256:{toolchain.pin.digest}\n" in log
    for name, row in toolchain.record["tools"].items():
        assert f"tool {name} {row['file']} sha256:{row['sha256']}\n" in log


TOLD = canonical_text(parse_design_module(GENERIC))
"""The recorded design, as the stand-in would print it."""


def test_a_recipe_names_toolchain_sources_commands_and_design(toolchain):
    project = Project(toolchain.folder.parents[2])
    pin = read_lock(project.lock_file).target("npu2")
    sources = read_sources(project.kernels, [KERNEL])
    steps = steps_of(pin, read_pin(pin), generator(), read_design(GENERIC), TOLD, sources)
    assert [step.makes for step in steps] == ["toolchain", KERNEL.object_name, "full ELF"]
    assert json.loads(steps[0].inputs["toolchain.lock: target.npu2"]) == json.loads(json.dumps(pin.table))
    assert set(steps[1].inputs) == {"kernels/mm.cc", "kernels/mm.h"}
    assert steps[1].command[0] == "clang++"
    assert "-ffile-prefix-map={build}=." in steps[1].command
    assert steps[2].command[:2] == ("aiecc", "--get-full-elf")
    assert steps[2].inputs == {"design.mlir": TOLD.encode()}
    assert all(str(toolchain.folder) not in word for step in steps for word in step.command)


def test_the_design_that_is_printed_must_be_the_one_the_recipe_was_told_from(toolchain, tmp_path):
    assert build(toolchain, tmp_path / "same", intended=TOLD).path.read_bytes() == ELF
    other = TOLD.replace("static_offset = 4096 : i32", "static_offset = 0 : i32", 1)
    assert other != TOLD
    line, log = fails(toolchain, tmp_path / "other", intended=other)
    pairs = enumerate(zip(other.splitlines(), TOLD.splitlines(), strict=True), start=1)
    number = next(n for n, (a, b) in pairs if a != b)
    assert line.startswith("design: the installed aie package prints another one than elfkiln's stand-in")
    assert f"line {number}: expected " in line
    assert "nothing was compiled" in line
    assert "clang++: " not in log


def builder_inputs(builder, folder, monkeypatch):
    """Tell a recipe; the recorded package is not IRON, so what elfkiln's stand-in would print is given."""
    design = read_design(TOLD)
    monkeypatch.setattr("elfkiln.design.run_generator.design_of_generator", lambda *_, **__: (TOLD, design))
    return builder.inputs(generator(), builder.sources(generator()), folder)


def test_the_builder_of_the_target_drives_it(toolchain, tmp_path, monkeypatch):
    project = Project(toolchain.folder.parents[2])
    builder = builder_for(project, "npu2")
    assert builder.describe() == toolchain.describe()
    assert set(builder.sources(generator()).files) == {"kernels/mm.cc", "kernels/mm.h"}
    inputs = builder_inputs(builder, tmp_path / "inputs", monkeypatch)
    assert inputs.design == TOLD
    (tmp_path / "build").mkdir()
    built = builder.compile(inputs, tmp_path / "build")
    assert built.elf.read_bytes() == ELF
    assert built.log.startswith(f"toolchain npu2 sha256:{toolchain.pin.digest}\n")


def test_sources_are_those_that_were_read(toolchain, tmp_path):
    """An edit after the sources were read does not enter the build."""
    copy = tmp_path / "kernels"
    shutil.copytree(toolchain.folder.parents[2] / "kernels", copy)
    sources = read_sources(copy, [KERNEL])
    (copy / "mm.h").unlink()
    (copy / "mm.cc").write_text("#error edited\n")
    folder = tmp_path / "build"
    build_full_elf(generator(), kernel_root=copy, toolchain=toolchain, workdir=folder, sources=sources)
    assert (folder / "kernels" / "mm.cc").read_bytes() == sources["kernels/mm.cc"]
    assert (folder / "kernels" / "mm.h").read_bytes() == sources["kernels/mm.h"]


def test_builds_at_once_do_not_meet(toolchain, tmp_path):
    built, errors = {}, []

    def work(name):
        try:
            built[name] = build(toolchain, tmp_path / name)
        except ElfkilnError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert {item.path.read_bytes() for item in built.values()} == {ELF}
    assert len({item.path for item in built.values()}) == 3


def test_the_old_generation_turns_chess_off_and_unrolls_nothing(tmp_path):
    toolchain = installed_standins(tmp_path, help_text=OLD_HELP, version="1.1.4")
    kernels = (KernelObject("mm_pb16i_16x64x128.o", "mm.cc", {}),)
    # No full ELF of that design is recorded: what the stand-in writes is of another and does not pass.
    text = generator(design="sequences_rtp.2026-04").text
    line, _ = fails(toolchain, tmp_path / "build", text=text, kernels=kernels, kind=ElfkilnError)
    assert line.startswith("wrong-design: ")
    words = (tmp_path / "build" / "arguments.txt").read_text().splitlines()
    assert words[:2] == ["--no-xchesscc", "--no-xbridge"]
    assert "--dynamic-objFifos" in words
    plain = build(toolchain, tmp_path / "plain")
    assert "--dynamic-objFifos" not in (tmp_path / "plain" / "arguments.txt").read_text()
    assert plain.path == tmp_path / "plain" / "aie.elf"
    assert plain.path.read_bytes() == ELF


# Output that is none.


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("no-output", "aiecc: exit code 0, but it wrote no aiecc.out/aie.elf"),
        ("fails", "aiecc: exit code 1: aiecc: error: told to fail"),
        ("killed", "aiecc: killed by signal 11 (SIGSEGV): it said nothing"),
        ("path", "tampered: "),
        ("stub", "stub: "),
        ("not-full", "expected a full ELF"),
        ("other-design", "wrong-design: "),
    ],
)
def test_an_aiecc_that_goes_wrong_leaves_no_elf(told, expected, toolchain, tmp_path):
    line, log = fails(toolchain, tmp_path / "build", f"aiecc: {told}", kind=ElfkilnError)
    assert expected in line
    assert "$ <toolchain>/venv/lib/" in log


def test_the_path_of_the_build_folder_in_the_elf_is_refused(toolchain, tmp_path, monkeypatch):
    monkeypatch.setattr("elfkiln.targets.npu2.full_elf.check_design", lambda _full, _design: None)
    monkeypatch.setattr("elfkiln.targets.npu2.full_elf.read_full_elf", lambda _data: SimpleNamespace(abi_version=33))
    line, _ = fails(toolchain, tmp_path / "build", "aiecc: path")
    assert line.startswith("full ELF: holds the path of a folder of this build")


def test_an_aiecc_that_hangs_is_killed(toolchain, tmp_path):
    line, log = fails(toolchain, tmp_path / "build", "aiecc: hang", timeout=4)
    assert line == "aiecc did not end in 4 s and was killed with all it had started"
    assert "aie-opt: exit code 0" in log


def test_a_hundred_megabytes_of_complaints_do_not_fill_the_log(toolchain, tmp_path):
    built = build(toolchain, tmp_path / "build", "aiecc: loud")
    assert "bytes left out ..." in built.log
    assert len(built.log) < 3 * KEPT_BYTES


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("empty", "aie-opt: exit code 0, but design.generic.mlir is empty: it said nothing"),
        ("half", "aie-opt: exit code 0, but design.generic.mlir stops half-way"),
        ("fails", "aie-opt: exit code 1: aie-opt: error: told to fail"),
        ("big-stack", "lint: error l1-memory core(0,2): "),
    ],
)
def test_a_design_that_is_none_is_not_compiled(told, expected, toolchain, tmp_path):
    line, _ = fails(toolchain, tmp_path / "build", f"aie-opt: {told}")
    assert line.startswith(expected)
    assert not (tmp_path / "build" / "clang.txt").exists()


@pytest.mark.parametrize("tool", ["aie-opt", "aiecc"])
def test_a_design_of_another_generation_is_called_that(tool, toolchain, tmp_path):
    line, _ = fails(toolchain, tmp_path / "build", f"{tool}: foreign-dialect")
    assert line.startswith(
        f"{tool}: design.mlir:12:51: error: expected ')': the design was printed by another mlir-aie"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "generator: exit code 0, but design.mlir is empty"),
        ("print('module {')", "generator: exit code 0, but design.mlir stops half-way"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "generator: exit code 0, but design.mlir is not UTF-8 text"),
        (
            "raise ValueError('K must be a multiple of 64')",
            "generator: exit code 1: ValueError: K must be a multiple of 64",
        ),
        ("import os; os.abort()", "generator: killed by signal 6 (SIGABRT)"),
        (
            "print('module { nonsense }')",
            "aie-opt: exit code 1: design.mlir:1:1: error: custom op 'nonsense' is unknown",
        ),
    ],
)
def test_a_generator_that_prints_no_design(text, expected, toolchain, tmp_path):
    line, _ = fails(toolchain, tmp_path / "build", text=text + "\n")
    assert line.startswith(expected)


def test_a_generator_that_goes_on_printing_is_stopped(toolchain, tmp_path, monkeypatch):
    monkeypatch.setattr(tool_run, "FILE_BYTES", 1_000_000)
    line, _ = fails(toolchain, tmp_path / "build", text="while True: print('x' * 100_000)\n")
    assert line.startswith("generator printed more than 1000000 bytes and was killed")


def test_the_log_of_a_failed_build_is_kept_where_the_error_says(toolchain, tmp_path):
    line, log = fails(toolchain, tmp_path / "build", "aiecc: fails", failed_logs=tmp_path / "out" / "logs")
    (path,) = (tmp_path / "out" / "logs").iterdir()
    assert line.endswith(f"aiecc: error: told to fail; the whole log is in out/logs/{path.name}")
    assert path.read_text().startswith(log)
    assert path.read_text()[len(log) :].startswith("seconds: generator ")
    assert "aiecc stderr: aiecc: error: told to fail\n" in log


def test_a_log_that_cannot_be_written_does_not_hide_the_error(toolchain, tmp_path):
    (tmp_path / "out").write_text("no folder")
    line, _ = fails(toolchain, tmp_path / "build", "aiecc: fails", failed_logs=tmp_path / "out" / "logs")
    assert line == "aiecc: exit code 1: aiecc: error: told to fail"


@pytest.mark.parametrize("tool", ["aie-opt", "clang++", "aiecc"])
@pytest.mark.parametrize(
    "words",
    [
        "LLVM ERROR: IO failure on output stream: No space left on device",
        "OSError: [Errno 28] writing",
        "fatal error: error in backend: Disk quota exceeded",
    ],
)
def test_a_full_disk_in_any_tools_words_is_a_full_disk(tool, words, toolchain, tmp_path):
    line, log = fails(toolchain, tmp_path / "build", f"{tool}: says {words}", kind=Refused)
    assert line == f"{tmp_path}: no space left on the device; free some and run again, nothing was half-written"
    assert f"{tool} stderr: {words}\n" in log


def test_a_full_disk_in_the_generators_words_is_a_full_disk(toolchain, tmp_path):
    text = "import errno, os\nraise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
    line, _ = fails(toolchain, tmp_path / "build", text=text, kind=Refused)
    assert line.startswith(f"{tmp_path}: no space left on the device")


def test_an_output_left_empty_by_a_full_disk_is_a_full_disk(toolchain, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("elfkiln.io.files.shutil.disk_usage", lambda _folder: usage._replace(free=4096))
    line, _ = fails(toolchain, tmp_path / "build", "clang++: empty-output", kind=Refused)
    assert line.startswith(f"{tmp_path}: no space left on the device")


@pytest.mark.parametrize(
    "name", ["main_core_0_2.elf", "main_core_1_3.o", "elfs_main_1_2", "elfs/elfs_main_0_3", "elfs_main_0_2.elf"]
)
def test_a_core_with_an_empty_object_or_elf_is_no_build(name, toolchain, tmp_path):
    line, _ = fails(toolchain, tmp_path / "build", "aiecc: core main_core_0_3.elf", f"aiecc: core {name} empty")
    assert line == f"aiecc: exit code 0, but aiecc.tmp/{name} is empty; see the build log"
    assert build(toolchain, tmp_path / "whole", f"aiecc: core {name}", "aiecc: core note.txt empty").path.is_file()


@pytest.mark.parametrize("name", ["my build", "build(1)", "b'", "a,b"])
def test_a_folder_whose_path_a_tool_would_stumble_over_is_refused_before_anything_runs(name, toolchain, tmp_path):
    line, log = fails(toolchain, tmp_path / name, kind=Refused)
    assert line.startswith("build folder ")
    assert "expected a path of letters, digits and _+./- alone, found other characters" in line
    assert log == ""
    assert not (tmp_path / name).exists()


def test_neither_log_nor_error_holds_the_path_of_the_build(toolchain, tmp_path):
    folder = tmp_path / "build-00112233445566aa"
    words = f"@HERE@/design.mlir:3:1: error: in ../{folder.name}/aiecc.tmp and /.../{folder.name}/x"
    line, log = fails(toolchain, folder, f"aiecc: says {words}")
    assert line == "aiecc: exit code 1: <build>/design.mlir:3:1: error: in <build>/aiecc.tmp and <build>/x"
    assert folder.name not in log
    assert str(tmp_path) not in log


def test_the_log_says_how_long_each_tool_took(toolchain, tmp_path, monkeypatch):
    project = Project(toolchain.folder.parents[2])
    builder = builder_for(project, "npu2")
    inputs = builder_inputs(builder, tmp_path / "inputs", monkeypatch)
    built = builder.compile(inputs, tmp_path / "build")
    last = built.log.splitlines()[-1]
    assert re.fullmatch(r"seconds: generator \d+\.\d\d, aie-opt \d+\.\d\d, clang\+\+ \d+\.\d\d, aiecc \d+\.\d\d", last)
    logs = tmp_path / "out" / "logs"
    fails(toolchain, tmp_path / "failed", "aiecc: fails", failed_logs=logs)
    (kept,) = logs.iterdir()
    assert re.search(r"^seconds: .*aiecc \d", kept.read_text(), re.MULTILINE)


def test_a_run_of_no_tool_leaves_the_log_of_the_one_before(own, tmp_path):
    logs = tmp_path / "out" / "logs"
    fails(own, tmp_path / "first", "aiecc: fails", failed_logs=logs)
    (kept,) = logs.iterdir()
    before = kept.read_bytes()
    own.tool("aiecc").write_text("#!/bin/sh\n")
    line, _ = fails(own, tmp_path / "second", "aiecc: fails", failed_logs=logs, kind=Refused)
    assert "the whole log" not in line
    assert kept.read_bytes() == before


def test_an_elf_of_another_abi_than_the_installed_assemblers_is_no_build(toolchain, tmp_path):
    tools = {**toolchain.record["tools"], "aiebu-asm": {**toolchain.record["tools"]["aiebu-asm"], "abi": 16}}
    other = replace(toolchain, record={**toolchain.record, "tools": tools})
    line, _ = fails(other, tmp_path / "build")
    assert line.startswith("full ELF: ABI version: expected 16, that of the installed aiebu-asm, found 33")


def test_a_changed_toolchain_is_refused_once_before_the_first_build(own):
    builder = builder_for(Project(own.folder.parents[2]), "npu2")
    builder.prepare()
    (own.site / "mlir_aie" / "include" / "aie_api" / "aie.hpp").write_text("// other\n")
    for _ in range(2):
        with pytest.raises(
            Refused, match=r"^lib/python3[.0-9]+/site-packages/mlir_aie/include/aie_api/aie.hpp: expected "
        ):
            builder.prepare()


# Leftovers and foreign files.


def test_a_folder_with_something_in_it_is_refused(toolchain, tmp_path):
    folder = tmp_path / "build"
    (folder / "aiecc.out").mkdir(parents=True)
    (folder / "aiecc.out" / "aie.elf").write_bytes(ELF)
    line, _ = fails(toolchain, folder, "aiecc: no-output", kind=Refused)
    assert line == "build: a build folder must be empty and one build's own, found aiecc.out in it"


def test_two_builds_in_one_folder_are_one_build(toolchain, tmp_path):
    built, errors = [], []

    def work():
        try:
            built.append(build(toolchain, tmp_path / "build"))
        except ElfkilnError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [item.path.read_bytes() for item in built] == [ELF]
    assert len(errors) == 2
    assert all("must be empty and one build's own" in line for line in errors)


OBJECT = KERNEL.object_name
LEAVE = """\
import pathlib, shutil, sys, aie
place = pathlib.Path(sys.argv[0]).parent / {place!r}
place.parent.mkdir(parents=True, exist_ok=True)
shutil.copyfile(pathlib.Path(aie.__file__).parents[3] / "llvm-aie" / "bin" / "i8.o", place)
"""


def leaving(place, *wrong):
    """A generator that leaves a usable object at `place`, seen from its own folder, and then prints its design."""
    return LEAVE.format(place=place) + generator(*wrong).text


@pytest.mark.parametrize(
    ("place", "left"),
    [
        (f"../{OBJECT}", OBJECT),
        ("../aie.elf", "aie.elf"),
        ("../aiecc.out/aie.elf", "aiecc.out"),
        ("../aiecc.tmp/x", "aiecc.tmp"),
        ("../kernels/mm.h", "kernels"),
        ("../design.generic.mlir", "design.generic.mlir"),
        ("../home/.config/clang.cfg", "home/.config"),
    ],
)
def test_what_a_generator_leaves_outside_its_own_folder_ends_the_build(place, left, toolchain, tmp_path):
    # With a clang++ that then writes nothing, the object would have been taken for its output.
    line, _ = fails(toolchain, tmp_path / "build", text=leaving(place, "clang++: no-output"))
    assert line == f"generator: left {left} outside its own folder; no step's output belongs there"
    assert not (tmp_path / "build" / "clang.txt").exists()


def test_a_design_that_the_generator_writes_itself_is_not_what_it_prints(toolchain, tmp_path):
    line, _ = fails(toolchain, tmp_path / "build", text="open('../design.mlir', 'w').write('module {}')\n")
    assert line == "generator: wrote design.mlir itself; only what it prints is taken"


def test_what_a_generator_writes_in_its_own_folder_is_looked_at_by_nobody(toolchain, tmp_path):
    built = build(toolchain, tmp_path / "build", text=leaving(OBJECT))
    assert built.path.read_bytes() == ELF
    line, _ = fails(toolchain, tmp_path / "other", text=leaving(OBJECT, "clang++: no-output"))
    assert line.startswith(f"clang++: exit code 0, but it wrote no {OBJECT}: ")


def test_the_generators_home_is_not_that_of_the_tools(toolchain, tmp_path):
    text = "import os; open(os.environ['HOME'] + '/.clang.cfg', 'w')\n" + generator().text
    build(toolchain, tmp_path / "build", text=text)
    home = json.loads((tmp_path / "build" / "variables.json").read_text())["HOME"]
    assert home == str(tmp_path / "build" / "home")
    assert not os.path.exists(home + "/.clang.cfg")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (("aie-opt: leaves {object}", "clang++: no-output"), "clang++: {object}"),
        (("aie-opt: leaves {object}",), "clang++: {object}"),
        (("aie-opt: leaves kernels/mm.h",), "clang++: kernels"),
        (("clang++: leaves aiecc.out/aie.elf", "aiecc: no-output"), "aiecc: aiecc.out"),
        (("clang++: leaves aiecc.tmp/x",), "aiecc: aiecc.tmp"),
        (("aie-opt: leaves aie.elf",), "aiecc: aie.elf"),
    ],
)
def test_what_is_there_before_the_step_that_makes_it_is_nobodys_output(told, expected, toolchain, tmp_path):
    line, _ = fails(toolchain, tmp_path / "build", *(word.format(object=OBJECT) for word in told))
    tool, _, name = expected.format(object=OBJECT).partition(": ")
    assert line == f"{tool}: {name} is there before {tool} ran; it is nobody's output"


def test_an_object_that_the_compile_of_another_left_is_nobodys_output(toolchain, tmp_path):
    kernels = (KernelObject("first.o", "mm.cc", {}), KERNEL)
    line, _ = fails(toolchain, tmp_path / "build", f"clang++: leaves {OBJECT}", kernels=kernels)
    assert line == f"clang++: {OBJECT} is there before clang++ ran; it is nobody's output"


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("clang++: leaves design.mlir", "design.mlir"),
        ("clang++: leaves design.generic.mlir", "design.generic.mlir"),
        ("clang++: leaves first.o", "first.o"),
    ],
)
def test_an_output_that_a_later_step_overwrites_is_nobodys_output(told, name, toolchain, tmp_path):
    kernels = (KernelObject("first.o", "mm.cc", {}), KERNEL)
    line, _ = fails(toolchain, tmp_path / "build", told, kernels=kernels)
    assert line == f"{name}: changed after the step that made it; what is there now is nobody's output"


def test_a_design_that_aie_opt_writes_itself_is_not_what_it_prints(toolchain, tmp_path):
    line, _ = fails(toolchain, tmp_path / "build", "aie-opt: leaves design.generic.mlir")
    assert line == "aie-opt: wrote design.generic.mlir itself; only what it prints is taken"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("clang++: link-output", f"clang++: exit code 0, but it wrote no {OBJECT}: "),
        ("clang++: empty-output", f"clang++: exit code 0, but {OBJECT} is empty: "),
        ("aiecc: link-output", "aiecc: exit code 0, but it wrote no aiecc.out/aie.elf: "),
        ("aiecc: empty-output", "aiecc: exit code 0, but aiecc.out/aie.elf is empty: "),
    ],
)
def test_an_output_that_is_a_link_or_empty_is_none(told, expected, toolchain, tmp_path):
    line, _ = fails(toolchain, tmp_path / "build", told)
    assert line.startswith(expected)


def test_an_object_in_the_callers_folder_is_not_picked_up(toolchain, tmp_path, monkeypatch):
    (tmp_path / "mm_16x64x128.o").write_bytes(b"another process's")
    monkeypatch.chdir(tmp_path)
    line, _ = fails(toolchain, tmp_path / "build", kernels=())
    assert line == "design.mlir: links mm_16x64x128.o, which the generator's microkernels do not make"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("no-output", "clang++: exit code 0, but it wrote no mm_16x64x128.o"),
        ("fails", "clang++: mm.cc: exit code 1: clang++: error: told to fail"),
        ("killed", "clang++: mm.cc: killed by signal 11 (SIGSEGV)"),
        ("no-object", "mm_16x64x128.o: object file: expected a relocatable ELF"),
        ("other-entries", "mm_16x64x128.o: entry matmul_i8_i32: expected a global function"),
    ],
)
def test_a_microkernel_that_does_not_compile(told, expected, toolchain, tmp_path):
    line, _ = fails(toolchain, tmp_path / "build", f"clang++: {told}")
    assert line.startswith(expected)
    assert not (tmp_path / "build" / "arguments.txt").exists()


def test_a_header_that_is_not_there_is_named(toolchain, tmp_path):
    copy = tmp_path / "kernels"
    shutil.copytree(toolchain.folder.parents[2] / "kernels", copy)
    (copy / "mm.h").unlink()
    with pytest.raises(BuildFailed, match=r"clang\+\+: mm.cc: exit code 1: .*fatal error: 'mm.h' file not found"):
        build_full_elf(generator(), kernel_root=copy, toolchain=toolchain, workdir=tmp_path / "build")


# A toolchain that changes.


def test_a_tool_replaced_between_install_and_build_is_not_run(own, tmp_path):
    build(own, tmp_path / "first")
    marker = tmp_path / "ran"
    own.tool("aiecc").write_text(f"#!/bin/sh\ntouch {marker}\n")
    line, _ = fails(own, tmp_path / "build", kind=Refused)
    assert re.match(r"aiecc: venv/lib/.*/mlir_aie/bin/aiecc: sha256: expected [0-9a-f]{64}, found [0-9a-f]{64}; ", line)
    assert not marker.exists()


def test_a_header_replaced_between_two_builds_is_seen(own, tmp_path):
    build(own, tmp_path / "first")
    (own.site / "mlir_aie" / "include" / "aie_api" / "aie.hpp").write_text("// other\n")
    line, _ = fails(own, tmp_path / "build", kind=Refused)
    assert re.match(r"lib/python3[.0-9]+/site-packages/mlir_aie/include/aie_api/aie.hpp: expected ", line)


def test_what_a_build_made_while_a_tool_changed_is_thrown_away(own, tmp_path):
    line, _ = fails(own, tmp_path / "build", "aiecc: meddle", kind=Refused)
    assert line == "aiebu-asm: aiebu-asm was changed during the build; what it made is thrown away"


def test_what_a_build_made_while_a_header_changed_is_thrown_away(own, tmp_path):
    header = own.site / "mlir_aie" / "include" / "aie_api" / "aie.hpp"
    text = f"open({str(header)!r}, 'a').write('// changed')\n" + generator().text
    line, _ = fails(own, tmp_path / "build", text=text, kind=Refused)
    assert re.match(r"lib/python3[.0-9]+/site-packages/mlir_aie/include/aie_api/aie.hpp: expected ", line)


# Reading what tools say.


def test_only_a_dma_bd_line_is_a_foreign_dialect():
    text = "d.mlir:9:1: error: expected ')'\n    %0 = arith.constant(1\n"
    assert foreign_dialect(text) is None
    assert foreign_dialect(text.replace("arith.constant(1", "aie.dma_bd(%1 : memref<4xi8>, 0, 4)")) is not None


def test_the_two_generations_do_print_dma_bd_differently():
    older = (EXAMPLES / "npu2" / "panel_gemm.2026-04.mlir").read_text()
    assert "aie.dma_bd(%arg0 : memref<8192xi8>, 0, 4096, [<size = 1" in older
    assert "aie.dma_bd(%arg0 : memref<8192xi8> offset = 0 len = 4096 sizes = [1" in PRETTY
