"""Families: which there are, what each renders and links, and what is refused before anything is rendered."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elfkiln.errors import Refused
from elfkiln.families import family as module
from elfkiln.families.family import (
    DesignRequest,
    KernelObject,
    families,
    family_of,
    render,
    render_sealed,
)
from elfkiln.work.predict import predict_design
from rendered import rendered_design

ROOT = Path(__file__).resolve().parents[2]
LEGAL = DesignRequest(K=5120, N=14336, M=128, tag="_b8", columns=8)


def refused(**changes):
    """Return the one-line refusal of the legal request with changes."""
    with pytest.raises(Refused) as caught:
        render(ROOT, replace(LEGAL, **changes))
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def test_the_families_of_this_project():
    assert [(family.name, family.tag) for family in families(ROOT)] == [
        ("row_major", ""),
        ("n1_blocked", "_b8"),
        ("pb16i", "_pb16i"),
    ]


def test_a_module_and_a_template_per_family():
    for family in families(ROOT):
        assert (ROOT / "generators" / f"{family.name}.py").is_file()
        assert (ROOT / "templates" / f"{family.name}.py.j2").is_file()


@pytest.mark.parametrize("tag", ["_t2s", "_t2s2"])
def test_a_known_tag_without_a_family(tag):
    line = f"no generator family is registered for tag {tag}"
    for ask in (
        lambda: family_of(tag),
        lambda: render(ROOT, replace(LEGAL, tag=tag)),
        lambda: render_sealed(ROOT, tag, [(5120, 5120)], 8),
    ):
        with pytest.raises(Refused) as caught:
            ask()
        assert str(caught.value) == line


@pytest.mark.parametrize("tag", ["b8", "_B8", "_b8_m16", "../x", "\n"])
def test_an_unknown_tag(tag):
    with pytest.raises(Refused, match=r"tag: expected one of '', '_b8', '_pb16i', '_t2s', '_t2s2', found"):
        family_of(tag, ROOT)


@pytest.mark.parametrize(
    ("tag", "M", "name", "source"),
    [
        ("", 128, "mm_32x64x128.o", "mm_i8.cc"),
        ("", 16, "mm_16x64x128.o", "mm_i8.cc"),
        ("_b8", 128, "mm_32x64x128.o", "mm_i8.cc"),
        ("_b8", 16, "mm_16x64x128.o", "mm_i8.cc"),
        ("_pb16i", 128, "mm_pb16i_32x256x128.o", "mm_pb16i.cc"),
        ("_pb16i", 16, "mm_pb16i_16x64x32.o", "mm_pb16i.cc"),
    ],
)
def test_the_microkernel_of_a_design(tag, M, name, source):
    result = render(ROOT, replace(LEGAL, tag=tag, M=M))
    m, k, n = name.removesuffix(".o").rsplit("_", 1)[1].split("x")
    assert result.kernels == (KernelObject(name, source, {"DIM_M": m, "DIM_K": k, "DIM_N": n}),)
    assert f'KERNEL = "{name}"' in result.text


def test_the_microkernel_of_the_sealed_program():
    result = render_sealed(ROOT, "_pb16i", [(5120, 6144), (6144, 5120)], 8)
    defines = {"DIM_M": "16", "DIM_K": "64", "DIM_N": "32"}
    assert result.kernels == (KernelObject("mm_pb16i_16x64x32.o", "mm_pb16i.cc", defines),)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (
            {"K": 5000},
            "n1_blocked 128x5000x14336: K: expected a positive multiple of 64 (rule K % 64 == 0), found 5000",
        ),
        ({"K": 32}, "rule K % 64 == 0), found 32"),
        ({"N": 14400}, "N: expected a positive multiple of 128 (rule N % 128 == 0), found 14400"),
        ({"N": 4736}, "columns: expected a divisor of N/128 = 37 within 2..8 (none), found 8"),
        ({"columns": 5}, "columns: expected a divisor of N/128 = 112 within 2..8 (8, 7, 4, 2), found 5"),
        ({"columns": 1}, "columns: expected a divisor of N/128 = 112 within 2..8 (8, 7, 4, 2), found 1"),
        ({"columns": 16}, "columns: expected a divisor of N/128 = 112 within 2..8 (8, 7, 4, 2), found 16"),
        ({"columns": 2, "rows": 4}, "rows: expected at most the 2 columns (rule rows <= columns"),
        ({"rows": 5}, "rows: expected at most 4 (rule rows <= 4), found 5"),
        ({"rows": 3}, "rows: expected one of 1, 2, 4 (rule M % (rows*m) == 0 with M = 128, m = 32), found 3"),
        ({"M": 16, "rows": 2}, "rows: expected one of 1 (rule M % (rows*m) == 0 with M = 16, m = 16), found 2"),
        ({"M": 48}, "M: expected 16, or a multiple of 32 (rule M % (rows*m) == 0), found 48"),
        ({"M": 8}, "M: expected 16, or a multiple of 32 (rule M % (rows*m) == 0), found 8"),
        ({"M": 8192}, "M: expected at most 4096 (rule M <= 4096), found 8192"),
        ({"K": 131072}, "largest sum of products: expected at most 2147483647 (rule K * 128 * 128 < 2^31)"),
        (
            {"N": 2**20 + 1024, "K": 64, "M": 16},
            "tap of C: stride in words: expected 1..1048576 (rule tap-stride), found",
        ),
        # Rows of B in steps of 8: their stride reaches its field before that of C's rows does.
        (
            {"tag": "", "N": 2**19 + 1024, "K": 64},
            "row_major 128x64x525312: tap of B: stride in words: expected 1..1048576 (rule tap-stride), found 1050624",
        ),
        ({"N": 2**22, "K": 64}, "bytes of C: expected at most 2147483647 (rule tap-long), found 2147483648"),
        ({"K": 130048, "N": 17408}, "bytes of B: expected at most 2147483647 (rule tap-long)"),
        (
            {"tag": "_pb16i", "K": 4194304 + 64, "N": 256, "columns": 2},
            "tap of A: stride in words: expected 1..1048576 (rule tap-stride)",
        ),
        ({"tag": "_pb16i", "K": 2**24, "N": 256, "columns": 2}, "rule K * 128 * 1 < 2^31"),
    ],
)
def test_an_illegal_geometry_is_refused_by_its_rule(changes, rule):
    assert rule in refused(**changes)


@pytest.mark.parametrize("field", ["K", "N", "M", "columns", "rows"])
@pytest.mark.parametrize("value", [0, -128, 2**31, 2.0, 5120.0, "5120", True, [64], float("nan")])
def test_what_is_no_positive_whole_number_is_refused(field, value):
    assert f"{field}: expected " in refused(**{field: value})


@pytest.mark.parametrize("field", ["K", "N", "M", "columns", "rows"])
@pytest.mark.parametrize(
    "value", [2**64 * 128, 10**5000, -(10**5000)], ids=["72 bits", "5000 digits", "minus 5000 digits"]
)
def test_a_huge_number_is_refused_by_its_size(field, value):
    assert f"{field}: expected a whole number in 1..2147483647, found a number of" in refused(**{field: value})


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({}, ()),
        ({"tag": "_pb16i", "M": 16}, ()),
        (
            {"tag": "_pb16i", "M": 16, "N": 384, "columns": 3},
            ("It runs on 2 of 4 rows of cores: rule rows <= columns, of which there are 3.",),
        ),
        ({"tag": "_pb16i", "M": 16, "rows": 1}, ("It runs on 1 of 4 rows of cores: as asked for.",)),
        ({"K": 704}, ("A comes in runs of 64 bytes: none of up to 512 in whole K tiles divides K.",)),
        ({"K": 64}, ("A comes in runs of 64 bytes: none of up to 512 in whole K tiles divides K.",)),
    ],
)
def test_what_a_design_does_otherwise_stands_in_its_header(changes, notes):
    result = render(ROOT, replace(LEGAL, **changes))
    assert result.notes == notes
    header = result.text.split('"""')[1].splitlines()
    assert [line for line in header if line.startswith(("It runs", "A comes"))] == list(notes)


