"""Artifact names: round trip, the engine's 64-byte buffer, and refusal of anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import ArtifactName, bare_elf_name
from elfkiln.errors import ElfkilnError, Refused

ROLES = ["QKV", "QKV2", "O", "O2", "GU", "GU2", "G", "U", "D", "D2", "Z", "PLEGATE", "PLEPROJ"]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("full_i8_QKV_K5120_N14336_b8.elf", ("QKV", 5120, 14336, "_b8", False, 128, "b8")),
        ("full_i8_O_K6144_N5120_b8_m16.elf", ("O", 6144, 5120, "_b8", True, 16, "b8")),
        ("full_i8_GU_K1024_N6144.elf", ("GU", 1024, 6144, "", False, 128, "rm")),
        ("full_i8_GU_K1024_N6144_m16.elf", ("GU", 1024, 6144, "", True, 16, "rm")),
        ("full_i8_D_K17408_N5120_pb16i_m16.elf", ("D", 17408, 5120, "_pb16i", True, 16, "pb16i")),
        ("full_i8_Z_K5120_N6144_t2s2.elf", ("Z", 5120, 6144, "_t2s2", False, 128, "t2s")),
        ("full_i8_PLEPROJ_K256_N1536_t2s_m16.elf", ("PLEPROJ", 256, 1536, "_t2s", True, 16, "t2s")),
    ],
)
def test_names_the_engine_asks_for(text, fields):
    name = ArtifactName.parse(text)
    assert (name.role, name.K, name.N, name.tag, name.m16, name.M, name.layout) == fields
    assert str(name) == text


@given(
    st.sampled_from([role.name for role in contract.ROLES]),
    st.integers(1, 10**7),
    st.integers(1, 10**7),
    st.sampled_from(contract.TAGS),
    st.booleans(),
)
def test_round_trip(role, K, N, tag, m16):
    name = ArtifactName(role, K, N, tag, m16=m16)
    assert ArtifactName.parse(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "full_i8_QKV_K5120_N14336",
        "full_i8_QKV_K5120_N14336_b8.elf\n",
        "full_i8_QKV_K5120_N14336_b8.elf.elf",
        "FULL_i8_QKV_K5120_N14336.elf",
        "full_i8_XYZ_K5120_N14336.elf",
        "full_i8_qkv_K5120_N14336.elf",
        "full_i8_QKV_K0_N14336.elf",
        "full_i8_QKV_K05120_N14336.elf",
        "full_i8_QKV_K-1_N14336.elf",
        "full_i8_QKV_K5120_N14336_b9.elf",
        "full_i8_QKV_K5120_N14336_m16_b8.elf",
        "full_i8_QKV_K5120_N14336_m16_m16.elf",
        "full_i8_QKV_K5120_N14336__m16.elf",
        "full_i8_QKV_N14336_K5120.elf",
        "../full_i8_QKV_K5120_N14336.elf",
        "full_i8_QKV_K5120_N14336.elf/..",
        "full_i8_QKV_K\u0665120_N14336.elf",
        "full_i8_QKV_K5120_N" + "9" * 60 + ".elf",
        "pb16i_sealed.elf",
        "final_i8_QKV_K5120_N14336.xclbin",
    ],
)
def test_anything_else_is_refused_in_one_line(text):
    with pytest.raises(Refused) as raised:
        ArtifactName.parse(text)
    assert "\n" not in str(raised.value)
    assert "artifact name" in str(raised.value)


@given(st.text(max_size=80))
def test_any_text_is_a_name_or_one_line(text):
    try:
        outcome = str(ArtifactName.parse(text))
    except ElfkilnError as error:
        outcome = str(error).replace("\n", "<line break>")
        assert outcome == str(error)
    else:
        assert outcome == text


def test_the_name_fits_the_engines_buffer_with_its_nul():
    # full_i8_ (8) PLEPROJ (7) _K (2) ... _N (2) ... _pb16i (6) _m16 (4) .elf (4): 33 letters beside the digits.
    fits = ArtifactName("PLEPROJ", 10**14, 10**14, "_pb16i", m16=True)
    assert len(str(fits)) == 63
    with pytest.raises(Refused, match="at most 63 characters"):
        ArtifactName("PLEPROJ", 10**15, 10**14, "_pb16i", m16=True)


@pytest.mark.parametrize(("K", "N"), [(0, 1), (-64, 128), (64, 0)])
def test_geometry_below_one_is_refused(K, N):
    with pytest.raises(Refused, match="positive integer"):
        ArtifactName("G", K, N)


def test_bare_names_of_sealed_elfs():
    assert bare_elf_name("pb16i_sealed.elf", "x") == "pb16i_sealed.elf"
    for text in ("", ".elf", "a/b.elf", "../x.elf", "x", "-x.elf", "x.elf\n", "a" * 60 + ".elf", "\\x.elf"):
        with pytest.raises(Refused, match=r"decode\.sealed_elf"):
            bare_elf_name(text, "decode.sealed_elf")
