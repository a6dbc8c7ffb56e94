"""Puts full ELFs together the way aiebu does, from a PDI and instruction streams: the tests' own second opinion.

Written from aiebu's sources and the seen bytes, without elfkiln's reader; the example ELFs come out byte for byte.
"""

from __future__ import annotations

import hashlib
import struct

from elftools.elf.elffile import ELFFile

from elfkiln.design.model import AwaitTask, LoadPdi, RtpWrite, SetLock, StartTask

VERSION, SHAPE = 0x06040100, 0x108


def parts(path) -> tuple[bytes, bytes]:
    """The PDI and the instruction stream of a file with one instance."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        return elf.get_section_by_name(".pdi.1").data(), elf.get_section_by_name(".ctrltext.0").data()


def assemble(
    pdi: bytes,
    streams,
    *,
    kernel: str = "main",
    arguments: int = 3,
    abi: int = 33,
    scheme: str = "all",
    symbol: str | None = None,
    uid: bytes | None = None,
    columns: int = 8,
) -> bytes:
    """Return a full ELF of one kernel; `streams` is a list of (instance name, stream bytes)."""
    strings = [symbol or f"_Z{len(kernel)}{kernel}" + "Pc" * arguments] + [name for name, _ in streams]
    strtab = b"\0" + b"".join(s.encode() + b"\0" for s in strings)
    symtab = [struct.pack("<IIIBBH", 0, 0, 0, 0, 0, 0), struct.pack("<IIIBBH", 1, 0, 0, 0x22, 0, 0)]
    at = 1 + len(strings[0]) + 1
    for name, _ in streams:
        symtab.append(struct.pack("<IIIBBH", at, 0, 0, 0x21, 0, 1))
        at += len(name) + 1
    names = ["", ".shstrtab", ".strtab", ".symtab", ".pdi.1"]
    for i in range(len(streams)):
        names.append(f".ctrltext.{i}")
        if i == 0:
            names += [".dynstr", ".dynsym", ".rela.dyn", ".dynamic"]
        names.append(f".group.{i}")
    names += [".note.xrt.configuration", ".note.xrt.UID"]
    index = {name: i for i, name in enumerate(names)}
    dynstr, dynsym, rela = b"\0", [struct.pack("<IIIBBH", 0, 0, 0, 0, 0, 0)], b""
    for i, (_, stream) in enumerate(streams):
        known = {}
        for offset, kind, name, size, addend in relocations(stream):
            if (name, size) not in known:
                known[name, size] = len(dynsym)
                dynsym.append(struct.pack("<IIIBBH", len(dynstr), 0, size, 0x11, 0, index[f".ctrltext.{i}"]))
                dynstr += name.encode() + b"\0"
            rela += struct.pack("<III", offset, known[name, size] << 8 | kind, addend)
    digest = hashlib.md5()
    if scheme == "all":
        digest.update(pdi)
    for _, stream in streams:
        digest.update(stream)
    content = {
        "": b"",
        ".shstrtab": b"".join(n.encode() + b"\0" for n in names),
        ".strtab": strtab,
        ".symtab": b"".join(symtab),
        ".pdi.1": pdi,
        ".dynstr": dynstr,
        ".dynsym": b"".join(dynsym),
        ".rela.dyn": rela,
        ".dynamic": struct.pack("<4I", 7, index[".rela.dyn"], 8, len(rela)),
        ".note.xrt.configuration": struct.pack("<III4sI", 4, 4, 6, b"XRT", columns),
        ".note.xrt.UID": struct.pack("<III4s", 4, 16, 4, b"XRT") + (uid or digest.digest()),
    }
    for i, (_, stream) in enumerate(streams):
        content[f".ctrltext.{i}"] = stream
        content[f".group.{i}"] = struct.pack("<II", 1, index[f".ctrltext.{i}"])
    form = {
        "": (0, 0, 0, 0, 0, 0),
        ".shstrtab": (3, 0, 0, 0, 1, 0),
        ".strtab": (3, 0, 0, 0, 0, 0),
        ".symtab": (2, 0, 2, 1, 4, 16),
        ".pdi.1": (1, 6, 0, 0, 16, 0),
        ".dynstr": (3, 0, 0, 0, 0, 0),
        ".dynsym": (11, 0, index[".dynstr"], 1, 8, 16),
        ".rela.dyn": (4, 0, index[".dynsym"], 0, 8, 12),
        ".dynamic": (6, 0, index[".dynstr"], 0, 8, 8),
        ".note.xrt.configuration": (7, 0, 0, 0, 1, 0),
        ".note.xrt.UID": (7, 0, 0, 0, 1, 0),
    }
    loaded = [n for n in names if n == ".pdi.1" or n.startswith(".ctrltext")]
    file = bytearray(52 + 32 * (1 + len(loaded)))
    offsets, addresses, address = {"": 0}, {}, 0
    for name in loaded:
        file += bytes(-len(file) % 16)
        offsets[name], addresses[name] = len(file), address
        file += content[name]
        address = (address + len(content[name]) + 15) & ~15
    for name in names[1:]:
        if name not in offsets:
            align = 16 if name.startswith(".group") else form[name][4]
            file += bytes(-len(file) % max(1, align))
            offsets[name] = len(file)
            file += content[name]
    file += bytes(-len(file) % 16)
    table = len(file)
    at = 0
    for i, name in enumerate(names):
        if name.startswith(".ctrltext"):
            kind = (1, 6, 0, 0, 16, 0)
        elif name.startswith(".group"):
            kind = (17, 0, 3, 2 + int(name.rsplit(".", 1)[1]), 16, 4)
        else:
            kind = form[name]
        type_, flags, link, info, align, entry = kind
        head = (at if i else 0, type_, flags, addresses.get(name, 0), offsets[name], len(content[name]))
        file += struct.pack("<10I", *head, link, info, align, entry)
        at += len(name) + 1
    segments = [(6, 52, 0, 0, 32 * (1 + len(loaded)), 32 * (1 + len(loaded)), 4, 0)]
    for n in loaded:
        size = len(content[n])
        segments.append((1, offsets[n], addresses[n], 0, size, size, 5, 16))
    for i, row in enumerate(segments):
        struct.pack_into("<8I", file, 52 + 32 * i, *row)
    ident = b"\x7fELF" + bytes((1, 1, 1, 69, abi)) + bytes(7)
    header = struct.pack("<HHIIIIIHHHHHH", 2, 1, 1, 0, 52, table, 0, 52, 32, len(segments), 40, len(names), 1)
    file[:52] = ident + header
    return bytes(file)


def relocations(stream: bytes):
    """Yield (offset, type, symbol name, symbol size, addend) of what the loader patches in a stream."""
    words = struct.unpack(f"<{len(stream) // 4}I", stream)
    at, written = 4, {}
    while at < len(words):
        code = words[at] & 0xFF
        if code == 8:
            yield 4 * (at + 2), 8, f".pdi.{words[at] >> 16}", 0, 0
            at += 4
        elif code == 1:
            written[words[at + 2]] = (4 * (at + 4), 4 * words[at + 4])
            if words[at + 3] < 20:
                raise KeyError("a block write of no words has no end")
            at += words[at + 3] // 4
        elif code == 0x81:
            offset, size = written[words[at + 6] & ~0xF]
            yield offset, 5, str(words[at + 8]), size, words[at + 10]
            at += 12
        else:
            at += {0: 6, 3: 7, 0x80: 4}[code]


LOAD_PDI = (0x00010008, 0, 0, 0)


def stream_of(operations) -> bytes:
    """A stream of operations, each a tuple of words."""
    words = [word for operation in operations for word in operation]
    head = (VERSION, SHAPE, len(operations), 4 * (4 + len(words)))
    return struct.pack(f"<{4 + len(words)}I", *head, *words)


def task_operations(
    *, column, direction, channel, bd, argument, offset, sizes, strides, width, token=False, repeat=None
):
    """The operations of one shim task: write a descriptor, patch its address, push it into the queue.

    `sizes` and `strides` have 4 entries, outermost first, in elements of `width` bytes.
    """

    def step(stride):
        # A dimension of one has no stride; else the field holds it less one.
        return max(stride * width // 4 - 1, 0)

    base = column << 25
    length = sizes[1] * sizes[2] * sizes[3] * width // 4
    linear = sizes[1] == sizes[2] == 1
    words = [length, 0, 0, 0, 0xC0000000, 0x02000000, 0, 0x02000000]
    if not linear:
        words[3] = (sizes[3] * width // 4) << 20
        words[4] |= sizes[2] << 20 | step(strides[2])
        words[5] |= step(strides[1])
    if sizes[0] > 1:
        words[6] = (sizes[0] - 1) << 20 | step(strides[0])
    repeat = sizes[0] - 1 if repeat is None else repeat
    queue = QUEUES[direction, channel]
    register = 0x1D000 + 0x20 * bd
    push = [(0, 0, base | queue, 0, int(token) << 31 | repeat << 16 | bd, 0x18)]
    if token:
        # Tokens of a shim go to controller 15: bits 8 to 12 of the channel's control register, a word before the queue.
        push.insert(0, (3, 0, base | queue - 4, 0, 0xF00, 0x1F00, 0x1C))
    return [
        (1, 0, base | register, 0x30, *words),
        (0x81, 0x30, 0, 0, 0, 0, base | register + 4, 0, argument, 0, offset * width, 0),
        *push,
    ]


QUEUES = {("s2mm", 0): 0x1D204, ("s2mm", 1): 0x1D20C, ("mm2s", 0): 0x1D214, ("mm2s", 1): 0x1D21C}


def sync(column: int, direction: str = "s2mm", channel: int = 0) -> tuple[int, ...]:
    """The operation that waits for a token of a channel of a column's shim."""
    return (0x80, 0x10, column << 16 | (direction == "mm2s"), channel << 24 | 0x10100)


