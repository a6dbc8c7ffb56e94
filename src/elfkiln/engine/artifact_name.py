"""Artifact names: the one place that prints and parses `full_i8_<ROLE>_K<K>_N<N>[tag][_m16].elf`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from elfkiln.engine import contract
from elfkiln.errors import brief, one_of, refusal

_MODEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_ROLE_NAMES = frozenset(role.name for role in contract.ROLES)
_TAG_CHOICE = "|".join(re.escape(tag) for tag in contract.TAGS)
_SHAPE = re.compile(
    rf"full_i8_(?P<role>[A-Z0-9]+)_K(?P<K>[1-9][0-9]*)_N(?P<N>[1-9][0-9]*)(?P<tag>{_TAG_CHOICE})(?P<m16>(?:_m16)?)\.elf",
    re.ASCII,
)
_FORM = "full_i8_<ROLE>_K<K>_N<N>[tag][_m16].elf"
_BARE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.elf", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class ArtifactName:
    """The name of one GEMM artifact: role, geometry (K, N), tag and whether it is the 16-row decode twin.

    >>> str(ArtifactName("QKV", 5120, 14336, "_b8", m16=True))
    'full_i8_QKV_K5120_N14336_b8_m16.elf'
    >>> ArtifactName.parse("full_i8_D_K3072_N1024.elf")
    ArtifactName(role='D', K=3072, N=1024, tag='', m16=False)
    """

    role: str
    K: int
    N: int
    tag: str = ""
    m16: bool = False

    def __post_init__(self) -> None:
        """Refuse a role or tag the engine does not know, a geometry below 1, and a name over the engine's buffer."""
        if self.role not in _ROLE_NAMES:
            raise refusal("artifact name: role", expected=one_of(self.role, sorted(_ROLE_NAMES)), found=self.role)
        for letter, value in (("K", self.K), ("N", self.N)):
            if value < 1:
                raise refusal(f"artifact name: {letter}", expected="a positive integer", found=value)
        if self.tag not in contract.TAGS:
            known = ", ".join(repr(tag) for tag in contract.TAGS)
            raise refusal("artifact name: tag", expected=f"one of {known}", found=repr(self.tag))
        if len(str(self)) >= contract.NAME_BYTES:
            raise refusal(
                "artifact name",
                expected=f"at most {contract.NAME_BYTES - 1} characters",
                found=f"{len(str(self))} characters in {self}",
            )

    def __str__(self) -> str:
        """Return the file name."""
        return f"full_i8_{self.role}_{self.shape}.elf"

    @property
    def shape(self) -> str:
        """What names share that may have one ELF: all of the name but the role.

        >>> ArtifactName("G", 5120, 17408, "_b8").shape == ArtifactName("U", 5120, 17408, "_b8").shape
        True
        """
        return f"K{self.K}_N{self.N}{self.tag}{'_m16' if self.m16 else ''}"

    @property
    def M(self) -> int:
        """Activation rows of the design behind this name."""
        return contract.DECODE_M if self.m16 else contract.PREFILL_M

    @property
    def layout(self) -> str:
        """Weight layout the tag stands for."""
        return contract.layout_of_tag(self.tag)

    @classmethod
    def parse(cls, text: str) -> ArtifactName:
        """Read a file name; anything but the exact form is a `Refused`."""
        match = _SHAPE.fullmatch(text)
        if match is None or len(text) >= contract.NAME_BYTES:
            raise refusal(
                "artifact name", expected=f"{_FORM}, at most {contract.NAME_BYTES - 1} characters", found=repr(text)
            )
        return cls(match["role"], int(match["K"]), int(match["N"]), match["tag"], m16=bool(match["m16"]))


def bare_elf_name(text: str, what: str) -> str:
    """Return `text` if it is a plain file name ending in .elf (a sealed ELF's name), else raise `Refused`.

    >>> bare_elf_name("pb16i_sealed.elf", "decode.sealed_elf")
    'pb16i_sealed.elf'
    """
    if len(text) >= contract.NAME_BYTES or _BARE.fullmatch(text) is None:
        expected = (
            "a bare file name of letters, digits and . _ -, that begins with a letter or digit, ends in .elf "
            f"and has at most {contract.NAME_BYTES - 1} characters"
        )
        raise refusal(what, expected=expected, found=brief(repr(text), 80))
    return text


def checked_model_name(text: str) -> str:
    """Return a model's name if it can be a folder's: lower case, digits, `.`, `_`, `-`; else raise `Refused`.

    >>> checked_model_name("qwen3.6-35b-a3b")
    'qwen3.6-35b-a3b'
    """
    if _MODEL.fullmatch(text) is None or ".." in text:
        raise refusal(
            "model", expected="a name of lower-case letters, digits and . _ - (at most 64, no ..)", found=repr(text)
        )
    return text
