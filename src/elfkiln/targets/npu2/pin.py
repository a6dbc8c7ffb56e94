"""The npu2 section of toolchain.lock as data: wheels, tools, flags and environment, checked field by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from elfkiln.errors import Refused, refusal
from elfkiln.store.blobs import check_digest
from elfkiln.store.toolchain_lock import TargetPin
from elfkiln.targets.given_wheels import WheelName, normal_version
from elfkiln.targets.npu2.aiecc import GENERATIONS
from elfkiln.targets.npu2.full_elf.sections import ABI_VERSIONS

MLIR_AIE = "mlir-aie"
PEANO = "llvm-aie"
AIEBU_ASM = "aiebu-asm"
"""The assembler that puts the full ELF together; aiecc calls it by name. No wheel of mlir-aie has it: it is XRT's."""

_FIELDS = frozenset(
    {
        "python",
        "aiecc_generation",
        "aiecc_flags",
        "microkernel_flags",
        "microkernel_includes",
        "peano",
        "imports",
        "inside_wheels",
        "environment",
        "tools",
        "linked_tools",
        "outside_tools",
        "wheels",
    }
)
_OPTIONAL = frozenset({"outside_tools"})
_WHEEL_FIELDS = frozenset({"name", "version", "file", "url", "sha256", "size"})
_NEEDED_TOOLS = ("aiecc", "aie-opt", "clang++")


