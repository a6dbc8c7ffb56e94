"""FIFOs and links: their ends, objects, access patterns and how links join or share them out."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from math import prod

from elfkiln.design.fifo_lowering import DmaEnd, Placement, depth_at, link_tile
from elfkiln.design.model import Design, Dim, Fifo, Link
from elfkiln.hardware.limits import WORD_BYTES, limit
from elfkiln.lint.finding import Findings


def lint_fifos(design: Design, placement: Placement, findings: Findings) -> None:
    """Check every FIFO by itself, then the links."""
    _names(design, findings)
    fifos = {fifo.name: fifo for fifo in design.fifos}
    entering = {name for link in design.links for name in link.ins}
    leaving = {name for link in design.links for name in link.outs}
    ends: dict[str, list[DmaEnd]] = {fifo.name: [] for fifo in design.fifos}
    for end in placement.ends:
        ends[end.fifo].append(end)
    for fifo in design.fifos:
        _ends(fifo, findings)
        _initial(fifo, placement, findings)
        _flows_on(fifo, entering, leaving, findings)
        _words(fifo, ends[fifo.name], findings)
        for end in ends[fifo.name]:
            _pattern(end, findings)
    seen: set[str] = set()
    for link in design.links:
        _link(link, fifos, seen, findings)


def link_name(link: Link) -> str:
    """Return how messages name a link: `link [@A] -> [@B]`."""
    ins, outs = (", ".join(f"@{name}" for name in names) for names in (link.ins, link.outs))
    return f"link [{ins}] -> [{outs}]"


def _names(design: Design, findings: Findings) -> None:
    named = [(fifo.name, "FIFO") for fifo in design.fifos]
    named += [(buffer.name, "buffer") for buffer in design.buffers]
    named += [(lock.name, "lock") for lock in design.locks]
    named += [(kernel.name, "kernel") for kernel in design.kernels]
    named += [(sequence.name, "sequence") for sequence in design.sequences]
    counts = Counter(name for name, _ in named)
    for name, kind in dict(named).items():
        if counts[name] > 1:
            findings.add("symbol", f"{kind} @{name}", "uses of the name", limit=1, value=counts[name])


def _ends(fifo: Fifo, findings: Findings) -> None:
    where = f"FIFO @{fifo.name}"
    if not fifo.consumers:
        findings.add("fifo-consumer", where, "consumers", limit="1 or more", value=0)
    if len(fifo.depths) != 1 + len(fifo.consumers):
        findings.add("fifo-depth", where, "depths", limit=1 + len(fifo.consumers), value=len(fifo.depths))
    for depth in sorted(set(fifo.depths)):
        if depth < 1:
            findings.add("fifo-depth", where, "depth", limit="1 or more", value=depth)
    if fifo.repeat_count and fifo.producer.kind == "shim":
        findings.add(
            "fifo-repeat", where, f"repeat_count at {fifo.producer}", limit="none on a shim", value=fifo.repeat_count
        )
    if fifo.iter_count:
        most = limit("fifo-iterations")
        if not 1 <= fifo.iter_count <= most.value:
            findings.add("fifo-iterations", where, "iter_count", limit=most, value=fifo.iter_count)
        if "mem" not in (fifo.producer.kind, *(consumer.kind for consumer in fifo.consumers)):
            found = ", ".join(map(str, (fifo.producer, *fifo.consumers)))
            findings.add("fifo-iterations", where, "ends of iter_count", limit="one on a mem tile", value=found)


def _initial(fifo: Fifo, placement: Placement, findings: Findings) -> None:
    if not fifo.initial:
        return
    where = f"FIFO @{fifo.name}"
    findings.add("initial-values", where, "objects with initial values", limit="none", value=len(fifo.initial))
    if fifo.producer.kind == "shim":
        findings.add("fifo-initial", where, f"initial values at {fifo.producer}", limit="none on a shim", value="some")
    elif len(fifo.initial) != depth_at(fifo, 0):
        what = "objects with initial values"
        findings.add("fifo-initial", where, what, limit=f"all {depth_at(fifo, 0)}", value=len(fifo.initial))
    elif not placement.begins(fifo.name):
        findings.add(
            "fifo-initial", where, "initial values", limit="none: its link's objects are another's", value="some"
        )
    sizes = {len(one) for one in fifo.initial} - {fifo.object_type.bytes}
    if sizes:
        bound = f"{fifo.object_type.bytes} of {fifo.object_type}"
        findings.add("fifo-initial", where, "bytes of an initial object", limit=bound, value=min(sizes))


def _words(fifo: Fifo, ends: list[DmaEnd], findings: Findings) -> None:
    """Check that every descriptor moves whole words; objects that no DMA moves may have any size."""
    odd = [
        segment.elements * end.pool.type.element_bytes
        for end in ends
        if end.tile.kind != "shim"
        for segment in end.segments
        if segment.elements * end.pool.type.element_bytes % WORD_BYTES
    ]
    if odd:
        what = f"bytes of {fifo.object_type} that a descriptor moves"
        findings.add("fifo-object", f"FIFO @{fifo.name}", what, limit=f"a multiple of {WORD_BYTES}", value=odd[0])


def _flows_on(fifo: Fifo, entering: set[str], leaving: set[str], findings: Findings) -> None:
    """Check that a mem tile, which runs no program, passes on what comes in and gives only what it got."""
    where = f"FIFO @{fifo.name}"
    if fifo.producer.kind == "mem" and fifo.name not in leaving:
        findings.add("fifo-linked", where, f"what fills it on {fifo.producer}", limit="a link", value="nothing")
    for consumer in fifo.consumers:
        if consumer.kind == "mem" and fifo.name not in entering:
            findings.add("fifo-linked", where, f"what drains it on {consumer}", limit="a link", value="nothing")


def _pattern(end: DmaEnd, findings: Findings) -> None:
    """Check what one end of a FIFO asks of the descriptors on its tile, which move one segment of an object each."""
    tile, dims = end.tile, end.dims
    where = f"FIFO @{end.fifo} {'from_stream' if end.end else 'to_stream'} at {tile}"
    width = end.pool.type.element_bytes
    if tile.kind != "shim":
        words = max((segment.elements for segment in end.segments), default=0) * width // WORD_BYTES
        if words > limit("length", tile.kind).value:
            findings.add("transfer-length", where, "words of an object", limit=limit("length", tile.kind), value=words)
    if not dims:
        return
    if tile.kind == "shim":
        findings.add("shim-dims", where, "dims on a shim end", limit="none", value=_show(dims))
        return
    if len(dims) > limit("dims", tile.kind).value:
        findings.add("dim-count", where, "dimensions", limit=limit("dims", tile.kind), value=len(dims))
    inner = max((i for i, dim in enumerate(dims) if dim.size > 1), default=len(dims) - 1)
    for position, dim in enumerate(dims):
        what = f"dimension {position} of {_show(dims)}"
        if dim.size < 1:
            findings.add("dim-size", where, f"size of {what}", limit="1 or more", value=dim.size)
            continue
        if dim.size > limit("verified-size").value:
            findings.add("dim-size", where, f"size of {what}", limit=limit("verified-size"), value=dim.size)
        words = dim.size * width // WORD_BYTES if position == inner else dim.size
        if words > limit("wrap", tile.kind).value:
            findings.add("dim-wrap", where, f"words of {what}", limit=limit("wrap", tile.kind), value=words)
        if dim.stride < 1:
            findings.add("dim-zero-stride", where, f"stride of {what}", limit="1 or more", value=dim.stride)
            continue
        step = -(-dim.stride * width // WORD_BYTES)
        if dim.size > 1 and step > limit("stride", tile.kind).value:
            findings.add(
                "dim-stride", where, f"stride in words of {what}", limit=limit("stride", tile.kind), value=step
            )
        elif dim.stride > end.pool.type.elements:
            # The verifier looks at the strides of sizes of 1 as well, and at the buffer, not at the piece.
            bound = f"at most {end.pool.type.elements:,}, the elements of the buffer"
            findings.add("dim-stride", where, f"stride of {what}", limit=bound, value=dim.stride)
        if dim.size > 1:
            size = dim.size if position == inner else dim.stride
            if (size * width) % WORD_BYTES:
                kind = "size" if position == inner else "stride"
                findings.add(
                    "dim-words",
                    where,
                    f"bytes of the {kind} of {what}",
                    limit=f"a multiple of {WORD_BYTES}",
                    value=size * width,
                )
    if width < WORD_BYTES and dims[-1].stride != 1 and dims[-1].stride > 0:
        findings.add("dim-inner-stride", where, f"innermost stride of {_show(dims)}", limit=1, value=dims[-1].stride)
    for elements in sorted({segment.elements for segment in end.segments}):
        _extent(elements, where, dims, findings)


def _extent(elements: int, where: str, dims: tuple[Dim, ...], findings: Findings) -> None:
    """Check dims against the elements that one descriptor moves: an object, a link's larger one, or a piece."""
    if any(dim.size < 1 or dim.stride < 0 for dim in dims):
        return
    last = sum((dim.size - 1) * dim.stride for dim in dims)
    if last >= elements:
        findings.add(
            "dim-bounds", where, f"last element of {_show(dims)}", limit=f"at most {elements - 1:,}", value=last
        )
    moved = prod(dim.size for dim in dims)
    if moved != elements:
        findings.add("dim-product", where, f"elements {_show(dims)} moves", limit=elements, value=moved)