def test_the_sealed_program_says_on_how_many_rows_it_runs():
    result = render_sealed(ROOT, "_pb16i", [(1024, 256), (1024, 768)], 2)
    assert result.notes == ("It runs on 2 of 4 rows of cores: rule rows <= columns, of which there are 2.",)
    assert result.notes[0] in result.text.split('"""')[1]
    assert "ROWS, COLS = 2, 2\n" in result.text


# K tiles: what the model of time is asked, and what it is worth.


@pytest.mark.parametrize(
    ("tag", "M", "K", "N", "columns", "k"),
    [
        # int8: the fabric or a channel binds, not the core.
        ("_b8", 128, 5120, 17408, 8, 64),
        ("", 128, 5120, 17408, 8, 64),
        ("_b8", 16, 5120, 17408, 8, 64),
        # Packed at 32 rows: the core binds until C is loaded a quarter as often.
        ("_pb16i", 128, 5120, 17408, 8, 256),
        ("_pb16i", 128, 17408, 5120, 8, 256),
        ("_pb16i", 128, 4480, 17408, 8, 128),  # 4480 = 35 x 128
        ("_pb16i", 128, 704, 17408, 8, 64),  # 704 = 11 x 64
        # One group: the controller binds, whatever the cores do.
        ("_pb16i", 128, 640, 1024, 8, 64),
        # Rows that share a tile take it as it lies.
        ("_pb16i", 16, 5120, 17408, 8, 64),
    ],
)
def test_the_k_tile_is_the_models_choice(tag, M, K, N, columns, k):
    assert family_of(tag, ROOT).shape(DesignRequest(K, N, M, tag, columns)).k == k


