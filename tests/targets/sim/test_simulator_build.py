"""Building sim ELFs: the same bytes everywhere, a cache that verifies, sources that are told, failures in one line."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from elfkiln.design.reader import read_design
from elfkiln.errors import BuildFailed, Refused
from elfkiln.families.family import KernelObject
from elfkiln.io.byte_cache import ByteCache
from elfkiln.store.toolchain_lock import TargetPin, read_lock
from elfkiln.targets.sim.compiler import Compiler, sim_sources
from elfkiln.targets.sim.make_elf import build_sim_elf, units_of
from elfkiln.targets.sim.zig_toolchain import Host, Installed, SimToolchain, check_host, this_host
from projects import CHECKOUT
from simulating import example, mm_i8

PANEL = [mm_i8(16, "mm_16x64x128.o")]
PIN = read_lock(CHECKOUT / "toolchain.lock").target("sim")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(root: Path, toolchain, kernels=CHECKOUT / "kernels", objects=PANEL, cache=None):
    """Build the panel design below `root`, with a cold cache of its own unless one is given."""
    work = root / "work"
    work.mkdir(parents=True, exist_ok=True)
    return build_sim_elf(
        example("panel_gemm"),
        objects,
        kernel_root=kernels,
        toolchain=toolchain,
        cache=cache or root / "cache",
        workdir=work,
    )


@pytest.fixture
def warm(simulator):
    """A cache that has the runtime and the microkernel already."""
    cache = simulator.root / "cache"
    build(simulator.folder(), simulator.toolchain, cache=cache)
    return cache


# The same bytes.


def test_folder_home_environment_and_mtime_do_not_matter(simulator, tmp_path, monkeypatch):
    first = build(tmp_path / "a", simulator.toolchain)
    assert first.path == tmp_path / "a" / "work" / "design.elf"
    assert first.log == ""
    kernels = tmp_path / "a much longer name" / "kernels"
    shutil.copytree(CHECKOUT / "kernels", kernels)
    for path in kernels.rglob("*"):
        os.utime(path, (1, 1))
    for name, value in (
        ("HOME", str(tmp_path / "nobody")), ("USER", "nobody"), ("CPATH", str(tmp_path)), ("CFLAGS", "-O0"),
        ("TZ", "Asia/Tokyo"), ("LC_ALL", "tr_TR.UTF-8"), ("SOURCE_DATE_EPOCH", "1"),
        ("ZIG_LOCAL_CACHE_DIR", "/nowhere"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    old = os.umask(0o077)
    try:
        second = build(tmp_path / "a much longer name" / "b", simulator.toolchain, kernels)
    finally:
        os.umask(old)
    warm = build(tmp_path / "a", simulator.toolchain)
    assert digest(first.path) == digest(second.path) == digest(warm.path)


def test_two_builds_at_once_share_a_cache(simulator, tmp_path):
    results = []

    def run(number):
        work = tmp_path / f"work-{number}"
        work.mkdir()
        built = build_sim_elf(
            example("panel_gemm"), PANEL, kernel_root=CHECKOUT / "kernels", toolchain=simulator.toolchain,
            cache=tmp_path / "cache", workdir=work,
        )  # fmt: skip
        results.append(digest(built.path))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert len(results) == 3
    assert len(list((tmp_path / "cache" / "objects").iterdir())) == 2  # the runtime and one microkernel


def test_another_text_gives_other_bytes(simulator, tmp_path, warm):
    """Both generations' texts of one design: the ELFs differ in the digest of the text and nothing else."""
    august = build(tmp_path, simulator.toolchain, cache=warm).path.read_bytes()
    text = example("panel_gemm", "2026-04")
    april = build_sim_elf(
        text, PANEL, kernel_root=CHECKOUT / "kernels", toolchain=simulator.toolchain, cache=warm, workdir=tmp_path
    ).path.read_bytes()
    old, new = (hashlib.sha256(one.encode()).hexdigest().encode() for one in (example("panel_gemm"), text))
    assert august != april
    assert august.replace(old, new) == april


def test_nothing_is_left_in_the_work_folder(simulator, tmp_path, warm):
    build(tmp_path, simulator.toolchain, cache=warm)
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["design.elf"]


# The cache.


def test_an_object_is_made_once(tmp_path):
    cache, made = ByteCache(tmp_path / "objects", ".o"), []

    def make():
        made.append(1)
        return b"object"

    assert [cache.get("k" * 64, make) for _ in range(3)] == [b"object"] * 3
    assert len(made) == 1
    assert cache.get("l" * 64, lambda: b"other") == b"other"


