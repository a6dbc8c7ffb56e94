"""Lowers a core's program: every statement by its number, with what is wrong with it whatever happens."""

from __future__ import annotations

from collections.abc import Mapping

from elfkiln.design.model import (
    INTEGERS,
    Acquire,
    Buffer,
    BufferRef,
    Call,
    Const,
    Core,
    Design,
    Kernel,
    Load,
    Loaded,
    Loop,
    MemRef,
    ObjectRef,
    Release,
    Statement,
    Store,
    Tile,
    UseLock,
    Value,
)
from elfkiln.errors import Refused
from elfkiln.targets.sim.machine import Argument, Fault, Instruction, Pool, Port, Program

MOST_NESTED_LOOPS = 8
"""Loops around a statement that a message can name (`loops` of runtime/sim.h)."""

LOCK_ACTIONS = ("acquire", "acquire_ge", "release")


def lower_program(
    design: Design, core: Core, pools: Mapping[tuple[str, Tile, bool], Pool]
) -> tuple[Program, tuple[Port, ...], tuple[int, ...], tuple[int, ...]]:
    """Return a core's program, and the ports, buffers and locks that its numbers stand for.

    Two cores whose programs differ only in what the numbers stand for have equal programs. `pools` has the pool of
    each FIFO's end on a core: FIFO, tile, whether it is a consumer's. Raises `Fault` and `Refused`.
    """
    return _CoreLowering(design, core, pools).lower()


