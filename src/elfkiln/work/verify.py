"""Runs every ELF of a model at full size and compares every int32 with numpy; twins, layouts and packings too.

The first run of an ELF loads the array. The others leave load_pdi out, as the device's firmware does for the PDI that
it loaded last, so they meet the locks, buffers and programs that the run before left; C is poisoned before each.

Oracles do not use the simulator or the layouts' own taps: products are numpy float64 matrix products, exact here since
every sum stays below 2**53 (float32 would not be: sums reach 82.6 million), and the special inputs have closed forms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfkiln.engine import contract, layouts
from elfkiln.engine.legality import rows_for
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Differs, ElfkilnError, Refused, SimulationFailed
from elfkiln.io.workspace import private_folder
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.project import Project
from elfkiln.store.artifacts import Artifact
from elfkiln.store.blobs import Store
from elfkiln.store.registry import Entry, Registry, load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.sim.sim_builder import SimBuilder
from elfkiln.targets.sim.sim_elf import SimElf
from elfkiln.targets.table import HOST, target_named
from elfkiln.targets.target import Builder, RunnableElf
from elfkiln.work.jobs import Job, entry_of, plan_jobs
from elfkiln.work.obtain import obtain

Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Run = Callable[[Int8, NDArray[Any], bool], Int32]
"""Runs a GEMM over A and packed B and returns C; the last argument says whether the array is loaded anew for it."""

SEED = 20261129
POISON = -(2**31)
"""No sum of int8 products below 2^31 in magnitude reaches it."""
_BLOCK = 2048


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: which names, what was compared, int32 elements, how many differ, the largest difference."""

    names: tuple[str, ...]
    what: str
    elements: int
    mismatched: int
    largest: int
    must_differ: bool = False

    @property
    def passed(self) -> bool:
        """Whether the comparison came out as it must."""
        return (self.mismatched > 0) == self.must_differ

    def line(self) -> str:
        """Return the line for a person."""
        verdict = "ok" if self.passed else "FAILED"
        wish = " (must differ)" if self.must_differ else ""
        return (
            f"{verdict}  {', '.join(self.names)}: {self.what}{wish}: {self.elements} compared, "
            f"{self.mismatched} differ, largest difference {self.largest}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "names": list(self.names),
            "what": self.what,
            "elements": self.elements,
            "mismatched": self.mismatched,
            "largest": self.largest,
            "must_differ": self.must_differ,
            "passed": self.passed,
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """A geometry that could not be run to the end, and why."""

    names: tuple[str, ...]
    reason: str

    @property
    def passed(self) -> bool:
        """A problem never passes."""
        return False

    def line(self) -> str:
        """Return the line for a person."""
        return f"FAILED  {', '.join(self.names)}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"names": list(self.names), "what": self.reason, "passed": False}


@dataclass
class Gauge:
    """Counts what is simulated: multiplications and additions of all runs, from several threads."""

    operations: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, M: int, K: int, N: int) -> None:
        """Count one GEMM."""
        with self._lock:
            self.operations += 2 * M * K * N


def said_of_names(results: Iterable[Check | Problem]) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """Yield (names, what was compared, whether it passed) of results, as attestations have them.

    What is compared with another name is said of both: a twin's result with its M=128's.
    """
    for result in results:
        what = result.what if isinstance(result, Check) else f"could not be run: {result.reason}"
        if isinstance(result, Check) and result.must_differ:
            what = f"{what} (must differ)"
        yield result.names, what, result.passed


def verify_configuration() -> list[Mapping[str, Any]]:
    """Return what the inputs of a verification are made of: the seed of the random ones, and the poison of C."""
    return [{"name": "elfkiln verify", "annotations": {"seed": SEED, "poison": POISON}}]


def exit_code_of(results: list[Check | Problem]) -> int:
    """Return 0 when everything passed and something was compared, else 1."""
    return EXIT_DONE if results and all(result.passed for result in results) else EXIT_DIFFERS


