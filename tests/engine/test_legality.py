"""Columns and rows of designs, and the geometry rules."""

import pytest

from elfkiln.engine.legality import check_geometry, largest_columns, legal_columns, rows_for
from elfkiln.errors import Refused

# The "columns allowed" line of the engine's published tables (2..8 dividing N/128).
PUBLISHED = {
    256: (2,),
    512: (4, 2),
    640: (5,),
    768: (6, 3, 2),
    1024: (8, 4, 2),
    1536: (6, 4, 3, 2),
    2048: (8, 4, 2),
    2560: (5, 4, 2),
    3072: (8, 6, 4, 3, 2),
    3840: (6, 5, 3, 2),
    4736: (),
    5120: (8, 5, 4, 2),
    9728: (4, 2),
    18176: (2,),
}


@pytest.mark.parametrize(("N", "columns"), PUBLISHED.items())
def test_legal_columns_are_the_published_ones(N, columns):
    assert legal_columns(N) == columns


@pytest.mark.parametrize("N", [0, -128, 127, 960, 576])
def test_a_width_that_is_no_whole_tiles_has_no_columns(N):
    assert legal_columns(N) == ()


def test_rows_never_exceed_columns_and_divide_the_row_tiles():
    for layout in ("rm", "b8", "pb16i", "t2s"):
        assert [rows_for(columns, layout, m16=False) for columns in range(2, 9)] == [2, 2, 4, 4, 4, 4, 4]
    # Packed tiles are shared out by 32 columns; of the other layouts one row has all there is at 16 rows of A.
    assert [rows_for(columns, "pb16i", m16=True) for columns in range(2, 9)] == [2, 2, 4, 4, 4, 4, 4]
    for layout in ("rm", "b8", "t2s"):
        assert {rows_for(columns, layout, m16=True) for columns in range(2, 9)} == {1}


@pytest.mark.parametrize(
    ("K", "N", "columns", "said"),
    [
        (100, 256, None, "K: expected a positive multiple of 64"),
        (0, 256, None, "K: expected a positive multiple of 64"),
        (-64, 256, None, "K: expected a positive multiple of 64"),
        (64, 200, None, "N: expected a positive multiple of 128"),
        (4608, 4736, None, "N/128 has a divisor in 2..8, found 4736"),
        (2560, 3840, 8, "columns: expected a divisor of N/128 = 30 within 2..8 (6, 5, 3, 2), found 8"),
        (64, 256, 1, "columns"),
    ],
)
def test_illegal_geometry_is_refused_by_rule(K, N, columns, said):
    with pytest.raises(Refused) as refused:
        check_geometry("QKV", K, N, columns)
    assert said in str(refused.value)


def test_legal_geometry_passes_and_gets_the_most_columns():
    check_geometry("D", 18304, 5120, 8)
    check_geometry("KVA", 2048, 640)
    assert largest_columns("KVA", 640) == 5
