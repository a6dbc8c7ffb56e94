"""Drives the installed toolchain: rendered generator -> design -> lint -> microkernel objects -> full ELF.

Every step runs in one private folder, with the environment of the lock and nothing else, and what a tool left is
looked at, never its exit code alone: tools of this chain have ended well without an output, left an old one in its
place, or taken another build's object file from the current folder. So every step is treated alike: nothing lies
where its output will be, its output is a plain file with something in it, and that file stays as it is to the end.
The generator, the one program that is not pinned, has a folder and a home of its own and may write nowhere else.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path, PurePath

from elfkiln.design.model import Const, Design, Loop, Statement
from elfkiln.errors import BuildFailed, ElfkilnError, Refused, brief, mismatch_line
from elfkiln.families.family import KernelObject, RenderedGenerator
from elfkiln.io.canonical import file_sha256, sha256_hex
from elfkiln.io.complaint import complaint
from elfkiln.io.files import space_refusal, storage_refusal, write_atomic
from elfkiln.io.workspace import BUILD, check_plain_path
from elfkiln.store.recipe import Step
from elfkiln.store.toolchain_lock import TargetPin
from elfkiln.targets.npu2 import aiecc, microkernel
from elfkiln.targets.npu2.aiecc import GENERATIONS
from elfkiln.targets.npu2.installed_toolchain import Installed, check_unchanged, tool_environment, verify_install
from elfkiln.targets.npu2.pin import AIEBU_ASM, Npu2Pin
from elfkiln.targets.npu2.tool_run import ToolRun, nobodys_output, run_tool
from elfkiln.targets.target import Say, silent

GENERATOR_FOLDER = "generator"
GENERATOR_HOME = "generator.home"
GENERATOR = "generator.py"
PRETTY = aiecc.INPUT_NAME
GENERIC = "design.generic.mlir"
HOME = "home"

SECONDS = 7200.0
"""How long one tool may take; aiecc needs half a minute for the largest design of reference size."""

FULL_DISK = re.compile(r"no space left on device|disk quota exceeded|\berrno (?:28|122)\b|\bENOSPC\b", re.IGNORECASE)
"""How tools say that the disk, or this user's part of it, is full: C's words for it, Python's numbers."""


@dataclass(frozen=True, slots=True)
class BuiltFullElf:
    """What a build left: the full ELF's file, the design in generic and in pretty form, and the log.

    `log` holds every command, exit code and output with folders and the job count replaced by placeholders; what
    differs from run to run (seconds per step, jobs, names of variables passed through) is in `volatile`.
    """

    path: Path
    design: str
    pretty: str
    log: str
    volatile: Mapping[str, object]


def build_full_elf(
    generator: RenderedGenerator,
    *,
    kernel_root: Path,
    toolchain: Installed,
    workdir: Path,
    jobs: int = 1,
    timeout: float = SECONDS,
    failed_logs: Path | None = None,
    sources: Mapping[str, bytes] | None = None,
    intended: str | None = None,
    say: Say = silent,
) -> BuiltFullElf:
    """Build a full ELF in `workdir`, which must be empty or absent and this build's alone.

    `jobs` is how many threads aiecc takes; it does not change the bytes. Raises `BuildFailed` when a tool fails or
    leaves no usable output, or when lint finds an error; `Refused` when the toolchain's bytes are not the installed
    ones, or when the folder's path is none that every tool can take. The log up to that point hangs on the error as a
    note (`__notes__`); with `failed_logs` it is written into that folder too, if any tool ran, named by the sha256 of
    the generator, and the error says so.

    `sources` are the microkernel sources where they were read before, `intended` is the design that the recipe was made
    from: the one that the installed package prints must be the same, which is looked at before anything is compiled.
    """
    folder = workdir.resolve()
    check_plain_path(folder)
    _take(folder)
    read = microkernel.read_sources(kernel_root, generator.kernels) if sources is None else sources
    run = _Run(toolchain, generator, read, folder, jobs, timeout, intended, say)
    try:
        return run.all()
    except ElfkilnError as error:
        _add_log(error, run, failed_logs)
        raise
    except OSError as error:
        failure = storage_refusal(Path(error.filename or folder), error)
        _add_log(failure, run, failed_logs)
        raise failure from error


