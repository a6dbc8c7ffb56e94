"""What the inference engine asks of an artifact: one table of its words and figures.

Every value that comes from the engine lives here, so that one edit corrects it. `guess=True` marks what no public
source states. The sources are the engine's public repository (1bit-MONSTER/engine: plan-layer page, b8 layout pull
request, npu/forward, q4nx_pack) and are named per row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from elfkiln.hardware.limits import limit

NAME_BYTES = 64
"""Size of the engine's file-name buffer, with the closing NUL (q4nx_pack.h, Q4NX_ELF_NAME_MAX)."""

MIN_ELF_BYTES = 4096
"""A kernel ELF is larger: 59-byte stubs under geometry names were a real fault (q4nx_forward.cpp asked for as many)."""

TILE_M = 32
"""Rows of a prefill tile; a decode twin uses 16 (the v27 generator and its m16 build)."""
TILE_K = 64
TILE_N = 128
PREFILL_M = 128
DECODE_M = 16

MIN_COLUMNS = 2
"""One column puts three FIFOs on one shim and returns zeros (engine issue #1208)."""
MAX_COLUMNS = limit("columns").value
MAX_ROWS = limit("rows").value - 2
"""Core rows: the rows of the array without those of shim and mem tiles. A design never has more rows than columns
(v27 generator)."""

PREFILL_DIRECTORY = "kernels"
DECODE_DIRECTORY = "kernels-m16"
"""Directories of a model folder that the loader searches (b8 layout pull request)."""


@dataclass(frozen=True, slots=True)
class Role:
    """A projection role. `elf` is the role its ELF name carries; the second widths share the name of the first."""

    name: str
    meaning: str
    source: str
    guess: bool = False
    elf: str = ""

    @property
    def elf_role(self) -> str:
        """The role written in `full_i8_<ROLE>_...` (q4nx_pack.c, set_elf_name: the geometry tells widths apart)."""
        return self.elf or self.name


ROLES: tuple[Role, ...] = (
    Role("QKV", "fused query, key, value; for GDN layers q|k|v", "q4nx_pack"),
    Role("QKV2", "second attention width", "q4nx_pack", elf="QKV"),
    Role("O", "attention output; GDN ssm_out", "q4nx_pack"),
    Role("O2", "output of the second attention width", "q4nx_pack", elf="O"),
    Role("GU", "gate and up in one", "q4nx_pack"),
    Role("GU2", "gate and up of a double-wide MLP", "q4nx_pack", elf="GU"),
    Role("G", "gate", "q4nx_pack"),
    Role("U", "up", "q4nx_pack"),
    Role("D", "down", "q4nx_pack"),
    Role("D2", "down of a double-wide MLP", "q4nx_pack", elf="D"),
    Role("Z", "GDN attention gate", "b8 pull request"),
    Role("PLEGATE", "per-layer embedding gate", "q4nx_forward"),
    Role("PLEPROJ", "per-layer embedding projection", "q4nx_forward"),
    Role("QA", "MLA query down-projection", "q4nx_pack.h enum", guess=True),
    Role("QB", "MLA query up-projection", "q4nx_pack.h enum", guess=True),
    Role("KVA", "MLA key/value down-projection", "q4nx_pack.h enum", guess=True),
    Role("DG", "gate of a leading dense layer", "q4nx_pack.h enum", guess=True),
    Role("DU", "up of a leading dense layer", "q4nx_pack.h enum", guess=True),
    Role("DD", "down of a leading dense layer", "q4nx_pack.h enum", guess=True),
)

ELF_ROLES: tuple[str, ...] = tuple(role.name for role in ROLES if role.elf_role == role.name)
"""The roles that stand in ELF names. MLA names are a guess: no public source prints one."""


@dataclass(frozen=True, slots=True)
class Family:
    """One artifact family: the tag in names, the container layout it needs, and whether pb16i must be set."""

    tag: str
    layout: str
    pb16i: bool
    source: str
    guess: bool = False