class _CoreLowering:
    """Lowers one core's program; numbers of ports, buffers and locks are given in the order of their first use."""

    def __init__(self, design: Design, core: Core, pools: Mapping[tuple[str, Tile, bool], Pool]) -> None:
        self.design = design
        self.core = core
        self.pools = pools
        self.fifos = {fifo.name: fifo for fifo in design.fifos}
        self.kernel_numbers = {kernel.name: number for number, kernel in enumerate(design.kernels)}
        self.buffer_numbers = {buffer.name: number for number, buffer in enumerate(design.buffers)}
        self.lock_numbers = {lock.name: number for number, lock in enumerate(design.locks)}
        self.ports: dict[tuple[str, bool], int] = {}
        self.buffers: dict[int, int] = {}
        self.locks: dict[int, int] = {}
        self.instructions: list[Instruction | None] = []
        self.acquired: dict[int, Acquire] = {}
        self.loaded: set[int] = set()
        self.looped: set[int] = set()

    def lower(self) -> tuple[Program, tuple[Port, ...], tuple[int, ...], tuple[int, ...]]:
        body = self.block(self.core.body, ())
        done = tuple(instruction for instruction in self.instructions if instruction is not None)
        acquires = max(self.acquired, default=-1) + 1
        loads, loops = max(self.loaded, default=-1) + 1, max(self.looped, default=-1) + 1
        program = Program(done, body, acquires, loads, loops)
        ports = tuple(
            Port(fifo, consume, self.pools.get((fifo, self.core.tile, consume))) for fifo, consume in self.ports
        )
        return program, ports, tuple(self.buffers), tuple(self.locks)

    def block(self, body: tuple[Statement, ...], loops: tuple[int, ...]) -> tuple[int, ...]:
        if len(loops) > MOST_NESTED_LOOPS:
            raise Refused(f"{self.core.tile}: loops are nested deeper than {MOST_NESTED_LOOPS}")
        numbers = []
        for statement in body:
            number = len(self.instructions)
            numbers.append(number)
            self.instructions.append(None)
            self.instructions[number] = self.instruction(statement, loops)
        return tuple(numbers)

    def instruction(self, statement: Statement, loops: tuple[int, ...]) -> Instruction:
        match statement:
            case Acquire(number, fifo, port, count):
                self.acquired[number] = statement
                fault = self.port_fault(fifo, port, count)
                return Instruction("acquire", self.port(fifo, port), number, count, loops=loops, fault=fault)
            case Release(fifo, port, count):
                fault = self.port_fault(fifo, port, count)
                return Instruction("release", self.port(fifo, port), count=count, loops=loops, fault=fault)
            case Call(kernel, arguments):
                return self.call(kernel, arguments, loops)
            case Load(number, buffer, index):
                loaded = self.load(number, buffer, self.value(index), loops)
                self.loaded.add(number)
                return loaded
            case Store(buffer, index, value):
                at = self.buffer(buffer)
                element = self.design.buffers[self.buffer_numbers[buffer]].type
                wrong = f"{buffer} holds {element}; only integers are stored"
                fault = None if element.element in INTEGERS else wrong
                return Instruction(
                    "store", at, value=self.value(index), stored=self.value(value), loops=loops, fault=fault
                )
            case UseLock(lock, action, value):
                if lock not in self.lock_numbers or action not in LOCK_ACTIONS:
                    raise Fault(f"{self.core.tile}: there is no lock {lock}, or it cannot {action}")
                local = self.locks.setdefault(self.lock_numbers[lock], len(self.locks))
                return Instruction("lock", local, action=action, value=self.value(value), loops=loops)
            case Loop(number, lower, upper, step, body):
                bounds = self.value(lower), self.value(upper), self.value(step)
                self.looped.add(number)
                inner = self.block(body, (*loops, number))
                return Instruction("loop", number=number, loops=loops, bounds=bounds, body=inner)
        raise AssertionError(statement)

    def port(self, fifo: str, port: str) -> int:
        return self.ports.setdefault((fifo, port == "consume"), len(self.ports))

    def port_fault(self, name: str, port: str, count: int) -> str | None:
        fifo = self.fifos.get(name)
        if fifo is None:
            return f"there is no FIFO {name}"
        tile = self.core.tile
        if port not in ("produce", "consume"):
            return f"there is no port {port}"
        if port == "produce" and fifo.producer != tile:
            return f"{tile} does not produce {name}; its producer is {fifo.producer}"
        if port == "consume" and tile not in fifo.consumers:
            return f"{tile} does not consume {name}; its consumers are {_tiles(fifo.consumers)}"
        if count < 1:
            return "it takes at least 1 object"
        pool = self.pools.get((name, tile, port == "consume"))
        if pool is None:
            return f"{name} is linked at {tile}, so its DMA moves the objects there"
        if count > pool.depth:
            return f"{name} has {pool.depth} objects there"
        return None

    def call(
        self, name: str, arguments: tuple[ObjectRef | BufferRef | Value, ...], loops: tuple[int, ...]
    ) -> Instruction:
        number = self.kernel_numbers.get(name)
        if number is None:
            raise Fault(f"{self.core.tile} calls {name}, which the design does not declare")
        kernel = self.design.kernels[number]
        fault = self.call_fault(kernel, arguments)
        lowered = () if fault else tuple(self.argument(argument) for argument in arguments)
        return Instruction("call", number, arguments=lowered, loops=loops, fault=fault)

    def call_fault(self, kernel: Kernel, arguments: tuple[ObjectRef | BufferRef | Value, ...]) -> str | None:
        if len(arguments) != len(kernel.parameters):
            return f"{kernel.name} takes {len(kernel.parameters)} arguments, found {len(arguments)}"
        for position, (argument, parameter) in enumerate(zip(arguments, kernel.parameters, strict=True)):
            what = f"argument {position} of {kernel.name}"
            found: MemRef | None = None
            if isinstance(argument, ObjectRef):
                acquire = self.acquired.get(argument.acquire)
                if acquire is None or acquire.fifo not in self.fifos:
                    return f"{what} is an object that was never acquired"
                if not 0 <= argument.index < acquire.count:
                    return f"{what} is object {argument.index} of {acquire.count} acquired of {acquire.fifo}"
                found = self.fifos[acquire.fifo].object_type
            elif isinstance(argument, BufferRef):
                if argument.name not in self.buffer_numbers:
                    return f"{what}: there is no buffer {argument.name}"
                found = self.design.buffers[self.buffer_numbers[argument.name]].type
            if (found is None) != isinstance(parameter, str):
                return f"{what}: expected {parameter}, found {found or 'a value'}"
            if found is not None and isinstance(parameter, MemRef) and found.bytes != parameter.bytes:
                return f"{what}: expected {parameter}, found {found}"
        return None

    def argument(self, argument: ObjectRef | BufferRef | Value) -> Argument:
        if isinstance(argument, ObjectRef):
            acquire = self.acquired[argument.acquire]
            return Argument("object", argument.acquire, argument.index, self.port(acquire.fifo, acquire.port))
        if isinstance(argument, BufferRef):
            return Argument("buffer", self.buffer(argument.name))
        return Argument("scalar", value=self.value(argument))

    def value(self, value: Value) -> Value:
        known = isinstance(value, Const) or value.number in (self.loaded if isinstance(value, Loaded) else self.looped)
        if not known or (isinstance(value, Const) and not -(1 << 63) <= value.value < 1 << 63):
            raise Fault(f"{self.core.tile}: its program uses a value before it makes it, or one of more than 64 bits")
        return value

    def buffer(self, name: str) -> int:
        if name not in self.buffer_numbers:
            raise Fault(f"{self.core.tile}: there is no buffer {name}")
        return self.buffers.setdefault(self.buffer_numbers[name], len(self.buffers))

    def load(self, number: int, name: str, index: Value, loops: tuple[int, ...]) -> Instruction:
        at = self.buffer(name)
        found: Buffer = self.design.buffers[self.buffer_numbers[name]]
        fault = None if found.type.element in INTEGERS else f"{name} holds {found.type}; only integers are loaded"
        return Instruction("load", at, number, value=index, loops=loops, fault=fault)


def _tiles(tiles: tuple[Tile, ...]) -> str:
    return ", ".join(map(str, tiles))
