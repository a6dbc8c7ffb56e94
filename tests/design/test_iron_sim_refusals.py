"""What a generator may not do with the real package it may not do with the stand-in, with the same exception class."""

from __future__ import annotations

import importlib
import sys

import pytest

from elfkiln.design import iron_sim
from elfkiln.design.iron_sim.building import MLIRError

HEAD = """\
import numpy as np
from aie.dialects.aie import *
from aie.dialects.aiex import *
from aie.extras.context import mlir_mod_ctx
from aie.helpers.dialects.scf import _for as range_
T64 = np.ndarray[(64,), np.dtype[np.int8]]
I64 = np.ndarray[(64,), np.dtype[np.int32]]
T256 = np.ndarray[(256,), np.dtype[np.int8]]
with mlir_mod_ctx() as ctx:
    @device(AIEDevice.npu2, sym_name="main")
    def main():
        shim, mem, one, two = tile(0, 0), tile(0, 1), tile(0, 2), tile(0, 3)
        k = external_func("k", inputs=[T64, np.int32], link_with="k.o")
"""
CORE = """\
fifo = object_fifo("fifo", shim, one, 2, T64)
out = object_fifo("out", one, shim, [1, 2], T64)
@core(one)
def body():
    {}
"""
SEQUENCE = """\
fifo = object_fifo("fifo", shim, one, 2, T64)
inner = object_fifo("inner", one, two, 2, T64)
counts = buffer(one, np.ndarray[(2,), np.dtype[np.int32]], "counts", use_write_rtp=True)
go = lock(one, init=0, sym_name="go")
@runtime_sequence(T256)
def seq(A):
    {}
"""


@pytest.fixture(autouse=True)
def aie(monkeypatch):
    """Make `import aie` find the stand-in in this process, for one test."""
    monkeypatch.setitem(sys.modules, "aie", iron_sim)
    for name in iron_sim.MODULES:
        monkeypatch.setitem(sys.modules, f"aie.{name}", importlib.import_module(f"elfkiln.design.iron_sim.{name}"))


def run(lines, head=HEAD):
    """Build a device of the given lines and return the printed module."""
    body = "".join(f"        {line}\n" for line in lines.strip("\n").splitlines())
    scope = {"__name__": "__main__"}
    exec(compile(f"{head}{body}    text = str(ctx.module)\n", "generator.py", "exec"), scope)
    return scope["text"]


def core(*lines):
    return CORE.format("\n    ".join(lines))


def sequence(*lines):
    return SEQUENCE.format("\n    ".join(lines))


def test_what_the_refusals_start_from_is_accepted():
    run("pass")
    run(core("k(fifo.acquire(ObjectFifoPort.Consume, 1), 5)", "fifo.release(ObjectFifoPort.Consume, 1)"))
    run(core("out.acquire(ObjectFifoPort.Produce, 1)", "fifo.acquire(ObjectFifoPort.Consume, 2)"))
    text = run(
        sequence(
            "task = shim_dma_single_bd_task(fifo, A, sizes=[1, 1, 1, 64], strides=[0, 0, 0, 1], issue_token=True)",
            "dma_start_task(task)",
            "dma_await_task(task)",
        )
    )
    assert text.startswith('"builtin.module"')


def test_dims_of_a_linked_end_may_go_over_what_its_descriptor_moves():
    run(
        "a = object_fifo('a', shim, mem, 2, T256)\n"
        "b = object_fifo('b', mem, one, 2, T64, [(32, 8), (8, 1)])\n"
        "object_fifo_link(a, b)"
    )
    run(
        "a = object_fifo('a', shim, mem, 2, T64, None, [[(32, 8), (8, 1)]])\n"
        "b = object_fifo('b', mem, one, 2, T256)\n"
        "object_fifo_link(a, b)"
    )
    run(
        "a, b = (object_fifo(n, t, mem, 2, T64) for n, t in (('a', one), ('b', two)))\n"
        "c = object_fifo('c', mem, shim, 2, np.ndarray[(128,), np.dtype[np.int8]], [(8, 8), (8, 1)])\n"
        "object_fifo_link([a, b], c, [0, 64])"
    )