def test_damaged_objects_are_made_again(simulator, tmp_path, warm):
    expected = digest(build(tmp_path, simulator.toolchain, cache=warm).path)
    cache = tmp_path / "cache"
    shutil.copytree(warm, cache)
    objects = sorted((cache / "objects").iterdir())
    for number, path in enumerate(objects):
        data = bytearray(path.read_bytes())
        if number % 3 == 0:
            del data[len(data) // 2 :]
        elif number % 3 == 1:
            data[len(data) // 2] ^= 1
        else:
            data.clear()
        path.write_bytes(data)
    assert digest(build(tmp_path, simulator.toolchain, cache=cache).path) == expected
    whole = [path for path in objects if path.exists() and path.name.split(".")[1] == digest(path)]
    assert len(whole) == 2  # the runtime and the microkernel that this design links


def test_a_file_that_appears_under_the_name_of_another(tmp_path):
    """A name says what the bytes must be: an object copied over another's name is not taken for it."""
    cache = ByteCache(tmp_path, ".o")
    cache.get("a" * 64, lambda: b"right")
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"wrong")
    assert cache.get("a" * 64, lambda: b"right") == b"right"


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "objects").write_text("a file")
    with pytest.raises(Refused, match="objects"):
        ByteCache(tmp_path / "objects", ".o").get("a" * 64, lambda: b"x")


def test_the_cache_knows_every_input(simulator, tmp_path):
    """Flags, defines, sources, headers and the zig itself are in the key of an object."""
    kernels = tmp_path / "kernels"
    shutil.copytree(CHECKOUT / "kernels", kernels)
    folder = tmp_path / "cache" / "objects"

    def objects(toolchain=simulator.toolchain, kernel=PANEL[0]):
        compiler = Compiler(toolchain, tmp_path / "cache", tmp_path)
        compiler.compile_all([compiler.kernel(kernel, sim_sources(kernels, [kernel]))])
        return len(list(folder.iterdir()))

    assert objects() == 1
    assert objects() == 1
    assert objects(kernel=replace(PANEL[0], object_name="other.o")) == 1
    assert objects(kernel=mm_i8(32)) == 2
    flags = (*simulator.toolchain.microkernel_flags, "-DMORE=1")
    assert objects(replace(simulator.toolchain, microkernel_flags=flags)) == 3
    assert objects(replace(simulator.toolchain, zig_sha256="0" * 64)) == 4
    for number, name in enumerate(("mm_i8.cc", "gemm_tile.h", "host/aie_api/aie.hpp")):
        with (kernels / name).open("a") as stream:
            stream.write("// one more line\n")
        assert objects() == 4 + number
        with (kernels / name).open("a") as stream:
            stream.write(f"inline int more_{number}() {{ return 1; }}\n")
        assert objects() == 5 + number


# Sources.


def test_the_sources_of_a_build_are_read_once():
    found = sim_sources(CHECKOUT / "kernels", PANEL)
    for name in (
        "kernels/mm_i8.cc", "kernels/gemm_tile.h", "kernels/kernel_entry.h", "kernels/host/aie_api/aie.hpp",
        "runtime/runtime.c", "runtime/sim.h", "runtime/kernel_interface.h",
    ):  # fmt: skip
        folder = CHECKOUT / ("kernels" if name.startswith("kernels/") else "src/elfkiln/targets/sim/runtime")
        assert found[name] == (folder / name.partition("/")[2]).read_bytes(), name
    assert "kernels/mm_pb16i.cc" not in found


def steps(simulator, tmp_path, kernels=CHECKOUT / "kernels", runtime=None, objects=PANEL):
    sources = sim_sources(kernels, objects) | (runtime or {})
    design = read_design(example("panel_gemm"))
    compiler = Compiler(simulator.toolchain, tmp_path / "cache", tmp_path)
    return units_of(design, "0" * 64, objects, sources, compiler).steps


