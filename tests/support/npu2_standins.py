"""Stand-ins for the npu2 toolchain: small valid wheels whose tools answer as the real ones were seen to.

The design texts and the full ELF they hand out are recorded outputs of the real tools (tests/examples). What a
stand-in tool does wrong is said in comment lines of the design, e.g. `// aiecc: no-output`, which the stand-in `aie`
package prints on request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from elfkiln.project import Project
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.npu2.interpreter import Interpreter
from object_assembler import ALLOC, EXECUTE, FUNCTION, GLOBAL, PROGBITS, kernel_object

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLES = CHECKOUT / "tests" / "examples"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

# What `aiecc --help` of either generation lists, in the form LLVM's option parser prints.
NEW_HELP = """\
USAGE: aiecc [options] <input mlir> [-- <host cc args>...]

OPTIONS:
  --alloc-scheme=<string>    - Buffer allocation scheme
  --full-elf-name=<string>   - Output filename for combined ELF
  --get=<name>               - Request graph output(s) by edge name; named artifacts also have --get-<name> shorthands
  -j <uint>                  - Number of parallel compilation threads (0 = auto-detect)
  --output-dir=<string>      - Output directory for generated artifacts
  --peano=<string>           - Peano install dir
  --tmpdir=<string>          - Intermediate workdir
"""
OLD_HELP = """\
USAGE: aiecc [options] <input file> [host source files...]

OPTIONS:
  --alloc-scheme=<string>    - Allocation scheme for AIE buffers
  --dynamic-objFifos         - Use dynamic object FIFOs
  --full-elf-name=<string>   - Output filename for full ELF (default: aie.elf)
  --generate-full-elf        - Generate complete full ELF with PDIs using aiebu-asm
  -j <uint>                  - Number of threads
  --no-xbridge               - Link using peano (disable xbridge)
  --no-xchesscc              - Compile using peano (also disables xbridge)
  --peano=<string>           - Peano install dir
  --tmpdir=<string>          - Directory for temporary files
"""

_SHEBANG = "#!/usr/bin/env -S python3 -IS\n"

_AIE_PACKAGE = '''\
"""Stand-in for the aie package: prints recorded modules."""
from pathlib import Path
_HERE = Path(__file__).parent
def emit(name, *wrong):
    """Print the recorded pretty form of a design, and one comment line for each thing a tool shall do wrong."""
    print("".join(f"// {line}\\n" for line in wrong) + (_HERE / "recorded" / f"{name}.mlir").read_text(), end="")
'''

_COMMON = r"""
import os, re, sys
from pathlib import Path
# What is imported where it is used is half of a tool's start.

def wrong(tool):
    text = Path("design.mlir").read_text()
    return [line.split(": ", 1)[1] for line in text.splitlines() if line.startswith(f"// {tool}: ")]

def put(place, data, told, elsewhere):
    if "link-output" in told:
        place.symlink_to(elsewhere)
    elif "no-output" not in told:
        place.write_bytes(b"" if "empty-output" in told else data)

def misbehave(tool, told):
    usable = Path(__file__).resolve().parents[2] / "llvm-aie" / "bin" / "i8.o"
    for place in [line.removeprefix("leaves ") for line in told if line.startswith("leaves ")]:
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).write_bytes(usable.read_bytes() + b"left")
    if "hang" in told:
        import subprocess, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        Path("child.pid").write_text(str(child.pid))
        time.sleep(60)
    if "killed" in told:
        os.kill(os.getpid(), 11)
    if "loud" in told:
        for _ in range(100):
            sys.stderr.write("w" * 1048575 + "\n")
    for words in [line.removeprefix("says ") for line in told if line.startswith("says ")]:
        sys.exit(words.replace("@HERE@", os.getcwd()))
    if "fails" in told:
        sys.exit(f"{tool}: error: told to fail")
    if "foreign-dialect" in told:
        sys.stderr.write("design.mlir:12:51: error: expected ')'\n"
                         "        aie.dma_bd(%arg0 : memref<8192xi8>, 0, 4096, [<size = 1, stride = 0>])\n")
        sys.exit(1)
"""

_AIE_OPT = (
    _SHEBANG
    + _COMMON
    + r"""
assert sys.argv[1:] == ["--mlir-print-op-generic", "design.mlir"], sys.argv
told = wrong("aie-opt")
misbehave("aie-opt", told)
pretty = "".join(line for line in Path("design.mlir").read_text().splitlines(True) if not line.startswith("//"))
recorded = Path(__file__).resolve().parent.parent / "python" / "aie" / "recorded"
names = [p.name[: -len(".mlir")] for p in recorded.glob("*.mlir") if not p.name.endswith(".generic.mlir")]
found = [name for name in names if (recorded / f"{name}.mlir").read_text() == pretty]
if not found:
    sys.exit("design.mlir:1:1: error: custom op 'nonsense' is unknown")
