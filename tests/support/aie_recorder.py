"""A recording stand-in for the parts of the `aie` package that rendered generators use, strict about signatures.

It knows nothing of elfkiln: `record(text)` runs a program and returns what it declared, so that tests can work out
from the taps and the order of steps what the array would do.
"""

import contextlib
import io
import sys
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from types import ModuleType, SimpleNamespace

import numpy as np


@dataclass
class Fifo:
    name: str
    producer: tuple
    consumers: list
    depth: object
    shape: tuple
    dtype: np.dtype
    to_stream: tuple
    from_stream: tuple
    recording: "Recording" = field(repr=False)

    @property
    def elements(self):
        return prod(self.shape)

    def acquire(self, port, count):
        self.recording.log("acquire", self.name, port, count)
        return (self.name, port)

    def release(self, port, count):
        self.recording.log("release", self.name, port, count)


@dataclass(eq=False)
class Task:
    fifo: Fifo
    argument: int
    offset: int
    sizes: tuple
    strides: tuple
    token: bool

    @property
    def indices(self):
        """Element indices in the order the DMA moves them."""
        walk = np.array([self.offset])
        for size, stride in zip(self.sizes, self.strides, strict=True):
            walk = (walk[:, None] + np.arange(size) * stride).reshape(-1)
        return walk

    @property
    def last(self):
        """The largest index it touches."""
        return self.offset + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))


@dataclass
class Sequence:
    name: str
    arguments: list
    tasks: list = field(default_factory=list)
    steps: list = field(default_factory=list)


@dataclass
class Recording:
    device: tuple = ()
    kernels: list = field(default_factory=list)
    fifos: dict = field(default_factory=dict)
    links: list = field(default_factory=list)
    buffers: dict = field(default_factory=dict)
    locks: dict = field(default_factory=dict)
    cores: dict = field(default_factory=dict)
    stacks: set = field(default_factory=set)
    sequences: dict = field(default_factory=dict)
    body: list = None
    sequence: Sequence = None

    def log(self, *event):
        assert self.body is not None, f"{event} outside of a core"
        self.body.append(event)


def _array(kind):
    """Shape and dtype of `np.ndarray[(2, 3), np.dtype[np.int8]]`."""
    shape, dtype = kind.__args__
    return tuple(shape if isinstance(shape, tuple) else shape.__args__), np.dtype(dtype.__args__[0])