@pytest.mark.parametrize("tag", ["", "_b8", "_pb16i"])
@pytest.mark.parametrize(("M", "K", "N", "columns"), [(128, 5120, 17408, 8), (16, 5120, 17408, 8), (128, 640, 512, 4)])
def test_what_the_generator_expects_is_what_predict_says(tag, M, K, N, columns):
    """Predict counts a design's taps, links and programs; the generator works from its sizes."""
    family = family_of(tag, ROOT)
    expected = family.seconds(family.shape(DesignRequest(K, N, M, tag, columns)))
    (predicted,) = predict_design(rendered_design(tag, M, K, N, columns))
    assert predicted.seconds == pytest.approx(expected, rel=1e-9)


def test_a_deeper_tile_is_not_taken_where_it_does_not_fit():
    """int8, M = 128: with 128 deep tiles stack, A, B and C are 65,536 bytes, and nothing is left for the object."""
    family = family_of("_b8", ROOT)
    shape = family.shape(replace(LEGAL, N=256, columns=2))
    assert family.memory(replace(shape, k=128))[0] == 65536
    assert shape.k == 64
    roomy = replace(family, tile_bytes=4096)
    assert roomy.memory(replace(shape, k=128))[0] == 49152
    assert roomy.shape(replace(LEGAL, N=256, columns=2)).k > 64


def test_nothing_is_rendered_for_an_illegal_geometry(monkeypatch):
    monkeypatch.setattr(module, "_rendered", lambda *_: pytest.fail("rendered"))
    refused(K=5000)


def test_the_largest_legal_geometries():
    """The last K below 2^31 / 128 / 128, the last N whose rows of B or C a stride reaches, and the last M."""
    for changes in ({"K": 131008, "N": 1024}, {"K": 64, "N": 2**19}, {"M": 4096}):
        for tag in ("", "_b8", "_pb16i"):
            assert render(ROOT, replace(LEGAL, tag=tag, **changes)).text
    for tag in ("_b8", "_pb16i"):
        assert render(ROOT, replace(LEGAL, tag=tag, K=64, N=2**20, M=16)).text


