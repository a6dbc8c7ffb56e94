"""A full ELF as data: what it exports and what its instances move."""

from __future__ import annotations

from dataclasses import dataclass

from elfkiln.targets.npu2.full_elf.pdi import Pdi
from elfkiln.targets.npu2.full_elf.stream import Event, Load, Sync, Transfer


@dataclass(frozen=True, slots=True)
class Instance:
    """One exported sequence: its stream's operations, and what they do in order; whether it loads a PDI first thing.

    `descriptors` are (column, id, events before it) of every shim buffer descriptor it writes.
    """

    name: str
    size: int
    operations: int
    loads_first: bool
    events: tuple[Event, ...]
    descriptors: tuple[tuple[int, int, int], ...]

    @property
    def loads(self) -> tuple[int, ...]:
        """The PDIs it loads."""
        return tuple(event.number for event in self.events if isinstance(event, Load))

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """Its shim DMA tasks in the order in which they are queued."""
        return tuple(event for event in self.events if isinstance(event, Transfer))

    @property
    def syncs(self) -> int:
        """How often it waits for a token."""
        return sum(isinstance(event, Sync) for event in self.events)

    def extent(self, argument: int) -> int:
        """Return the bytes of a host buffer up to the last one a task touches (0 if none does)."""
        return max((t.end for t in self.transfers if t.argument == argument), default=0)

    def moved(self, argument: int) -> int:
        """Return the bytes all tasks on a host buffer move."""
        return sum(t.moved for t in self.transfers if t.argument == argument)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One exported kernel: its name, the arguments its symbol has, and its instances."""

    name: str
    arguments: int
    instances: tuple[Instance, ...]


@dataclass(frozen=True, slots=True)
class FullElf:
    """A whole, consistent full ELF. `columns` is the partition's width, `uid_scheme` how its UID was made."""

    size: int
    abi_version: int
    columns: int
    uid: str
    uid_scheme: str
    sections: tuple[tuple[str, int], ...]
    pdis: tuple[Pdi, ...]
    kernels: tuple[Kernel, ...]

    def instance(self, name: str) -> Instance | None:
        """Return the first kernel's instance of that name, or None."""
        return next((i for i in self.kernels[0].instances if i.name == name), None)