def _add_log(error: ElfkilnError, run: _Run, folder: Path | None) -> None:
    """Hang the log on the error as a note, write it into `folder`, and let the error's line say where it lies."""
    error.add_note(run.log_text())
    if folder is None or not run.ran:
        # The log of an earlier run of this generator says more than one of no tool at all.
        return
    path = folder / f"npu2-{sha256_hex(run.generator.text.encode())[:12]}.log"
    with contextlib.suppress(ElfkilnError, OSError):
        write_atomic(path, (run.log_text() + seconds_line(run.volatile)).encode())
        error.args = (f"{error}; the whole log is in {folder.parent.name}/{folder.name}/{path.name}",)


def seconds_line(volatile: Mapping[str, object]) -> str:
    """Return the line of the log that says how long each tool took; it differs from run to run.

    >>> seconds_line({"seconds": {"generator": 0.41, "aiecc": 28.3}})
    'seconds: generator 0.41, aiecc 28.30\\n'
    """
    seconds = volatile.get("seconds")
    if not isinstance(seconds, dict):
        return ""
    return "seconds: " + ", ".join(f"{name} {float(took):.2f}" for name, took in seconds.items()) + "\n"


def steps_of(
    pin: TargetPin, npu2: Npu2Pin, generator: RenderedGenerator, design: Design, text: str, sources: Mapping[str, bytes]
) -> tuple[Step, ...]:
    """Return the steps of a build's recipe: the pinned toolchain, each microkernel object, the full ELF.

    `text` is the design's canonical text, `sources` are the microkernel sources that were read.
    """
    site, build = PurePath("{site}"), PurePath("{build}")
    objects = (
        Step(
            kernel.object_name,
            ("clang++", *microkernel.compile_arguments(npu2, kernel, site=site, build=build)),
            microkernel.seen_of(kernel, sources),
        )
        for kernel in generator.kernels
    )
    words = aiecc.command_line(
        GENERATIONS[npu2.aiecc_generation],
        peano="{peano}",
        flags=npu2.aiecc_flags,
        dynamic_loops=has_dynamic_loops(design),
        jobs=None,
    )
    lock = json.dumps(pin.table, indent=1, sort_keys=True).encode()
    return (
        Step("toolchain", (), {f"toolchain.lock: target.{pin.name}": lock}),
        *objects,
        Step("full ELF", ("aiecc", *words), {PRETTY: text.encode()}),
    )


