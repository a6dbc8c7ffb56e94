"""What the inference engine asks of an artifact: one table of its words and figures.

Every value that comes from the engine lives here, so that one edit corrects it. `guess=True` marks what no public
source states. The sources are the engine's public repository (1bit-MONSTER/engine: plan-layer page, b8 layout pull
request, npu/forward, q4nx_pack) and are named per row.
"""

from __future__ import annotations

from dataclasses import dataclass

NAME_BYTES = 64
"""Size of the engine's file-name buffer, with the closing NUL (q4nx_pack.h, Q4NX_ELF_NAME_MAX)."""

TILE_M = 32
"""Rows of a prefill tile; a decode twin uses 16 (the v27 generator and its m16 build)."""
TILE_K = 64
TILE_N = 128
PREFILL_M = 128
DECODE_M = 16

MIN_COLUMNS = 2
"""One column puts three FIFOs on one shim and returns zeros (engine issue #1208)."""
MAX_COLUMNS = 8
MAX_ROWS = 4
"""The core array of npu2: 8 columns of 4 compute rows; a design never has more rows than columns (v27 generator)."""

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
LAYOUTS: tuple[str, ...] = ("rm", "b8", "pb16i", "t2s")
CONFIG_LAYOUTS: tuple[str, ...] = ("rm", "b8")
"""What config.json's q4nx_weight_layout may say (b8 pull request); the other layouts exist only in a plan."""


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