generic = (recorded / f"{found[0]}.generic.mlir").read_text()
if "empty" in told:
    generic = ""
if "half" in told:
    generic = generic[: len(generic) // 2]
if "big-stack" in told:
    assert "stack_size = 8192 : i32" in generic
    generic = generic.replace("stack_size = 8192 : i32", "stack_size = 57344 : i32")
sys.stdout.write(generic)
"""
)

_AIECC = (
    _SHEBANG
    + _COMMON
    + r"""
HELP = @HELP@
PROBE = @PROBE@
if sys.argv[1:] == ["--help"]:
    if PROBE == "hang":
        import subprocess, time
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        time.sleep(60)
    if PROBE == "fails":
        sys.exit("aiecc: error while loading shared libraries: libz.so.1: cannot open shared object file")
    print(HELP)
    sys.exit()
if sys.argv[1:] == ["--version"]:
    if PROBE == "version-hang":
        import time
        time.sleep(60)
    print("aiecc (stand-in)\n  git SHA:  0000000")
    sys.exit()
told = wrong("aiecc")
misbehave("aiecc", told)
new = "--get=<name>" in HELP
given = {}
words = iter(sys.argv[1:])
for word in words:
    name, equals, value = word.partition("=")
    if name == "-j":
        value = next(words)
    known = f"{name}" in HELP or (new and name == "--get-full-elf") or name == "design.mlir"
    if not known and new:
        sys.exit(f"aiecc: Unknown command line argument '{word}'.")
    given[name] = value or True
Path("arguments.txt").write_text("\n".join(sys.argv[1:]))
import json
Path("variables.json").write_text(json.dumps(dict(os.environ)))
if not given.get("--get-full-elf" if new else "--generate-full-elf"):
    sys.exit(0)
here = Path(__file__).resolve().parent
if not (Path(given["--peano"]) / "bin" / "clang").is_file():
    sys.exit("aiecc: error: no Peano")
for name in re.findall(r'link_with = "([^"]+)"', Path("design.mlir").read_text()):
    if not Path(name).is_file():
        sys.exit(f"aiecc: error: cannot find {name}")
elf = (here / "recorded.elf").read_bytes()
if "stub" in told:
    elf = b"stub" + bytes(55)
if "other-design" in told:
    elf = (here / "other.elf").read_bytes()
if "not-full" in told:
    elf = bytearray(elf)
    elf[7] = 0
if "path" in told:
    elf += os.getcwd().encode()
place = Path(given["--output-dir"] if new else ".") / given["--full-elf-name"]
for name in [line.removeprefix("core ") for line in told if line.startswith("core ")]:
    core = Path(given["--tmpdir"]) / name.removesuffix(" empty")
    core.parent.mkdir(parents=True, exist_ok=True)
    core.write_bytes(b"" if name.endswith(" empty") else b"core")
put(place, elf, told, here / "recorded.elf")
if "meddle" in told:
    for tool in here.glob("aiebu-asm"):
        tool.write_bytes(tool.read_bytes() + b"# changed\n")
print(f"wrote {place.resolve()}")
"""
)

_CLANG = (
    _SHEBANG
    + _COMMON
    + r"""
told = wrong("clang++")
misbehave("clang++", told)
words = sys.argv[1:]
Path("clang.txt").write_text("\n".join(words))
source, out = Path(words[words.index("-c") + 1]), Path(words[words.index("-o") + 1])
text = source.read_text()
for name in re.findall(r'#include "([^"]+)"', text):
    if not ((source.parent / name).is_file() or Path("kernels", name).is_file()):
        sys.exit(f"{source}:1:10: fatal error: '{name}' file not found")
pb16i = "pb16i" in out.name or "other-entries" in told
data = (Path(__file__).resolve().parent / ("pb16i.o" if pb16i else "i8.o")).read_bytes()
if "no-object" in told:
    data = b"no object"
put(out, data, told, Path(__file__).resolve().parent / "i8.o")
"""
)

ASSEMBLER = (
    _SHEBANG
    + """
import json, sys
words = sys.argv[1:]
if words[:3] != ["-t", "aie2_config", "-j"] or words[4] != "-o":
    sys.exit("usage: aiebu-asm -t aie2_config -j CONFIG -o ELF")
(kernel,) = json.load(open(words[3]))["xrt-kernels"]
parts = [row["PDI_file"] for row in kernel["PDIs"]] + [row["TXN_ctrl_code_file"] for row in kernel["instance"]]
data = b"".join(open(part, "rb").read() for part in parts)
open(words[5], "wb").write(b"\x7fELF\x01\x01\x01\x45" + bytes([@ABI@]) + bytes(43) + data)
"""
)
"""An aiebu-asm that makes ELFs of an ABI version, as far as the probe at install looks at them."""


def assembler(abi: int = 33) -> str:
    """Return the text of a stand-in aiebu-asm."""
    return ASSEMBLER.replace("@ABI@", str(abi))


_IDLE = _SHEBANG + "print('idle')\n"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel made by the tests: its file and what a lock says of it."""

    path: Path
    name: str
    version: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def row(self, url: str | None = None) -> dict[str, object]:
        """The lock's row."""
        table = {"name": self.name.replace("_", "-"), "version": self.version, "file": self.path.name}
        if url:
            table["url"] = url
        return {**table, "sha256": self.sha256, "size": self.path.stat().st_size}


def make_wheel(folder, name, version, files, *, requires=(), tag="py3-none-any", metadata=None) -> Wheel:
    """Write a valid wheel; `files` maps a path to text or bytes, a path that starts with `+` is executable."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    head = metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    entries = {
        **files,
        f"{info}/METADATA": head + "".join(f"Requires-Dist: {line}\n" for line in requires),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = []
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:

        def put(entry, data):
            info_ = zipfile.ZipInfo(entry.lstrip("+"), (2026, 1, 1, 0, 0, 0))
            info_.external_attr = (0o100755 if entry.startswith("+") else 0o100644) << 16
            archive.writestr(info_, data)

        for entry, content in entries.items():
            data = content.encode() if isinstance(content, str) else content
            put(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{entry.lstrip('+')},sha256={digest},{len(data)}\n")
        put(f"{info}/RECORD", "".join(record) + f"{info}/RECORD,,\n")
    return Wheel(path, name, version)


@dataclass(slots=True)
class Standins:
    """The wheels of one stand-in toolchain."""

    folder: Path
    wheels: dict[str, Wheel] = field(default_factory=dict)

    def lock_text(self, **changes) -> str:
        """A toolchain.lock that pins them, with sim as in the checkout; `changes` replace fields of the section."""
        table = {
            "python": PYTHON,
            "aiecc_generation": "get-full-elf",
            "aiecc_flags": ["--alloc-scheme=basic-sequential"],
            "microkernel_flags": ["-std=c++20", "-O2", "--target=aie2p-none-unknown-elf"],
            "microkernel_includes": ["mlir_aie/include"],
            "peano": "llvm-aie",
            "imports": ["aie", "aie.extras.context"],
            "inside_wheels": ["eudsl-python-extras"],
            "environment": {"pass": ["ELFKILN_TEST_PASSED"], "set": {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}},
            "tools": {
                "aiecc": "mlir_aie/bin/aiecc",
                "aie-opt": "mlir_aie/bin/aie-opt",
                "aiebu-asm": "mlir_aie/bin/aiebu-asm",
                "clang": "llvm-aie/bin/clang",
                "clang++": "llvm-aie/bin/clang++",
            },
            "linked_tools": {"bootgen": "mlir_aie/bin/bootgen"},
            "wheels": [wheel.row() for wheel in self.wheels.values()],
            **changes,
        }
        sim = (CHECKOUT / "toolchain.lock").read_text().partition("# Target npu2:")[0]
        return sim + render_section(table)

    def project(self, root: Path, **changes) -> Project:
        """A project with that lock and one microkernel source."""
        (root / "kernels").mkdir(parents=True)
        (root / "kernels" / "mm.cc").write_text('#include "mm.h"\n#include <stdint.h>\n')
        (root / "kernels" / "mm.h").write_text("// shared\n")
        (root / "kernels" / "other.h").write_text("// not included\n")
        (root / "toolchain.lock").write_text(self.lock_text(**changes))
        return Project(root)


def render_section(table) -> str:
    """The npu2 section as TOML."""
    wheels = table["wheels"]
    lines = ["[target.npu2]"]
    lines += [f"{k} = {json.dumps(v)}" for k, v in table.items() if not isinstance(v, dict) and k != "wheels"]
    for name in ("environment", "tools", "linked_tools", "outside_tools"):
        if name not in table:
            continue
        lines.append(f"[target.npu2.{name}]")
        for key, value in table[name].items():
            if isinstance(value, dict):
                inner = ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items())
                lines.append(f"{json.dumps(key)} = {{ {inner} }}")
            else:
                lines.append(f"{json.dumps(key)} = {json.dumps(value)}")
    for row in wheels:
        lines += ["", "[[target.npu2.wheels]]", *(f"{k} = {json.dumps(v)}" for k, v in row.items())]
    return "\n".join(lines) + "\n"


def make_standins(
    folder: Path,
    *,
    help_text: str = NEW_HELP,
    probe: str = "",
    leave_out: tuple[str, ...] = (),
    requires: tuple[str, ...] = ("tinydep",),
    version: str = "1.4.3",
) -> Standins:
    """Make the wheels: mlir_aie, llvm_aie and one dependency. `leave_out` names files that shall be missing."""
    elf = (EXAMPLES / "full-elf" / "panel_gemm.2026-08.elf").read_bytes()
    recorded = {}
    for pretty in sorted((EXAMPLES / "npu2").glob("*.mlir")):
        for path in (pretty, EXAMPLES / "iron" / f"{pretty.stem}.generic.mlir"):
            recorded[f"mlir_aie/python/aie/recorded/{path.name}"] = path.read_text()
    aiecc = _AIECC.replace("@HELP@", repr(help_text)).replace("@PROBE@", repr(probe))
    mlir = {
        "aie.pth": "mlir_aie/python\n",
        "mlir_aie/python/aie/__init__.py": _AIE_PACKAGE,
        "mlir_aie/python/aie/extras/__init__.py": "",
        "mlir_aie/python/aie/extras/context.py": "import tinydep\n",
        "mlir_aie/include/aie_api/aie.hpp": "// stand-in\n",
        "+mlir_aie/bin/aiecc": aiecc,
        "+mlir_aie/bin/aie-opt": _AIE_OPT,
        "+mlir_aie/bin/aiebu-asm": assembler(),
        "mlir_aie/bin/recorded.elf": elf,
        "mlir_aie/bin/other.elf": (EXAMPLES / "full-elf" / "gemm_2x2.2026-08.elf").read_bytes(),
        **recorded,
    }
    peano = {
        "+llvm-aie/bin/clang": _IDLE,
        "+llvm-aie/bin/clang++": _CLANG,
        "llvm-aie/bin/i8.o": object_with("zero_i32", "matmul_i8_i32"),
        "llvm-aie/bin/pb16i.o": object_with("zero_i32", "matmul_pb16i_i32"),
    }
    for files in (mlir, peano):
        for name in leave_out:
            files.pop(name, None)
            files.pop(f"+{name}", None)
    made = Standins(folder)
    for wheel in (
        make_wheel(folder, "mlir_aie", version, mlir, requires=requires),
        make_wheel(folder, "llvm_aie", "22.0.0+02be6fd8", peano),
        make_wheel(
            folder,
            "tinydep",
            "1.0",
            {"tinydep.py": "", "tinydep-1.0.dist-info/entry_points.txt": "[console_scripts]\ntiny = tinydep:main\n"},
        ),
    ):
        made.wheels[wheel.name] = wheel
    return made


def object_with(*entries: str) -> bytes:
    """The bytes of an object shaped like Peano's that defines these entries."""
    text = (".text", PROGBITS, ALLOC | EXECUTE, 256)
    return kernel_object((text,), tuple((name, GLOBAL, FUNCTION, 1, 64) for name in entries))


def unpack(arguments: list[str], *, cwd: Path, environment, python: Path | None = None) -> str:  # noqa: ARG001
    """Stand in for `run_pip` where a test is about what comes after pip: unpack the wheels and leave pip's traces.

    As pip does, it takes the files that the requirements name if they have the digests, makes the programs executable
    and leaves a launcher, a note of the place, and both in RECORD.
    """
    assert python is not None
    if arguments == ["check"]:
        return ""
    assert arguments[0] == "install"
    assert "--require-hashes" in arguments
    site = python.parents[1] / "lib" / f"python{PYTHON}" / "site-packages"
    for line in (cwd / arguments[arguments.index("-r") + 1]).read_text().splitlines():
        name, _, digest = line.partition(" --hash=sha256:")
        assert hashlib.sha256((cwd / name).read_bytes()).hexdigest() == digest
        with zipfile.ZipFile(cwd / name) as archive:
            for entry in archive.infolist():
                path = Path(archive.extract(entry, site))
                path.chmod(entry.external_attr >> 16 & 0o777)
            (record,) = (site / entry for entry in archive.namelist() if entry.endswith(".dist-info/RECORD"))
        launcher = python.parent / f"tool-of-{record.parent.name}"
        launcher.write_text(f"#!{python}\n")
        (record.parent / "direct_url.json").write_text(json.dumps({"url": (cwd / name).as_uri()}))
        with record.open("a") as stream:
            stream.write(f"../../../bin/{launcher.name},,\n{record.parent.name}/direct_url.json,,\n")
    return ""


def this_python(version: str) -> Interpreter:
    """Stand in for the search: the interpreter the tests run under."""
    assert version == PYTHON
    return Interpreter(Path(sys.executable), ".".join(map(str, sys.version_info[:3])))


def copy_installed(installed, root: Path):
    """Copy an installed toolchain into another project with the same lock, and open it there."""
    from elfkiln.targets.npu2.installed_toolchain import open_installed

    project = Project(root)
    target = project.toolchains / installed.pin.digest
    target.parent.mkdir(parents=True)
    shutil.copytree(installed.folder, target, symlinks=True)
    return open_installed(project, read_lock(project.lock_file).target("npu2"))
