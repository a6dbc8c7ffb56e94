"""Prints a lowered design as C: tables, core programs that can be resumed, and one entry per sequence."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from elfkiln.design.model import Const, Loaded, Value
from elfkiln.design.patterns import Pattern
from elfkiln.engine.contract import MOST_ARGUMENTS
from elfkiln.hardware.limits import limit
from elfkiln.targets.sim.machine import (
    MORE,
    SCALARS,
    Argument,
    End,
    HostArgument,
    Instruction,
    Machine,
    MachineCore,
    MachineSequence,
    MachineStep,
    MachineTask,
    Pool,
    Program,
    Stream,
    stream_has_part,
)
from elfkiln.targets.sim.note import OWNER, SECTION, TYPE

SLOT_BYTES = 64
"""Objects begin at multiples of this: kernels load and store 64 bytes at once."""

STAGING_BYTES = 1 << 16

_KINDS: Mapping[str, str] = {
    "acquire": "SIM_ACQUIRE",
    "release": "SIM_RELEASE",
    "call": "SIM_CALL",
    "load": "SIM_LOAD",
    "lock": "SIM_LOCK",
    "loop": "SIM_LOOP",
    "store": "SIM_STORE",
}
_ACTIONS: Mapping[str, str] = {
    "": "SIM_LOCK_EQUAL",
    "acquire": "SIM_LOCK_EQUAL",
    "acquire_ge": "SIM_LOCK_AT_LEAST",
    "release": "SIM_LOCK_RELEASE",
}
_ARGUMENTS: Mapping[str, str] = {"object": "SIM_OBJECT", "buffer": "SIM_BUFFER", "scalar": "SIM_SCALAR"}
_STEPS: Mapping[str, str] = {
    "load_pdi": "SIM_LOAD_PDI",
    "start": "SIM_START",
    "await": "SIM_AWAIT",
    "free": "SIM_FREE",
    "rtp_write": "SIM_RTP_WRITE",
    "set_lock": "SIM_SET_LOCK",
}


def c_source(machine: Machine, note: bytes) -> str:
    """Return the C of a machine; `note` becomes the descriptor of the ELF's note .note.elfkiln.

    The text depends on nothing but its arguments. It has no comments: as a compile input it is what its recipe names.
    """
    return "\n".join(_Printer(machine, note).lines()) + "\n"


def version_script(symbols: Iterable[str]) -> str:
    """Return the linker version script that exports these symbols and nothing else."""
    names = " ".join(f"{symbol};" for symbol in symbols)
    return f"{{ global: {names} local: *; }};\n"


def _text(value: str | None) -> str:
    """Return a C string literal, or NULL; everything but plain characters is an octal escape."""
    if value is None:
        return "NULL"
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in value.encode()
    )
    return f'"{plain}"'


def _number(value: int) -> str:
    """Return a C integer expression of a value of up to 64 bits (the lowest one has no literal)."""
    if value == -(1 << 63):
        return "(-9223372036854775807 - 1)"
    return str(value)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _agent(number: int) -> str:
    return str(number) if number >= 0 else "SIM_NONE"


def _value(value: Value) -> str:
    if isinstance(value, Const):
        return f"{{SIM_CONST, 0, {_number(value.value)}}}"
    kind = "SIM_LOADED" if isinstance(value, Loaded) else "SIM_INDEX"
    return f"{{{kind}, {value.number}, 0}}"


def _pattern(pattern: Pattern) -> str:
    dims = ", ".join(f"{{{size}, {_number(stride)}}}" for size, stride in pattern.dims)
    return f"{{{pattern.offset}, {pattern.run}, {pattern.bytes}, {len(pattern.dims)}, {{{dims}}}}}"


def _note(note: bytes) -> list[str]:
    """Return the C of an ELF note: owner and descriptor are each padded to 4 bytes (System V ABI, Note Section)."""
    owner = OWNER.encode() + b"\0"
    padded = note + b"\0" * (-len(note) % 4)
    data = ", ".join(map(str, padded))
    return [
        "static const struct {",
        "    uint32_t owner_bytes, note_bytes, type;",
        f"    char owner[{len(owner) + -len(owner) % 4}];",
        f"    uint8_t note[{len(padded)}];",
        f'}} note __attribute__((section("{SECTION}"), used, aligned(4))) = {{',
        f'    {len(owner)}, {len(note)}, {TYPE}, "{OWNER}",',
        f"    {{{data}}},",
        "};",
    ]


class _Printer:
    """Prints one machine.

    Everything is a table of constants and zeroed state, in the order in which C needs the names: no memory is asked for
    at run time, so a run cannot fail for want of it, and its state is where a debugger finds it.
    """

    def __init__(self, machine: Machine, note: bytes) -> None:
        self.machine = machine
        self.design = machine.design
        # Each is worked out from the whole machine, and asked for with every clock.
        self.parts, self.clock_count, self.slots = machine.parts, machine.clocks, machine.slots
        self.note = note

    def lines(self) -> Iterable[str]:
        if self.machine.more:
            yield MORE
        yield '#include "sim.h"'
        yield from _note(self.note)
        yield from self.kernels()
        yield from self.clocks()
        yield from self.pools()
        yield from self.buffers()
        yield from self.locks()
        yield from self.programs()
        yield from self.cores()
        yield from self.streams()
        yield from self.sequences()
        yield from self.design_table()
        yield from self.entries()

    def kernels(self) -> Iterable[str]:
        calls = [one for program in self.machine.programs for one in program.instructions if one.kind == "call"]
        used = {call.index for call in calls if call.fault is None}
        rows = []
        for number, kernel in enumerate(self.design.kernels):
            if number not in used:
                rows.append(f"    {{{_text(kernel.name)}, NULL}},")
                continue
            types = [SCALARS[one] if isinstance(one, str) else "void *" for one in kernel.parameters]
            # The C name is ours and the symbol the design's, which may be any text: a word of C, or a name of libc.
            yield f'extern void kernel_{number}({", ".join(types) or "void"}) __asm__("{kernel.name}");'
            yield f"extern const elfkiln_declaration declaration_{number}"
            yield f'    __asm__("elfkiln_declaration_{kernel.name}") __attribute__((weak, visibility("hidden")));'
            passed = [
                f"({SCALARS[one]})core->scalars[{position}]" if isinstance(one, str) else f"core->pointers[{position}]"
                for position, one in enumerate(kernel.parameters)
            ]
            # The runtime puts the checked arguments into the core; only here is the entry's C type known.
            yield f"static void call_{number}(sim_core *core) {{"
            if not passed:
                yield "    (void)core;"
            yield f"    kernel_{number}({', '.join(passed)});"
            yield "}"
            rows.append(f"    {{{_text(kernel.name)}, &declaration_{number}}},")
        yield from _table("static const sim_kernel kernels", rows)

    def clocks(self) -> Iterable[str]:
        # Each clock is a row of ticks, one for each part that does what others must come after. A slot counts its
        # versions beside them: most objects are passed on with the clock that they came with, which is not copied then.
        words = self.clock_count * self.parts
        yield f"static uint64_t ticks[{words}], slot_versions[{max(1, 2 * self.slots)}];"
        yield f"static uint64_t task_ticks[{max(1, self.machine.most_tasks) * self.parts}];"

    def ticks(self, clock: int) -> str:
        """Return the place of a clock's ticks: 0 the sequence's, then cores, streams, locks, slots."""
        return f"ticks + {clock * self.parts}"

    def parameters(self) -> Iterable[str]:
        # Sorted by buffer, so each buffer's parameters are a slice of the table, in the order of its elements. For each
        # parameter and core there is the last use, which a later write must come after.
        parameters, cores = self.machine.parameters, max(1, len(self.machine.cores))
        yield f"static sim_buffer buffers[{max(1, len(self.design.buffers))}];"
        yield f"static sim_use parameter_uses[{max(1, len(parameters)) * cores}];"
        rows = [
            f"    {{.buffer = &buffers[{buffer}], .element = {element}, .uses = parameter_uses + {number * cores}}},"
            for number, (buffer, element) in enumerate(parameters)
        ]
        yield from _table("static sim_parameter parameters", rows)

    def pools(self) -> Iterable[str]:
        offset = slots = 0
        rows = []
        for pool in self.machine.pools:
            if pool.initial:
                yield _contents(f"pool_contents_{pool.number}", b"".join(pool.initial))
            slot = -(-pool.object_bytes // SLOT_BYTES) * SLOT_BYTES
            rows.append(self.pool(pool, slot, offset, slots))
            offset += pool.depth * slot
            slots += pool.depth
        yield f"static uint8_t objects[{offset or SLOT_BYTES}] __attribute__((aligned({SLOT_BYTES})));"
        yield f"static uint8_t filled[{slots or 1}];"
        yield f"static sim_place places[{slots or 1}];"
        yield f"static sim_block blocks[{slots or 1}];"
        yield from _table("static sim_pool pools", rows)

    def pool(self, pool: Pool, slot: int, offset: int, first: int) -> str:
        # The clocks of slots are the last: one a slot for when it was given (filled), then as many for when it was
        # freed. `first` is the number of the pool's first slot among those of all pools.
        clock = self.clock_count - 2 * self.slots + first
        slots = ", ".join(f"{{{self.ticks(clock + way)}, slot_versions + {first + way}, 0}}" for way in (0, self.slots))
        return (
            f"    {{{_text(pool.name)}, {_text(str(pool.tile))}, objects + {offset}, filled + {first}, {pool.depth}, "
            f"{pool.object_bytes}, {slot}, {_agent(pool.writer)}, {_agent(pool.reader)}, 0, 0, 0, 0, "
            f"{slots}{self.pool_more(pool)}}},"
        )

    def pool_more(self, pool: Pool) -> str:
        """Return the fields of a pool that only few designs have: the text of the others says nothing of them."""
        if not self.machine.more:
            return ""
        contents = f"pool_contents_{pool.number}" if pool.initial else "NULL"
        return f", {contents}, {len(pool.initial)}, {pool.kept}"

    def buffers(self) -> Iterable[str]:
        yield from self.parameters()
        rows = []
        written = [buffer for buffer, _ in self.machine.parameters]
        for number, buffer in enumerate(self.design.buffers):
            elements, width = buffer.type.elements, buffer.type.element_bytes
            yield f"static uint8_t buffer_{number}[{max(1, elements * width)}] __attribute__((aligned({SLOT_BYTES})));"
            yield f"static uint8_t buffer_filled_{number}[{max(1, elements)}];"
            contents = ""
            if self.machine.more:
                contents = ", NULL" if buffer.initial is None else f", buffer_contents_{number}"
            if buffer.initial is not None:
                yield _contents(f"buffer_contents_{number}", buffer.initial)
            rows.append(
                f"    {{{_text(buffer.name)}, {_text(str(buffer.tile))}, buffer_{number}, buffer_filled_{number}, "
                f"{elements}, {width}, {_bool(not buffer.type.element.startswith('u'))}, "
                f"parameters + {bisect_left(written, number)}, {written.count(number)}{contents}}},"
            )
        yield from _table("static sim_buffer buffers", rows)

    def locks(self) -> Iterable[str]:
        cores = max(1, len(self.machine.cores))
        # Clocks of locks stand behind those of the sequence and of all agents (`ticks`).
        first = 1 + len(self.machine.cores) + len(self.machine.streams)
        yield f"static sim_use lock_uses[{max(1, len(self.design.locks)) * cores}];"
        rows = [
            f"    {{.name = {_text(lock.name)}, .tile = {_text(str(lock.tile))}, .init = {lock.init}, "
            f".acquired = {_bool(self.machine.acquires(number))}, .uses = lock_uses + {number * cores}, "
            f".ticks = {self.ticks(first + number)}}},"
            for number, lock in enumerate(self.design.locks)
        ]
        yield from _table("static sim_lock locks", rows)

    def programs(self) -> Iterable[str]:
        for number, program in enumerate(self.machine.programs):
            rows = []
            for position, instruction in enumerate(program.instructions):
                if instruction.arguments:
                    name = f"arguments_{number}_{position}"
                    yield from _table(
                        f"static const sim_argument {name}", [f"    {_argument(one)}," for one in instruction.arguments]
                    )
                rows.append(_statement(instruction, f"arguments_{number}_{position}"))
            yield from _table(f"static const sim_statement statements_{number}", rows)
            yield f"static void program_{number}(sim_core *core) {{"
            yield "    switch (core->resume) {"
            yield "    case 0:;"
            resumes = iter(range(1, len(program.instructions) + 1))
            yield from _body(program, program.body, 1, resumes)
            yield "    }"
            yield "    sim_ended(core);"
            yield "}"

    def cores(self) -> Iterable[str]:
        rows = []
        # Part 0 of every clock is the sequence's, so an agent whose part is 0 has none: nobody has to come after it.
        part = 0
        for number, core in enumerate(self.machine.cores):
            has_part = self.machine.core_has_part(core)
            part += has_part
            program = self.machine.programs[core.program]
            yield from self.core_state(number, core, program)
            rows.append(
                f"    {{.tile = {_text(str(core.tile))}, .program = program_{core.program}, "
                f".statements = statements_{core.program}, .ports = ports_{number}, .port_count = {len(core.ports)}, "
                f".buffers = core_buffers_{number}, .locks = core_locks_{number}, .acquired = acquired_{number}, "
                f".loaded = loaded_{number}, .index = index_{number}, .bound = bound_{number}, .by = by_{number}, "
                f".part = {part if has_part else 0}, .clock = {{1, {self.ticks(1 + number)}}}}},"
            )
        yield from _table("static sim_core cores", rows)

    def core_state(self, number: int, core: MachineCore, program: Program) -> Iterable[str]:
        rows = []
        for port in core.ports:
            pool = "NULL" if port.pool is None else f"&pools[{port.pool.number}]"
            rows.append(f"    {{{_text(port.fifo)}, {pool}, {_bool(port.consume)}, 0}},")
        yield from _table(f"static sim_port ports_{number}", rows)
        yield _numbers(f"core_buffers_{number}", core.buffers)
        yield _numbers(f"core_locks_{number}", core.locks)
        yield f"static sim_acquired acquired_{number}[{max(1, program.acquires)}];"
        yield f"static int64_t loaded_{number}[{max(1, program.loads)}];"
        for name in ("index", "bound", "by"):
            yield f"static int64_t {name}_{number}[{max(1, program.loops)}];"

    def streams(self) -> Iterable[str]:
        rows = []
        part = sum(map(self.machine.core_has_part, self.machine.cores))
        for number, stream in enumerate(self.machine.streams):
            part += stream_has_part(stream)
            ends = (stream.source, *stream.sinks)
            for position, end in enumerate(ends):
                if end.segments:
                    segments = [
                        f"    {{&pools[{segment.pool.number}], {_pattern(segment.pattern)}}},"
                        for segment in end.segments
                    ]
                    yield from _table(f"static const sim_segment segments_{number}_{position}", segments)
            sinks = [f"    {_end(end, number, 1 + position)}," for position, end in enumerate(stream.sinks)]
            yield from _table(f"static sim_end sinks_{number}", sinks)
            rows.append(self.stream(number, stream, part if stream_has_part(stream) else 0))
        yield from _table("static sim_stream streams", rows)
        yield f"static sim_rows rows[{len(rows) or 1}];"

    def stream(self, number: int, stream: Stream, part: int) -> str:
        clock = self.ticks(1 + len(self.machine.cores) + number)
        return (
            f"    {{.name = {_text(stream.fifo)}, .source = {_end(stream.source, number, 0)}, .sinks = sinks_{number}, "
            f".sink_count = {len(stream.sinks)}, .repeat = {stream.repeat}, "
            f".part = {part}, .clock = {{1, {clock}}}}},"
        )

    def sequences(self) -> Iterable[str]:
        rows = []
        for number, sequence in enumerate(self.machine.sequences):
            yield from _table(f"static const sim_task tasks_{number}", [_task(task) for task in sequence.tasks])
            yield from _table(f"static const sim_step steps_{number}", [_step(step) for step in sequence.steps])
            rows.append(_sequence(number, sequence))
        yield from _table("static const sim_sequence sequences", rows)

    def design_table(self) -> Iterable[str]:
        machine = self.machine
        agents = len(machine.cores) + len(machine.streams)
        # One bit for each byte of the largest argument that tasks write: what a run has written of it.
        written = max(
            (argument.bytes for sequence in machine.sequences for argument in sequence.arguments if argument.written),
            default=1,
        )
        yield from _table("static const char *const shims", [f"    {_text(str(tile))}," for tile in machine.shims])
        yield f"static uint16_t shim_tasks[{max(1, len(machine.shims))}];"
        yield f"static sim_task_state task_states[{max(1, machine.most_tasks)}];"
        yield f"static uint64_t written[{-(-written // 64)}];"
        yield f"static uint16_t ready[{max(1, agents)}];"
        yield f"static uint8_t staging[{STAGING_BYTES}] __attribute__((aligned({SLOT_BYTES})));"
        yield "sim_machine sim_design = {"
        yield f"    .device = {_text(self.design.name)},"
        yield f"    .fault = {_text(machine.fault)},"
        yield f"    .initializer = {_text(machine.initializer)},"
        for name, count in (
            ("core", len(machine.cores)),
            ("stream", len(machine.streams)),
            ("pool", len(machine.pools)),
            ("buffer", len(self.design.buffers)),
            ("lock", len(self.design.locks)),
            ("shim", len(machine.shims)),
            ("sequence", len(machine.sequences)),
        ):
            yield f"    .{name}s = {name}s, .{name}_count = {count},"
        yield "    .places = places, .blocks = blocks, .rows = rows,"
        yield "    .kernels = kernels, .shim_tasks = shim_tasks, .task_states = task_states, .written = written,"
        yield "    .ticks = ticks, .tick_bytes = sizeof ticks, .slot_versions = slot_versions,"
        yield "    .slot_version_bytes = sizeof slot_versions, .task_ticks = task_ticks,"
        yield f"    .clock = {{1, {self.ticks(0)}}}, .part_count = {self.parts}, .parameters = parameters,"
        yield f"    .parameter_count = {len(machine.parameters)},"
        yield f"    .ready = ready, .staging = staging, .staging_bytes = {STAGING_BYTES},"
        yield f"    .descriptors = {limit('descriptors', 'shim').value}, .most_lock = {limit('lock-value').value},"
        yield "};"

    def entries(self) -> Iterable[str]:
        parameters = "const void *a, const void *b, void *c, char *message, size_t capacity"
        for number, sequence in enumerate(self.machine.sequences):
            for name, symbol, again in (
                (f"entry_{number}", sequence.symbol, 0),
                (f"again_{number}", sequence.again, 1),
            ):
                if symbol is None:
                    continue
                yield f'int {name}({parameters}) __asm__("{symbol}") __attribute__((visibility("default")));'
                yield f"int {name}({parameters}) {{"
                yield f"    return sim_run({number}, {again}, a, b, c, message, capacity);"
                yield "}"


def _table(declaration: str, rows: list[str]) -> Iterable[str]:
    """Print an array; an empty one keeps one element of zeros, which C needs and nothing reads."""
    if not rows:
        yield f"{declaration}[1];"
        return
    yield f"{declaration}[] = {{"
    yield from rows
    yield "};"


def _contents(name: str, data: bytes) -> str:
    return f"static const uint8_t {name}[] = {{{', '.join(map(str, data))}}};"


def _numbers(name: str, numbers: tuple[int, ...]) -> str:
    return f"static const uint16_t {name}[] = {{{', '.join(map(str, numbers)) or '0'}}};"


def _argument(argument: Argument) -> str:
    kind = _ARGUMENTS[argument.kind]
    return f"{{{kind}, {argument.number}, {argument.index}, {argument.port}, {_value(argument.value)}}}"


def _statement(instruction: Instruction, arguments: str) -> str:
    fields = [
        f".kind = {_KINDS[instruction.kind]}",
        f".index = {instruction.index}",
        f".number = {instruction.number}",
        f".count = {instruction.count}",
        f".action = {_ACTIONS[instruction.action]}",
        f".value = {_value(instruction.value)}",
    ]
    if instruction.arguments:
        fields += [f".arguments = {arguments}", f".argument_count = {len(instruction.arguments)}"]
    if instruction.loops:
        loops = ", ".join(map(str, instruction.loops))
        fields += [f".loop_count = {len(instruction.loops)}", f".loops = {{{loops}}}"]
    if instruction.fault is not None:
        fields.append(f".fault = {_text(instruction.fault)}")
    if instruction.kind == "store":
        fields.append(f".stored = {_value(instruction.stored)}")
    return f"    {{{', '.join(fields)}}},"


def _body(program: Program, numbers: tuple[int, ...], depth: int, resumes: Iterable[int]) -> Iterable[str]:
    """Print statements as code that can be entered again where it waited (a switch over `resume`).

    A core is a coroutine: the function returns wherever the core has to wait, and the next call goes on there. So what
    lives over a wait (loop indices, bounds, loaded values) is in the core and never a local, and the cases stand in the
    middle of loops, as in Duff's device. Only acquires and locks wait, and only they are places to go on from: they are
    numbered in the order in which `resumes` gives them.
    """
    pad = "    " * depth
    for number in numbers:
        instruction = program.instructions[number]
        if instruction.kind == "loop":
            assert instruction.bounds is not None
            # Bounds are taken once, before the first turn, as MLIR's scf.for does: the body may load them anew.
            bounds = ", ".join(f"(sim_value){_value(value)}" for value in instruction.bounds)
            loop = instruction.number
            yield f"{pad}if (!sim_loop(core, {number}, {bounds})) return;"
            yield f"{pad}for (; core->index[{loop}] < core->bound[{loop}];) {{"
            yield f"{pad}    if (!sim_turn(core, {number})) return;"
            yield from _body(program, instruction.body, depth + 1, resumes)
            yield f"{pad}    if (!sim_next(core, {loop})) break;"
            yield f"{pad}}}"
        elif instruction.kind == "call" and instruction.fault is None:
            yield f"{pad}if (!sim_call(core, {number}, call_{instruction.index})) return;"
        elif instruction.kind == "call":
            yield f"{pad}if (!sim_call(core, {number}, NULL)) return;"
        elif instruction.kind in ("acquire", "lock"):
            function = "sim_acquire" if instruction.kind == "acquire" else "sim_use_lock"
            resume = next(iter(resumes))
            yield f"{pad}core->resume = {resume};"
            # What came before falls into the case: it is entered from above the first time, and by the switch later.
            yield f"{pad}/* fall through */ case {resume}:"
            yield f"{pad}if (!{function}(core, {number})) return;"
        else:
            yield f"{pad}if (!sim_{instruction.kind}(core, {number})) return;"


def _end(end: End, stream: int, position: int) -> str:
    segments = f"segments_{stream}_{position}" if end.segments else "NULL"
    most = f", .most = {end.most}" if end.most else ""
    return f"{{.segments = {segments}, .count = {len(end.segments)}, .tile = {_text(str(end.tile))}{most}}}"


def _task(task: MachineTask) -> str:
    return (
        f"    {{{task.stream}, {_agent(task.shim)}, {task.argument}, {_bool(task.drains)}, {_bool(task.token)}, "
        f"{task.configured_at}, {_text(task.fifo)}, {_text(task.fault)}, {_pattern(task.pattern)}}},"
    )


def _step(step: MachineStep) -> str:
    return f"    {{{_STEPS[step.kind]}, {step.index}, {step.element}, {_number(step.value)}, {_text(step.fault)}}},"


def _sequence(number: int, sequence: MachineSequence) -> str:
    missing = HostArgument(0, 1, read=False, written=False)
    arguments = [*sequence.arguments, *[missing] * (MOST_ARGUMENTS - len(sequence.arguments))]
    rows = ", ".join(
        f"{{{argument.bytes}, {argument.element_bytes}, {_bool(argument.written)}, {_bool(argument.read)}}}"
        for argument in arguments
    )
    return (
        f"    {{{_text(sequence.symbol)}, tasks_{number}, {len(sequence.tasks)}, "
        f"steps_{number}, {len(sequence.steps)}, {{{rows}}}}},"
    )