FAMILIES: tuple[Family, ...] = (
    Family("", "rm", False, "plan-layer page: a tag may not disagree with the layout", guess=True),
    Family("_b8", "b8", False, "plan-layer page"),
    Family("_pb16i", "pb16i", True, "plan-layer page"),
    Family("_t2s", "t2s", True, "plan-layer page"),
    Family("_t2s2", "t2s", True, "plan-layer page"),
)

TAGS: tuple[str, ...] = tuple(family.tag for family in FAMILIES)
LONGEST_TAG = max(TAGS, key=len)


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """How a layout's weights lie in the buffer, as far as a design's data movement shows it.

    `weight_bits` are the bits a weight takes. `contiguous` says that the K panel of a column of tiles is one run of
    memory. A `ternary` layout holds -1, 0 and 1 alone. `compared_with` is the int8 layout that gives the same int32
    results on the same weights. `shared_tiles` says that the columns of a tile lie together in parts, so that at
    M = 16 the cores of a column can share one: this project's choice, no name says it.
    """

    name: str
    weight_bits: int
    contiguous: bool
    ternary: bool
    compared_with: str
    source: str
    guess: bool = False
    shared_tiles: bool = False

    @property
    def text(self) -> str:
        """The layout as a design shows it, in words."""
        return weights_text(self.weight_bits, self.contiguous)


WEIGHT_LAYOUTS: tuple[WeightLayout, ...] = (
    WeightLayout("rm", 8, False, False, "b8", "b8 pull request"),
    WeightLayout("b8", 8, True, False, "rm", "b8 pull request"),
    WeightLayout(
        "pb16i", 2, True, True, "b8", "this project's definition, elfkiln.engine.layouts", guess=True, shared_tiles=True
    ),
    WeightLayout("t2s", 2, True, True, "b8", "its name alone: no public source states its bytes", guess=True),
)
LAYOUTS: tuple[str, ...] = tuple(layout.name for layout in WEIGHT_LAYOUTS)
CONFIG_LAYOUTS: tuple[str, ...] = ("rm", "b8")
"""What config.json's q4nx_weight_layout may say (b8 pull request); the other layouts exist only in a plan."""


SHARED_COLUMNS = 32
"""Columns of a tile that lie together in a layout of shared tiles: a core's part is a multiple of them."""


def weight_layout(name: str) -> WeightLayout:
    """Return the row of a layout (`KeyError` for a name that is none).

    >>> weight_layout("pb16i").text
    '2-bit contiguous weights'
    """
    for layout in WEIGHT_LAYOUTS:
        if layout.name == name:
            return layout
    raise KeyError(name)


def weights_text(weight_bits: int, contiguous: bool) -> str:
    """Return in words how weights lie: bits of one, and whether in linear runs."""
    return f"{weight_bits}-bit {'contiguous' if contiguous else 'row-major'} weights"


def tag_of_layout(layout: str) -> str:
    """Return the first tag that serves a container layout.

    >>> tag_of_layout("b8"), tag_of_layout("rm")
    ('_b8', '')
    """
    return next(family.tag for family in FAMILIES if family.layout == layout)


def layout_of_tag(tag: str) -> str:
    """Return the container layout a tag needs.

    >>> layout_of_tag("_t2s2")
    't2s'
    """
    return next(family.layout for family in FAMILIES if family.tag == tag)


# --- plan.json, schema 1bit-npu-plan/1 (plan-layer page and KV-contract pull request unless a row says otherwise) ---

PLAN_FORMAT = "1bit-npu-plan/1"
PLAN_FILE = "plan.json"
CONTAINER_FILE = "model.q4nx"
CONFIG_FILE = "config.json"
DECISION_FILE = "decision_config.json"
"""Files of a model folder; `attention_mode` of the decision file must agree with the plan's attention.mode."""
DECISION_KEY = "attention_mode"