def verify_set(
    project: Project,
    builder: Builder,
    wanted: RequirementSet,
    *,
    jobs: int,
    say: Callable[[str], None],
    gauge: Gauge | None = None,
) -> list[Check | Problem]:
    """Run and compare every ELF of one requirement set; each finished check is passed to `say` as a line.

    ELFs that are not stored yet are built, and so are those of the layout the set is compared with; neither is
    registered by this. Where a target's ELFs do not run here, the very design in each is compiled for the simulator.
    Geometries run `jobs` at a time; `gauge` counts what they compute. Raises `Refused` for a layout
    without defined bytes, before anything is built.
    """
    if wanted.layout not in layouts.DEFINED:
        raise Refused(
            f"verify: layout {wanted.layout}: its bytes are not defined, so no weights can be packed for its ELFs; "
            f"define them in src/elfkiln/engine/layouts.py (defined: {', '.join(layouts.DEFINED)})"
        )
    builder.prepare()
    results: list[Check | Problem] = list(layout_checks(wanted.layout))
    for result in results:
        say(result.line())
    sealed = [need for need in wanted.requirements if need.name is None]
    with private_folder(project.work) as folder, ThreadPoolExecutor(jobs) as pool:
        bench = _Bench(project, builder, folder, gauge or Gauge())
        geometries = _by_geometry(wanted)
        work = [pool.submit(_verify_geometry, bench, wanted, geometry, needs, sealed) for geometry, needs in geometries]
        for (_, needs), future in zip(geometries, work, strict=True):
            try:
                found: list[Check | Problem] = list(future.result())
            except ElfkilnError as error:
                found = [Problem(tuple(need.file_name for need in needs), str(error))]
            for result in found:
                say(result.line())
            results += found
    return results


def _by_geometry(wanted: RequirementSet) -> list[tuple[tuple[int, int], list[Requirement]]]:
    groups: dict[tuple[int, int], list[Requirement]] = {}
    for need in wanted.requirements:
        if need.name is not None:
            groups.setdefault((need.name.K, need.name.N), []).append(need)
        else:
            for geometry in need.sealed:
                groups.setdefault(geometry, [])
    return list(groups.items())


@dataclass
class _Bench:
    """Makes runnable ELFs of requirements."""

    project: Project
    builder: Builder
    folder: Path
    gauge: Gauge
    turn: threading.Lock = field(default_factory=threading.Lock)
    configured: dict[str, RunnableElf] = field(default_factory=dict)

    def elf(self, wanted: RequirementSet, need: Requirement) -> RunnableElf:
        """Return a runnable ELF of one requirement: its own, or the very design in it compiled for this machine."""
        job, artifact, store = self._obtained(self.builder, wanted, need)
        self._refuse_other_than_registered(wanted, self._entry(self.builder, wanted, need), artifact)
        own = target_named(self.builder.pin.name).load(store.path(artifact.elf))
        return own or SimElf(self._simulated(job, artifact.recipe, store.read(artifact.design).decode()))

    def _refuse_other_than_registered(self, wanted: RequirementSet, entry: Entry | None, artifact: Artifact) -> None:
        """Raise `Differs` unless what runs is what registry.yaml says of the name, if it says anything."""
        target = self.builder.pin.name
        if entry is None:
            return
        if entry.recipe != artifact.recipe:
            raise Differs(
                f"registered from another recipe: expected sha256:{artifact.recipe}, found sha256:{entry.recipe} in "
                f"registry.yaml; run doit elfs model={wanted.model} target={target}, elfkiln explain says what changed"
            )
        if entry.elf != artifact.elf:
            raise Differs(
                f"same recipe, other bytes: expected sha256:{entry.elf} (registry.yaml), found sha256:{artifact.elf}"
            )

    def reference(self, wanted: RequirementSet, need: Requirement) -> RunnableElf:
        """Return a runnable ELF to compare with, built for sim whatever the target of this bench is."""
        _, artifact, store = self._obtained(self.sim, wanted, need)
        return SimElf(store.path(artifact.elf))

    @cached_property
    def sim(self) -> SimBuilder:
        """The builder of the target that runs here."""
        return HOST.builder(self.project, read_lock(self.project.lock_file).target(HOST.name))

    @cached_property
    def registry(self) -> Registry:
        """registry.yaml as it stood when the verification began."""
        return load_registry(self.project.registry_file)

    def _entry(self, builder: Builder, wanted: RequirementSet, need: Requirement) -> Entry | None:
        return entry_of(self.registry.entries(builder.pin.name), wanted, need)

    def _obtained(self, builder: Builder, wanted: RequirementSet, need: Requirement) -> tuple[Job, Artifact, Store]:
        jobs, failures = plan_jobs(self.project, builder, [replace(wanted, requirements=(need,))])
        for failure in failures:
            raise ElfkilnError(failure.reason)
        (job,) = jobs
        store = Store(self.project.store)
        entry = self._entry(builder, wanted, need)
        if entry is not None and store.path(entry.elf).exists() and not store.holds(entry.elf):
            raise Differs(store.problem(entry.elf) or f"blob sha256:{entry.elf} changed while it was read")
        return job, obtain(self.project, builder, job).artifact, store

    def sealed_run(self, wanted: RequirementSet, need: Requirement, K: int, N: int) -> Run:
        """Return a call of a sealed ELF's entry for K and N, configured once by `init`; calls take turns."""
        with self.turn:
            if need.file_name not in self.configured:
                elf = self.elf(wanted, need)
                elf.call(contract.SEALED_INIT)
                self.configured[need.file_name] = elf
        sealed, sequence = self.configured[need.file_name], contract.sealed_instance(K, N)

        def run(a: Int8, b: NDArray[Any], fresh: bool) -> Int32:
            self.gauge.add(contract.DECODE_M, K, N)
            with self.turn:
                if fresh:
                    sealed.call(contract.SEALED_INIT)
                return sealed.run(a, b, poisoned(contract.DECODE_M, N), sequence=sequence)

        return run

    def _simulated(self, job: Job, recipe: str, design: str) -> Path:
        from elfkiln.targets.sim.make_elf import build_sim_elf

        workdir = self.folder / f"sim-{recipe}"
        workdir.mkdir()
        return build_sim_elf(
            design,
            job.generator.kernels,
            kernel_root=self.project.kernels,
            toolchain=self.sim.checked_toolchain(),
            cache=self.project.cache,
            workdir=workdir,
        ).path


