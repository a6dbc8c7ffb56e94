"""Dims of linked FIFOs go over what the link's descriptors move: the larger object, or each piece."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elfkiln.design.model import Dim, MemRef
from elfkiln.lint import lint
from small_designs import mem_relay, shared_out, with_fifo


def dims(*pairs):
    return tuple(Dim(*pair) for pair in pairs)


def dim_findings(design):
    return [(f.rule, f.where, f.limit, f.value) for f in lint(design) if f.rule.startswith("dim-")]


def resized(whole: int, part: int, *, to_stream=(), from_stream=()):
    """shim -> mem tile -> core: objects of `whole` words come in, those of `part` words go on."""
    design = mem_relay(MemRef((part,), "i32"), to_stream)
    return with_fifo(design, "in", object_type=MemRef((whole,), "i32"), from_stream=(dims(*from_stream),))


@pytest.mark.parametrize(("whole", "part"), [(128, 64), (64, 128), (96, 32), (64, 96)])
@pytest.mark.parametrize("side", ["to_stream", "from_stream"])
def test_dims_of_a_link_of_two_sizes_go_over_the_larger_object(whole, part, side):
    large = max(whole, part)
    assert dim_findings(resized(whole, part, **{side: ((large // 8, 1), (8, large // 8))})) == []
    small = min(whole, part)
    place = "FIFO @forward to_stream at mem(0,1)" if side == "to_stream" else "FIFO @in from_stream at mem(0,1)"
    # The descriptor is as long as the larger object: the dims of the smaller one would run on, to the wrong elements.
    assert dim_findings(resized(whole, part, **{side: ((small // 8, 1), (8, small // 8))})) == [
        ("dim-product", place, large, small)
    ]
    beyond = ((large // 4, 1), (8, large // 8))
    assert dim_findings(resized(whole, part, **{side: beyond})) == [
        ("dim-bounds", place, f"at most {large - 1}", large // 4 - 1 + 7 * (large // 8)),
        ("dim-product", place, large, 2 * large),
    ]


def test_dims_where_the_core_takes_the_objects_of_a_link_go_over_its_own():
    design = with_fifo(resized(128, 64), "forward", from_stream=(dims((8, 1), (8, 8)),))
    assert dim_findings(design) == []
    assert dim_findings(with_fifo(design, "forward", from_stream=(dims((16, 1), (8, 16)),))) == [
        ("dim-bounds", "FIFO @forward from_stream at core(0,2)", "at most 63", 127),
        ("dim-product", "FIFO @forward from_stream at core(0,2)", 64, 128),
    ]


def test_dims_of_a_distributes_input_go_over_a_piece():
    design = shared_out((0, 1024), ((1024,), (1024,)))
    piece = with_fifo(design, "in", from_stream=(dims((16, 4), (16, 64), (4, 1)),))
    assert dim_findings(piece) == []
    whole = with_fifo(design, "in", from_stream=(dims((32, 4), (16, 128), (4, 1)),))
    assert dim_findings(whole) == [
        ("dim-bounds", "FIFO @in from_stream at mem(0,1)", "at most 1,023", 2047),
        ("dim-product", "FIFO @in from_stream at mem(0,1)", 1024, 2048),
    ]
    # What leaves for a core is the piece already.
    assert dim_findings(with_fifo(design, "piece_0", to_stream=dims((16, 4), (16, 64), (4, 1)))) == []


def joined(design):
    """The same design with its data going the other way: pieces come from two cores, one FIFO takes them out."""
    swap = {"in": "out", "out_0": "in_0", "out_1": "in_1"}
    fifos = []
    for fifo in design.fifos:
        (consumer,) = fifo.consumers
        fifos.append(replace(fifo, name=swap.get(fifo.name, fifo.name), producer=consumer, consumers=(fifo.producer,)))
    (link,) = design.links
    return replace(
        design,
        fifos=tuple(fifos),
        links=(replace(link, ins=link.outs, outs=("out",), src_offsets=link.dst_offsets, dst_offsets=()),),
    )


@pytest.mark.parametrize("sizes", [(1024, 1024), (1024, 512)])
def test_dims_of_a_joins_output_go_over_each_piece(sizes):
    design = joined(shared_out((0, sizes[0]), ((sizes[0],), (sizes[1],)), whole=(sum(sizes),)))
    piece = with_fifo(design, "out", to_stream=dims((16, 4), (16, 64), (4, 1)))
    place = "FIFO @out to_stream at mem(0,1)"
    if sizes[0] == sizes[1]:
        assert dim_findings(piece) == []
    else:
        # The descriptor of the second piece has the same dims and half the length.
        assert dim_findings(piece) == [("dim-bounds", place, "at most 511", 1023), ("dim-product", place, 512, 1024)]
    whole = with_fifo(design, "out", to_stream=dims((sum(sizes) // 64, 4), (16, sum(sizes) // 16), (4, 1)))
    last = sum(sizes) - 1
    expected = [
        entry
        for size in sorted(set(sizes))
        for entry in [("dim-bounds", place, f"at most {size - 1:,}", last), ("dim-product", place, size, sum(sizes))]
    ]
    assert dim_findings(whole) == expected