GATE_UP_FUSED = "fused"
GATE_UP_SPLIT = "split"
GATE_UP: tuple[str, ...] = (GATE_UP_FUSED, GATE_UP_SPLIT)
TILE_ORDERS: tuple[str, ...] = ("engine-1",)
"""The one order the engine accepts, and the default where a plan names none."""
ATTENTION_MODES: tuple[str, ...] = ("causal", "noncausal_full_attention")
DIRECTORY_ROOTS: tuple[str, ...] = ("model", "kernels")
KV_DEFAULT = "f16"
KV_INT8 = "int8"
KV_TYPES: tuple[str, ...] = (KV_DEFAULT, KV_INT8)
HADAMARD_MIN = 2
HADAMARD_MAX = 65536
SEALED_ELF = "pb16i_sealed.elf"
SEALED_TAG = "_pb16i"
"""The tag whose decode needs a sealed ELF, and the file name the worked example gives it."""
SEALED_DIRECTORY = "."
"""GUESS: the sealed ELF lies in the model folder itself; no public source says where it is looked up."""
MAX_LAYERS = 64
MAX_DESIGNS = 12
"""Q4NX_MAX_LAYERS and Q4NX_MAX_DESIGNS of the engine's headers; beyond them it truncates or refuses."""


@dataclass(frozen=True, slots=True)
class LayerRole:
    """A value of layers[].role. Geometry never depends on it: the projection keys decide."""

    name: str
    meaning: str
    source: str
    guess: bool = False


LAYER_ROLES: tuple[LayerRole, ...] = (
    LayerRole("gdn", "Gated DeltaNet (linear attention)", "plan-layer page"),
    LayerRole("full", "full attention", "b8 pull request writes full-attn layers", guess=True),
    LayerRole("sliding", "sliding-window attention", "tensor families of q4nx_forward", guess=True),
    LayerRole("mla", "multi-head latent attention", "tensor families of q4nx_forward", guess=True),
)
"""Four roles exist; one name is published."""


_LAYER_TYPES = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "gdn",
}
"""What config.json's layer_types says in Hugging Face models, and the layer role it stands for here."""


def layer_type_role(layer_type: str) -> str | None:
    """Return the layer role an entry of layer_types stands for, None for one that is not known.

    >>> layer_type_role("linear_attention"), layer_type_role("mamba")
    ('gdn', None)
    """
    return _LAYER_TYPES.get(layer_type)


@dataclass(frozen=True, slots=True)
class PlanProjection:
    """A projection key of a plan's layer and the design roles it asks for, split and fused.

    `input_hidden` and `output_hidden` say whether K or N is the model's hidden size.
    """

    key: str
    split: tuple[str, ...]
    fused: tuple[str, ...]
    source: str
    input_hidden: bool = True
    output_hidden: bool = False
    guess: bool = False


PLAN_PROJECTIONS: tuple[PlanProjection, ...] = (
    PlanProjection("qkv", ("QKV",), ("QKV",), "plan-layer page"),
    PlanProjection("attn_gate", ("Z",), ("Z",), "plan-layer page"),
    PlanProjection("q_a", ("QA",), ("QA",), "tensor names of q4nx_forward", guess=True),
    PlanProjection("q_b", ("QB",), ("QB",), "tensor names of q4nx_forward", input_hidden=False, guess=True),
    PlanProjection("kv_a", ("KVA",), ("KVA",), "tensor names of q4nx_forward", guess=True),
    PlanProjection("o", ("O",), ("O",), "b8 pull request", input_hidden=False, output_hidden=True, guess=True),
    PlanProjection("ssm_out", ("O",), ("O",), "plan-layer page (written by the generator only)", False, True),
    PlanProjection("gate_up", ("G", "U"), ("GU",), "plan-layer page"),
    PlanProjection("down", ("D",), ("D",), "plan-layer page", input_hidden=False, output_hidden=True),
    PlanProjection("dense_gate_up", ("DG", "DU"), ("DG", "DU"), "designs DG and DU of q4nx_pack.h", guess=True),
    PlanProjection("dense_down", ("DD",), ("DD",), "design DD of q4nx_pack.h", False, True, guess=True),
    PlanProjection("ple_gate", ("PLEGATE",), ("PLEGATE",), "design PLEGATE of q4nx_pack.h", guess=True),
    PlanProjection("ple_proj", ("PLEPROJ",), ("PLEPROJ",), "design PLEPROJ of q4nx_pack.h", False, True, guess=True),
)
"""The order is the order of the names asked for. Keys beyond the published ones are marked."""