@dataclass(frozen=True, slots=True)
class _Runnable:
    """One way to compute a geometry: an ELF (or an entry of the sealed one) over `M` rows.

    `run` takes A, packed B and whether the array is loaded anew for it. `loads` says that the ELF's own sequence loads:
    its first run does, and the later ones go without, as on the device.
    """

    kind: str
    names: tuple[str, ...]
    M: int
    run: Run
    loads: bool


def _verify_geometry(
    bench: _Bench,
    wanted: RequirementSet,
    geometry: tuple[int, int],
    needs: list[Requirement],
    sealed: list[Requirement],
) -> list[Check | Problem]:
    layout = wanted.layout
    ways = [*_named_ways(bench, wanted, needs), *_sealed_ways(bench, wanted, geometry, sealed)]
    results: list[Check | Problem] = []
    ran = False
    for what, a, b, expected in inputs(*geometry, ternary=contract.weight_layout(layout).ternary):
        packed = layouts.pack(b, layout)
        outputs = {}
        for way in ways:
            fresh = way.loads and not ran
            outputs[way.kind], result = _against_numpy(way, what, a[: way.M], packed, expected[: way.M], fresh=fresh)
            results.append(result)
        ran = True
        results += _pairs(ways, outputs, what)
        if what == "random":
            results += _other_layout(bench, wanted, needs, a, b, outputs)
            results += _wrong_packing(ways, a, b, outputs, layout)
    return results


def _against_numpy(
    way: _Runnable, what: str, a: Int8, packed: NDArray[Any], expected: NDArray[np.int64], *, fresh: bool
) -> tuple[Int32, Check | Problem]:
    """Run a way once and compare with numpy; return C and the result.

    A run that goes without load_pdi and fails is repeated on a fresh array: a design that is right there alone gets a
    line that says so.
    """
    text = f"{way.kind} against numpy, {what}"
    if fresh:
        found = way.run(a, packed, True)
        return found, _compare(way.names, text, found, expected)
    if way.loads:
        text += ", load_pdi left out"
    try:
        found = way.run(a, packed, False)
    except SimulationFailed as error:
        check, reason = None, str(error)
    else:
        check = _compare(way.names, text, found, expected)
        if check.passed:
            return found, check
        reason = f"{check.mismatched} of {check.elements} differ, largest difference {check.largest}"
    anew = way.run(a, packed, True)
    if np.array_equal(anew, expected):
        where = "on one that an earlier run has used" + (", load_pdi left out as the firmware does" * way.loads)
        return anew, Problem(way.names, f"{way.kind}, {what}: right on a fresh array only; {where}: {reason}")
    return anew, check or _compare(way.names, text, anew, expected)


def _kind(m16: bool) -> str:
    return "M=16 twin" if m16 else "M=128"