def test_a_recipe_names_what_the_compiler_sees(simulator, tmp_path):
    before = steps(simulator, tmp_path)
    assert [step.makes for step in before] == ["design.c", "runtime/runtime.c", "kernels/mm_i8.cc", "elf"]
    assert before[0].inputs["design.c"].startswith(b'#include "sim.h"\n')
    assert b"#define ELFKILN_SIM_H" in before[0].inputs["runtime/sim.h"]
    assert set(before[1].inputs) >= {"runtime/runtime.c", "runtime/core.c", "runtime/walk.c", "runtime/sim.h"}
    assert {"kernels/mm_i8.cc", "kernels/gemm_tile.h", "kernels/host/aie_api/aie.hpp"} <= set(before[2].inputs)
    assert "-DDIM_M=16" in before[2].command
    for step in before:
        assert not any(str(tmp_path) in word for word in step.command)
        assert all(str(tmp_path).encode() not in data for data in step.inputs.values())
    kernels = tmp_path / "kernels"
    shutil.copytree(CHECKOUT / "kernels", kernels)
    for name in ("mm_i8.cc", "gemm_tile.h", "host/aie_api/aie.hpp"):
        text = (kernels / name).read_text()
        (kernels / name).write_text("// first\n\n" + text.replace(";\n", "  ;  /* here */\n", 1))
        assert steps(simulator, tmp_path, kernels) == before, name
    # A part that the host does not compile is not seen either.
    (kernels / "mm_i8.cc").write_text((kernels / "mm_i8.cc").read_text() + "#ifndef ELFKILN_SIM\nint npu;\n#endif\n")
    assert steps(simulator, tmp_path, kernels) == before
    (kernels / "gemm_tile.h").write_text((kernels / "gemm_tile.h").read_text() + "inline int more() { return 1; }\n")
    after = steps(simulator, tmp_path, kernels)
    assert [step.makes for step, old in zip(after, before, strict=True) if step != old] == ["kernels/mm_i8.cc"]
    assert [name for name, data in after[2].inputs.items() if before[2].inputs[name] != data] == ["kernels/gemm_tile.h"]


def test_a_macro_of_the_runtime_is_seen_by_every_design(simulator, tmp_path):
    before = steps(simulator, tmp_path)
    own = sim_sources(CHECKOUT / "kernels", PANEL)["runtime/sim.h"]
    marked = own.replace(b"#define ELFKILN_SIM_H\n", b"#define ELFKILN_SIM_H\n#define SIM_MARK 1\n")
    assert marked != own
    after = steps(simulator, tmp_path, runtime={"runtime/sim.h": marked})
    assert after[0] != before[0]
    # The runtime uses no such macro, and its text is what it was.
    assert after[1:] == before[1:]


def test_where_lines_count_the_sources_themselves_are_the_input(simulator, tmp_path):
    kernels = tmp_path / "kernels"
    shutil.copytree(CHECKOUT / "kernels", kernels)
    (kernels / "mm_i8.cc").write_text((kernels / "mm_i8.cc").read_text() + "int here = __builtin_LINE();\n")
    before = steps(simulator, tmp_path, kernels)
    (kernels / "mm_i8.cc").write_text("// moved\n" + (kernels / "mm_i8.cc").read_text())
    assert steps(simulator, tmp_path, kernels) != before


@pytest.mark.parametrize("source", ["../secret.cc", "/etc/passwd", "a/../../b.cc", "a\\b.cc", "./mm_i8.cc"])
def test_a_source_that_leads_out_of_the_folder(source):
    kernel = KernelObject("mm.o", source, {})
    with pytest.raises(Refused, match="microkernel source: expected a relative name below kernels/"):
        sim_sources(CHECKOUT / "kernels", [kernel])


@pytest.mark.parametrize("name", ["leak.cc", "leak.h"])
def test_a_link_out_of_the_folder_is_no_source(tmp_path, name):
    (tmp_path / "secret").write_text("int secret;")
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "one.cc").write_text("int one;")
    (kernels / name).symlink_to(tmp_path / "secret")
    source = name if name.endswith(".cc") else "one.cc"
    with pytest.raises(Refused, match=f"kernels/{name}: expected a file below kernels/, found a link"):
        sim_sources(kernels, [KernelObject("one.o", source, {})])


def test_a_source_that_is_missing(simulator, tmp_path):
    kernel = KernelObject("mm_16x64x128.o", "nowhere.cc", {})
    with pytest.raises(Refused, match=r"kernels/nowhere\.cc: missing"):
        sim_sources(CHECKOUT / "kernels", [kernel])
    with pytest.raises(Refused, match=r"kernels/nowhere\.cc: missing"):
        build(tmp_path, simulator.toolchain, objects=[kernel])


