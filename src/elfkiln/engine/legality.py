"""Which GEMM geometries the kernel families can build, and the columns and rows of the array they get."""

from __future__ import annotations

from elfkiln.engine.contract import (
    MAX_COLUMNS,
    MAX_ROWS,
    MIN_COLUMNS,
    PREFILL_M,
    SHARED_COLUMNS,
    TILE_K,
    TILE_M,
    TILE_N,
    weight_layout,
)
from elfkiln.errors import refusal


def legal_columns(N: int) -> tuple[int, ...]:
    """Return the array columns a geometry of N output columns may use, largest first.

    A column owns whole tiles of 128, so the count divides N/128; it lies within 2..8.

    >>> legal_columns(5120), legal_columns(640), legal_columns(4736)
    ((8, 5, 4, 2), (5,), ())
    """
    if N < 1 or N % TILE_N:
        return ()
    return tuple(c for c in range(MAX_COLUMNS, MIN_COLUMNS - 1, -1) if (N // TILE_N) % c == 0)


def largest_columns(what: str, N: int, *, joint: str = ": ") -> int:
    """Return the largest legal column count; raises `Refused`, naming `what`, when there is none.

    `joint` stands between `what` and the letter of the side: "." where both are the path of a field.

    >>> largest_columns("D", 3840)
    6
    """
    columns = legal_columns(N)
    if not columns:
        raise refusal(
            f"{what}{joint}N",
            expected=f"a multiple of {TILE_N} whose N/{TILE_N} has a divisor in {MIN_COLUMNS}..{MAX_COLUMNS}",
            found=N,
            remedy=f"no design with {TILE_N}-wide tiles can be built for it",
        )
    return columns[0]


def rows_for(columns: int, layout: str, *, m16: bool) -> int:
    """Return the array rows of a design: they share out its row tiles and never exceed its columns.

    With 16 rows of A there is one row tile, so one row of cores; where a layout's tiles can be shared by columns,
    rows share out those instead: 4, or 2 on 2 or 3 columns.

    >>> rows_for(8, "b8", m16=False), rows_for(3, "b8", m16=False), rows_for(8, "b8", m16=True)
    (4, 2, 1)
    >>> rows_for(8, "pb16i", m16=True), rows_for(3, "pb16i", m16=True)
    (4, 2)
    """
    shared = TILE_N // SHARED_COLUMNS if weight_layout(layout).shared_tiles else 1
    parts = shared if m16 else PREFILL_M // TILE_M
    return max(rows for rows in range(1, MAX_ROWS + 1) if parts % rows == 0 and rows <= columns)


def check_geometry(what: str, K: int, N: int, columns: int | None = None, *, joint: str = ": ") -> None:
    """Refuse a geometry no design can be built for, naming `what` and the rule it breaks.

    `joint` is that of `largest_columns`.
    """
    if K < 1 or K % TILE_K:
        raise refusal(f"{what}{joint}K", expected=f"a positive multiple of {TILE_K} (rule K % {TILE_K} == 0)", found=K)
    if N < 1 or N % TILE_N:
        raise refusal(f"{what}{joint}N", expected=f"a positive multiple of {TILE_N} (rule N % {TILE_N} == 0)", found=N)
    allowed = legal_columns(N)
    if columns is None:
        largest_columns(what, N, joint=joint)
    elif columns not in allowed:
        choice = ", ".join(str(c) for c in allowed) or "none"
        raise refusal(
            f"{what}: columns",
            expected=f"a divisor of N/{TILE_N} = {N // TILE_N} within {MIN_COLUMNS}..{MAX_COLUMNS} ({choice})",
            found=columns,
        )
