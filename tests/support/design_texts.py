"""Design texts that the reader's tests and lint's edit, and what refuses each."""

from __future__ import annotations

import re
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "iron"


def recorded(name, date="2026-08"):
    return (EXAMPLES / f"{name}.{date}.generic.mlir").read_text()


COPY = recorded("copy_one_core")


RTP = recorded("sequences_rtp")


def edited(old, new, text=COPY, count=1):
    assert old in text
    return text.replace(old, new, count)


SECOND_DEVICE = COPY[COPY.index('  "aie.device"') : COPY.rindex("}) : () -> ()")].replace('"main"', '"other"', 1)


REFUSED = {
    "nothing": ("", 'expected generic MLIR ("builtin.module"'),
    "a comment": ("// nothing\n", "found nothing"),
    "words": ("hello world", "line 1: hello is not an operation that elfkiln reads"),
    "an ELF": ("\x7fELF\x01\x01", "line 1: not MLIR"),
    "pretty": ("module {\n  aie.device(npu2) {\n  }\n}\n", "found the pretty form; print it with print(ctx.module"),
    "pretty with attributes": ("// made\n#map = affine_map<()->()>\nmodule attributes {a} {}", "found the pretty form"),
    "pretty device": ("  aie.device(npu2) {\n  }\n", "--mlir-print-op-generic"),
    "cut in a string": (
        COPY[: COPY.index("relay_i8") + 3],
        "a string is not closed or has an unknown escape; the text was cut",
    ),
    "cut in a line": (COPY[: COPY.index("static_len")], "the text ends in the middle of the module; it was cut off"),
    "cut at a line": (COPY[: COPY.index('    "aie.objectfifo.link"')], "the text ends in the middle of the module"),
    "cut before the end": (COPY.rstrip()[:-10], "the text ends in the middle of the module"),
    "text after it": (COPY + "done\n", "line 49: done is not an operation that elfkiln reads"),
    "twice": (COPY + COPY, "expected nothing but an aie.device in the module, found builtin.module"),
    "unknown operation": (edited("aie.objectfifo.link", "aie.cascade_flow"), "line 10: aie.cascade_flow is not"),
    "unknown dialect": (edited("scf.for", "vector.transfer_read"), "vector.transfer_read is not an operation"),
    "unknown attribute": (edited("#aie<bd_dim_layout_array[]>", "#aie<packet_info[]>"), "'aie.packet_info' is not reg"),
    "no device": ('"builtin.module"() ({\n}) : () -> ()', "expected one aie.device, found none"),
    "empty block": ('"builtin.module"() ({\n^bb0:\n}) : () -> ()', "expected one aie.device, found none"),
    "two devices": (
        COPY[: COPY.rindex("}) : () -> ()")] + SECOND_DEVICE + "}) : () -> ()\n",
        "found 2; write one design",
    ),
    "another device": (
        edited("device = 8", "device = 4"),
        "expected npu2 (8) or some of its columns (9 to 15), found device 4",
    ),
    "a top constant": (
        edited(
            '    %0 = "aie.tile"', '    %900 = "arith.constant"() <{value = 0 : i32}> : () -> i32\n    %0 = "aie.tile"'
        ),
        "arith.constant does not belong at the top of a device",
    ),
    "arguments of the device": (
        edited('({\n    "func', '({\n^bb0(%z: index):\n    "func'),
        "takes no arguments, found 1",
    ),
    "arguments of a core": (
        edited("({\n      %6", "({\n^bb0(%z: index):\n      %6"),
        "aie.core: its body takes no arg",
    ),
    "huge memref": (COPY.replace("<4096xi8>", "<99999999999999999999xi8>"), "expected at most 17179869180 bytes"),
    "huge product": (COPY.replace("<4096xi8>", "<999999x999999xi8>"), "expected at most 17179869180 bytes"),
    "huge number": (edited("static_len = 4096", "static_len = 99999999999"), "out of range for type i32"),
    "endless number": (edited("static_len = 4096", f"static_len = {'9' * 5000}"), "not MLIR that elfkiln reads"),
    "huge integer type": (edited("4294967295 : index", "1 : i2147483647"), "type expected"),
    "huge constant": (
        edited("value = 0 : index", "value = dense<0> : tensor<99999999999xi32>"),
        "a dense constant of more than 524288 elements fits no tile",
    ),
    "deep operations": ('"builtin.module"() ({' + '"scf.for"() ({' * 5000, "nested too deep to be a design"),
    "deep attributes": (edited('link_with = "relay.o"', "link_with = " + "[" * 50000), "nested too deep"),
    "too long": ("//" + "x" * (16 * 2**20), "expected at most 16777216 characters"),
    "halves": (
        COPY.replace("xi8>", "xf16>"),
        "i8, ui8, i16, ui16, i32, ui32, bf16, f32, i64, found f16",
    ),
    "f64 elements": (COPY.replace("xi8>", "xf64>"), "found f64"),
    "a dynamic shape": (COPY.replace("<1024xi8>", "<?xi8>"), "expected a memref of fixed sizes"),
    "a memory space": (
        COPY.replace("<4096xi8>", "<4096xi8, 1 : i32>"),
        "sequence seq: argument 0: expected a memref of",
    ),
    "no dimension": (COPY.replace("<4096xi8>", "<0xi8>"), "sequence seq: argument 0: expected a memref of fixed"),
    "a negative offset": (
        edited("static_offset = 0", "static_offset = -4"),
        "task 0 on into_mem: offset: expected no neg",
    ),
    "a negative stride": (
        edited("i64: 0, 0, 1024", "i64: 0, 0, -1024"),
        "sizes and strides: expected no negative number",
    ),
    "five dimensions": (
        edited("i64: 1, 1, 4, 1024", "i64: 1, 1, 1, 4, 1024"),
        "expected up to 4 sizes and as many strides, found 5 and 4",
    ),
    "sizes of another type": (
        edited("sizes = array<i64", "sizes = array<i32"),
        "aie.dma_bd: Expected attribute i64 but got i32",
    ),
    "an undefined value": (edited('start_task"(%4)', 'start_task"(%99)'), "values used but not defined: [%99]"),
    "a core as a task": (edited('start_task"(%4)', 'start_task"(%3)'), "expected a task, found aie.core"),
    "a task before its configuration": (
        edited(
            '      "aiex.npu.load_pdi"', '      "aiex.dma_start_task"(%5) : (index) -> ()\n      "aiex.npu.load_pdi"'
        ),
        "sequence seq: a task is used before it is configured",
    ),
    "await without token": (
        edited("issue_token = true", "issue_token = false"),
        "the task on out needs issue_token=True",
    ),
    "a task of two descriptors": (
        re.sub(r'(        "aie.dma_bd"[^\n]*\n)', r"\1\1", COPY, count=1),
        "task 0 on into_mem: expected one aie.dma_bd and aie.end, found 3",
    ),
    "a task without end": (
        edited('        "aie.end"() : () -> ()\n      }) : () -> index', "      }) : () -> index"),
        "aie.dma_bd terminates block",
    ),
    "a descriptor of no argument": (
        edited('"aie.dma_bd"(%arg0)', '"aie.dma_bd"(%6)', RTP.replace("memref<4096xi8>", "memref<2xi32>")).replace(
            "(%6) <{burst", "(%6) <{burst", 1
        ),
        "expected an argument of the sequence, found aie.buffer",
    ),
    "run-time sizes": (
        edited('"aie.dma_bd"(%arg0)', '"aie.dma_bd"(%arg0, %arg0)').replace(
            "0, 0, 1024, 1>}> : (memref<4096xi8>)", "0, 0, 1024, 1>}> : (memref<4096xi8>, memref<4096xi8>)", 1
        ),
        "offset, length, sizes and strides must be constants",
    ),
    "a missing property": (edited("col = 0 : i32, ", ""), "property 'col' expected in operation 'aie.tile'"),
    "an unknown property": (
        edited("col = 0 : i32", "col = 0 : i32, speed = 9 : i32"),
        "property 'speed' is not defined",
    ),
    "a property of another type": (edited("col = 0 : i32", 'col = "west"'), 'aie.tile: "west" should be of base attr'),
    "a row too far": (edited("row = 2 : i32", "row = 6 : i32"), "row index (6) must be less than the number of rows"),
    "a negative column": (edited("col = 0 : i32", "col = -1 : i32"), "column index (-1)"),
    "a core on a mem tile": (
        edited('"aie.core"(%2)', '"aie.core"(%1)'),
        "cannot be created on a mem tile, found mem(0,1)",
    ),
    "a core without end": (
        edited('      "aie.end"() : () -> ()\n    }) : (index) -> index', "    }) : (index) -> index"),
        "scf.for terminates block",
    ),
    "a symbol twice": (edited('sym_name = "out"', 'sym_name = "into_mem"'), "into_mem"),
    "no such kernel": (edited("callee = @relay_i8", "callee = @nope"), "nope"),
    "a FIFO as kernel": (edited("callee = @relay_i8", "callee = @out"), "out"),
    "another device's image": (
        edited("device_ref = @main", "device_ref = @other"),
        "device_ref names other, the device is",
    ),
    "a FIFO without a shim end": (edited("alloc = @into_mem", "alloc = @into_core"), "has no end on a shim tile"),
    "the wrong port": (edited("@out, port = 0", "@out, port = 1"), "consumer port of objectFifo out accessed by core"),
    "no port": (edited("@out, port = 0", "@out, port = 7"), "port is 0 (Produce) or 1 (Consume), found 7"),
    "a step of zero": (edited("{value = 1 : index}", "{value = 0 : index}"), "constant step operand must be positive"),
    "a name for no file": (edited('sym_name = "seq"', 'sym_name = "a b"'), "expected a plain name of at most 128"),
    "a kernel's name that is code": (
        COPY.replace("relay_i8", "relay);system(").replace("@relay);system(", '@"relay);system("'),
        "expected a plain name of at most 128 characters",
    ),
    "a long name": (edited('sym_name = "seq"', f'sym_name = "{"s" * 129}"'), "expected a plain name of at most 128"),
    "a value of another core": (edited("(%68)", "(%48)", RTP), "expected a value made before it in the same program"),
    "a lock as parameter": (edited("buffer = @counts_0", "buffer = @go_0", RTP), "go_0 is an aie.lock, no aie.buffer"),
    "two values": (
        edited("index = 0 : ui32}> : (i32)", "index = 0 : ui32, value = 1 : i32}> : (i32)", RTP),
        "expected one value, as an operand or as a property",
    ),
    "a tile as lock": (
        edited('"aiex.set_lock"(%7)', '"aiex.set_lock"(%4)', RTP),
        "expected an aie.lock, found aie.tile",
    ),
    "a far lock": (
        edited('"aie.use_lock"(%7, %58)', '"aie.use_lock"(%9, %58)', RTP),
        "cannot reach a lock of core(1,2)",
    ),
}