def test_a_tile_that_does_not_fit_is_refused():
    """The limits of memory, channels and descriptors hold for every family: here for one with larger tiles."""
    family = family_of("_b8", ROOT)
    for changes, rule in (
        # Stack 8,192, A 4,096, C 16,384, and B twice.
        ({"tile_bytes": 32768}, "bytes in a core: expected at most 65536 (rule l1-memory), found 94208"),
        ({"tile_bytes": 20480}, "found 69632"),
    ):
        with pytest.raises(Refused) as caught:
            replace(family, **changes).shape(LEGAL)
        assert rule in str(caught.value)


def test_a_family_with_too_many_tasks_is_refused():
    family = family_of("", ROOT)

    def eager(shape, tile_bytes):
        return replace(family.b_tap(shape, tile_bytes), queued=13)

    words = r"buffer descriptors of a shim: expected at most 16 \(rule live-descriptors\), found 17"
    with pytest.raises(Refused, match=words):
        replace(family, b_tap=eager).shape(replace(LEGAL, tag=""))


@pytest.mark.parametrize(
    ("depths", "rule"),
    [
        # Column 0 at 4 rows that share tiles: A 2, B 4 * depth, C 4 * 2 in; A 2, 4 times depth, C 8 out. Even channels
        # are 0, 2 and 4, odd ones 1, 3 and 5 of both directions.
        ({"SPLIT_B_MEM_DEPTH": 3}, "buffer descriptors of odd channels of a mem tile: expected at most 24 (rule desc"),
        ({"A_MEM_DEPTH": 9}, "buffer descriptors of even channels of a mem tile: expected at most 24 (rule descriptor"),
        ({"C_DEPTH": 4}, "buffer descriptors of odd channels of a mem tile: expected at most 24 (rule descriptors)"),
        ({"SPLIT_B_MEM_DEPTH": 300}, "bytes in a mem tile: expected at most 524288 (rule mem-tile-memory)"),
        ({"A_DEPTH": 60}, "bytes in a core: expected at most 65536 (rule l1-memory)"),
    ],
)
def test_a_mem_tile_that_is_overdrawn_is_refused_by_its_rule(monkeypatch, depths, rule):
    family = family_of("_pb16i", ROOT)
    for name, depth in depths.items():
        monkeypatch.setattr(sys.modules[type(family).__module__], name, depth)
    with pytest.raises(Refused) as caught:
        family.shape(replace(LEGAL, tag="_pb16i", M=16))
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("blocks", "rule"),
    [
        (((513, 64), (16, 1)), "blocks of B: size of a dimension: expected at most 512 (rule dim-size), found 513"),
        (((2, 64),) * 5, "blocks of B: dimensions: expected at most 4 (rule dim-count), found 5"),
        (((2, 2**20), (8, 1)), "blocks of B: stride in words: expected at most 131072 (rule dim-stride), found 262144"),
        (((2, 66), (8, 1)), "blocks of B: bytes of a step: expected a multiple of 4 (rule dim-words), found 66"),
        (((2, 64), (6, 1)), "blocks of B: bytes of a step: expected a multiple of 4 (rule dim-words), found 6"),
    ],
)
def test_dims_beyond_a_descriptor_are_refused(blocks, rule):
    family = replace(family_of("_b8", ROOT), b_blocks=lambda *_: blocks)
    with pytest.raises(Refused) as caught:
        family.shape(LEGAL)
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"sizes": (65, 1, 64, 128)}, "iterations: expected at most 64 (rule tap-iterations), found 65"),
        (
            {"sizes": (1, 16, 1024, 128)},
            "size of the second dimension: expected at most 1023 (rule tap-wrap), found 1024",
        ),
        ({"sizes": (1, 16, 8, 4096)}, "words of the innermost run: expected at most 1023 (rule tap-wrap), found 1024"),
        ({"sizes": (1, 16, 8, 126)}, "run in bytes: expected a multiple of 4 (rule tap-words), found 126"),
        ({"sizes": (1, 16, 16, 32)}, "bytes of a run: expected at least 64 (rule tap-short-runs), found 32"),
        ({"strides": (0, 8, 14336, 2)}, "innermost stride: expected 1 (rule tap-inner-stride), found 2"),
        ({"strides": (0, 8, 14335, 1)}, "stride in bytes: expected a multiple of 4 (rule tap-words), found 14335"),
        ({"strides": (0, 0, 14336, 1)}, "stride in words: expected 1..1048576 (rule tap-zero-stride), found 0"),
        ({"last_offset": 6}, "offset in bytes: expected a multiple of 4 (rule tap-words), found 6"),
        ({"last_offset": 2**31}, "offset in bytes: expected at most 2147483647 (rule tap-long), found 2147483648"),
    ],
)
def test_a_tap_beyond_a_descriptor_is_refused(change, rule):
    family = family_of("", ROOT)

    def odd(shape, tile_bytes):
        return replace(family.b_tap(shape, tile_bytes), **change)

    with pytest.raises(Refused) as caught:
        replace(family, b_tap=odd).shape(replace(LEGAL, tag=""))
    assert f"tap of B: {rule}" in str(caught.value)


