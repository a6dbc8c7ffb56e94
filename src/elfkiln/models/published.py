"""Geometry that the engine's build scripts and dimension tables publish, as they publish it, faults included."""

from __future__ import annotations

from dataclasses import dataclass

from elfkiln.engine.legality import legal_columns
from elfkiln.models.config import Dimensions, Experts, Mla


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One line of a build table: role, K, N, and the array columns where it gives them."""

    role: str
    K: int
    N: int
    columns: int | None = None


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """The lines one script has for one model. `ungated`: the MLP has no gate, so its row GU is one matrix."""

    model: str
    script: str
    rows: tuple[PublishedRow, ...]
    ungated: bool = False


@dataclass(frozen=True, slots=True)
class PublishedDimensions:
    """A model's dimensions as one source states them."""

    model: str
    source: str
    dimensions: Dimensions


def _table(model: str, script: str, *rows: tuple[str, int, int] | tuple[str, int, int, int]) -> PublishedTable:
    return PublishedTable(model, script, tuple(PublishedRow(*row) for row in rows))


RUN_BUILD = "run_build.sh"
BUILD_ALL = "build_all.sh"
BUILD_XCLBINS = "build_xclbins.sh"
BUILD_NEW = "build_new_xclbins.sh"
SPLIT_G = "build_q34b_split_g.sh"

TABLES: tuple[PublishedTable, ...] = (
    _table(
        "qwen3.6-35b-a3b",
        RUN_BUILD,
        ("QKV", 2048, 8192, 8),
        ("O", 4096, 2048, 8),
        ("G", 2048, 512, 4),
        ("U", 2048, 512, 4),
        ("D", 512, 2048, 4),
    ),
    _table("qwen3.6-35b-a3b", BUILD_NEW, ("QKV", 2048, 5120), ("D", 512, 2048, 8)),
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
    _table("nanbeige4.1-3b", BUILD_ALL, ("QKV", 2560, 3840, 8)),
    _table("qwen3-0.6b", BUILD_XCLBINS, ("QKV", 1024, 4096), ("O", 2048, 1024), ("GU", 1024, 6144), ("D", 3072, 1024)),
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
    _table("qwen3-4b", SPLIT_G, ("G", 2560, 9728, 4), ("U", 2560, 9728, 4), ("D", 9728, 2560, 4)),
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
        "mistral-7b",
        BUILD_XCLBINS,
        ("QKV", 4096, 6144),
        ("O", 4096, 4096),
        ("G", 4096, 14336),
        ("U", 4096, 14336),
        ("D", 14336, 4096),
    ),
    _table(
        "gemma4-e2b",
        BUILD_XCLBINS,
        ("QKV", 1536, 2560, 4),
        ("O", 2048, 1536, 4),
        ("GU", 1536, 12288),
        ("D", 6144, 1536),
    ),
    PublishedTable(
        "falcon-7b",
        BUILD_XCLBINS,
        (
            PublishedRow("QKV", 4608, 4736),
            PublishedRow("O", 4608, 4608),
            PublishedRow("GU", 4608, 18176),
            PublishedRow("D", 18304, 4608),
        ),
        ungated=True,
    ),
    _table("olmoe-1b", BUILD_XCLBINS, ("QKV", 2048, 4096), ("O", 2048, 2048), ("GU", 2048, 4096), ("D", 2048, 2048)),
    _table(
        "zamba2-2.7b", BUILD_XCLBINS, ("QKV", 2560, 7680), ("O", 2560, 2560), ("GU", 2560, 10240), ("D", 5120, 2560)
    ),
)
"""Columns of qwen3-8b, llama-3.1-8b, qwen3-vl-4b and gemma4-e2b come from engine commit eee6122b2."""


def published_columns(role: str, K: int, N: int) -> int | None:
    """Return the array columns published for a geometry: the first legal count a table gives, None without one.

    A name means the same design whichever model asks for it, so the tables of all models count.

    >>> published_columns("O", 2560, 2560), published_columns("QKV", 2560, 3840), published_columns("O", 2048, 1024)
    (4, 6, None)
    """
    rows = (row for table in TABLES for row in table.rows if (row.role, row.K, row.N) == (role, K, N))
    return next((row.columns for row in rows if row.columns in legal_columns(N)), None)


NPU_DIMS = "npu_dims.h"
ENGINE_CODE = "q4nx_forward.cpp"
GENERAL = "general knowledge"