def _modules(made):
    @contextlib.contextmanager
    def mlir_mod_ctx():
        yield SimpleNamespace(module="module")

    def device(kind, *, sym_name):
        made.device = (kind, sym_name)
        return lambda f: f()

    def tile(col, row):
        assert 0 <= col < 8
        assert 0 <= row < 6
        return (col, row)

    def external_func(name, inputs, *, link_with):
        made.kernels.append((name, [_array(kind) for kind in inputs], link_with))

        def call(*arguments):
            assert len(arguments) == len(inputs)
            made.log("call", name, *arguments)

        return call

    def object_fifo(
        name, producer, consumers, depth, datatype, *, dimensionsToStream=(), dimensionsFromStreamPerConsumer=()
    ):
        assert name not in made.fifos
        consumers = consumers if isinstance(consumers, list) else [consumers]
        to, per_consumer = tuple(dimensionsToStream), tuple(map(tuple, dimensionsFromStreamPerConsumer))
        assert len(per_consumer) in (0, len(consumers))
        made.fifos[name] = Fifo(name, producer, list(consumers), depth, *_array(datatype), to, per_consumer, made)
        return made.fifos[name]

    def object_fifo_link(ins, outs, src_offsets=(), dst_offsets=()):
        ins, outs = ([x] if isinstance(x, Fifo) else x for x in (ins, outs))
        made.links.append(([f.name for f in ins], [f.name for f in outs], list(src_offsets), list(dst_offsets)))

    def core(place, *, stack_size):
        def add(body):
            assert place not in made.cores
            assert body.__code__.co_argcount == 0
            made.body = made.cores[place] = []
            made.stacks.add(stack_size)
            body()
            made.body = None

        return add

    def buffer(place, datatype, name, *, use_write_rtp):
        assert use_write_rtp
        made.buffers[name] = (place, *_array(datatype))

        class Cells:
            def __getitem__(self, index):
                made.log("load", name, index)
                return (name, index)

        return Cells()

    def lock(place, *, init, sym_name):
        made.locks[sym_name] = (place, init)
        return sym_name

    def range_(count):
        made.log("for", count)
        yield 0
        made.log("end")

    def runtime_sequence(*types, sym_name=None):
        def add(f):
            arguments = [_array(kind) for kind in types]
            made.sequence = Sequence(sym_name or f.__name__, arguments)
            assert made.sequence.name not in made.sequences
            made.sequences[made.sequence.name] = made.sequence
            f(*range(len(arguments)))
            made.sequence = None

        return add

    def shim_dma_single_bd_task(fifo, mem, *, offset, sizes, strides, issue_token=False):
        assert len(sizes) == len(strides) == 4
        assert all(type(x) is int for x in [offset, *sizes, *strides])
        made.sequence.tasks.append(Task(fifo, mem, offset, tuple(sizes), tuple(strides), issue_token))
        made.sequence.steps.append(("configure", made.sequence.tasks[-1]))
        return made.sequence.tasks[-1]

    def steps(verb):
        def add(*things):
            assert things
            made.sequence.steps += [(verb, thing) for thing in things]

        return add

    def npu_load_pdi(*, device_ref):
        made.sequence.steps.append(("load_pdi", device_ref))

    def npu_rtp_write(name, index, value):
        made.sequence.steps.append(("rtp", name, index, value))

    def set_lock_value(name, value):
        made.sequence.steps.append(("lock", name, value))

    def use_lock(name, action, *, value):
        made.log("use_lock", name, action, value)

    return {
        "aie": {},
        "aie.dialects": {},
        "aie.dialects.aie": {
            "AIEDevice": SimpleNamespace(npu2="npu2"),
            "ObjectFifoPort": SimpleNamespace(Produce="produce", Consume="consume"),
            "LockAction": SimpleNamespace(AcquireGreaterEqual="acquire_ge"),
            "buffer": buffer,
            "core": core,
            "device": device,
            "external_func": external_func,
            "lock": lock,
            "object_fifo": object_fifo,
            "object_fifo_link": object_fifo_link,
            "tile": tile,
            "use_lock": use_lock,
        },
        "aie.dialects.aiex": {
            "dma_await_task": steps("await"),
            "dma_free_task": steps("free"),
            "dma_start_task": steps("start"),
            "npu_load_pdi": npu_load_pdi,
            "npu_rtp_write": npu_rtp_write,
            "runtime_sequence": runtime_sequence,
            "set_lock_value": set_lock_value,
            "shim_dma_single_bd_task": shim_dma_single_bd_task,
        },
        "aie.dialects.arith": {"IndexCastOp": lambda kind, value: SimpleNamespace(result=(kind, *value))},
        "aie.extras": {},
        "aie.extras.context": {"mlir_mod_ctx": mlir_mod_ctx},
        "aie.helpers": {},
        "aie.helpers.dialects": {},
        "aie.helpers.dialects.scf": {"_for": range_},
        "aie.ir": {"IndexType": SimpleNamespace(get=lambda: "index")},
    }


def record(text):
    """Run a rendered program against the stand-in and return its `Recording`."""
    made = Recording()
    modules = {}
    for name, members in _modules(made).items():
        modules[name] = ModuleType(name)
        vars(modules[name]).update(members)
    hidden = {name: module for name, module in sys.modules.items() if name == "aie" or name.startswith("aie.")}
    for name in hidden:
        del sys.modules[name]
    sys.modules.update(modules)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(text, "rendered", "exec"), {"__name__": "__main__"})
    finally:
        for name in modules:
            del sys.modules[name]
        sys.modules.update(hidden)
    assert printed.getvalue() == "module\n"
    return made


def replay(sequence):
    """Follow a sequence's steps; return the most tasks queued per FIFO and the most descriptors live per shim tile.

    Asserts what the real tools demand: a task is configured, started once, and given back once; only a task with a
    token is awaited, in the order of its channel; at the end nothing is left.
    """
    queued, live = {}, Counter()
    most_queued, most_live = Counter(), Counter()
    for verb, *rest in sequence.steps:
        if verb not in ("configure", "start", "await", "free"):
            continue
        task = rest[0]
        channel = queued.setdefault(task.fifo.name, [])
        shim = next(t for t in (task.fifo.producer, *task.fifo.consumers) if t[1] == 0)
        if verb == "configure":
            live[shim] += 1
            most_live[shim] = max(most_live[shim], live[shim])
        elif verb == "start":
            assert task not in channel
            channel.append(task)
            most_queued[task.fifo.name] = max(most_queued[task.fifo.name], len(channel))
        else:
            assert (verb == "await") == task.token
            assert channel.pop(0) is task
            live[shim] -= 1
    assert not any(queued.values())
    assert not any(live.values())
    assert sum(verb == "start" for verb, *_ in sequence.steps) == len(sequence.tasks)
    return most_queued, most_live
