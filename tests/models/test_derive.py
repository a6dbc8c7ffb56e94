"""Designs derived from config.json, rule by rule."""

import pytest

from elfkiln.errors import Refused
from elfkiln.models.config import Dimensions, dimensions
from elfkiln.models.derive import derive_designs, geometry_faults, padded
from model_configs import GEMMA4_E2B, GLM_47_FLASH, QWEN3_06B, QWEN35_4B


def derived(config, *, fused):
    designs = derive_designs(dimensions(config), fused=fused)
    return [(design.role, design.K, design.N) for design in designs]


def test_grouped_queries_fused_and_split():
    head = [("QKV", 1024, 4096), ("O", 2048, 1024)]
    assert derived(QWEN3_06B, fused=True) == [*head, ("GU", 1024, 6144), ("D", 3072, 1024)]
    assert derived(QWEN3_06B, fused=False) == [*head, ("G", 1024, 3072), ("U", 1024, 3072), ("D", 3072, 1024)]


def test_a_head_width_that_is_not_given_is_hidden_over_heads():
    config = {**QWEN3_06B, "head_dim": None}
    assert derived(config, fused=True)[:2] == [("QKV", 1024, 1024 + 2 * 8 * 64), ("O", 1024, 1024)]
    del config["num_key_value_heads"]
    assert derived(config, fused=True)[0] == ("QKV", 1024, 3 * 1024)


def test_output_gate_and_gdn():
    assert derived(QWEN35_4B, fused=False) == [
        ("QKV", 2560, 10240),  # 2*16*256 + 2*4*256
        ("O", 4096, 2560),
        ("G", 2560, 9216),
        ("U", 2560, 9216),
        ("D", 9216, 2560),
        ("QKVLIN", 2560, 8192),  # 2*16*128 + 32*128
        ("Z", 2560, 4096),
    ]
    names = {design.role: design.elf_role for design in derive_designs(dimensions(QWEN35_4B), fused=False)}
    assert names["QKVLIN"] == "QKV"


def test_second_width_per_layer_embeddings_and_double_wide_mlp():
    assert derived(GEMMA4_E2B, fused=True) == [
        ("QKV", 1536, 2560),
        ("O", 2048, 1536),
        ("GU", 1536, 12288),
        ("D", 6144, 1536),
        ("QKV2", 1536, 5120),  # 8*512 + 2*1*512
        ("O2", 4096, 1536),
        ("PLEGATE", 1536, 256),
        ("PLEPROJ", 256, 1536),
        ("GU2", 1536, 24576),
        ("D2", 12288, 1536),
    ]
    elf = [design.elf_role for design in derive_designs(dimensions(GEMMA4_E2B), fused=True)]
    assert elf == ["QKV", "O", "GU", "D", "QKV", "O", "PLEGATE", "PLEPROJ", "GU", "D"]


def test_the_second_width_may_have_its_own_key_value_heads():
    config = {**GEMMA4_E2B, "num_global_key_value_heads": 2}
    assert ("QKV2", 1536, 8 * 512 + 2 * 2 * 512) in derived(config, fused=True)
    assert ("QKV2", 1536, 5120) not in derived(config, fused=True)


def test_latent_attention_and_experts():
    assert derived(GLM_47_FLASH, fused=False) == [
        ("QA", 2048, 768),
        ("QB", 768, 5120),  # 20 * (192 + 64)
        ("KVA", 2048, 640),  # 512 + 64 padded
        ("O", 5120, 2048),  # 20 * 256
        ("G", 2048, 1536),
        ("U", 2048, 1536),
        ("D", 1536, 2048),
        ("DG", 2048, 10240),
        ("DU", 2048, 10240),
        ("DD", 10240, 2048),
    ]
    kva = derive_designs(dimensions(GLM_47_FLASH), fused=False)[2]
    assert (kva.N, kva.derivation) == (640, "N = 512 + 64 = 576, padded to tiles")


def test_experts_are_never_fused():
    with pytest.raises(Refused, match="expected split, as the experts run G and U, found fused"):
        derive_designs(dimensions(GLM_47_FLASH), fused=True)


def test_bonsai_widths_solve_as_published():
    bonsai = {
        **QWEN35_4B,
        "hidden_size": 5120,
        "num_attention_heads": 24,
        "intermediate_size": 17408,
        "linear_num_value_heads": 48,
    }
    assert {(role, K, N) for role, K, N in derived(bonsai, fused=False)} == {
        ("QKV", 5120, 14336),
        ("QKVLIN", 5120, 10240),
        ("O", 6144, 5120),
        ("G", 5120, 17408),
        ("U", 5120, 17408),
        ("D", 17408, 5120),
        ("Z", 5120, 6144),
    }
    assert dimensions(bonsai).notes == ()


def test_fusion_by_default_follows_the_old_rule():
    assert dimensions(QWEN3_06B).fused_by_default  # 6144 <= 14336
    assert dimensions({**QWEN3_06B, "intermediate_size": 7168}).fused_by_default  # 14336
    assert not dimensions({**QWEN3_06B, "intermediate_size": 7169}).fused_by_default
    assert not dimensions({**GLM_47_FLASH, "intermediate_size": 512}).fused_by_default


def test_geometry_no_whole_tile_serves_is_named():
    smollm2 = derive_designs(Dimensions(576, 30, 9, 3, 64, 1536), fused=True)
    assert geometry_faults(smollm2) == (
        "QKV 576x960: N is not a multiple of 128 (padded: 1024)",
        "O 576x576: N is not a multiple of 128 (padded: 640)",
        "D 1536x576: N is not a multiple of 128 (padded: 640)",
    )
    falcon = derive_designs(Dimensions(4608, 32, 72, 1, 64, 18176), fused=True)
    assert "QKV 4608x4736: N/128 = 37 has no divisor in 2..8" in geometry_faults(falcon)
    assert geometry_faults(derive_designs(dimensions(GEMMA4_E2B), fused=True)) == ()
    assert padded(4672) == 4736