@dataclass(frozen=True, slots=True)
class ChunkKind:
    """How a container stores a chunk of 32 rows x 256 columns: its bytes, where one size tells the kind.

    `ternary` chunks hold -1, 0 and 1 alone; the others are made int8 when the engine loads them.
    """

    name: str
    chunk_bytes: int | None
    source: str
    guess: bool = False
    ternary: bool = False


CHUNK_ROWS = 32
CHUNK_COLUMNS = 256
CHUNK_KINDS: tuple[ChunkKind, ...] = (
    ChunkKind("q4_1", 5120, "docs/npu.md gives the size; the spelling in a plan is not published", guess=True),
    ChunkKind("q4k", 4736, "docs/npu.md gives the size; the spelling in a plan is not published", guess=True),
    ChunkKind("q8", 8704, "docs/npu.md gives the size; the spelling in a plan is not published", guess=True),
    ChunkKind(
        "pb16i", 2048, "plan-layer page names it; the size is 2 bits a weight without scales", guess=True, ternary=True
    ),
    ChunkKind("t2", None, "plan-layer page names it; its size is not published", guess=True, ternary=True),
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a target can do of what a plan may ask; each row of the table of targets has one."""

    target: str
    int8_kv: bool
    source: str


# --- config.json and the derivation of designs (q4nx_forward.cpp, q4nx_pack.c) ---


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key of config.json that the engine reads, and the spellings Hugging Face models use for the same number.

    The engine reads only `key`: a container whose config has just the other spelling is read as if it had none.
    """

    key: str
    meaning: str
    others: tuple[str, ...] = ()


LAYOUT_KEY = "q4nx_weight_layout"
CONFIG_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("hidden_size", "model width H"),
    ConfigKey("num_hidden_layers", "layers NL"),
    ConfigKey("num_attention_heads", "query heads NH"),
    ConfigKey("num_key_value_heads", "key/value heads NKV"),
    ConfigKey("head_dim", "width HD of a head; hidden/heads where absent"),
    ConfigKey("intermediate_size", "MLP width IM; of one expert in a mixture"),
    ConfigKey("vocab_size", "vocabulary NV"),
    ConfigKey("layer_types", "kind of attention by layer"),
    ConfigKey("attn_output_gate", "q_proj emits query and output gate"),
    ConfigKey("linear_num_key_heads", "GDN key heads"),
    ConfigKey("linear_key_head_dim", "GDN key head width"),
    ConfigKey("linear_num_value_heads", "GDN value heads"),
    ConfigKey("linear_value_head_dim", "GDN value head width"),
    ConfigKey("mla", "multi-head latent attention"),
    ConfigKey("q_lora_rank", "MLA query latent"),
    ConfigKey("kv_lora_rank", "MLA key/value latent"),
    ConfigKey("rope_dim", "MLA rope width of a head", ("qk_rope_head_dim",)),
    ConfigKey("qk_nope_head_dim", "MLA width of a head without rope"),
    ConfigKey("v_head_dim", "MLA value width of a head"),
    ConfigKey("n_expert", "experts", ("num_experts", "n_routed_experts", "num_local_experts")),
    ConfigKey("top_k", "experts a token", ("num_experts_per_tok",)),
    ConfigKey("dense_intermediate_size", "MLP width of the leading dense layers"),
    ConfigKey("leading_dense_block_count", "leading dense layers", ("first_k_dense_replace",)),
    ConfigKey("expert_gating_func", "1 softmax, 2 sigmoid"),
    ConfigKey("expert_weights_scale", "factor on the chosen experts' weights"),
    ConfigKey("hidden_size_per_layer_input", "width of the per-layer embeddings"),
    ConfigKey("use_double_wide_mlp", "KV-shared layers run an MLP of twice the width"),
    ConfigKey("num_kv_shared_layers", "last layers that reuse another layer's keys and values"),
    ConfigKey("global_head_dim", "head width of the full-attention layers where it differs"),
    ConfigKey("num_global_key_value_heads", "key/value heads of those layers"),
    ConfigKey(LAYOUT_KEY, "rm where absent, or b8"),
)
EXPERT_WIDTH_KEY = "moe_intermediate_size"
"""Hugging Face's own key for the width of one expert; the converter writes it as intermediate_size."""
FUSED_MAX_N = 14336
"""The old build scripts split gate and up where 2*IM is larger (build_xclbins.sh, model_config.h)."""
BATCHED_EXPERT_N = 8192
"""The one G/U width the engine batches the chosen experts in (q4nx_forward.cpp)."""