@pytest.mark.parametrize(
    ("geometries", "columns", "rule"),
    [
        ([], 8, "pb16i sealed: geometries: expected at least one pair (K, N), found none"),
        (
            [(5120, 6144), (5120, 640)],
            8,
            "pb16i 16x5120x640: columns: expected a divisor of N/128 = 5 within 2..8 (5), found 8",
        ),
        ([(5000, 6144)], 8, "pb16i 16x5000x6144: K: expected a positive multiple of 64"),
        ([(5120,)], 8, "geometry: expected a pair (K, N), found (5120,)"),
        ([5120], 8, "geometry: expected a pair (K, N), found 5120"),
        ([(5120, 6144.0)], 8, "pb16i: N: expected a whole number, found 6144.0 (float)"),
        ([(5120, 6144)], 9, "columns: expected a divisor of N/128 = 48"),
    ],
)
def test_a_sealed_set_that_does_not_fit_is_refused(geometries, columns, rule):
    with pytest.raises(Refused) as caught:
        render_sealed(ROOT, "_pb16i", geometries, columns)
    assert rule in str(caught.value)


def test_only_pb16i_has_a_sealed_form():
    with pytest.raises(Refused, match="n1_blocked: no sealed program is defined for tag '_b8'"):
        render_sealed(ROOT, "_b8", [(5120, 6144)], 8)


def test_order_and_repetition_of_sealed_geometries_do_not_matter():
    pairs = [(6144, 5120), (5120, 6144), (5120, 14336)]
    want = render_sealed(ROOT, "_pb16i", sorted(pairs), 8).text
    assert render_sealed(ROOT, "_pb16i", pairs + pairs[:1], 8).text == want
    assert want.index("(5120, 6144),") < want.index("(5120, 14336),") < want.index("(6144, 5120),")


