"""A third target, as somebody would add one: its ELF is a magic word and the generator's text; it has no toolchain."""

# ruff: noqa: ARG002 what a protocol hands over need not be used

from __future__ import annotations

import re
from dataclasses import dataclass

from elfkiln.engine.contract import Capabilities
from elfkiln.errors import Differs, Refused
from elfkiln.store.recipe import Step, make_recipe
from elfkiln.targets.elf_bytes import describe
from elfkiln.targets.target import Built, Inputs, Look, Sources, ToolchainState, silent

MAGIC = b"MINI\n"


@dataclass
class MiniBuilder:
    """Writes the magic word and the text."""

    pin: object
    own_processes: bool = False

    def describe(self):
        """Return the tools' name."""
        return "mini 1.0"

    def prepare(self):
        """Need nothing."""

    def sources(self, generator):
        """Read nothing: the text alone decides."""
        return Sources({})

    def inputs(self, generator, sources, workdir, say=silent):
        """Take the text for what is compiled."""
        steps = (Step("mini.elf", ("mini",), {"generator.py": generator.text.encode()}),)
        return Inputs(make_recipe(self.pin.name, {}, steps), steps, "module {}", generator.text)

    def compile(self, inputs, workdir, say=silent):
        """Write the ELF."""
        elf = workdir / "mini.elf"
        # Larger than a stub.
        elf.write_bytes(MAGIC + inputs.work.encode() + bytes(8192))
        return Built(elf, "")

    def open(self, elf):
        """Read one."""
        return TARGET.open(elf)


@dataclass(frozen=True)
class MiniElf:
    """The text of an ELF."""

    text: bytes

    def check(self, name, sealed):
        """Compare the text's M, K, N with a name's."""
        found = re.search(rb"^M, K, N = (\d+), (\d+), (\d+)$", self.text, re.MULTILINE)
        if name is None or found is None or tuple(map(int, found.groups())) != (name.M, name.K, name.N):
            raise Differs(f"{name}: the mini ELF is another geometry's")


class MiniTarget:
    """The row of the table."""

    name = "mini"
    machine = "a reader of text"
    lint_name = "npu2"
    capabilities = Capabilities("mini", int8_kv=True, source="made for the tests")
    kind = "mini"
    kinds = {"mini": "a mini ELF", "wrong-mini": "a mini ELF of another geometry"}  # noqa: RUF012
    has_wheels = False
    on_device = False
    volatile = ()

    def builder(self, project, pin):
        """Return the builder."""
        return MiniBuilder(pin)

    def open(self, elf):
        """Read one."""
        data = elf.read_bytes()
        if not data.startswith(MAGIC):
            raise Differs(f"{elf.name}: no mini ELF")
        return MiniElf(data)

    def load(self, elf):
        """Run nothing here."""

    def look(self, data, name):
        """Say what it is."""
        if not data.startswith(MAGIC):
            return None
        try:
            if name is not None:
                MiniElf(data).check(name, ())
        except Differs as error:
            return Look("mini", {}, "wrong-mini", str(error))
        return Look("mini", {"bytes": len(data)})

    def difference(self, was, now):
        """Know nothing of its insides."""
        return describe(was, now)

    def state(self, project, pin):
        """Be there always."""
        return ToolchainState(f"mini {pin.table['version']}", installed=True, usable=True)

    def install(self, project, pin, wheels, note):
        """Install nothing."""
        return self.state(project, pin)

    def candidate(self, lock_file, wheels, assembler=None):
        """Take no wheels."""
        raise Refused("toolchain bump: target mini has no wheels")

    def trial_builder(self, project, pin, wheels, note):
        """Return the builder."""
        return self.builder(project, pin)

    def mirror(self, project, pin, wheels, note):
        """Have nothing to mirror."""
        raise Refused("toolchain mirror: target mini has no wheels")


TARGET = MiniTarget()