def _named_ways(bench: _Bench, wanted: RequirementSet, needs: list[Requirement]) -> Iterator[_Runnable]:
    for m16 in (False, True):
        named = [need for need in needs if need.name is not None and need.name.m16 == m16]
        if named and named[0].name is not None:
            # Names of one geometry are one recipe: G's ELF is U's.
            names = tuple(need.file_name for need in named)
            name = named[0].name
            run = _poisoning(bench.elf(wanted, named[0]), name.M, name.N, bench.gauge)
            yield _Runnable(_kind(m16), names, name.M, run, loads=True)


def _sealed_ways(
    bench: _Bench, wanted: RequirementSet, geometry: tuple[int, int], sealed: list[Requirement]
) -> Iterator[_Runnable]:
    K, N = geometry
    for need in sealed:
        if geometry in need.sealed:
            run = bench.sealed_run(wanted, need, K, N)
            yield _Runnable("sealed", (f"{need.file_name} K={K} N={N}",), contract.DECODE_M, run, loads=False)


def _poisoning(elf: RunnableElf, M: int, N: int, gauge: Gauge) -> Run:
    """Return how an ELF's one sequence is run: into a poisoned C, with load_pdi on a fresh array, else without."""

    def run(a: Int8, b: NDArray[Any], fresh: bool) -> Int32:
        gauge.add(M, a.shape[1], N)
        return elf.run(a, b, poisoned(M, N), again=not fresh)

    return run


def poisoned(M: int, N: int) -> Int32:
    """Return a C of M x N filled with a number that no sum of products is: what is not written shows."""
    return np.full((M, N), POISON, np.int32)


def _pairs(ways: list[_Runnable], outputs: dict[str, Int32], what: str) -> Iterator[Check]:
    """Every two ways on the same activations and the same weight buffer: 0 mismatches."""
    for position, one in enumerate(ways):
        for other in ways[position + 1 :]:
            rows = min(one.M, other.M)
            text = f"{other.kind} against {one.kind}, {what}"
            pair = (one.names[0], other.names[0])
            yield _compare(pair, text, outputs[other.kind][:rows], outputs[one.kind][:rows])


def _other_layout(
    bench: _Bench, wanted: RequirementSet, needs: list[Requirement], a: Int8, b: Int8, outputs: dict[str, Int32]
) -> Iterator[Check]:
    # Same activations, same weights: int32 results do not depend on the layout.
    layout = contract.weight_layout(wanted.layout).compared_with
    tag = contract.tag_of_layout(layout)
    done: set[bool] = set()
    for need in needs:
        if need.name is None or need.name.m16 in done:
            continue
        done.add(need.name.m16)
        name = replace(need.name, tag=tag)
        rows = rows_for(need.columns, layout, m16=name.m16)
        other = replace(need, name=name, file_name=str(name), rows=rows)
        elf = bench.reference(replace(wanted, layout=layout), other)
        found = _poisoning(elf, name.M, name.N, bench.gauge)(a[: name.M], layouts.pack(b, layout), True)
        text = f"{wanted.layout} against {layout}, random"
        yield _compare((need.file_name, str(name)), text, outputs[_kind(name.m16)], found)


def _wrong_packing(ways: list[_Runnable], a: Int8, b: Int8, outputs: dict[str, Int32], layout: str) -> Iterator[Check]:
    """A buffer in another packing must show: the tap is in the ELF, so a wrong one would permute silently."""
    K, N = b.shape
    own = contract.weight_layout(layout)
    other = contract.weight_layout(own.compared_with)
    wrong: dict[str, NDArray[Any]] = {}
    if other.weight_bits == own.weight_bits:
        wrong[f"fed a {other.name} buffer"] = layouts.pack(b, other.name)
    if own.contiguous and K > contract.TILE_K and N > contract.TILE_N:
        wrong["fed tiles in ki-major order"] = layouts.pack(b, layout, layouts.TileOrder.KI_MAJOR)
    for way in ways:
        for what, buffer in wrong.items():
            found = way.run(a[: way.M], buffer, way.loads)
            yield _compare(way.names, f"{way.kind} {what}", found, outputs[way.kind], must_differ=True)