@dataclass(frozen=True, slots=True)
class Wheel:
    """One pinned wheel. Without `url` it comes from the package index pip is configured for; `size` where known."""

    name: str
    version: str
    file: str
    sha256: str
    url: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A binary that makes ELFs: its name, its file below site-packages, whether an install without it is refused."""

    name: str
    file: str
    required: bool


@dataclass(frozen=True, slots=True)
class OutsideTool:
    """A binary no wheel holds, taken from where the machine has it: its absolute path and the sha256 it must have.

    `abi` is the ABI version of the full ELFs that it makes, where the lock says it (of aiebu-asm: 16, 32 or 33).
    """

    name: str
    file: str
    sha256: str
    abi: int | None = None


@dataclass(frozen=True, slots=True)
class Npu2Pin:
    """The whole section. `digest` is the toolchain digest that enters recipes."""

    digest: str
    python: str
    wheels: tuple[Wheel, ...]
    tools: tuple[Tool, ...]
    outside_tools: tuple[OutsideTool, ...]
    aiecc_generation: str
    aiecc_flags: tuple[str, ...]
    microkernel_flags: tuple[str, ...]
    microkernel_includes: tuple[str, ...]
    peano: str
    imports: tuple[str, ...]
    inside_wheels: tuple[str, ...]
    environment_set: tuple[tuple[str, str], ...]
    environment_pass: tuple[str, ...]

    def wheel(self, name: str) -> Wheel:
        """Return the pinned wheel of a package (normalized name); `Refused` when there is none."""
        for wheel in self.wheels:
            if wheel.name == name:
                return wheel
        raise Refused(f"toolchain.lock: target.npu2.wheels: no wheel of {name}; restore the lock or bump it")

    def describe(self) -> str:
        """Return the two wheels that make the ELFs, e.g. `mlir-aie 1.4.3, llvm-aie 22.0.0.2026092301+02be6fd8`."""
        return ", ".join(f"{wheel.name} {wheel.version}" for wheel in (self.wheel(MLIR_AIE), self.wheel(PEANO)))


def read_pin(pin: TargetPin) -> Npu2Pin:
    """Read the npu2 section; raises `Refused` naming the first field that is absent, unknown or of the wrong form."""
    where = "toolchain.lock: target.npu2"
    table = pin.table
    _only_fields(where, table, _FIELDS, optional=_OPTIONAL)
    python = _text(where, table, "python")
    if re.fullmatch(r"3\.(1[1-9]|[2-9][0-9])", python) is None:
        raise refusal(f"{where}.python", expected="a version such as 3.12, at least 3.11", found=python)
    generation = _text(where, table, "aiecc_generation")
    if generation not in GENERATIONS:
        raise refusal(f"{where}.aiecc_generation", expected="one of " + ", ".join(GENERATIONS), found=generation)
    environment = _table(where, table, "environment")
    _only_fields(f"{where}.environment", environment, frozenset({"pass", "set"}))
    variables = _table(f"{where}.environment", environment, "set")
    for name, value in variables.items():
        if not isinstance(value, str):
            raise refusal(f"{where}.environment.set.{name}", expected="a text", found=value)
    peano = _text(where, table, "peano")
    _below("peano", peano)
    includes = _texts(where, table, "microkernel_includes")
    for include in includes:
        _below("microkernel_includes", include)
    return Npu2Pin(
        digest=pin.digest,
        python=python,
        wheels=_read_wheels(where, table, _texts(where, table, "inside_wheels")),
        tools=_read_tools(where, table),
        outside_tools=_read_outside_tools(where, table),
        aiecc_generation=generation,
        aiecc_flags=_texts(where, table, "aiecc_flags"),
        microkernel_flags=_texts(where, table, "microkernel_flags"),
        microkernel_includes=includes,
        peano=peano,
        imports=_texts(where, table, "imports"),
        inside_wheels=_texts(where, table, "inside_wheels"),
        environment_set=tuple(sorted(variables.items())),
        environment_pass=_texts(f"{where}.environment", environment, "pass"),
    )


def read_wheel(where: str, row: object) -> Wheel:
    """Read one row of `wheels`; its file name must say the same package and version as its fields."""
    if not isinstance(row, dict):
        raise refusal(where, expected="a table per wheel", found=type(row).__name__)
    _only_fields(where, row, _WHEEL_FIELDS, optional=frozenset({"url", "size"}))
    name, version, file = (_text(where, row, field) for field in ("name", "version", "file"))
    parts = WheelName.parse(file)
    if (parts.name, parts.version) != (name, normal_version(version)):
        raise refusal(f"{where}: {file}", expected=f"a file of {name} {version}", found=f"{parts.name} {parts.version}")
    url, size = row.get("url"), row.get("size")
    if url is not None:
        split = urlsplit(url) if isinstance(url, str) else None
        last = unquote(split.path).rpartition("/")[2] if split else ""
        if split is None or split.scheme not in ("http", "https") or not split.hostname or last != file:
            raise refusal(f"{where}: {file}: url", expected=f"an http(s) address that ends in {file}", found=url)
    if size is not None and (type(size) is not int or size < 1):
        raise refusal(f"{where}: {file}: size", expected="a positive integer", found=size)
    digest = check_digest(_text(where, row, "sha256"), f"{where}: {file}: sha256")
    return Wheel(name, version, file, digest, url, size)


def _read_wheels(where: str, table: Mapping[str, Any], inside: tuple[str, ...]) -> tuple[Wheel, ...]:
    rows = table["wheels"]
    if not isinstance(rows, list) or not rows:
        raise refusal(f"{where}.wheels", expected="a list of wheels", found=rows)
    wheels = tuple(read_wheel(f"{where}.wheels", row) for row in rows)
    names = [wheel.name for wheel in wheels]
    for name in names:
        if names.count(name) > 1:
            raise refusal(f"{where}.wheels", expected="one wheel per package", found=f"{names.count(name)} of {name}")
        if name in {str(canonicalize_name(other)) for other in inside}:
            raise Refused(
                f"{where}.wheels: {name} is listed in inside_wheels too; its own wheel would install a second copy "
                "over the one inside another wheel, take one of the two out"
            )
    for name in (MLIR_AIE, PEANO):
        if name not in names:
            raise refusal(f"{where}.wheels", expected=f"a wheel of {name}", found="none")
    return wheels


def _read_tools(where: str, table: Mapping[str, Any]) -> tuple[Tool, ...]:
    tools = []
    for field, required in (("tools", True), ("linked_tools", False)):
        for name, file in _table(where, table, field).items():
            if not isinstance(file, str):
                raise refusal(f"{where}.{field}.{name}", expected="a file below site-packages", found=file)
            _below(f"{field}.{name}", file)
            tools.append(Tool(name, file, required))
    for name in _NEEDED_TOOLS:
        if name not in {tool.name for tool in tools if tool.required}:
            raise refusal(f"{where}.tools", expected=f"a row for {name}", found="none")
    return tuple(tools)


def _read_outside_tools(where: str, table: Mapping[str, Any]) -> tuple[OutsideTool, ...]:
    tools = []
    for name, row in _table(where, table, "outside_tools").items() if "outside_tools" in table else ():
        place = f"{where}.outside_tools.{name}"
        if not isinstance(row, dict):
            raise refusal(place, expected="a table of file and sha256", found=row)
        _only_fields(place, row, frozenset({"file", "sha256", "abi"}), optional=frozenset({"abi"}))
        file = _text(place, row, "file")
        if not PurePosixPath(file).is_absolute():
            raise refusal(f"{place}.file", expected="an absolute path", found=file)
        if name in table["tools"] or name in table["linked_tools"] or "/" in name:
            raise refusal(place, expected="a plain name that no other table has", found=name)
        abi = row.get("abi")
        if abi is not None and (type(abi) is not int or abi not in ABI_VERSIONS):
            raise refusal(f"{place}.abi", expected="one of " + ", ".join(map(str, ABI_VERSIONS)), found=abi)
        tools.append(OutsideTool(name, file, check_digest(_text(place, row, "sha256"), f"{place}.sha256"), abi))
    return tuple(tools)


def _only_fields(
    where: str, table: Mapping[str, Any], fields: frozenset[str], optional: frozenset[str] = frozenset()
) -> None:
    unknown, absent = sorted(table.keys() - fields), sorted(fields - optional - table.keys())
    if unknown:
        raise refusal(where, expected="the fields " + " ".join(sorted(fields)), found=" ".join(unknown))
    if absent:
        raise refusal(where, expected="the fields " + " ".join(sorted(fields)), found="no " + ", no ".join(absent))


def _text(where: str, table: Mapping[str, Any], field: str) -> str:
    value = table.get(field)
    if not isinstance(value, str) or not value:
        raise refusal(f"{where}.{field}", expected="a text", found=value)
    return value


def _texts(where: str, table: Mapping[str, Any], field: str) -> tuple[str, ...]:
    value = table.get(field)
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise refusal(f"{where}.{field}", expected="a list of texts", found=value)
    return tuple(value)


def _table(where: str, table: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = table.get(field)
    if not isinstance(value, dict):
        raise refusal(f"{where}.{field}", expected="a table", found=value)
    return value


def _below(field: str, path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or PurePosixPath(path).is_absolute() or ".." in parts or "\\" in path:
        raise refusal(f"toolchain.lock: target.npu2.{field}", expected="a path below site-packages", found=path)