def _show(dims: tuple[Dim, ...]) -> str:
    return "[" + ", ".join(f"{dim.size}:{dim.stride}" for dim in dims) + "]"


def _link(link: Link, fifos: dict[str, Fifo], seen: set[str], findings: Findings) -> None:
    where = link_name(link)
    known = True
    for name in (*link.ins, *link.outs):
        if name not in fifos:
            findings.add("symbol", where, "a linked FIFO", limit="a FIFO of the design", value=f"@{name}")
            known = False
        if name in seen:
            findings.add("link-once", where, "links of the FIFO", limit=1, value=f"another one with @{name}")
        seen.add(name)
    if not link.ins or not link.outs or (len(link.ins) > 1 and len(link.outs) > 1):
        found = f"{len(link.ins)} to {len(link.outs)}"
        findings.add("link-shape", where, "FIFOs", limit="1 to 1, n to 1 or 1 to n", value=found)
        return
    if not known:
        return
    tile = link_tile(link, fifos)
    if tile is None:
        findings.add("link-tile", where, "tile between the FIFOs", limit="one", value="none")
        return
    if tile.kind == "shim":
        findings.add("link-tile", where, "tile between the FIFOs", limit="a mem or core tile", value=str(tile))
    join, distribute = len(link.ins) > 1, len(link.outs) > 1
    stray = [*(() if join else link.src_offsets), *(() if distribute else link.dst_offsets)]
    if stray and (join or distribute or (link.src_offsets and link.dst_offsets)):
        findings.add("link-offsets", where, "offsets of the side with one FIFO", limit="none", value=str(stray))
    if len(link.ins) == len(link.outs):
        return
    if tile.kind != "mem":
        findings.add("link-mem-tile", where, "tile of a join or distribute", limit="a mem tile", value=str(tile))
    if len(link.ins) > 1:
        repeat = fifos[link.outs[0]].repeat_count
        if repeat:
            what = f"repeat_count of @{link.outs[0]}"
            findings.add("link-repeat", where, what, limit="none on what a join sends", value=repeat)
        _offsets(where, link.src_offsets, [fifos[name] for name in link.ins], fifos[link.outs[0]], findings)
    else:
        _distribute(where, link, fifos, findings)