def layout_checks(layout: str) -> Iterator[Check]:
    """The offset map over a 128 x 256 image of 2 x 2 tiles: a bijection, where the bytes lie, and which tile order.

    All 32,768 positions are compared with where a packed image that holds its own element numbers has them, and the
    map's tile bases with the written rule: tile (ki, nt) begins at (nt * 2 + ki) tiles in nt-major order.
    """
    K, N = 2 * contract.TILE_K, 2 * contract.TILE_N
    k, n = np.indices((K, N))
    places = layouts.offset(k, n, K, N, layout)
    byte, bit = np.asarray(places.byte), np.asarray(places.bit)
    slots = byte * 8 + bit
    names = (f"layout {layout}",)
    step = 8 * layouts.packed_bytes(K, N, layout) // (K * N)
    yield _compare(names, "offsets are a bijection", np.sort(slots, axis=None), np.arange(K * N) * step)
    # Each image holds one base-3 digit of the element numbers, so that ternary layouts can carry them too.
    numbers, found = k * N + n, np.zeros((K, N), np.int64)
    for digit in range(10):
        packed = layouts.pack((numbers // 3**digit % 3 - 1).astype(np.int8), layout).view(np.uint8)
        codes = packed[byte] >> bit.astype(np.uint8)
        digits = codes.view(np.int8) + 1 if step == 8 else codes & 3
        found += digits.astype(np.int64) * 3**digit
    yield _compare(names, "packed elements lie at their offsets", found, numbers)
    if contract.weight_layout(layout).contiguous:
        tiles = np.arange(4).reshape(2, 2)
        base = slots[:: contract.TILE_K, :: contract.TILE_N] // (8 * contract.TILE_K * contract.TILE_N * step // 8)
        yield _compare(names, "tiles of a 2 x 2 image lie nt-major", base, tiles.T)
        yield _compare(names, "tiles of a 2 x 2 image lie ki-major", base, tiles, must_differ=True)


def _compare(
    names: tuple[str, ...], what: str, found: NDArray[Any], expected: NDArray[Any], *, must_differ: bool = False
) -> Check:
    difference = np.abs(found.astype(np.int64) - expected.astype(np.int64))
    return Check(
        names, what, found.size, int(np.count_nonzero(difference)), int(difference.max(initial=0)), must_differ
    )


def inputs(K: int, N: int, *, ternary: bool = False) -> Iterator[tuple[str, Int8, Int8, NDArray[np.int64]]]:
    """Yield (what, A of 128 x K, B of K x N, A @ B as int64) for every kind of input; B is -1, 0, 1 when `ternary`.

    `random` is seeded over all of int8; `-127` (B: -1 when ternary) reaches the largest sums; `one-hot` has a single
    1 per row of A, so C must be rows of B; `coordinates` codes every element's place.
    """
    M = contract.PREFILL_M
    rng = np.random.default_rng([SEED, K, N])
    low, high = (-1, 2) if ternary else (-128, 128)
    a = rng.integers(-128, 128, (M, K), dtype=np.int8)
    b = rng.integers(low, high, (K, N), dtype=np.int8)
    yield "random", a, b, exact_product(a, b)
    worst = -1 if ternary else -127
    yield (
        "-127",
        np.full((M, K), -127, np.int8),
        np.full((K, N), worst, np.int8),
        np.full((M, N), 127 * -worst * K, np.int64),
    )
    places = (np.arange(M) * 8191) % K
    hot = np.zeros((M, K), np.int8)
    hot[np.arange(M), places] = 1
    yield "one-hot", hot, b, b[places].astype(np.int64)
    coded_a = (np.arange(M)[:, None] * 7 + np.arange(K)[None, :] * 3) % 251 - 125
    coded_b = (np.arange(K)[:, None] * 5 + np.arange(N)[None, :] * 11) % (3 if ternary else 253) - (
        1 if ternary else 126
    )
    a, b = coded_a.astype(np.int8), coded_b.astype(np.int8)
    yield "coordinates", a, b, exact_product(a, b)


def exact_product(a: Int8, b: Int8) -> NDArray[np.int64]:
    """Return A @ B exactly, by float64 products over blocks of columns.

    >>> exact_product(np.full((1, 3), -128, np.int8), np.full((3, 1), -128, np.int8))
    array([[49152]])
    """
    product = np.empty((a.shape[0], b.shape[1]), np.int64)
    wide = a.astype(np.float64)
    for start in range(0, b.shape[1], _BLOCK):
        product[:, start : start + _BLOCK] = wide @ b[:, start : start + _BLOCK].astype(np.float64)
    return product
