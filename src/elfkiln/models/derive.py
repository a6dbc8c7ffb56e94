"""Derives a model's GEMM designs from its dimensions, by the engine's own rules (q4nx_forward.cpp, q4nx_pack.c)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from elfkiln.engine import contract
from elfkiln.engine.legality import legal_columns
from elfkiln.errors import refusal
from elfkiln.models.config import Dimensions

_ELF_ROLES = {role.name: role.elf_role for role in contract.ROLES} | {"QKVLIN": "QKV"}


@dataclass(frozen=True, slots=True)
class Design:
    """A derived design: the engine's design role, its geometry, and what its width is made of.

    >>> Design("KVA", 2048, 640).elf_role, Design("QKVLIN", 5120, 10240).elf_role
    ('KVA', 'QKV')
    """

    role: str
    K: int
    N: int
    derivation: str = field(default="", compare=False)

    @property
    def elf_role(self) -> str:
        """The role its ELF name carries."""
        return _ELF_ROLES[self.role]


def derive_designs(dims: Dimensions, *, fused: bool) -> tuple[Design, ...]:
    """Return the designs of a model in the engine's order.

    `fused` chooses one GU design or the pair G, U. Raises `Refused` when it is asked of a mixture of experts.
    """
    if fused and dims.must_split:
        raise refusal("fusion.gate_up", expected="split, as the experts run G and U", found="fused")
    return tuple(_designs(dims, fused=fused))


def geometry_faults(designs: tuple[Design, ...]) -> tuple[str, ...]:
    """Name every derived geometry that no design with whole tiles can serve.

    >>> geometry_faults((Design("QKV", 576, 960),))
    ('QKV 576x960: N is not a multiple of 128 (padded: 1024)',)
    """
    faults = []
    for design in designs:
        shape = f"{design.role} {design.K}x{design.N}"
        if design.K % contract.TILE_K:
            faults.append(f"{shape}: K is not a multiple of {contract.TILE_K}")
        if design.N % contract.TILE_N:
            faults.append(f"{shape}: N is not a multiple of {contract.TILE_N} (padded: {padded(design.N)})")
        elif not legal_columns(design.N):
            faults.append(f"{shape}: N/{contract.TILE_N} = {design.N // contract.TILE_N} has no divisor in 2..8")
    return tuple(faults)


def padded(width: int) -> int:
    """Return a width padded to whole tiles of 128, as the engine pads the MLA key/value projection (q4nx_pack.h).

    >>> padded(576), padded(18176)
    (640, 18176)
    """
    return -(-width // contract.TILE_N) * contract.TILE_N


def _designs(dims: Dimensions, *, fused: bool) -> Iterator[Design]:
    hidden, width = dims.hidden, dims.experts.width if dims.experts else dims.intermediate
    mlp = "the width of one expert" if dims.experts else "intermediate_size"

    if dims.mla:
        mla = dims.mla
        latent = mla.kv_lora + mla.rope
        yield Design("QA", hidden, mla.q_lora, "N = q_lora_rank")
        yield Design(
            "QB", mla.q_lora, dims.heads * (mla.nope + mla.rope), f"N = {dims.heads}*({mla.nope} + {mla.rope})"
        )
        yield Design("KVA", hidden, padded(latent), f"N = {mla.kv_lora} + {mla.rope} = {latent}, padded to tiles")
        yield Design("O", dims.heads * mla.value_head, hidden, f"K = {dims.heads}*{mla.value_head}")
    else:
        gate = f"2*{dims.heads}*{dims.head_dim} with the output gate" if dims.output_gate else ""
        sums = f"{gate or f'{dims.heads}*{dims.head_dim}'} + 2*{dims.kv_heads}*{dims.head_dim}"
        yield Design("QKV", hidden, dims.qkv_width(), f"N = {sums}")
        yield Design("O", dims.heads * dims.head_dim, hidden, f"K = {dims.heads}*{dims.head_dim}")
    if fused:
        yield Design("GU", hidden, 2 * width, f"N = twice {mlp}")
    else:
        yield Design("G", hidden, width, f"N = {mlp}")
        yield Design("U", hidden, width, f"N = {mlp}")
    yield Design("D", width, hidden, f"K = {mlp}")
    if dims.mla:
        if dims.leading_dense:
            yield Design("DG", hidden, dims.intermediate, "N = the dense layers' width")
            yield Design("DU", hidden, dims.intermediate, "N = the dense layers' width")
            yield Design("DD", dims.intermediate, hidden, "K = the dense layers' width")
        return
    if dims.has_second_width:
        kv_heads, second = dims.global_kv_heads or dims.kv_heads, dims.global_head_dim
        sums = f"N = {dims.heads}*{second} + 2*{kv_heads}*{second}"
        yield Design("QKV2", hidden, dims.qkv_width(second=True), f"second attention width: {sums}")
        yield Design("O2", dims.heads * second, hidden, f"second attention width: K = {dims.heads}*{second}")
    if dims.per_layer_input:
        yield Design("PLEGATE", hidden, dims.per_layer_input, "N = hidden_size_per_layer_input")
        yield Design("PLEPROJ", dims.per_layer_input, hidden, "K = hidden_size_per_layer_input")
    if dims.double_wide:
        yield Design("GU2", hidden, 4 * width, f"double-wide MLP: N = four times {mlp}")
        yield Design("D2", 2 * width, hidden, f"double-wide MLP: K = twice {mlp}")
    if dims.linear_key:
        key, value = dims.linear_key, dims.linear_value
        yield Design("QKVLIN", hidden, 2 * key + value, f"GDN: N = 2*{key} + {value}")
        yield Design("Z", hidden, value, f"GDN gate: N = {value}")
