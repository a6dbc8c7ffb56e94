"""Compares the published geometry tables with what the engine's derivation makes of the published dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elfkiln.engine.contract import FUSED_MAX_N, TILE_N
from elfkiln.engine.legality import legal_columns
from elfkiln.models.config import Dimensions
from elfkiln.models.derive import Design, derive_designs, geometry_faults, padded
from elfkiln.models.plan.names import mlp_width
from elfkiln.models.published import PublishedRow
from elfkiln.studies.published_geometry import DIMENSIONS, TABLES, PublishedDimensions, PublishedTable


@dataclass(frozen=True, slots=True)
class Finding:
    """One disagreement: the model, where it was published, what it concerns, and what is wrong."""

    model: str
    where: str
    subject: str
    what: str

    def __str__(self) -> str:
        """Return the one-line form."""
        return f"{self.model}: {self.where}: {self.subject}: {self.what}"


def models() -> tuple[str, ...]:
    """Return the models with a published table or published dimensions, sorted."""
    return tuple(sorted({table.model for table in TABLES} | {known.model for known in DIMENSIONS}))


def cross_check(model: str) -> tuple[Finding, ...]:
    """Return every disagreement in what is published about a model; empty when all of it agrees.

    Compared: each table with the derivation, a table's MLP rows with each other, given columns with the legal ones,
    the fusion of gate and up with the old build rule, tables with each other in columns, sources with each other in
    dimensions, and derived geometry with what whole tiles can serve.
    """
    known = [entry for entry in DIMENSIONS if entry.model == model]
    tables = [table for table in TABLES if table.model == model]
    findings: list[Finding] = []
    for table in tables:
        findings += _against_derivation(table, known[0]) if known else ()
        findings += _against_itself(table)
        findings += _against_fusion_rule(table)
    findings += _columns_twice(tables)
    findings += _sources_twice(known)
    findings += _unbuildable(tables, known)
    return tuple(findings)


def _derived(dims: Dimensions, *, fused: bool) -> tuple[Design, ...]:
    return derive_designs(dims, fused=fused and not dims.must_split)


def _against_derivation(table: PublishedTable, known: PublishedDimensions) -> Iterator[Finding]:
    dims = known.dimensions
    fused = any(row.role == "GU" for row in table.rows)
    designs = _derived(dims, fused=fused)
    for row in table.rows:
        shapes = {(design.K, design.N) for design in designs if design.elf_role == row.role}
        padded_shapes = {(padded(K), padded(N)) for K, N in shapes}
        if (row.K, row.N) in shapes | padded_shapes:
            if row.role == "QKV" and dims.linear_key and dims.qkv_width() != row.N:
                what = f"is the GDN packing; full attention derives {dims.hidden}x{dims.qkv_width()}"
                yield _finding(table, row, what)
            continue
        if row.role in ("GU", "D") and table.ungated:
            continue  # the derivation knows gated MLPs only; these rows are compared with each other instead
        none = "no such design, as experts run G and U" if dims.must_split and row.role == "GU" else "no such design"
        derived = ", ".join(f"{K}x{N}" for K, N in sorted(shapes)) or none
        yield _finding(table, row, f"derived {derived} from {known.source}")


def _against_itself(table: PublishedTable) -> Iterator[Finding]:
    gate = next((row for row in table.rows if row.role in ("GU", "G")), None)
    down = next((row for row in table.rows if row.role == "D"), None)
    if gate and down and mlp_width(gate.N, down.K) is None:
        what = f"its K is neither N nor half of N of {gate.role} {gate.K}x{gate.N} (padded {padded(gate.N)})"
        yield _finding(table, down, what)


def _against_fusion_rule(table: PublishedTable) -> Iterator[Finding]:
    for row in table.rows:
        if row.role == "G" and 2 * row.N <= FUSED_MAX_N:
            yield _finding(table, row, f"split although 2*{row.N} <= {FUSED_MAX_N}, where the old rule fuses")
        if row.role == "GU" and row.N > FUSED_MAX_N and not table.ungated:
            yield _finding(table, row, f"fused although {row.N} > {FUSED_MAX_N}, where the old rule splits")


def _columns_twice(tables: list[PublishedTable]) -> Iterator[Finding]:
    seen: dict[tuple[str, int, int], tuple[int, str]] = {}
    for table in tables:
        for row in table.rows:
            if row.columns is None:
                continue
            columns, script = seen.setdefault((row.role, row.K, row.N), (row.columns, table.script))
            if columns != row.columns:
                yield _finding(table, row, f"{row.columns} columns, where {script} has {columns}")


def _sources_twice(known: list[PublishedDimensions]) -> Iterator[Finding]:
    if not known:
        return
    first = known[0]
    for other in known[1:]:
        for name in ("hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate", "output_gate"):
            ours, theirs = getattr(first.dimensions, name), getattr(other.dimensions, name)
            if ours != theirs:
                what = f"{ours} in {first.source}, {theirs} in {other.source}"
                yield Finding(first.model, "dimensions", name, what)


def _unbuildable(tables: list[PublishedTable], known: list[PublishedDimensions]) -> Iterator[Finding]:
    for table in tables:
        for row in table.rows:
            legal = legal_columns(row.N)
            if not legal:
                what = f"N/{TILE_N} = {row.N / TILE_N:g} has no divisor in 2..8: no design with whole tiles"
                yield _finding(table, row, what)
            elif row.columns is not None and row.columns not in legal:
                yield _finding(table, row, f"{row.columns} columns do not divide N/{TILE_N} = {row.N // TILE_N}")
    if known:
        faults = geometry_faults(_derived(known[0].dimensions, fused=known[0].dimensions.fused_by_default))
        yield from (Finding(known[0].model, "derivation", *fault.split(": ", 1)) for fault in faults)


def _finding(table: PublishedTable, row: PublishedRow, what: str) -> Finding:
    return Finding(table.model, table.script, f"{row.role} {row.K}x{row.N}", what)