def _dense(hidden: int, heads: int, kv_heads: int, width: int, mlp: int, layers: int) -> Dimensions:
    return Dimensions(hidden, layers, heads, kv_heads, width, mlp)


DIMENSIONS: tuple[PublishedDimensions, ...] = (
    PublishedDimensions("qwen3-0.6b", NPU_DIMS, _dense(1024, 16, 8, 128, 3072, 28)),
    PublishedDimensions("qwen3-8b", NPU_DIMS, _dense(4096, 32, 8, 128, 12288, 36)),
    PublishedDimensions("qwen3-vl-4b", NPU_DIMS, _dense(2560, 32, 8, 128, 9728, 36)),
    PublishedDimensions("qwen3-4b", NPU_DIMS, _dense(2560, 32, 8, 128, 9728, 36)),
    PublishedDimensions("llama-3.1-8b", NPU_DIMS, _dense(4096, 32, 8, 128, 14336, 32)),
    PublishedDimensions("mistral-7b", f"{NPU_DIMS}, row llama", _dense(4096, 32, 8, 128, 14336, 32)),
    PublishedDimensions("zr1-1.5b", NPU_DIMS, _dense(1536, 12, 2, 128, 8960, 28)),
    PublishedDimensions(
        "qwen3.6-35b-a3b",
        NPU_DIMS,
        Dimensions(2048, 40, 16, 2, 256, 0, linear_key=2048, linear_value=4096, experts=Experts(256, 8, 512)),
    ),
    PublishedDimensions("qwen3.5-4b", NPU_DIMS, _dense(2560, 16, 4, 256, 9216, 32)),
    PublishedDimensions(
        "qwen3.5-4b",
        ENGINE_CODE,
        Dimensions(2560, 32, 16, 4, 256, 9216, output_gate=True, linear_key=2048, linear_value=4096),
    ),
    PublishedDimensions("gemma4-e4b", NPU_DIMS, _dense(2560, 16, 4, 256, 12288, 26)),
    PublishedDimensions("phi4-mini", NPU_DIMS, _dense(3072, 24, 8, 128, 8192, 32)),
    PublishedDimensions("nanbeige4.1-3b", NPU_DIMS, _dense(2560, 32, 8, 80, 8192, 32)),
    PublishedDimensions(
        "gemma4-e2b",
        f"{NPU_DIMS}, {ENGINE_CODE}",
        Dimensions(1536, 35, 8, 1, 256, 6144, global_head_dim=512, per_layer_input=256, double_wide=True),
    ),
    PublishedDimensions("qwen3-1.7b", NPU_DIMS, _dense(2048, 16, 8, 128, 11008, 28)),
    PublishedDimensions("qwen3-1.7b", GENERAL, _dense(2048, 16, 8, 128, 6144, 28)),
    PublishedDimensions("qwen3-14b", NPU_DIMS, _dense(5120, 40, 8, 128, 17408, 40)),
    PublishedDimensions("gemma3-1b", NPU_DIMS, _dense(1152, 4, 1, 256, 6912, 18)),
    PublishedDimensions("gemma3-4b", NPU_DIMS, _dense(2560, 8, 4, 256, 10240, 34)),
    PublishedDimensions("smollm2-135m", NPU_DIMS, _dense(576, 9, 3, 64, 1536, 30)),
    PublishedDimensions("zamba2-2.7b", "second source, width 5120", _dense(2560, 32, 32, 80, 5120, 54)),
    PublishedDimensions("zamba2-2.7b", "first source, width 8960", _dense(2560, 32, 32, 80, 8960, 54)),
    PublishedDimensions(
        "bonsai2-27b",
        "plan-layer page, b8 layout pull request; head counts solved from the widths",
        Dimensions(5120, 64, 24, 4, 256, 17408, output_gate=True, linear_key=2048, linear_value=6144),
    ),
    PublishedDimensions(
        "glm-4.7-flash",
        f"published config; expert and dense width {GENERAL}",
        Dimensions(
            2048,
            47,
            20,
            20,
            256,
            10240,
            mla=Mla(768, 512, 64, 192, 256),
            experts=Experts(64, 4, 1536),
            leading_dense=1,
        ),
    ),
    PublishedDimensions(
        "olmoe-1b", f"{BUILD_XCLBINS} for the MLP; 16 key/value heads", _dense(2048, 16, 16, 128, 2048, 16)
    ),
    PublishedDimensions("falcon-7b", GENERAL, _dense(4544, 71, 1, 64, 18176, 32)),
)
"""The first row of a model is the one its build tables are compared with; further rows are other sources for it."""