@pytest.mark.parametrize("define", [{"A B": "1"}, {"A": "1 -o/x"}, {"A": "$(id)"}, {"-include": "x"}, {"A": '"x"'}])
def test_a_define_that_is_more_than_one(simulator, tmp_path, define):
    kernel = replace(PANEL[0], defines={**PANEL[0].defines, **define})
    with pytest.raises(Refused, match=r"mm_16x64x128\.o: define: expected NAME=word"):
        build(tmp_path, simulator.toolchain, objects=[kernel])


# Failures.


def test_a_source_that_does_not_compile(simulator, tmp_path, warm):
    kernels = tmp_path / "kernels"
    shutil.copytree(CHECKOUT / "kernels", kernels)
    with (kernels / "mm_i8.cc").open("a") as stream:
        stream.write("int f() { return nothing; }\n")
    with pytest.raises(BuildFailed) as caught:
        build(tmp_path / "out", simulator.toolchain, kernels, cache=warm)
    line = str(caught.value)
    assert line.startswith("kernels/mm_i8.cc: zig c++: ")
    assert "use of undeclared identifier 'nothing'" in line
    assert str(tmp_path) not in line
    assert list((tmp_path / "out" / "work").iterdir()) == []
    assert not any(path.name.startswith(".part") for path in (warm / "objects").iterdir())


def stand_in_zig(tmp_path, toolchain, script):
    zig = tmp_path / "zig"
    zig.write_text(f"#!/bin/sh\n{script}\n")
    zig.chmod(zig.stat().st_mode | stat.S_IXUSR)
    return replace(toolchain, zig=zig)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", "design.c: zig cc ended well and left no object"),
        ("echo something; exit 3", "design.c: zig cc: exit code 3: something"),
        ("exit 1", "design.c: zig cc: exit code 1: it said nothing"),
        ("kill -9 $$", "design.c: zig cc: killed by signal 9 (SIGKILL): it said nothing"),
    ],
)
def test_a_tool_that_fails(simulator, tmp_path, script, words):
    with pytest.raises(BuildFailed) as caught:
        build(tmp_path, stand_in_zig(tmp_path, simulator.toolchain, script))
    assert words in str(caught.value)
    assert list((tmp_path / "work").iterdir()) == []


def test_a_tool_that_is_not_there(simulator, tmp_path):
    with pytest.raises(BuildFailed, match=r"zig cc cannot be started \(No such file or directory\)"):
        build(tmp_path, replace(simulator.toolchain, zig=tmp_path / "nowhere"))


def test_a_leftover_elf_does_not_hide_a_failed_link(simulator, tmp_path, warm):
    build(tmp_path, simulator.toolchain, cache=warm)
    broken = replace(simulator.toolchain, link_flags=(*simulator.toolchain.link_flags, "--no-such-flag"))
    with pytest.raises(BuildFailed, match=r"link: zig ld\.lld: .*no-such-flag"):
        build(tmp_path, broken, cache=warm)


def test_text_that_is_no_design(simulator, tmp_path):
    tmp_path.joinpath("work").mkdir()
    with pytest.raises(Refused, match="design: "):
        build_sim_elf(
            "not MLIR", PANEL, kernel_root=CHECKOUT / "kernels", toolchain=simulator.toolchain,
            cache=tmp_path / "cache", workdir=tmp_path / "work",
        )  # fmt: skip


def test_two_objects_of_one_name(simulator, tmp_path):
    with pytest.raises(Refused, match="two objects of one name"):
        build(tmp_path, simulator.toolchain, objects=[PANEL[0], PANEL[0]])


def test_an_object_that_no_family_provides(simulator, tmp_path):
    with pytest.raises(Refused, match=r"link_with: expected one of other\.o, found mm_16x64x128\.o"):
        build(tmp_path, simulator.toolchain, objects=[mm_i8(16, "other.o")])


# The toolchain.


def pin_with(**changes):
    table = {name: dict(value) if isinstance(value, dict) else value for name, value in PIN.table.items()}
    for path, value in changes.items():
        *folders, last = path.split("__")
        place = table
        for folder in folders:
            place = place[folder]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return TargetPin("sim", table, PIN.digest)


V3 = frozenset(
    "cx16 popcnt ssse3 sse4_1 sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave and others".split()  # noqa: SIM905
)
HERE = Host("Linux", "x86_64", V3)


def test_the_locked_toolchain_is_the_installed_one():
    toolchain = SimToolchain.from_pin(PIN)
    toolchain.check()
    assert toolchain.describe() == "ziglang 0.17.1, xdsl 0.75.0, x86_64_v3"
    assert toolchain.zig.is_file()
    assert toolchain.digest == PIN.digest