@dataclass(slots=True)
class _Run:
    """One build while it works."""

    toolchain: Installed
    generator: RenderedGenerator
    sources: Mapping[str, bytes]
    folder: Path
    jobs: int
    timeout: float
    intended: str | None
    say: Say
    lines: list[str] = field(default_factory=list)
    volatile: dict[str, object] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    ran: bool = False

    def all(self) -> BuiltFullElf:
        """Run every step in order."""
        microkernel.check_objects(self.generator.kernels)
        tools = verify_install(self.toolchain)
        self._head()
        self.say("render")
        pretty = self._print_design()
        generic = self._print_generic()
        self.say("lint")
        self._compare(generic)
        design = self._lint(generic)
        self.say("compile")
        self._absent("clang++", microkernel.SOURCES)
        for kernel in self.generator.kernels:
            self._compile(kernel, design)
        self._check_links(design)
        self._check_cores(design)
        self.say("link")
        elf = self._link(design)
        self._check_elf(elf, design, generic, pretty)
        check_unchanged(self.toolchain, tools)
        self.toolchain.guard.check()
        return BuiltFullElf(elf, generic, pretty, self.log_text(), dict(self.volatile))

    def log_text(self) -> str:
        """Return the log so far."""
        return "".join(f"{line}\n" for line in self.lines)

    def _head(self) -> None:
        pin = self.toolchain.pin
        self.lines += [
            f"toolchain npu2 sha256:{pin.digest}",
            self.toolchain.describe(),
            *(f"wheel {wheel.file} sha256:{wheel.sha256}" for wheel in pin.wheels),
            *(
                f"tool {name} {row['file']} sha256:{row['sha256']}"
                for name, row in sorted(self.toolchain.record["tools"].items())
            ),
            *(f"environment {name}={value}" for name, value in pin.environment_set),
        ]
        self.volatile["jobs"] = self.jobs
        self.volatile["passed"] = [name for name in pin.environment_pass if name in os.environ]

    def _print_design(self) -> str:
        # In folders of its own: whatever the program writes there, no tool looks for objects or settings in them.
        own, home = self.folder / GENERATOR_FOLDER, self.folder / GENERATOR_HOME
        own.mkdir()
        home.mkdir()
        (own / GENERATOR).write_text(self.generator.text, encoding="utf-8")
        arguments = ("-P", "-s", GENERATOR)
        run = self._tool("generator", self.toolchain.python, arguments, out_file=PRETTY, cwd=own, home=home)
        if run.exit_code != 0:
            raise self._failure("generator", run, run.err)
        self._check_left()
        return self._mlir("generator", PRETTY, run)

    def _check_left(self) -> None:
        """Raise when the generator wrote anything into the build folder beside its own two."""
        own = {GENERATOR_FOLDER, GENERATOR_HOME, PRETTY, HOME}
        left = [path.name for path in self.folder.iterdir() if path.name not in own]
        home = self.folder / HOME
        if home.is_symlink() or not home.is_dir():
            left.append(HOME)
        else:
            left += [f"{HOME}/{path.name}" for path in home.iterdir()]
        if left:
            raise BuildFailed(
                f"generator: left {brief(min(left))} outside its own folder; no step's output belongs there"
            )

    def _print_generic(self) -> str:
        run = self._tool(
            "aie-opt", self.toolchain.tool("aie-opt"), ("--mlir-print-op-generic", PRETTY), out_file=GENERIC
        )
        if run.exit_code != 0:
            raise self._failure("aie-opt", run)
        return self._mlir("aie-opt", GENERIC, run)

    def _absent(self, tool: str, *names: str) -> None:
        """Raise when something lies where a step is about to put its output."""
        for name in names:
            if os.path.lexists(self.folder / name):
                raise BuildFailed(nobodys_output(tool, name))

    def _output(self, tool: str, name: str, run: ToolRun) -> Path:
        """Return the file a step made; a missing or empty one, or a link, is a failure whatever the exit code."""
        path = self.folder / name
        fault = ""
        if path.resolve() != path or not path.is_file():
            fault = f"it wrote no {name}"
        elif path.stat().st_size == 0:
            fault = f"{name} is empty"
        if fault:
            full = self._full_disk(run)
            if full is not None:
                raise full
            raise BuildFailed(f"{tool}: exit code 0, but {fault}: {complaint(run.err or run.out)}")
        self.made[name] = file_sha256(path)
        return path

    def _check_made(self) -> None:
        """Raise when an output of an earlier step is not what that step wrote."""
        for name, digest in self.made.items():
            path = self.folder / name
            if path.resolve() != path or not path.is_file() or file_sha256(path) != digest:
                raise BuildFailed(f"{name}: changed after the step that made it; what is there now is nobody's output")

    def _mlir(self, tool: str, name: str, run: ToolRun) -> str:
        """Read a printed module; an empty one or one that stops half-way is a failure whatever the exit code."""
        path = self._output(tool, name, run)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BuildFailed(f"{tool}: exit code 0, but {name} is not UTF-8 text; no design was printed") from error
        if not text.strip():
            raise BuildFailed(f"{tool}: exit code 0, but {name} has nothing but space in it; no design was printed")
        if text.count("{") != text.count("}") or not text.rstrip().endswith(("}", "}) : () -> ()")):
            raise BuildFailed(f"{tool}: exit code 0, but {name} stops half-way ({len(text)} characters)")
        return text

    def _compare(self, generic: str) -> None:
        """Raise when the printed design is not the one that the recipe was made from."""
        if self.intended is not None:
            fault = design_fault(self.intended, generic)
            if fault is not None:
                raise BuildFailed(
                    f"design: the installed aie package prints another one than elfkiln's stand-in, from which the "
                    f"recipe is made: {fault}; nothing was compiled, please report it"
                )

    def _lint(self, generic: str) -> Design:
        from elfkiln.design.reader import read_design
        from elfkiln.lint.gate import pass_lint

        design = read_design(generic)
        self.lines += pass_lint(design, "npu2")
        return design

    def _compile(self, kernel: KernelObject, design: Design) -> None:
        microkernel.copy_sources(self.sources, kernel, self.folder)
        arguments = microkernel.compile_arguments(
            self.toolchain.pin, kernel, site=self.toolchain.site, build=self.folder
        )
        self._absent("clang++", kernel.object_name)
        run = self._tool("clang++", self.toolchain.tool("clang++"), arguments)
        if run.exit_code != 0:
            raise self._failure("clang++", run, run.err, source=f"{kernel.source}: ")
        self._lint_object(self._output("clang++", kernel.object_name, run), kernel, design)

    def _lint_object(self, path: Path, kernel: KernelObject, design: Design) -> None:
        from elfkiln.lint import budgets
        from elfkiln.lint.kernel_object import check_object

        entries = [k.name for k in design.kernels if k.link_with == kernel.object_name]
        room = min((budget.free for budget in budgets(design) if budget.tile.kind == "core"), default=None)
        warnings = check_object(path.read_bytes(), entries=entries, machine="aie2p", room=room, name=kernel.object_name)
        self.lines += [f"object lint: {finding.line}" for finding in warnings]

    def _check_links(self, design: Design) -> None:
        """Raise when the design links an object that this build did not make: aiecc would look for it elsewhere."""
        made = {kernel.object_name for kernel in self.generator.kernels}
        wanted = {k.link_with for k in design.kernels} | {core.link_with for core in design.cores}
        for name in sorted(name for name in wanted - made if name is not None):
            raise BuildFailed(f"design.mlir: links {brief(name)}, which the generator's microkernels do not make")

    def _check_cores(self, design: Design) -> None:
        """Check what all objects of a core take together of its memories."""
        from elfkiln.lint.kernel_object import check_cores

        objects = {k.object_name: (self.folder / k.object_name).read_bytes() for k in self.generator.kernels}
        warnings = check_cores(design, objects, machine="aie2p")
        self.lines += [f"object lint: {finding.line}" for finding in warnings]

    def _link(self, design: Design) -> Path:
        pin = self.toolchain.pin
        generation = GENERATIONS[pin.aiecc_generation]
        arguments = aiecc.command_line(
            generation,
            peano=str(self.toolchain.peano),
            flags=pin.aiecc_flags,
            dynamic_loops=has_dynamic_loops(design),
            jobs=self.jobs,
            listed=self.toolchain.record["aiecc"]["options"],
        )
        self._absent("aiecc", aiecc.SCRATCH_FOLDER, aiecc.OUTPUT_FOLDER, aiecc.OUTPUT_NAME)
        for name in (aiecc.SCRATCH_FOLDER, aiecc.OUTPUT_FOLDER):
            (self.folder / name).mkdir()
        run = self._tool("aiecc", self.toolchain.tool("aiecc"), arguments)
        if run.exit_code != 0:
            raise self._failure("aiecc", run)
        self._check_core_files(run)
        return self._output("aiecc", generation.output, run)

    def _check_core_files(self, run: ToolRun) -> None:
        """Raise when an object or ELF of a core that aiecc left in its temporary folder has nothing in it.

        A linker that could not write its output leaves an empty file, and the PDI made of it loads a core with nothing.
        """
        folder = self.folder / aiecc.SCRATCH_FOLDER
        for path in sorted(folder.rglob("*")):
            core = path.suffix in (".o", ".elf") or aiecc.CORE_ELF.match(path.name)
            if core and path.is_file() and path.stat().st_size == 0:
                name = path.relative_to(self.folder).as_posix()
                raise self._full_disk(run) or BuildFailed(f"aiecc: exit code 0, but {name} is empty; see the build log")

    def _check_elf(self, elf: Path, design: Design, generic: str, pretty: str) -> None:
        from elfkiln.targets.npu2.full_elf import check_design, read_full_elf

        data = elf.read_bytes()
        self.lines.append(f"full ELF {len(data)} bytes sha256:{sha256_hex(data)}")
        full = read_full_elf(data)
        check_design(full, design)
        abi = self.toolchain.record["tools"].get(AIEBU_ASM, {}).get("abi")
        if abi is not None and full.abi_version != abi:
            raise BuildFailed(
                f"full ELF: ABI version: expected {abi}, that of the installed {AIEBU_ASM}, found {full.abi_version}; "
                "another program of that name was run"
            )
        for name, content in (("full ELF", data), (PRETTY, pretty.encode()), (GENERIC, generic.encode())):
            for folder in self._own_folders():
                if folder.encode() in content:
                    raise BuildFailed(
                        f"{name}: holds the path of a folder of this build; the same recipe would give other bytes "
                        "elsewhere"
                    )

    def _failure(self, tool: str, run: ToolRun, text: str = "", source: str = "") -> ElfkilnError:
        """Return the error for a tool that failed; a full disk, in whatever words, is called that."""
        full = self._full_disk(run)
        if full is not None:
            return full
        line = foreign_dialect(run.err + run.out)
        if line is not None:
            return BuildFailed(
                f"{tool}: {line}: the design was printed by another mlir-aie generation than the one that reads it; "
                "the toolchain's aie package and its tools do not belong together, run elfkiln toolchain status"
            )
        return BuildFailed(f"{tool}: {source}{run.ending}: {complaint(text or run.err or run.out)}")

    def _full_disk(self, run: ToolRun) -> ElfkilnError | None:
        """Return the `Refused` of a full disk when a tool's output or the file system itself says that it is full."""
        if FULL_DISK.search(run.err + run.out):
            return storage_refusal(self.folder.parent, OSError(errno.ENOSPC, "No space left on device"))
        return space_refusal(self.folder.parent)

    def _tool(
        self,
        name: str,
        path: Path,
        arguments: tuple[str, ...],
        out_file: str | None = None,
        cwd: Path | None = None,
        home: Path | None = None,
    ) -> ToolRun:
        self._check_made()
        pin, folder = self.toolchain.pin, self.toolchain.folder
        run = run_tool(
            (str(path), *arguments),
            name=name,
            cwd=cwd or self.folder,
            environment=tool_environment(pin, folder, home or self.folder / HOME, os.environ),
            timeout=self.timeout,
            out_file=self.folder / out_file if out_file else None,
        )
        self.ran = True
        run = replace(run, out=self._without_folders(run.out), err=self._without_folders(run.err))
        words = list(run.argv)
        if "-j" in words:
            words[words.index("-j") + 1] = "<jobs>"
        self.lines.append(f"$ {' '.join(self._without_folders(word) for word in words)}")
        self.lines.append(f"{name}: {run.ending}")
        for label, text in (("stdout", run.out), ("stderr", run.err)):
            if text:
                self.lines += [f"{name} {label}: {line}" for line in text.splitlines()]
        seconds = self.volatile.setdefault("seconds", {})
        assert isinstance(seconds, dict)
        seconds[name] = round(seconds.get(name, 0.0) + run.seconds, 3)
        return run

    def _own_folders(self) -> tuple[str, ...]:
        toolchain = self.toolchain.folder
        return tuple(dict.fromkeys(str(path) for path in (self.folder, toolchain, toolchain.resolve())))

    def _without_folders(self, text: str) -> str:
        """Return a text without the folders of this build, also where a path was cut off in front of their names."""
        build, *toolchains = self._own_folders()
        text = text.replace(build, "<build>")
        for folder in toolchains:
            text = text.replace(folder, "<toolchain>")
        # Relative paths and links lead here by other ways; the folder's own name is random and in no design.
        own = re.compile(rf"(?:[^\s\"'<>:,=]*/)?{re.escape(self.folder.name)}(?![\w-])")
        return own.sub("<build>", text) if self.folder.name.startswith(BUILD) else text


