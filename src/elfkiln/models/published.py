"""Array columns that the engine's build scripts publish for a geometry, as they publish them, faults included."""

from __future__ import annotations

from dataclasses import dataclass

from elfkiln.engine.legality import legal_columns


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One line of a build table: role, K, N, and the array columns where it gives them."""

    role: str
    K: int
    N: int
    columns: int | None = None


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """The lines of one script for one model that give columns."""

    model: str
    script: str
    rows: tuple[PublishedRow, ...]


def _table(model: str, script: str, *rows: tuple[str, int, int, int]) -> ColumnTable:
    return ColumnTable(model, script, tuple(PublishedRow(*row) for row in rows))


RUN_BUILD = "run_build.sh"
BUILD_ALL = "build_all.sh"
BUILD_XCLBINS = "build_xclbins.sh"
BUILD_NEW = "build_new_xclbins.sh"
SPLIT_G = "build_q34b_split_g.sh"

COLUMN_TABLES: tuple[ColumnTable, ...] = (
    _table(
        "qwen3.6-35b-a3b",
        RUN_BUILD,
        ("QKV", 2048, 8192, 8),
        ("O", 4096, 2048, 8),
        ("G", 2048, 512, 4),
        ("U", 2048, 512, 4),
        ("D", 512, 2048, 4),
    ),
    _table(
        "qwen3.6-35b-a3b",
        BUILD_NEW,
        ("D", 512, 2048, 8),
    ),
    _table(
        "qwen3.5-4b",
        RUN_BUILD,
        ("QKV", 2560, 6144, 8),
        ("O", 4096, 2560, 4),
        ("G", 2560, 9216, 8),
        ("U", 2560, 9216, 8),
        ("D", 9216, 2560, 4),
    ),
    _table(
        "gemma4-e4b",
        RUN_BUILD,
        ("QKV", 2560, 6144, 8),
        ("O", 4096, 2560, 4),
        ("G", 2560, 12288, 8),
        ("U", 2560, 12288, 8),
        ("D", 12288, 2560, 4),
    ),
    _table(
        "phi4-mini",
        RUN_BUILD,
        ("QKV", 3072, 5120, 8),
        ("O", 3072, 3072, 4),
        ("G", 3072, 8192, 8),
        ("U", 3072, 8192, 8),
        ("D", 8192, 3072, 4),
    ),
    _table(
        "nanbeige4.1-3b",
        RUN_BUILD,
        ("QKV", 2560, 3840, 6),
        ("O", 2560, 2560, 4),
        ("G", 2560, 8192, 8),
        ("U", 2560, 8192, 8),
        ("D", 8192, 2560, 4),
    ),
    _table(
        "nanbeige4.1-3b",
        BUILD_ALL,
        ("QKV", 2560, 3840, 8),
    ),
    _table(
        "qwen3-8b",
        BUILD_XCLBINS,
        ("QKV", 4096, 6144, 8),
        ("O", 4096, 4096, 8),
        ("G", 4096, 12288, 8),
        ("U", 4096, 12288, 8),
        ("D", 12288, 4096, 8),
    ),
    _table(
        "qwen3-vl-4b",
        BUILD_XCLBINS,
        ("QKV", 2560, 6144, 8),
        ("O", 4096, 2560, 4),
        ("G", 2560, 9728, 4),
        ("U", 2560, 9728, 4),
        ("D", 9728, 2560, 4),
    ),
    _table(
        "qwen3-4b",
        SPLIT_G,
        ("G", 2560, 9728, 4),
        ("U", 2560, 9728, 4),
        ("D", 9728, 2560, 4),
    ),
    _table(
        "llama-3.1-8b",
        BUILD_XCLBINS,
        ("QKV", 4096, 6144, 8),
        ("O", 4096, 4096, 8),
        ("G", 4096, 14336, 8),
        ("U", 4096, 14336, 8),
        ("D", 14336, 4096, 8),
    ),
    _table(
        "gemma4-e2b",
        BUILD_XCLBINS,
        ("QKV", 1536, 2560, 4),
        ("O", 2048, 1536, 4),
    ),
)
"""Columns of qwen3-8b, llama-3.1-8b, qwen3-vl-4b and gemma4-e2b come from engine commit eee6122b2. The lines of the
scripts that give no columns stand in `elfkiln.studies.published_geometry`, where nothing that builds reads them."""


def published_columns(role: str, K: int, N: int) -> int | None:
    """Return the array columns published for a geometry: the first legal count a table gives, None without one.

    A name means the same design whichever model asks for it, so the tables of all models count.

    >>> published_columns("O", 2560, 2560), published_columns("QKV", 2560, 3840), published_columns("O", 2048, 1024)
    (4, 6, None)
    """
    rows = (row for table in COLUMN_TABLES for row in table.rows if (row.role, row.K, row.N) == (role, K, N))
    return next((row.columns for row in rows if row.columns in legal_columns(N)), None)
