"""What buffers hold, as far as the design says: what they start with, what cores store, and what sequences write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from elfkiln.design.fifo_lowering import statements
from elfkiln.design.model import INTEGERS, Buffer, Design, Load, RtpWrite, Store

Parameter: TypeAlias = "tuple[str, int]"


class Values:
    """The buffers of a design.

    `initial` are the elements with an initial value that cores load and none stores, `stored` the buffers that a core
    stores to: what those hold no sequence decides.
    """

    def __init__(self, design: Design) -> None:
        body = [statement for core in design.cores for statement in statements(core.body)]
        self.types = {buffer.name: buffer.type for buffer in design.buffers}
        self.stored = {statement.buffer for statement in body if isinstance(statement, Store)}
        self.filled = {buffer.name for buffer in design.buffers if buffer.initial is not None}
        loaded = {statement.buffer for statement in body if isinstance(statement, Load)} - self.stored
        self.initial = {
            (buffer.name, index): value
            for buffer in design.buffers
            if buffer.name in loaded
            for index, value in enumerate(_contents(buffer))
        }

    def written(self, step: RtpWrite) -> Iterator[tuple[Parameter, int]]:
        """Yield the elements that a write covers, with what each holds then; of an unknown buffer the one it names."""
        type_ = self.types.get(step.buffer)
        for index, value in ((step.index, step.value),) if type_ is None else step.elements(type_):
            yield (step.buffer, index), value

    def write(self, held: dict[Parameter, int], step: RtpWrite) -> None:
        """Take a write into what is known of the buffers; what cores store as well is never known."""
        if step.buffer not in self.stored:
            held.update(self.written(step))


def _contents(buffer: Buffer) -> Iterator[int]:
    """Yield the integers that a buffer starts with."""
    element, width = buffer.type.element, buffer.type.element_bytes
    if buffer.initial is None or element not in INTEGERS:
        return
    for at in range(0, len(buffer.initial), width):
        yield int.from_bytes(buffer.initial[at : at + width], "little", signed=not element.startswith("u"))