def gemm_stream(design, *, load: bool = True, places=None) -> bytes:
    """The stream of a GEMM design's first sequence: A and C on a shim's channel 0, B on 1 where A is, else 0.

    Descriptors get the lowest free id of their shim where the task is configured, as in the recorded streams.
    `places` are the addresses of named buffers and locks.
    """
    sequence = design.sequences[0]
    rows = sum(f.name.startswith("A_") and f.producer.kind == "shim" for f in design.fifos)
    operations, pushes, ids, held = [], {}, {}, {}

    def end(task):
        letter, column = task.fifo[0], int(task.fifo.rsplit("_", 1)[1])
        return column, "s2mm" if letter == "C" else "mm2s", int(letter == "B" and column < rows)

    def configure(task):
        column, direction, channel = end(task)
        taken = held.setdefault(column, set())
        bd = ids[task.number] = min(set(range(16)) - taken)
        taken.add(bd)
        made = task_operations(
            column=column,
            direction=direction,
            channel=channel,
            bd=bd,
            argument="ABC".index(task.fifo[0]),
            offset=task.offset,
            sizes=task.sizes,
            strides=task.strides,
            width=sequence.arguments[task.argument].element_bytes,
            token=task.issue_token,
        )
        operations.extend(made[:2])
        pushes[task.number] = made[2:]

    for number, step in enumerate(sequence.steps):
        for task in sequence.tasks:
            if task.configured_at == number:
                configure(task)
        if isinstance(step, LoadPdi):
            operations += [LOAD_PDI] if load else []
            continue
        if isinstance(step, RtpWrite | SetLock):
            parameter = isinstance(step, RtpWrite)
            address = places[step.buffer] + 4 * step.index if parameter else places[step.lock]
            operations.append((0, 0, address, 0, step.value, 0x18))
            continue
        task = sequence.tasks[step.task]
        if isinstance(step, StartTask):
            operations += pushes[task.number]
        else:
            if isinstance(step, AwaitTask):
                operations.append(sync(*end(task)))
            held[end(task)[0]].discard(ids[task.number])
    return stream_of(operations)