def test_the_pin_names_the_wheels_that_requirements_install():
    text = (CHECKOUT / "requirements.txt").read_text()
    for package in ("ziglang", "xdsl"):
        section = text.split(f"\n{package}==")[1].split("# via")[0]
        assert section.startswith(PIN.table[package]["version"])
        assert f"--hash=sha256:{PIN.table[package]['sha256']}" in section


def test_the_flags_of_every_step():
    toolchain = SimToolchain.from_pin(PIN)
    for flags in (toolchain.runtime_flags, toolchain.design_flags, toolchain.microkernel_flags):
        assert flags[flags.index("-target") + 1] == "x86_64-linux-gnu.2.17"
        assert "-mcpu=x86_64_v3" in flags
        assert "-g0" in flags
    assert "-fno-exceptions" in toolchain.microkernel_flags
    assert "--strip-all" in toolchain.link_flags


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        (Installed("0.9", "0.75.0", None), "ziglang: expected ziglang 0.17.1 as toolchain.lock says, found ziglang 0"),
        (Installed(None, "0.75.0", None), "ziglang: expected ziglang 0.17.1 as toolchain.lock says, found none"),
        (Installed("0.17.1", "0.74.1", None), "xdsl: expected xdsl 0.75.0 as toolchain.lock says, found xdsl 0.74.1"),
        (Installed("0.17.1", "0.75.0", None), "installed without its program zig"),
        (Installed("0.17.1", "0.75.0", Path("/nowhere/zig")), "installed without its program zig"),
    ],
)  # fmt: skip
def test_another_package_than_the_locked_one(installed, words):
    with pytest.raises(Refused) as caught:
        SimToolchain.from_pin(PIN).check(HERE, installed)
    assert words in str(caught.value)


def test_another_zig_than_the_locked_one(tmp_path):
    other = tmp_path / "zig"
    other.write_bytes(b"another compiler")
    with pytest.raises(Refused) as caught:
        SimToolchain.from_pin(PIN).check(HERE, Installed("0.17.1", "0.75.0", other))
    line = str(caught.value)
    assert "program zig of ziglang 0.17.1: expected sha256 " + PIN.table["ziglang"]["zig_sha256"] in line
    assert hashlib.sha256(b"another compiler").hexdigest() in line


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (replace(HERE, machine="aarch64"), "expected Linux on x86-64, found Linux on aarch64"),
        (replace(HERE, system="Darwin", machine="arm64"), "found Darwin on arm64"),
        (replace(HERE, system="Windows", machine="AMD64"), "found Windows on AMD64"),
        (replace(HERE, system="", machine=""), "found an unknown system on an unknown machine"),
        (
            replace(HERE, cpu_flags=V3 - {"avx2"}),
            "a processor with x86_64_v3 (AVX2 and its kin), found one without avx2",
        ),
        (replace(HERE, cpu_flags=V3 - {"bmi2", "fma"}), "found one without bmi2 fma"),
        (replace(HERE, cpu_flags=frozenset()), "found one without cx16"),
    ],
)
def test_a_machine_that_cannot_run_it(host, words):
    with pytest.raises(Refused) as caught:
        SimToolchain.from_pin(PIN).check(host)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_this_machine_is_told_apart():
    host = this_host()
    assert host.system == os.uname().sysname
    assert host.machine == os.uname().machine
    check_host("x86_64_v3", host)
    with pytest.raises(Refused, match="expected one of x86_64_v3, found x86_64_v4"):
        check_host("x86_64_v4", host)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"triple": None}, "toolchain.lock: target.sim.triple: expected a value, found none"),
        ({"cpu": 3}, "target.sim.cpu: expected a text"),
        ({"flags__link": None}, "target.sim.flags.link: expected a value"),
        ({"flags__common": "-O3"}, "target.sim.flags.common: expected a list of texts"),
        ({"flags__design": ["-O3", 7]}, "target.sim.flags.design: expected a list of texts"),
        ({"ziglang": "0.17.1"}, "target.sim.ziglang.version: expected a value"),
        ({"ziglang__zig_sha256": ""}, "target.sim.ziglang.zig_sha256: expected a text"),
    ],
)
def test_a_lock_that_lacks_a_field(changes, words):
    with pytest.raises(Refused) as caught:
        SimToolchain.from_pin(pin_with(**changes))
    assert words in str(caught.value)
