"""Builds the C programs around client/elfkiln.h with the pinned zig, and speaks with them."""

from __future__ import annotations

import os
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.sim.zig_toolchain import SimToolchain
from once import once
from projects import CHECKOUT, SUPPORT

CLIENT = CHECKOUT / "client"
SOURCES = SUPPORT / "client"
ZIG_CACHE = CHECKOUT / "out" / "cache" / "client"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion")
# zig's own headers and C library, whatever this machine has; and the processor that every x86-64 is: what needs more
# must be asked for at run time.
ANY_MACHINE = ("-target", "x86_64-linux-gnu", "-mcpu=x86_64")
# A fault ends the program by a trap: zig's own library of messages takes half a minute to build.
TRAPS = ("-fsanitize=undefined", "-fsanitize-trap=undefined", "-O1")
# zig links that library and one of long arithmetic into whatever does not refuse them, and builds them first.
LINK = ("-fno-sanitize=undefined", "--rtlib=none")


@dataclass
class Programs:
    """Compiles below `root`, each program once, however many processes share the folder."""

    root: Path
    zig: Path = field(init=False)

    def __post_init__(self):
        self.zig = Path(SimToolchain.from_pin(read_lock(CHECKOUT / "toolchain.lock").target("sim")).zig)

    def run_zig(self, *words):
        """Run zig; return exit code and what it said.

        Its cache stays from one session to the next: it holds zig's own C library.
        """
        environment = {"LC_ALL": "C", "HOME": str(self.root)}
        environment |= {f"ZIG_{kind}_CACHE_DIR": str(ZIG_CACHE) for kind in ("GLOBAL", "LOCAL")}
        done = subprocess.run(
            [self.zig, *map(str, words)], cwd=self.root, env=environment, capture_output=True, text=True, timeout=600
        )
        return done.returncode, done.stdout + done.stderr

    def compile(self, source, made, *flags, cxx=False):
        """Compile one file to an object, C11 or C++17, warnings being errors.

        The C++ is compiled without exceptions: the header needs none.
        """
        language = ("c++", "-std=c++17", "-fno-exceptions", "-x", "c++") if cxx else ("cc", "-std=c11")
        options = ("-O0", "-fno-sanitize=undefined", *ANY_MACHINE, *WARNINGS, f"-I{CLIENT}", *flags)
        code, said = self.run_zig(*language, *options, "-c", source, "-o", made)
        assert code == 0, said
        return made

    def build(self, source, *flags, cxx=False):
        """Compile one file and return the program, linked with nothing: no C++ library either."""
        program = self.root / "-".join([source.stem, "cxx" if cxx else "c", *flags]).replace("/", "_")

        def make() -> None:
            made = self.compile(source, self.root / f"{program.name}.o", *flags, cxx=cxx)
            code, said = self.run_zig("cc", *ANY_MACHINE, *LINK, made, "-o", f"{program}.part")
            assert code == 0, said
            os.replace(f"{program}.part", program)

        return once(program, make)


@dataclass(frozen=True)
class Probe:
    """The program `probe`, as one build of it."""

    program: Path

    def frames(self, question, frames):
        """Return the answers to byte strings, one line each."""
        data = b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)
        done = subprocess.run([self.program, question], input=data, capture_output=True, timeout=300)
        assert done.returncode == 0, (done.returncode, done.stderr)
        lines = done.stdout.decode().split("\n")[:-1]
        assert len(lines) == len(frames)
        return lines

    def has_sha(self):
        """Say whether the client finds SHA extensions in this processor."""
        return subprocess.run([self.program, "sha"], capture_output=True, check=True).stdout == b"1\n"

    def rows(self, *names, **options):
        """Open a folder, get names, and return the rows that were printed as lists of fields."""
        words = [f"{key}={value}" for key, value in options.items()]
        done = subprocess.run([self.program, "open", *words, *names], capture_output=True, timeout=60)
        assert done.returncode == 0, (done.returncode, done.stderr)
        return [line.split("\t") for line in done.stdout.decode(errors="surrogateescape").split("\n")[:-1]]

    def names(self, **options):
        """Return the names a folder asks for, in order."""
        return [row[1] for row in self.rows(**options) if row[0] == "name"]

    def refusal(self, **options):
        """Return status and text of a folder that does not open."""
        (row,) = self.rows(**options)
        assert row[0] == "error", row
        return row[2], row[3]

    def get(self, name, **options):
        """Return the one row that stands for a name: artifact or error."""
        return self.rows(name, **options)[-1]
