"""The npu2 section of toolchain.lock: the pinned facts, and every way a field can be wrong."""

import copy
import re
import tomllib
from pathlib import Path

import pytest

from elfkiln.errors import Refused
from elfkiln.store.toolchain_lock import TargetPin, read_lock
from elfkiln.targets.given_wheels import WheelName
from elfkiln.targets.npu2.pin import read_pin

CHECKOUT = Path(__file__).resolve().parents[3]

# Copied from the published packagings that pair the two wheels (their hashes converted to hex), not from the lock.
MLIR_AIE = (
    "https://github.com/Xilinx/mlir-aie/releases/download/v1.4.3/mlir_aie-1.4.3-cp312-cp312-manylinux_2_35_x86_64.whl",
    "4d8c23a5b6171dd1162c78c560f0a48cad659690b5be530d51666b7fff527281",
)
LLVM_AIE_URL = (
    "https://github.com/Xilinx/llvm-aie/releases/download/nightly/"
    "llvm_aie-22.0.0.2026092301%2B02be6fd8-py3-none-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
)
LLVM_AIE = (LLVM_AIE_URL, "6e2d2ebe86bf675d9a19c221cd430232d314c391048944de3fc41507924034ae")


@pytest.fixture
def table():
    lock = tomllib.loads((CHECKOUT / "toolchain.lock").read_text())
    return copy.deepcopy(lock["target"]["npu2"])


def read(table):
    return read_pin(TargetPin("npu2", table, "0" * 64))


def test_the_pair_is_pinned_by_address_and_digest():
    pin = read_pin(read_lock(CHECKOUT / "toolchain.lock").target("npu2"))
    mlir, peano = pin.wheel("mlir-aie"), pin.wheel("llvm-aie")
    assert (mlir.url, mlir.sha256, mlir.version) == (*MLIR_AIE, "1.4.3")
    assert (peano.url, peano.sha256, peano.version) == (*LLVM_AIE, "22.0.0.2026092301+02be6fd8")
    assert pin.python == "3.12"
    assert pin.aiecc_generation == "get-full-elf"


def test_the_dependencies_of_mlir_aie_are_pinned_as_wheels_for_that_python():
    pin = read_pin(read_lock(CHECKOUT / "toolchain.lock").target("npu2"))
    names = {wheel.name for wheel in pin.wheels}
    # What the wheel's metadata asks for, and what rich asks for.
    assert names >= {"numpy", "ml-dtypes", "rich", "cloudpickle", "aiofiles", "markdown-it-py", "mdurl", "pygments"}
    for wheel in pin.wheels:
        tags = WheelName.parse(wheel.file)
        assert tags.fits_python("3.12"), wheel.file
        assert all(re.fullmatch(r"any|manylinux_2_[0-9]+_x86_64", platform) for platform in tags.platforms), wheel.file
        if wheel.url is None:
            assert wheel.size is not None, wheel.file


def test_no_package_index_is_named_in_the_lock():
    hosts = set(re.findall(r"https?://([^/\"]+)", (CHECKOUT / "toolchain.lock").read_text()))
    assert hosts == {"github.com"}


def test_the_tools_that_make_an_elf_are_listed():
    pin = read_pin(read_lock(CHECKOUT / "toolchain.lock").target("npu2"))
    assert {tool.name: tool.file for tool in pin.tools} == {
        "aiecc": "mlir_aie/bin/aiecc",
        "aie-opt": "mlir_aie/bin/aie-opt",
        "aie-translate": "mlir_aie/bin/aie-translate",
        "bootgen": "mlir_aie/bin/bootgen",
        "clang": "llvm-aie/bin/clang",
        "clang++": "llvm-aie/bin/clang++",
        "opt": "llvm-aie/bin/opt",
        "llc": "llvm-aie/bin/llc",
        "ld.lld": "llvm-aie/bin/ld.lld",
    }


def test_the_assembler_is_in_no_wheel_and_is_pinned_on_the_box():
    pin = read_pin(read_lock(CHECKOUT / "toolchain.lock").target("npu2"))
    assert pin.outside_tools == ()
    assert "aiebu-asm" not in {tool.name for tool in pin.tools}


@pytest.mark.parametrize("field", ["python", "aiecc_flags", "microkernel_flags", "environment", "tools", "wheels"])
def test_every_field_enters_the_digest(field, tmp_path):
    text = (CHECKOUT / "toolchain.lock").read_text()
    before = read_lock(CHECKOUT / "toolchain.lock").target("npu2").digest
    edits = {
        "python": ('python = "3.12"', 'python = "3.13"'),
        "aiecc_flags": ("basic-sequential", "bank-aware"),
        "microkernel_flags": ('"-O2"', '"-O1"'),
        "environment": ('PYTHONHASHSEED = "0"', 'PYTHONHASHSEED = "1"'),
        "tools": ("llvm-aie/bin/llc", "llvm-aie/bin/llc2"),
        "wheels": (MLIR_AIE[1], "0" * 64),
    }
    old, new = edits[field]
    assert old in text
    (tmp_path / "toolchain.lock").write_text(text.replace(old, new))
    assert read_lock(tmp_path / "toolchain.lock").target("npu2").digest != before


def change(table, field, value):
    table[field] = value


