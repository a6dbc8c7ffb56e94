"""Refuses designs that no C can be made of: names that C cannot have, more arguments than an entry, sheer size."""

from __future__ import annotations

from elfkiln.design.fifo_lowering import statements
from elfkiln.design.model import ELEMENT_BYTES, Acquire, Design, Load, Loop, MemRef, Release
from elfkiln.engine.contract import MOST_ARGUMENTS
from elfkiln.errors import Refused
from elfkiln.targets.sim.machine import SCALARS

MOST_KERNEL_ARGUMENTS = 8
"""ELFKILN_MOST_ARGUMENTS of runtime/kernel_interface.h."""

MOST_COUNT = 1 << 16
MOST_PARTS = 1 << 14
"""FIFOs, cores, buffers, locks and kernels of a design; the runtime numbers them in 16 bits."""

MOST_BYTES = 1 << 30
"""Bytes of an object, a buffer or an argument; far above what there is, it keeps a hostile design from the linker."""

OWN_SYMBOLS = ("sim_", "elfkiln_", "memcpy", "memset")
"""Beginnings of names that the runtime defines itself."""


def admit(design: Design) -> None:
    """Raise `Refused` for a design that no C can be made of, naming the part."""
    _check_names(design)
    _check_numbers(design)
    for fifo in design.fifos:
        if any(len(one) != fifo.object_type.bytes for one in fifo.initial) or len(fifo.initial) > min(
            fifo.depths, default=0
        ):
            raise Refused(
                f"FIFO {fifo.name}: its initial values are not whole objects, at most {min(fifo.depths, default=0)}"
            )
    for buffer in design.buffers:
        if buffer.initial is not None and len(buffer.initial) != buffer.type.bytes:
            raise Refused(f"buffer {buffer.name}: its initial value has not the {buffer.type.bytes} bytes of it")


def _check_names(design: Design) -> None:
    if not design.sequences:
        raise Refused(f"design {design.name}: it has no runtime sequence, so there is nothing to run")
    names = [("device", design.name), *(("sequence", sequence.name) for sequence in design.sequences)]
    names += [("kernel", kernel.name) for kernel in design.kernels]
    for what, name in names:
        if not name.isascii() or not name.isidentifier():
            raise Refused(f"{what} {name!r}: expected a name that C can have; rename it in the generator")
        if what == "kernel" and name.startswith(OWN_SYMBOLS):
            raise Refused(f"kernel {name}: the simulator has a function of that name; rename it in the generator")
    for sequence in design.sequences:
        if len(sequence.arguments) > MOST_ARGUMENTS:
            raise Refused(
                f"sequence {sequence.name}: expected at most {MOST_ARGUMENTS} arguments (A, B, C), "
                f"found {len(sequence.arguments)}"
            )
    for kind, found in (
        ("FIFO", [fifo.name for fifo in design.fifos]),
        ("core", [str(core.tile) for core in design.cores]),
        ("kernel", [kernel.name for kernel in design.kernels]),
        ("sequence", [sequence.name for sequence in design.sequences]),
        ("buffer", [buffer.name for buffer in design.buffers]),
        ("lock", [lock.name for lock in design.locks]),
    ):
        twice = sorted({name for name in found if found.count(name) > 1})
        if twice:
            raise Refused(f"design {design.name}: two of {kind} {twice[0]}")
    for kernel in design.kernels:
        if len(kernel.parameters) > MOST_KERNEL_ARGUMENTS:
            raise Refused(
                f"kernel {kernel.name}: expected at most {MOST_KERNEL_ARGUMENTS} parameters, "
                f"found {len(kernel.parameters)}"
            )
        for parameter in kernel.parameters:
            if isinstance(parameter, str) and parameter not in SCALARS:
                raise Refused(f"kernel {kernel.name}: a parameter of type {parameter} is not simulated")


def _check_numbers(design: Design) -> None:
    """Refuse numbers that C's fields cannot hold; a design that was read from MLIR has none."""
    sizes = [("FIFO " + fifo.name, fifo.object_type) for fifo in design.fifos]
    sizes += [("buffer " + buffer.name, buffer.type) for buffer in design.buffers]
    sizes += [(f"sequence {sequence.name}", one) for sequence in design.sequences for one in sequence.arguments]
    for kernel in design.kernels:
        sizes += [(f"kernel {kernel.name}", one) for one in kernel.parameters if isinstance(one, MemRef)]
    for what, memref in sizes:
        if memref.element not in ELEMENT_BYTES or min(memref.shape, default=1) < 0 or memref.bytes >= MOST_BYTES:
            raise Refused(f"{what}: {memref} is not a type of at most {MOST_BYTES} bytes that is simulated")
    for what, parts in (
        ("FIFOs", design.fifos),
        ("cores", design.cores),
        ("buffers", design.buffers),
        ("locks", design.locks),
        ("kernels", design.kernels),
    ):
        if len(parts) > MOST_PARTS:
            raise Refused(f"design {design.name}: {len(parts)} {what}, more than {MOST_PARTS}")
    counts = [("a depth", depth) for fifo in design.fifos for depth in fifo.depths]
    counts += [("repeat_count", fifo.repeat_count) for fifo in design.fifos]
    counts += [("iter_count", fifo.iter_count) for fifo in design.fifos]
    counts += [(f"lock {lock.name}", lock.init) for lock in design.locks]
    for core in design.cores:
        for statement in statements(core.body):
            if isinstance(statement, Acquire | Load | Loop):
                counts.append((f"{core.tile}", statement.number))
            if isinstance(statement, Acquire | Release):
                counts.append((f"{core.tile}", statement.count))
    for what, number in counts:
        if not 0 <= number < MOST_COUNT:
            raise Refused(f"design {design.name}: {what}: {number} is not in 0..{MOST_COUNT - 1}")