def _distribute(where: str, link: Link, fifos: dict[str, Fifo], findings: Findings) -> None:
    whole, pieces = fifos[link.ins[0]], [fifos[name] for name in link.outs]
    repeats = sorted({piece.repeat_count for piece in pieces})
    if len(repeats) > 1:
        findings.add("link-shape", where, "repeat_count of the outs", limit="the same", value=str(repeats))
    full = [piece for piece in pieces if piece.object_type.bytes >= whole.object_type.bytes]
    if full or (link.dst_offsets and len(set(link.dst_offsets)) == 1):
        name = full[0].name if full else link.outs[0]
        findings.add(
            "broadcast-through-link",
            where,
            f"object of @{name}",
            limit=f"a piece of {whole.object_type}",
            value=str(fifos[name].object_type),
            note="give one FIFO several consumers to broadcast",
        )
        return
    _offsets(where, link.dst_offsets, pieces, whole, findings)


def _offsets(where: str, offsets: tuple[int, ...], pieces: list[Fifo], whole: Fifo, findings: Findings) -> None:
    if len(offsets) != len(pieces):
        findings.add("link-offsets", where, "offsets", limit=len(pieces), value=len(offsets))
        return
    width = whole.object_type.element_bytes
    sizes = [piece.object_type.bytes / width for piece in pieces]
    expected = tuple(int(size) if size == int(size) else size for size in (0, *accumulate(sizes)))
    if tuple(offsets) != expected[:-1] or expected[-1] != whole.object_type.elements:
        findings.add(
            "link-offsets",
            where,
            f"offsets and elements of @{whole.name}",
            limit=f"{list(expected[:-1])} in {expected[-1]:,}",
            value=f"{list(offsets)} in {whole.object_type.elements:,}",
        )