# --- published decode rates (b8 pull request: per-phase table of Bonsai-2-27B at M=16, and its totals) ---


@dataclass(frozen=True, slots=True)
class PhaseRate:
    """Published weight bandwidth of one phase in GB/s (1e9 bytes): the row-major set and the b8 set."""

    phase: str
    roles: tuple[str, ...]
    rm: float
    b8: float


PHASE_RATES: tuple[PhaseRate, ...] = (
    PhaseRate("GU", ("G", "U", "GU", "GU2"), 3.32, 8.13),
    PhaseRate("D", ("D", "D2"), 3.19, 8.25),
    PhaseRate("QKV", ("QKV", "QKV2"), 3.35, 8.15),
    PhaseRate("O", ("O", "O2"), 3.19, 8.15),
    PhaseRate("Z", ("Z",), 3.44, 8.36),
)
LAUNCH_SECONDS = 0.55e-3
"""Overhead of a launch: the published totals minus bytes/rate leave 0.60 ms (row-major) and 0.51 ms (b8)."""


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A published measurement of one model: launches without the head, weight GB a token, device wait in seconds."""

    model: str
    hidden: int
    layers: int
    vocabulary: int
    launches: int
    weight_gigabytes: float
    seconds: tuple[tuple[str, float], ...]
    source: str


PUBLISHED_RUNS: tuple[PublishedRun, ...] = (
    PublishedRun("Bonsai-2-27B", 5120, 64, 248320, 368, 25.60, (("rm", 8.01), ("b8", 3.32)), "b8 pull request"),
)


# --- what a full ELF must export (npu/forward init_elf; the sealed ELF's inside is this project's own definition) ---

KERNEL = "main"
INSTANCE = "seq"
"""The engine opens `main:seq`: the device's symbol and its runtime sequence's."""
MOST_ARGUMENTS = 3
"""The engine gives a sequence three buffers: A, B and C."""
SEALED_INIT = "init"
"""Sequence of a sealed ELF that loads the PDI, once."""


def sealed_instance(K: int, N: int) -> str:
    """Return the name of a sealed ELF's sequence for one geometry.

    >>> sealed_instance(5120, 14336)
    'seq_K5120_N14336'
    """
    return f"{INSTANCE}_K{K}_N{N}"


SEALED_FORM = f"{INSTANCE}_K<K>_N<N>"
_SEALED_INSTANCE = re.compile(rf"{INSTANCE}_K([1-9][0-9]{{0,8}})_N([1-9][0-9]{{0,8}})", re.ASCII)


def sealed_geometry(sequence: str) -> tuple[int, int] | None:
    """Return (K, N) of a sealed ELF's sequence, None for a name of another form.

    >>> sealed_geometry("seq_K5120_N14336"), sealed_geometry("init")
    ((5120, 14336), None)
    """
    match = _SEALED_INSTANCE.fullmatch(sequence)
    return None if match is None else (int(match[1]), int(match[2]))


def is_sealed(sequences: Sequence[str]) -> bool:
    """Whether these are the sequences of a sealed ELF: `init`, at least one named after a geometry, and no other.

    >>> is_sealed(["init", "seq_K5120_N14336"]), is_sealed(["init"]), is_sealed(["init", "seq"])
    (True, False, False)
    """
    named = sum(sealed_geometry(sequence) is not None for sequence in sequences)
    return named > 0 and sequences.count(SEALED_INIT) == 1 and named + 1 == len(sequences)


ARGUMENT_A, ARGUMENT_B, ARGUMENT_C = range(3)
"""Arguments of a GEMM kernel: activations int8 M x K, packed weights, result int32 M x N."""
