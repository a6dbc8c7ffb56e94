"""Microkernel sources and the Peano command."""

from pathlib import Path

import pytest

from elfkiln.errors import Refused
from elfkiln.families.family import KernelObject
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.npu2.microkernel import (
    check_objects,
    compile_arguments,
    copy_sources,
    read_sources,
    seen_of,
    sources_of,
)
from elfkiln.targets.npu2.pin import read_pin

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture
def kernels(tmp_path):
    root = tmp_path / "kernels"
    (root / "shared").mkdir(parents=True)
    (root / "host" / "aie_api").mkdir(parents=True)
    (root / "mm.cc").write_text('#include <aie_api/aie.hpp>\n  #  include "shared/loops.h"\n#include "not_ours.h"\n')
    (root / "shared" / "loops.h").write_text('#include "types.h"\n#include "mm_common.h"\n')
    (root / "shared" / "types.h").write_text('#include "loops.h"\n')
    (root / "mm_common.h").write_text("")
    (root / "unused.h").write_text("")
    (root / "host" / "aie_api" / "aie.hpp").write_text("// the host's\n")
    return root


def kernel(**changes):
    return KernelObject(**{"object_name": "mm_32x64x128.o", "source": "mm.cc", "defines": {}, **changes})


def test_included_files_are_found_beside_the_file_and_below_the_root(kernels):
    files = ("mm.cc", "mm_common.h", "shared/loops.h", "shared/types.h")
    found = read_sources(kernels, [kernel(), kernel(object_name="mm_16x64x128.o")])
    assert found == {f"kernels/{name}": (kernels / name).read_bytes() for name in files}
    assert sources_of(kernel(), {**found, "kernels/other.h": b""}) == found


def test_an_object_takes_its_own_of_all_that_was_read(kernels):
    (kernels / "other.cc").write_text('#include "mm_common.h"\n')
    found = read_sources(kernels, [kernel(), kernel(source="other.cc")])
    assert list(sources_of(kernel(source="other.cc"), found)) == ["kernels/mm_common.h", "kernels/other.cc"]


def test_a_recipe_names_the_sources_without_comments_and_white_space(kernels):
    (kernels / "mm.cc").write_text('#include "mm_common.h"\nint a;\n')
    before = seen_of(kernel(), read_sources(kernels, [kernel()]))
    assert before == {"kernels/mm.cc": b'#include "mm_common.h"\nint a;\n', "kernels/mm_common.h": b""}
    (kernels / "mm.cc").write_text('// ours\n#include   "mm_common.h" /* and no other */\n\nint\ta;\n')
    assert seen_of(kernel(), read_sources(kernels, [kernel()])) == before
    # A macro of one file can put the lines of another into the object.
    (kernels / "mm_common.h").write_text("#define HERE __LINE__\n")
    raw = seen_of(kernel(), read_sources(kernels, [kernel()]))
    assert raw["kernels/mm.cc"] == (kernels / "mm.cc").read_bytes()


def test_the_real_microkernels_need_their_shared_headers_and_not_the_host_header():
    for source in ("mm_i8.cc", "mm_pb16i.cc"):
        found = read_sources(CHECKOUT / "kernels", [kernel(source=source)])
        assert list(found) == [f"kernels/{name}" for name in ("gemm_tile.h", "kernel_entry.h", source)]


def test_the_copy_holds_those_files_and_not_the_header_for_the_host(kernels, tmp_path):
    build = tmp_path / "build"
    build.mkdir()
    copy_sources(read_sources(kernels, [kernel()]), kernel(), build)
    copied = {path.relative_to(build).as_posix() for path in build.rglob("*") if path.is_file()}
    assert copied == {"kernels/mm.cc", "kernels/mm_common.h", "kernels/shared/loops.h", "kernels/shared/types.h"}


def test_a_source_that_is_not_there(kernels):
    with pytest.raises(Refused, match=r"^kernels/absent.cc: missing"):
        read_sources(kernels, [kernel(source="absent.cc")])


@pytest.mark.parametrize("include", ["../outside.h", "/etc/passwd"])
def test_an_include_that_leads_out_is_refused(kernels, include):
    (kernels.parent / "outside.h").write_text("")
    (kernels / "mm.cc").write_text(f'#include "{include}"\n')
    with pytest.raises(Refused, match="expected a file below kernels/, found one outside it"):
        read_sources(kernels, [kernel()])


def test_a_link_that_leads_out_is_refused(kernels):
    (kernels.parent / "outside.h").write_text("")
    (kernels / "link.h").symlink_to(kernels.parent / "outside.h")
    (kernels / "mm.cc").write_text('#include "link.h"\n')
    with pytest.raises(Refused, match="found one outside it"):
        read_sources(kernels, [kernel()])


@pytest.mark.parametrize("name", ["../mm.o", "a/b.o", "mm.obj", "-o.o", "", "mm .o"])
def test_an_object_name_that_is_no_file_name_is_refused(name):
    with pytest.raises(Refused, match="expected a plain file name ending in"):
        check_objects([kernel(object_name=name)])


def test_one_name_for_two_objects_is_refused():
    check_objects([kernel(), kernel()])
    with pytest.raises(Refused, match="named twice"):
        check_objects([kernel(), kernel(defines={"DIM_M": "16"})])


def test_the_command_is_mlir_aies_own_with_the_folders_mapped_away():
    pin = read_pin(read_lock(CHECKOUT / "toolchain.lock").target("npu2"))
    words = compile_arguments(
        pin,
        kernel(defines={"DIM_N": "128", "DIM_M": "32", "i8_i32_ONLY": ""}),
        site=Path("/site"),
        build=Path("/build"),
    )
    # mlir-aie's utils/compile names these for AIE2P.
    for flag in ("-std=c++20", "-O2", "-DNDEBUG", "-D__AIE_API_AIE_ADF_HPP__", "--target=aie2p-none-unknown-elf"):
        assert flag in words
    at = words.index("-I/site/mlir_aie/include")
    assert words[at + 1 :] == (
        "-Ikernels",
        "-DDIM_M=32",
        "-DDIM_N=128",
        "-Di8_i32_ONLY",
        "-c",
        "kernels/mm.cc",
        "-o",
        "mm_32x64x128.o",
    )
    assert {"-ffile-prefix-map=/site=.", "-ffile-prefix-map=/build=."} < set(words)
    # Defines come in one order, whatever the order they are given in.
    again = compile_arguments(
        pin,
        kernel(defines={"i8_i32_ONLY": "", "DIM_M": "32", "DIM_N": "128"}),
        site=Path("/site"),
        build=Path("/build"),
    )
    assert again == words