@pytest.fixture
def copy(tmp_path):
    """A copy of generators/ and templates/ that a test may damage."""
    for folder in ("generators", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_generators_are_those_of_the_project_and_leave_the_path_alone(copy):
    path = list(sys.path)
    (copy / "generators" / "__init__.py").write_text("from . import n1_blocked\nFAMILIES = (n1_blocked.FAMILY,)\n")
    assert [family.tag for family in families(copy)] == ["_b8"]
    assert len(families(ROOT)) == 3
    assert families(copy)[0] is families(copy)[0]
    assert render(copy, LEGAL) == render(ROOT, LEGAL)
    assert sys.path == path
    assert "generators" not in sys.modules
    with pytest.raises(Refused, match="no generator family is registered for tag _pb16i"):
        family_of("_pb16i", copy)


def test_templates_are_those_of_the_project(copy):
    template = copy / "templates" / "panel_gemm.py.j2"
    template.write_text(template.read_text().replace("STACK =", "STACK_BYTES = STACK ="))
    assert "STACK_BYTES" in render(copy, LEGAL).text
    assert "STACK_BYTES" not in render(ROOT, LEGAL).text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("FAMILIES = (", "generators: does not load (SyntaxError"),
        ("import no_such_module_anywhere", "generators: does not load (ModuleNotFoundError"),
        ("x = 1", "generators/__init__.py: FAMILIES: expected a tuple of families, found None"),
        ("FAMILIES = ()", "generators/__init__.py: FAMILIES: expected a tuple of families, found ()"),
    ],
)
def test_generators_that_do_not_load(copy, text, line):
    (copy / "generators" / "__init__.py").write_text(text)
    for _ in range(2):  # a failure is not remembered as a success
        with pytest.raises(Refused) as caught:
            families(copy)
        assert str(caught.value).startswith(line)
    (copy / "elsewhere").mkdir()
    with pytest.raises(Refused, match=r"generators/__init__.py: missing; restore it"):
        families(copy / "elsewhere")


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda text: text + "{{ unheard_of }}\n", "does not render ('unheard_of' is undefined)"),
        (lambda text: text + "{% if %}", "line"),
        (lambda text: text + "# \u00b5\n", "rendered text: expected ASCII"),
        (lambda text: text + "\n", "rendered text: expected one line break at its end"),
        (lambda text: text.rstrip("\n"), "rendered text: expected one line break at its end"),
        (lambda text: text + "x = = 1\n", "what it renders is not Python"),
        (lambda text: text + "{{ 1 // 0 }}\n", "does not render"),
        (lambda text: text + "{{ M.nothing }}\n", "does not render"),
    ],
)
def test_a_template_that_cannot_be_used(copy, edit, line):
    path = copy / "templates" / "panel_gemm.py.j2"
    path.write_text(edit(path.read_text()), encoding="utf-8")
    with pytest.raises(Refused) as caught:
        render(copy, LEGAL)
    assert str(caught.value).startswith("templates/")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_template_that_is_absent_or_no_text(copy):
    path = copy / "templates" / "n1_blocked.py.j2"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(Refused, match=r"templates/n1_blocked.py.j2: does not render"):
        render(copy, LEGAL)
    path.unlink()
    with pytest.raises(Refused, match=r"templates/n1_blocked.py.j2: missing; restore it"):
        render(copy, LEGAL)
    path.mkdir()
    with pytest.raises(Refused, match=r"templates/n1_blocked.py.j2: "):
        render(copy, LEGAL)


def test_line_endings_of_a_template_do_not_matter(copy):
    for path in (copy / "templates").iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert render(copy, LEGAL).text == render(ROOT, LEGAL).text


T2S_MODULE = """\
from .panel_gemm import PanelFamily

FAMILY = PanelFamily(
    name="t2s",
    tag="_t2s",
    template="t2s.py.j2",
    stem="mm_t2s",
    source="mm_t2s.cc",
    entry="matmul_t2s_i32",
    tile_bytes=2048,
    most_weight=1,
)
"""


def test_a_family_is_one_module_one_template_and_one_row(copy):
    """The way docs/families.md shows; the fourth part, the microkernel, is a file below kernels/."""
    (copy / "generators" / "t2s.py").write_text(T2S_MODULE)
    template = (copy / "templates" / "pb16i.py.j2").read_text()
    (copy / "templates" / "t2s.py.j2").write_text(template)
    table = copy / "generators" / "__init__.py"
    table.write_text(
        table.read_text().replace("row_major\n", "row_major, t2s\n").replace("(\n", "(\n    t2s.FAMILY,\n")
    )
    result = render(copy, replace(LEGAL, tag="_t2s"))
    assert 'external_func("matmul_t2s_i32"' in result.text
    assert "weights in layout t2s" in result.text
    assert result.kernels[0].object_name == "mm_t2s_32x64x128.o"
    assert result.notes == ()
    with pytest.raises(Refused, match=r"t2s 128x5000x14336: K: expected a positive multiple of 64"):
        render(copy, replace(LEGAL, tag="_t2s", K=5000))
    assert render(copy, LEGAL) == render(ROOT, LEGAL)


def test_the_code_in_the_documentation_is_the_code():
    text = (ROOT / "docs" / "families.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) == 2
    for block, name in zip(blocks, ("pb16i.py", "__init__.py"), strict=True):
        assert block in (ROOT / "generators" / name).read_text()