WRONG = {
    "python too old": (lambda t: change(t, "python", "3.10"), "at least 3.11, found 3.10"),
    "python": (lambda t: change(t, "python", "three"), "target.npu2.python: expected a version such as 3.12"),
    "generation": (lambda t: change(t, "aiecc_generation", "new"), "aiecc_generation: expected one of"),
    "unknown field": (lambda t: change(t, "wheel", []), "found wheel"),
    "absent field": (lambda t: t.pop("imports"), "found no imports"),
    "flags no list": (lambda t: change(t, "aiecc_flags", "-O2"), "aiecc_flags: expected a list of texts"),
    "variable no text": (lambda t: t["environment"]["set"].update(TZ=0), "environment.set.TZ: expected a text"),
    "tool outside": (
        lambda t: t["tools"].update(opt="../../bin/opt"),
        "tools.opt: expected a path below site-packages",
    ),
    "tool absolute": (lambda t: t["tools"].update(opt="/usr/bin/opt"), "tools.opt: expected a path below"),
    "outside tool relative": (
        lambda t: change(t, "outside_tools", {"x": {"file": "bin/x", "sha256": "0" * 64}}),
        "outside_tools.x.file: expected an absolute path, found bin/x",
    ),
    "outside tool without a digest": (
        lambda t: change(t, "outside_tools", {"x": {"file": "/bin/x"}}),
        "outside_tools.x: expected the fields abi file sha256, found no sha256",
    ),
    "outside tool listed twice": (
        lambda t: change(t, "outside_tools", {"opt": {"file": "/bin/opt", "sha256": "0" * 64}}),
        "outside_tools.opt: expected a plain name that no other table has",
    ),
    "no aiecc": (lambda t: t["tools"].pop("aiecc"), "expected a row for aiecc"),
    "peano outside": (lambda t: change(t, "peano", "/opt/peano"), "peano: expected a path below"),
    "no wheels": (lambda t: change(t, "wheels", []), "wheels: expected a list of wheels"),
    "wheel no table": (lambda t: t["wheels"].append("numpy"), "expected a table per wheel, found str"),
    "short digest": (lambda t: t["wheels"][0].update(sha256="4d8c"), "sha256: expected 64 lower-case hex digits"),
    "upper-case digest": (
        lambda t: t["wheels"][0].update(sha256=MLIR_AIE[1].upper()),
        "sha256: expected 64 lower-case hex digits",
    ),
    "size": (lambda t: t["wheels"][2].update(size=0), "size: expected a positive integer"),
    "size a boolean": (lambda t: t["wheels"][2].update(size=True), "size: expected a positive integer"),
    "file of another version": (lambda t: t["wheels"][0].update(version="1.4.2"), "expected a file of mlir-aie 1.4.2"),
    "version no version": (
        lambda t: t["wheels"][0].update(version="one", file="mlir_aie-one-py3-none-any.whl"),
        "expected a file name <name>-<version>",
    ),
    "outside tool of another ABI": (
        lambda t: change(t, "outside_tools", {"x": {"file": "/bin/x", "sha256": "0" * 64, "abi": 34}}),
        "outside_tools.x.abi: expected one of 16, 32, 33, found 34",
    ),
    "file a path": (lambda t: t["wheels"][0].update(file="../x-1-py3-none-any.whl"), "expected a file name"),
    "file no wheel": (lambda t: t["wheels"][0].update(file="mlir_aie-1.4.3.tar.gz"), "expected a file name"),
    "url of another file": (
        lambda t: t["wheels"][0].update(url="https://example.org/other.whl"),
        "url: expected an http(s) address that ends in",
    ),
    "url no http": (
        lambda t: t["wheels"][0].update(url="file:///" + t["wheels"][0]["file"]),
        "url: expected an http(s) address",
    ),
    "wheel twice": (lambda t: t["wheels"].append(dict(t["wheels"][2])), "expected one wheel per package"),
    "no Peano": (lambda t: t["wheels"].pop(1), "expected a wheel of llvm-aie"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_field_is_refused_by_name(case, table):
    spoil, expected = WRONG[case]
    spoil(table)
    with pytest.raises(Refused) as refused:
        read(table)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_package_inside_another_wheel_is_not_pinned_again(table):
    table["wheels"].append(
        {
            "name": "eudsl-python-extras",
            "version": "0.1.0",
            "file": "eudsl_python_extras-0.1.0-py3-none-any.whl",
            "sha256": "0" * 64,
        }
    )
    with pytest.raises(Refused, match="eudsl-python-extras is listed in inside_wheels too"):
        read(table)


@pytest.mark.parametrize(
    ("file", "version", "fits"),
    [
        ("a-1-cp312-cp312-manylinux_2_35_x86_64.whl", "3.12", True),
        ("a-1-cp312-cp312-manylinux_2_35_x86_64.whl", "3.13", False),
        ("a-1-cp310-abi3-any.whl", "3.12", True),
        ("a-1-cp313-abi3-any.whl", "3.12", False),
        ("a-1-py3-none-any.whl", "3.12", True),
        ("a-1-py2.py3-none-any.whl", "3.12", True),
        ("a-1-py2-none-any.whl", "3.12", False),
        ("a-1-py312-none-any.whl", "3.12", True),
        ("a-1-1-cp312-cp312-any.whl", "3.12", True),
    ],
)
def test_tags_say_which_python_a_wheel_is_for(file, version, fits):
    assert WheelName.parse(file).fits_python(version) is fits
