"""Geometry that the engine's build scripts and dimension tables publish, as they publish it, faults included."""

from __future__ import annotations

from dataclasses import dataclass

from elfkiln.models.config import Dimensions, Experts, Mla
from elfkiln.models.published import (
    BUILD_ALL,
    BUILD_NEW,
    BUILD_XCLBINS,
    COLUMN_TABLES,
    RUN_BUILD,
    SPLIT_G,
    PublishedRow,
)


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


def _table(model: str, script: str, *bare: tuple[str, int, int], ungated: bool = False) -> PublishedTable:
    """Return a script's lines for a model: those with columns from `COLUMN_TABLES`, then the bare ones given here."""
    key = (model, script)
    rows = [row for table in COLUMN_TABLES if (table.model, table.script) == key for row in table.rows]
    return PublishedTable(model, script, (*rows, *(PublishedRow(*row) for row in bare)), ungated)


TABLES: tuple[PublishedTable, ...] = (
    _table("qwen3.6-35b-a3b", RUN_BUILD),
    _table("qwen3.6-35b-a3b", BUILD_NEW, ("QKV", 2048, 5120)),
    _table("qwen3.5-4b", RUN_BUILD),
    _table("gemma4-e4b", RUN_BUILD),
    _table("phi4-mini", RUN_BUILD),
    _table("nanbeige4.1-3b", RUN_BUILD),
    _table("nanbeige4.1-3b", BUILD_ALL),
    _table("qwen3-0.6b", BUILD_XCLBINS, ("QKV", 1024, 4096), ("O", 2048, 1024), ("GU", 1024, 6144), ("D", 3072, 1024)),
    _table("qwen3-8b", BUILD_XCLBINS),
    _table("qwen3-vl-4b", BUILD_XCLBINS),
    _table("qwen3-4b", SPLIT_G),
    _table("llama-3.1-8b", BUILD_XCLBINS),
    _table(
        "mistral-7b",
        BUILD_XCLBINS,
        ("QKV", 4096, 6144),
        ("O", 4096, 4096),
        ("G", 4096, 14336),
        ("U", 4096, 14336),
        ("D", 14336, 4096),
    ),
    _table("gemma4-e2b", BUILD_XCLBINS, ("GU", 1536, 12288), ("D", 6144, 1536)),
    _table(
        "falcon-7b",
        BUILD_XCLBINS,
        ("QKV", 4608, 4736),
        ("O", 4608, 4608),
        ("GU", 4608, 18176),
        ("D", 18304, 4608),
        ungated=True,
    ),
    _table("olmoe-1b", BUILD_XCLBINS, ("QKV", 2048, 4096), ("O", 2048, 2048), ("GU", 2048, 4096), ("D", 2048, 2048)),
    _table(
        "zamba2-2.7b", BUILD_XCLBINS, ("QKV", 2560, 7680), ("O", 2560, 2560), ("GU", 2560, 10240), ("D", 5120, 2560)
    ),
)


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
        "olmoe-1b",
        "its published config.json",
        Dimensions(2048, 16, 16, 16, 128, 0, experts=Experts(64, 8, 1024)),
    ),
    PublishedDimensions("falcon-7b", GENERAL, _dense(4544, 71, 1, 64, 18176, 32)),
)
"""The first row of a model is the one its build tables are compared with; further rows are other sources for it."""