def design_fault(intended: str, printed: str) -> str | None:
    """Return the first line in which two designs differ, None when they are one design.

    Two texts are one design when they say the same: names of values, white space and the spelling of a dialect's
    generation do not count.
    """
    from elfkiln.design.reader import canonical_text, parse_design_module, read_design

    if read_design(intended) == read_design(printed):
        return None
    before, after = (canonical_text(parse_design_module(text)).splitlines() for text in (intended, printed))
    for number, (expected, found) in enumerate(zip_longest(before, after, fillvalue="nothing"), start=1):
        if expected != found:
            return mismatch_line(f"line {number}", expected=expected.strip(), found=found.strip())
    return "they are spelt alike and read differently"


def has_dynamic_loops(design: Design) -> bool:
    """Whether a core has a loop whose bounds are known at run time only."""

    def dynamic(body: tuple[Statement, ...]) -> bool:
        loops = [statement for statement in body if isinstance(statement, Loop)]
        return any(
            not all(isinstance(bound, Const) for bound in (loop.lower, loop.upper, loop.step)) or dynamic(loop.body)
            for loop in loops
        )

    return any(dynamic(core.body) for core in design.cores)


def foreign_dialect(text: str) -> str | None:
    """Return the diagnostic of a `dma_bd` line that the other generation's parser does not read, or None.

    `aie.dma_bd(%b : memref<..>, 0, N, ...)` became `aie.dma_bd(%b : memref<..> offset = 0 len = N ...)`; read by the
    wrong one it ends in `expected ')'` at that line, which says nothing of the cause.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.search(r"error: expected '\)'", line) and any("dma_bd" in after for after in lines[number : number + 3]):
            return brief(line.strip(), 200)
    return None


def _take(folder: Path) -> None:
    """Make the build folder this build's own; `Refused` when something lies in it or another build has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        left = next(folder.iterdir(), None)
        if left is None:
            (folder / HOME).mkdir()
            return
    except FileExistsError:
        left = folder / HOME
    except OSError as error:
        raise storage_refusal(folder, error) from error
    raise Refused(f"{folder.name}: a build folder must be empty and one build's own, found {brief(left.name)} in it")