REFUSED = {
    # Tiles, devices and bodies
    "column 8": ("tile(8, 0)", MLIRError, r"column index \(8\) must be less than the number of columns.*\(8\)"),
    "row 6": ("tile(0, 6)", MLIRError, r"row index \(6\) must be less than the number of rows in the device \(6\)"),
    "column -1": ("tile(-1, 0)", MLIRError, "column index"),
    "half a column": ("tile(0.5, 0)", TypeError, "expected an integer, found float"),
    "tile keyword": ("tile(col=0, row=0, colour=1)", TypeError, "unexpected keyword argument 'colour'"),
    "shim scheme": ("tile(0, 0, allocation_scheme='basic-sequential')", MLIRError, "cannot have an allocation scheme"),
    "core on mem": ("@core(mem)\ndef body(): pass", MLIRError, r"cannot be created on a mem tile, found mem\(0,1\)"),
    "core on shim": ("@core(shim)\ndef body(): pass", MLIRError, "cannot be created on a shim tile"),
    "core on nothing": ("@core(None)\ndef body(): pass", TypeError, "expected a tile, found NoneType"),
    "two cores": (
        "@core(one)\ndef body(): pass\n@core(tile(0, 2))\ndef again(): pass",
        MLIRError,
        r"core\(0,2\) already has a core",
    ),
    "core default": ("@core(one)\ndef body(r=1): pass", ValueError, "the body takes no parameters"),
    "core parameter": ("@core(one)\ndef body(r): pass", ValueError, "missing a type annotation"),
    "core varargs": ("@core(one)\ndef body(*r): pass", ValueError, "takes no parameters"),
    "core link_with": ("core(one, link_with='k.o')", TypeError, "no longer accepts link_with"),
    "core object": ("core(one, 'k.o')", TypeError, "no longer accepts link_with"),
    "core keyword": ("core(one, stack=5)", TypeError, "unexpected keyword argument 'stack'"),
    "stack": ("@core(one, stack_size=65536)\ndef body(): pass", MLIRError, "stack_size 65536 leaves no local memory"),
    "tile in core": (core("tile(0, 4)"), MLIRError, "aie.tile: expects parent op aie.device"),
    "device in device": ("@device(AIEDevice.npu2)\ndef inner(): pass", MLIRError, r"expects parent op builtin\.module"),
    # Symbols
    "two kernels": ("external_func('k', inputs=[T64])", MLIRError, "redefinition of symbol k"),
    "FIFO as kernel": ("object_fifo('k', shim, one, 2, T64)", MLIRError, "redefinition of symbol k"),
    "two sequences": (
        "@runtime_sequence(T64)\ndef s(A): pass\n@runtime_sequence(T64, sym_name='s')\ndef t(A): pass",
        MLIRError,
        "redefinition of symbol s",
    ),
    # Element types
    "float64": ("external_func('f', inputs=[np.ndarray[(4,), np.dtype[np.float64]]])", TypeError, "found float64"),
    "uint64": ("object_fifo('f', shim, one, 2, np.ndarray[(4,), np.dtype[np.uint64]])", TypeError, "found uint64"),
    "complex": ("external_func('f', inputs=[np.complex64])", TypeError, "found complex64"),
    "list as type": ("external_func('f', inputs=[[64]])", TypeError, "f: input 0"),
    "shape": (
        "external_func('f', inputs=[np.ndarray[64, np.dtype[np.int8]]])",
        TypeError,
        "must be a tuple of positive",
    ),
    "shape of 0": ("external_func('f', inputs=[np.ndarray[(0,), np.dtype[np.int8]]])", TypeError, "positive integers"),
    "numpy shape": (
        "external_func('f', inputs=[np.ndarray[(np.int64(4),), np.dtype[np.int8]]])",
        TypeError,
        "positive integers",
    ),
    "scalar FIFO": ("object_fifo('f', shim, one, 2, np.int8)", TypeError, "expected an array type, found i8"),
    "scalar sequence": ("@runtime_sequence(np.int32)\ndef s(A): pass", TypeError, "expected an array type, found i32"),
    "no dtype": ("external_func('f', inputs=[np.ndarray[(4,), np.int8]])", TypeError, "expected np.ndarray"),
    "no shape": ("external_func('f', inputs=[np.ndarray[np.int8]])", TypeError, "f: input 0: "),
    "tuple of inputs": ("external_func('f', inputs=(T64,))", TypeError, "inputs: expected a list, found tuple"),
    "kernel keyword": ("external_func('f', inputs=[T64], object_file='k.o')", TypeError, "unexpected keyword argument"),
    "kernel name": ("external_func(5, inputs=[T64])", TypeError, "expected a name, found int"),
    # FIFOs
    "no consumer": ("object_fifo('f', shim, [], 2, T64)", MLIRError, "f: has no consumer"),
    "tuple of consumers": ("object_fifo('f', shim, (one, two), 2, T64)", TypeError, "expected a tile, found tuple"),
    "producer": ("object_fifo('f', 'shim', one, 2, T64)", TypeError, "producerTile: expected a tile, found str"),
    "lock as tile": ("object_fifo('f', lock(one), one, 2, T64)", TypeError, "expected a tile, found Lock"),
    "two depths for three ends": (
        "object_fifo('f', shim, [one, two], [2, 2], T64)",
        MLIRError,
        "not have enough depths",
    ),
    "depth 0": ("object_fifo('f', shim, one, 0, T64)", MLIRError, "a depth is at least 1, found 0"),
    "depth 2.0": ("object_fifo('f', shim, one, 2.0, T64)", TypeError, "expected an integer, found float"),
    "depth 2**31": ("object_fifo('f', shim, one, 2**31, T64)", ValueError, "2147483648 does not fit 32 bits"),
    "FIFO keyword": ("object_fifo('f', shim, one, 2, T64, dims=[])", TypeError, "unexpected keyword argument 'dims'"),
    "to_stream at shim": (
        "object_fifo('f', shim, one, 2, T64, [(64, 1)])",
        MLIRError,
        "`dimensionsToStream` data layout transformations are not supported on shim tile producers",
    ),
    "from_stream at shim": (
        "object_fifo('f', one, shim, 2, T64, [], [[(64, 1)]])",
        MLIRError,
        "`dimensionsFromStreamPerConsumer` data layout transformations are not supported on shim tile consumers",
    ),
    "from_stream count": (
        "object_fifo('f', shim, one, 2, T64, None, [[], []])",
        MLIRError,
        "2 entries for 1 consumers",
    ),
    "size 513": (
        "object_fifo('f', mem, one, 2, np.ndarray[(1028,), np.dtype[np.int8]], [(513, 1)])",
        MLIRError,
        "size 513 may not exceed 512 elements",
    ),
    "stride 0": (
        "object_fifo('f', mem, one, 2, T64, [(2, 0), (32, 1)])",
        MLIRError,
        "must be a positive integer, found 0",
    ),
    "stride too long": (
        "object_fifo('f', mem, one, 2, T64, [(1, 65), (4, 1)])",
        MLIRError,
        "65 exceeds memref size 64",
    ),
    "out of the object": (
        "object_fifo('f', mem, one, 2, T64, [(3, 31), (4, 1)])",
        MLIRError,
        "for index 65 in memref of",
    ),
    "inner stride": ("object_fifo('f', mem, one, 2, T64, [(8, 4)])", MLIRError, "inner-most dim stride must be 1"),
    "five at a mem tile": (
        "object_fifo('f', mem, one, 2, T64, [(1, 1)] * 5)",
        MLIRError,
        "more than 4 dimensions.*got 5",
    ),
    "four at a core": ("object_fifo('f', one, shim, 2, T64, [(1, 1)] * 4)", MLIRError, "more than 3 dimensions.*got 4"),
    "dims past the object of an end without a link": (
        "object_fifo('f', mem, one, 2, T64, [(16, 8), (8, 1)])\n",
        MLIRError,
        "out of bounds access in buffer, for index 127 in memref of length 64",
    ),
    "dims past the larger object of a link": (
        (
            "a = object_fifo('a', shim, mem, 2, T256)\n"
            "b = object_fifo('b', mem, one, 2, T64, [(64, 8), (8, 1)])\n"
            "object_fifo_link(a, b)"
        ),
        MLIRError,
        "out of bounds access in buffer, for index 511 in memref of length 256",
    ),
    "dims of a join over the whole": (
        (
            "a, b = (object_fifo(n, t, mem, 2, T64) for n, t in (('a', one), ('b', two)))\n"
            "c = object_fifo('c', mem, shim, 2, np.ndarray[(128,), np.dtype[np.int8]], [(16, 8), (8, 1)])\n"
            "object_fifo_link([a, b], c, [0, 64])"
        ),
        MLIRError,
        (
            r"specified output stride\(s\) and size\(s\) result in out of bounds access in join input, for index 127 "
            "in transfer of length 64"
        ),
    ),
    "dims of a distribute over the whole": (
        (
            "whole = np.ndarray[(128,), np.dtype[np.int8]]\n"
            "a = object_fifo('a', shim, mem, 2, whole, None, [[(16, 8), (8, 1)]])\n"
            "b, c = (object_fifo(n, mem, t, 2, T64) for n, t in (('b', one), ('c', two)))\n"
            "object_fifo_link(a, [b, c], [], [0, 64])"
        ),
        MLIRError,
        (
            r"specified input stride\(s\) and size\(s\) result in out of bounds access in distribute output, for index "
            "127 in transfer of length 64"
        ),
    ),
    "dims of one number": ("object_fifo('f', mem, one, 2, T64, [(64,)])", TypeError, r"expected \(size, stride\)"),
    "repeat at shim": (
        "object_fifo('f', shim, one, 2, T64).set_repeat_count(2)",
        MLIRError,
        "unavailable for shim tiles",
    ),
    "repeat 0": ("object_fifo('f', mem, one, 2, T64).set_repeat_count(0)", MLIRError, "repeat_count is at least 1"),
    # Links
    "unknown FIFO": ("object_fifo_link('a', 'b')", MLIRError, "the device has no a"),
    "link of a kernel": ("object_fifo('f', mem, one, 2, T64)\nobject_fifo_link('k', 'f')", MLIRError, "no object FIFO"),
    "link of a tile": ("object_fifo_link(mem, mem)", TypeError, "expected FIFOs or their names"),
    "no shared tile": (
        "a = object_fifo('a', shim, mem, 2, T64)\nb = object_fifo('b', one, two, 2, T64)\nobject_fifo_link(a, b)",
        MLIRError,
        "must have a link point",
    ),
    "outputs at two tiles": (
        (
            "a = object_fifo('a', shim, mem, 2, T256)\nb = object_fifo('b', mem, one, 2, T64)\n"
            "c = object_fifo('c', tile(1, 1), two, 2, T64)\nobject_fifo_link(a, [b, c], [], [0, 64])"
        ),
        MLIRError,
        "must have a link point",
    ),
    "two links": (
        (
            "a = object_fifo('a', shim, mem, 2, T64)\nb = object_fifo('b', mem, one, 2, T64)\n"
            "c = object_fifo('c', mem, two, 2, T64)\nobject_fifo_link(a, b)\nobject_fifo_link(a, c)"
        ),
        MLIRError,
        "a is in another link already",
    ),
    "join offsets": (
        (
            "p = [object_fifo(f'p{r}', tile(0, 2 + r), mem, 2, T64) for r in range(4)]\n"
            "w = object_fifo('w', mem, shim, 2, T256)\nobject_fifo_link(p, w, [0, 64, 128])"
        ),
        MLIRError,
        r"src offsets must be equal to the number of input objectFifos \(4\), found 3",
    ),
    "join with dst": (
        (
            "p = [object_fifo(f'p{r}', tile(0, 2 + r), mem, 2, T64) for r in range(2)]\n"
            "w = object_fifo('w', mem, shim, 2, T256)\nobject_fifo_link(p, w, [0, 64], [0])"
        ),
        MLIRError,
        "dst offsets should be empty for join",
    ),
    "distribute offsets": (
        (
            "p = [object_fifo(f'p{r}', mem, tile(0, 2 + r), 2, T64) for r in range(2)]\n"
            "w = object_fifo('w', shim, mem, 2, T256)\nobject_fifo_link(w, p)"
        ),
        MLIRError,
        r"dst offsets must be equal to the number of output objectFifos \(2\), found 0",
    ),
    "distribute repeats": (
        (
            "p = [object_fifo(f'p{r}', mem, tile(0, 2 + r), 2, T64) for r in range(2)]\np[0].set_repeat_count(2)\n"
            "w = object_fifo('w', shim, mem, 2, T256)\nobject_fifo_link(w, p, [], [0, 64])"
        ),
        MLIRError,
        "repeat counts of output object FIFOs must be equal",
    ),
    "join at a core": (
        (
            "p = [object_fifo(f'p{r}', tile(1, 2 + r), one, 2, T64) for r in range(2)]\n"
            "w = object_fifo('w', one, shim, 2, T256)\nobject_fifo_link(p, w, [0, 64])"
        ),
        MLIRError,
        r"join and distribute are available on mem tiles only, found core\(0,2\)",
    ),
    "many to many": (
        (
            "a = [object_fifo(f'a{r}', tile(0, 2 + r), mem, 2, T64) for r in range(2)]\n"
            "b = [object_fifo(f'b{r}', mem, tile(0, 4 + r), 2, T64) for r in range(2)]\nobject_fifo_link(a, b)"
        ),
        MLIRError,
        "does not support 'join' and 'distribute' at the same time",
    ),
    # Core programs
    "consume elsewhere": (
        core("out.acquire(ObjectFifoPort.Consume, 1)"),
        MLIRError,
        r"consumer port of objectFifo out accessed by core running on non-consumer tile core\(0,2\)",
    ),
    "produce elsewhere": (
        core("fifo.acquire(ObjectFifoPort.Produce, 1)"),
        MLIRError,
        "producer port of objectFifo fifo accessed by core running on non-producer tile",
    ),
    "release elsewhere": (core("fifo.release(ObjectFifoPort.Produce, 1)"), MLIRError, "non-producer tile"),
    "acquire 0": (core("fifo.acquire(ObjectFifoPort.Consume, 0)"), MLIRError, "at least one object, found 0"),
    "port 5": (core("fifo.acquire(5, 1)"), ValueError, "5 is not a valid"),
    "acquire outside": (
        "object_fifo('f', shim, one, 2, T64).acquire(ObjectFifoPort.Consume, 1)",
        MLIRError,
        "inside a core",
    ),
    "linked there": (
        (
            "a = object_fifo('a', shim, one, 2, T64)\nb = object_fifo('b', one, two, 2, T64)\nobject_fifo_link(a, b)\n"
            "@core(one)\ndef body(): a.acquire(ObjectFifoPort.Consume, 1)"
        ),
        MLIRError,
        r"a is linked at core\(0,2\); a core there cannot access it",
    ),
    "one argument": (core("k(fifo.acquire(ObjectFifoPort.Consume, 1))"), ValueError, "Expected 2 arguments, but got 1"),
    "three arguments": (core("k(1, 2, 3)"), ValueError, "Expected 2 arguments, but got 3 arguments"),
    "an integer for an array": (core("k(1, 2)"), ValueError, "argument 0: expected memref<64xi8>, found 1"),
    "a string": (core("k('x', 2)"), ValueError, "expected a value of the module, found str"),
    "a float": (core("k(fifo.acquire(ObjectFifoPort.Consume, 1), 1.5)"), ValueError, "found float"),
    "another type": (
        (
            "other = object_fifo('other', shim, one, 2, T256)\n@core(one)\n"
            "def body(): k(other.acquire(ObjectFifoPort.Consume, 1), 1)"
        ),
        MLIRError,
        "operand type mismatch: expected operand type memref<64xi8>, but provided memref<256xi8> for operand number 0",
    ),
    "too large a constant": (
        core("k(fifo.acquire(ObjectFifoPort.Consume, 1), 2**32)"),
        ValueError,
        "4294967296 does not fit i32",
    ),
    "unsigned constant": (
        "u = external_func('u', inputs=[np.uint8])\n@core(one)\ndef body(): u(1)",
        MLIRError,
        "integer return type must be signless",
    ),
    "call outside": ("k(1, 2)", ValueError, "argument 0"),
    "loop of floats": (core("for _ in range_(1.5): pass"), ValueError, "can only use integer types"),
    "loop of step 0": (core("for _ in range_(0, 4, 0): pass"), MLIRError, "constant step operand must be positive"),
    "broken loop": (core("for _ in range_(4): break"), MLIRError, "a loop was left in the middle"),
    "loop outside a core": ("for _ in range_(4): pass", MLIRError, "inside a core"),
    "loop in a sequence": (sequence("for _ in range_(4): pass"), MLIRError, "inside a core"),
    "carried values": (
        core("for _ in range_(4, iter_args=[1]): pass"),
        NotImplementedError,
        "iter_args= is not supported",
    ),
    "arithmetic": (core("for i in range_(4): i + 1"), NotImplementedError, "do not compute"),
    "a value as condition": (core("for i in range_(4):", "    if i: pass"), NotImplementedError, "do not compute"),
    "load of an object": (core("fifo.acquire(ObjectFifoPort.Consume, 1)[0]"), NotImplementedError, "do not compute"),
    "slice": ("b = buffer(one, I64, 'b')\n@core(one)\ndef body(): b[0:2]", ValueError, "slicing not supported"),
    "two indices": ("b = buffer(one, I64, 'b')\n@core(one)\ndef body(): b[0, 1]", ValueError, "slicing not supported"),
    "a far buffer": (
        "b = buffer(tile(4, 4), I64, 'b')\n@core(one)\ndef body(): b[0]",
        MLIRError,
        r"the core on core\(0,2\) cannot reach a buffer of core\(4,4\)",
    ),
    "a far buffer as argument": (
        ("b = buffer(tile(4, 4), T64, 'b')\nf = external_func('f', inputs=[T64])\n@core(one)\ndef body(): f(b)"),
        MLIRError,
        r"func.call: the core on core\(0,2\) cannot reach a buffer of core\(4,4\)",
    ),
    "a shim buffer": ("buffer(shim, I64, 'b')", MLIRError, "a shim tile has no memory"),
    "a far lock": (
        "gate = lock(tile(2, 2), init=0)\n@core(one)\ndef body(): use_lock(gate, LockAction.Acquire)",
        MLIRError,
        "cannot reach a lock",
    ),
    "lock value 64": ("lock(one, init=64)", MLIRError, "init is 0 to 63, found 64"),
    "lock position": ("lock(one, 0)", TypeError, "positional"),
    "lock keyword": ("lock(one, value=0)", TypeError, "unexpected keyword argument 'value'"),
    "lock action": ("g = lock(one)\n@core(one)\ndef body(): use_lock(g, 7)", ValueError, "7 is not a valid LockAction"),
    "lock of a tile": ("@core(one)\ndef body(): use_lock(one, LockAction.Acquire)", MLIRError, "expected an aie.lock"),
    "cast": (
        (
            "from aie.dialects.arith import IndexCastOp\nfrom aie.ir import IntegerType\nb = buffer(one, I64, 'b')\n"
            "@core(one)\ndef body(): IndexCastOp(IntegerType.get_signless(32), b[0])"
        ),
        MLIRError,
        "expected an index and an integer",
    ),
    # Sequences
    "sequence arity": ("@runtime_sequence(T64, T64)\ndef s(A): pass", TypeError, "takes 1 positional argument but 2"),
    "another device": (
        sequence("npu_load_pdi(device_ref='other')"),
        MLIRError,
        "device_ref names other, the device is main",
    ),
    "pdi position": (sequence("npu_load_pdi('main')"), TypeError, "positional"),
    "pdi of nothing": (sequence("npu_load_pdi()"), NotImplementedError, "name the device"),
    "pdi outside": ("npu_load_pdi(device_ref='main')", MLIRError, "belongs in a runtime sequence"),
    "await without token": (
        sequence("t = shim_dma_single_bd_task(fifo, A, sizes=[1, 1, 1, 64])", "dma_start_task(t)", "dma_await_task(t)"),
        MLIRError,
        "Cannot wait on a BD that is not configured to issue a token: the task on fifo needs issue_token=True",
    ),
    "await nothing": (sequence("dma_await_task()"), ValueError, "at least one task"),
    "start nothing": (sequence("dma_start_task()"), ValueError, "at least one task"),
    "free nothing": (sequence("dma_free_task()"), ValueError, "at least one task"),
    "start a number": (sequence("dma_start_task(5)"), TypeError, "expected a value of the module, found int"),
    "start a list": (sequence("dma_start_task([])"), TypeError, "found list"),
    "start a lock": (sequence("dma_start_task(go)"), MLIRError, "expected a task, found aie.lock"),
    "task keyword": (
        sequence("shim_dma_single_bd_task(fifo, A, size=[1])"),
        TypeError,
        "unexpected keyword argument 'size'",
    ),
    "start keyword": (sequence("dma_start_task(wait=True)"), TypeError, "unexpected keyword argument 'wait'"),
    "inner FIFO": (
        sequence("shim_dma_single_bd_task(inner, A, sizes=[1, 1, 1, 64])"),
        MLIRError,
        "no end on a shim tile",
    ),
    "FIFO of no name": (sequence("shim_dma_single_bd_task(None, A)"), TypeError, "expected a name, found NoneType"),
    "unknown name": (sequence("shim_dma_single_bd_task('none', A, sizes=[1, 1, 1, 64])"), MLIRError, "has no none"),
    "memory of a buffer": (
        sequence("shim_dma_single_bd_task(fifo, counts, sizes=[1, 1, 1, 64])"),
        MLIRError,
        "expected an argument of the sequence, found aie.buffer",
    ),
    "memory of nothing": (
        sequence("shim_dma_single_bd_task(fifo, None, sizes=[1, 1, 1, 64])"),
        TypeError,
        "found NoneType",
    ),
    "ranks differ": (
        sequence("shim_dma_single_bd_task(fifo, A, sizes=[1, 64], strides=[0, 0, 1])"),
        MLIRError,
        r"expected the same number of sizes \(4\) and strides \(5\)",
    ),
    "no strides for two sizes": (
        sequence("shim_dma_bd(A, sizes=[1, 64])"),
        MLIRError,
        r"expected the same number of sizes \(2\) and strides \(4\)",
    ),
    "five dimensions": (
        sequence("shim_dma_single_bd_task(fifo, A, sizes=[1, 1, 1, 1, 64], strides=[0, 0, 0, 0, 1])"),
        ValueError,
        "expected at most 4 sizes, found 5",
    ),
    "another length": (
        sequence("shim_dma_single_bd_task(fifo, A, sizes=[4, 1, 1, 64], strides=[64, 0, 0, 1], transfer_len=256)"),
        MLIRError,
        r"does not match length of transfer expressed by lowest three dimensions.*\(256 and 64 elements\)",
    ),
    "negative": (
        sequence("shim_dma_single_bd_task(fifo, A, offset=-4, sizes=[1, 1, 1, 64])"),
        MLIRError,
        "offset, sizes and strides are not negative",
    ),
    "floats": (sequence("shim_dma_single_bd_task(fifo, A, sizes=[1, 1, 1, 64 / 1])"), TypeError, "found float"),
    "tap and sizes": (
        "from aie.helpers.taplib import TensorAccessPattern\n"
        + sequence("shim_dma_single_bd_task(fifo, A, TensorAccessPattern((256,), 0, [64], [1]), sizes=[64])"),
        ValueError,
        "either a TensorAccessPattern OR",
    ),
    "tap offset": (
        "from aie.helpers.taplib import TensorAccessPattern\nTensorAccessPattern((16, 16), 256, [4], [1])",
        ValueError,
        "inside the tensor of 256 elements, found 256",
    ),
    "tap size": (
        "from aie.helpers.taplib import TensorAccessPattern\nTensorAccessPattern((256,), 0, [0], [1])",
        ValueError,
        "every size must be at least 1",
    ),
    "tap stride": (
        "from aie.helpers.taplib import TensorAccessPattern\nTensorAccessPattern((256,), 0, [4], [-1])",
        ValueError,
        "no stride may be negative",
    ),
    "a chain of descriptors": (
        sequence("with bds(dma_configure_task_for(fifo)) as bd:", "    with bd[1]: pass"),
        NotImplementedError,
        "chains of buffer descriptors",
    ),
    "task of another sequence": (
        sequence("global t", "t = shim_dma_single_bd_task(fifo, A, sizes=[1, 1, 1, 64])")
        + "@runtime_sequence(T64)\ndef other(A): dma_start_task(t)",
        MLIRError,
        "the task on fifo belongs to another sequence",
    ),
    "task in a core": (core("dma_configure_task_for(fifo)"), MLIRError, "belongs in a runtime sequence"),
    "parameter of no buffer": (sequence("npu_rtp_write('none', 0, 1)"), MLIRError, "the device has no none"),
    "parameter of a lock": (sequence("npu_rtp_write('go', 0, 1)"), MLIRError, "go is an aie.lock, no aie.buffer"),
    "parameter index": (sequence("npu_rtp_write('counts', -1, 1)"), ValueError, "index -1 does not fit"),
    "parameter value": (sequence("npu_rtp_write('counts', 0, 2**32)"), ValueError, "does not fit 32 bits"),
    "a parameter's buffer": (
        sequence("npu_rtp_write(counts, 0, 1)"),
        TypeError,
        "incompatible function arguments: expected the buffer's name, found buffer",
    ),
    "parameter of a float": (sequence("counts[0] = 1.0"), TypeError, "expected an integer, found float"),
    "set a tile": (sequence("set_lock_value(one, 1)"), MLIRError, "expected an aie.lock, found aie.tile"),
    "use_lock in a sequence": (sequence("use_lock(go, LockAction.Acquire)"), MLIRError, "inside a core"),
    # What designs of elfkiln do not have
    "init values of one number": (
        "object_fifo('f', one, two, 1, T64, initValues=5)",
        TypeError,
        "initValues: expected a list of arrays, found int",
    ),
    "a buffer's values": (
        "buffer(one, I64, 'b', initial_value=np.zeros(64, np.int8))",
        ValueError,
        r"expected values of memref<64xi32>, found an array of i8 and shape \(64,\)",
    ),
    "a buffer's list": ("buffer(one, I64, 'b', initial_value=(1,))", TypeError, "expected a numpy array, found tuple"),
    "a fraction": ("b = buffer(one, I64, 'b')\n@core(one)\ndef body(): b[0] = 0.5", NotImplementedError, "of floats"),
    "a chain": (
        sequence(
            "task = dma_configure_task_for(fifo)",
            "with bds(task) as bd:",
            "    with bd[0]:",
            "        next_bd(bd[1])",
        ),
        NotImplementedError,
        "chains of buffer descriptors are not supported",
    ),
    "next_bd": ("next_bd(None)", NotImplementedError, "next_bd is not supported by elfkiln's aie"),
    "an enumeration": ("DMAChannelDir.MM2S", NotImplementedError, "DMAChannelDir is not supported by elfkiln's aie"),
    "column 4 of four": (
        (
            "from aie.dialects import aie as d\n"
            "with mlir_mod_ctx():\n"
            "    @device(AIEDevice.npu2_4col)\n"
            "    def narrow(): tile(4, 2)"
        ),
        MLIRError,
        r"column index \(4\) must be less than the number of columns in the device \(4\)",
    ),
    "flow": ("flow(one, two)", NotImplementedError, "flow is not supported by elfkiln's aie"),
    "logical tile": ("logical_tile(0)", NotImplementedError, r"name the place with tile\(col, row\)"),
    "memcpy": (sequence("npu_dma_memcpy_nd(fifo, 0, A)"), NotImplementedError, "npu_dma_memcpy_nd is not supported"),
    "init values": (
        "object_fifo('f', one, two, 1, T64, initValues=[[0]])",
        ValueError,
        r"expected values of memref<64xi8>, found an array of i32 and shape \(1,\)",
    ),
    "allocate": ("object_fifo('f', one, two, 1, T64).allocate(one)", NotImplementedError, "allocate is not supported"),
    "iron": ("from aie.iron import Program", ImportError, "aie.iron.Program is not supported by elfkiln's aie: write"),
    "tiler": (
        "from aie.helpers.taplib import TensorTiler2D",
        ImportError,
        "aie.helpers.taplib.TensorTiler2D is not su",
    ),
    "if": ("from aie.helpers.dialects.scf import if_", ImportError, "aie.helpers.dialects.scf.if_ is not supported"),
    "memref": ("from aie.extras.dialects import memref", ImportError, "aie.extras.dialects.memref is not supported"),
    "f64": ("from aie.extras import types as T; T.f64()", ImportError, "aie.extras.types.f64 is not supported"),
    "preempt": (sequence("npu_preempt(1)"), NotImplementedError, "npu_preempt is not supported by elfkiln's aie"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_misuse_is_refused_as_the_real_package_refuses_it(case):
    lines, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message) as refusal:
        run(lines)
    assert type(refusal.value) is kind
    assert "\n" not in str(refusal.value)


def test_nothing_is_built_outside_of_a_context():
    from aie.dialects.aie import AIEDevice, device, tile

    with pytest.raises(RuntimeError, match="no module is under construction"):
        tile(0, 0)
    with pytest.raises(RuntimeError, match="no module is under construction"):
        device(AIEDevice.npu2)(lambda: None)


def test_a_failed_generator_leaves_nothing_under_construction():
    with pytest.raises(MLIRError):
        run(core("tile(0, 4)"))
    from aie.dialects.aie import tile

    with pytest.raises(RuntimeError, match="no module is under construction"):
        tile(0, 0)
    assert run("pass").count("aie.tile") == 4


def test_other_devices_are_refused():
    from aie.dialects.aie import AIEDevice, device
    from aie.extras.context import mlir_mod_ctx

    for name in ("npu1", "npu1_4col", "xcve2802"):
        with pytest.raises(NotImplementedError, match=f"AIEDevice.{name}: elfkiln builds for npu2"):
            getattr(AIEDevice, name)
    assert not hasattr(AIEDevice, "npu2_8col")
    with mlir_mod_ctx(), pytest.raises(ValueError, match="4 is not a valid AIEDevice"):
        device(4)


def test_a_tile_belongs_in_a_device():
    from aie.dialects.aie import tile
    from aie.extras.context import mlir_mod_ctx

    with mlir_mod_ctx(), pytest.raises(MLIRError, match=r"aie.tile: expects parent op aie\.device"):
        tile(0, 0)


def test_a_module_is_printed_when_it_is_finished():
    with pytest.raises(MLIRError, match="the module is unfinished: print it after the device's function has ended"):
        run("print(ctx.module)")
    with pytest.raises(MLIRError, match="the module is unfinished"):
        run(core("ctx.module.operation.verify()"))


def test_a_symbol_may_come_after_its_use():
    lines = "object_fifo_link('into', 'onto')\nobject_fifo('into', shim, mem, 2, T64)\n"
    assert "aie.objectfifo.link" in run(lines + "object_fifo('onto', mem, one, 2, T64)")
    # Checked when the module is printed: the join has no offsets.
    late = "object_fifo_link(['a', 'b'], 'c')\nobject_fifo('a', one, mem, 2, T64)\nobject_fifo('b', two, mem, 2, T64)\n"
    with pytest.raises(MLIRError, match="number of provided src offsets must be equal"):
        run(late + "object_fifo('c', mem, shim, 2, T256)")


@pytest.mark.parametrize(
    "lines",
    [
        # Lint's business: the real package takes these.
        sequence("dma_start_task(shim_dma_single_bd_task(fifo, A, offset=999, sizes=[1, 1, 1, 64]))"),
        sequence(
            "t = shim_dma_single_bd_task(fifo, A, sizes=[1, 1, 1, 63])", "dma_start_task(t, t)", "dma_free_task(t)"
        ),
        sequence("shim_dma_single_bd_task(fifo, A, sizes=[99, 1024, 1, 64], strides=[1, 1, 1, 1])"),
        sequence("npu_rtp_write('counts', 99, 1)"),
        (
            "p = [object_fifo(f'p{r}', tile(0, 2 + r), mem, 2, T64) for r in range(2)]\n"
            "w = object_fifo('w', mem, shim, 2, T256)\nobject_fifo_link(p, w, [0, 192])"
        ),
        "object_fifo('f', mem, one, 2, np.ndarray[(512,), np.dtype[np.int8]], [(512, 1)])",
        "object_fifo('f', one, mem, 99, np.ndarray[(65536,), np.dtype[np.int8]])",
        core("fifo.release(ObjectFifoPort.Consume, 9)"),
    ],
)
def test_what_the_real_package_leaves_undiagnosed_is_left_to_lint(lines):
    assert run(lines).startswith('"builtin.module"')
