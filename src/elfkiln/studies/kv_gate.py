"""Measures the KV contract's arithmetic: what an int8 key cache, with and without rotation, does to attention weights.

A cache entry is one key of one head. The contract (plan fields kv.key and kv.hadamard) stores int8 with one fp32 scale
per head and token, after an orthonormal rotation of the head: random signs, then a Hadamard transform. Turning keys
and queries alike leaves every score as it was, and spreads an outlier channel over all of them before rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from elfkiln.engine.contract import HADAMARD_MAX, HADAMARD_MIN
from elfkiln.errors import refusal

Array: TypeAlias = npt.NDArray[np.floating]

HEAD_WIDTH = 256
KEYS = 512
DRAWS = 8
"""The figures of the KV-contract pull request."""
QUERIES = 32
OUTLIER_CHANNELS = 4
SEVERITIES = (1.0, 8.0, 30.0)
BOUND = 1e-3
"""The divergence the pull request calls the edge of what is acceptable."""
UNIFORM_BOUND = 1.5
"""How far from 1x the worth of rotation may be on uniform channels, as the pull request bounds it."""
CACHES = ("rotated f16", "f16+rotation", "int8", "int8+rotation")
"""What the plain f16 cache is compared with. "rotated f16" rotates its keys in f32 and rounds them no more: it is the
published quantity, and measures the rotation alone. "f16+rotation" keeps rotated keys in f16, as a cache would."""


@dataclass(frozen=True, slots=True)
class Row:
    """One severity: the mean Kullback-Leibler divergence (nats) of each kind of cache against the plain f16 cache."""

    severity: float
    divergence: dict[str, float]

    @property
    def worth(self) -> float:
        """How many times closer int8 comes by rotation."""
        return self.divergence["int8"] / self.divergence["int8+rotation"]

    @property
    def label(self) -> str:
        """What the row is called in the table."""
        return "uniform" if self.severity == 1.0 else f"{self.severity:g}x outliers"


@dataclass(frozen=True, slots=True)
class ScoreError:
    """How far scores lie from exact ones (mean error over mean score): `plain` dot products in f32, and `rotated` ones.

    Vectors are rotated in f32 and multiplied in f64, so that only what the rotation itself loses is measured.
    """

    plain: float
    rotated: float


@dataclass(frozen=True, slots=True)
class Check:
    """One statement of the published shape, and whether this measurement bears it out."""

    statement: str
    holds: bool
    measured: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """A whole run; the same settings give the same figures."""

    seed: int
    outliers: int
    block: int
    rows: tuple[Row, ...]
    score_error: ScoreError

    @property
    def checks(self) -> tuple[Check, ...]:
        """The published shape, statement by statement."""
        uniform, mild, severe = self.rows
        worths = [row.worth for row in self.rows]
        rising = " < ".join(f"{worth:.1f}" for worth in worths)
        scores = self.score_error
        return (
            Check(
                "rotation is worth about 1x on uniform channels",
                1 / UNIFORM_BOUND < uniform.worth < UNIFORM_BOUND,
                f"{uniform.worth:.2f}x",
            ),
            Check("rotation is worth more with severity", worths == sorted(worths), rising),
            _within(f"int8 is inside {BOUND:g} at {mild.label}", mild, "int8", inside=True),
            _within(f"int8 is outside {BOUND:g} at {severe.label}", severe, "int8", inside=False),
            _within(f"int8+rotation is inside {BOUND:g} at {severe.label}", severe, "int8+rotation", inside=True),
            Check(
                "rotation preserves scores to the rounding of f32",
                scores.rotated < scores.plain,
                f"{scores.rotated:.1e} against {scores.plain:.1e} of a plain dot product",
            ),
        )

    @property
    def holds(self) -> bool:
        """Whether the whole published shape comes out."""
        return all(check.holds for check in self.checks)


def measure(seed: int = 0, outliers: int = OUTLIER_CHANNELS, block: int = HEAD_WIDTH) -> Measurement:
    """Measure attention-weight divergence over 8 draws and three severities, and the rotation's own error.

    A draw is 512 keys and 32 queries of width 256, all standard normal; `outliers` channels, chosen at random, of the
    keys are then multiplied by the severity (queries stay). Each draw has its own signs. `block` is the size of the
    Hadamard blocks, as kv.hadamard.block. Raises `Refused` for a block or a count that does not fit the head.
    """
    if not HADAMARD_MIN <= block <= HADAMARD_MAX or block & (block - 1) or HEAD_WIDTH % block:
        expected = f"a power of two in {HADAMARD_MIN}..{HEAD_WIDTH}, which divides the head width {HEAD_WIDTH}"
        raise refusal("kv-gate: block", expected=expected, found=block)
    if not 1 <= outliers < HEAD_WIDTH:
        raise refusal("kv-gate: outliers", expected=f"1 to {HEAD_WIDTH - 1} channels", found=outliers)
    if seed < 0:
        raise refusal("kv-gate: seed", expected="a whole number from 0", found=seed)
    sums = {severity: dict.fromkeys(CACHES, 0.0) for severity in SEVERITIES}
    errors: list[ScoreError] = []
    for draw in range(DRAWS):
        generator = np.random.default_rng((seed, draw))
        keys = generator.standard_normal((KEYS, HEAD_WIDTH))
        queries = generator.standard_normal((QUERIES, HEAD_WIDTH))
        channels = generator.permutation(HEAD_WIDTH)[:outliers]
        signs = generator.choice((-1.0, 1.0), HEAD_WIDTH)
        errors.append(score_error(queries, _f16_cache(keys), signs, block))
        for severity in SEVERITIES:
            scaled = keys.copy()
            scaled[:, channels] *= severity
            for cache, divergence in _divergences(queries, scaled, signs, block).items():
                sums[severity][cache] += divergence / DRAWS
    rows = tuple(Row(severity, sums[severity]) for severity in SEVERITIES)
    mean = ScoreError(*(float(np.mean([getattr(error, name) for error in errors])) for name in ("plain", "rotated")))
    return Measurement(seed, outliers, block, rows, mean)


def rotate(vectors: Array, signs: Array, block: int) -> Array:
    """Return the per-head rotation of vectors along their last axis, in their own precision.

    Signs first, then each block of the axis by the orthonormal Hadamard matrix in Sylvester's order. Sums and
    differences of halves, then of quarters and so on: in f32 that loses less than a product with the matrix, and it is
    the same on every machine.

    >>> rotate(np.array([[3.0, 1.0, 0.0, 0.0]]), np.ones(4), 4)
    array([[2., 1., 2., 1.]])
    """
    turned = (vectors * signs.astype(vectors.dtype)).reshape(-1, block)
    half = block // 2
    while half:
        pairs = turned.reshape(-1, block // (2 * half), 2, half)
        sums, differences = pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]
        turned = np.stack((sums, differences), axis=2).reshape(-1, block)
        half //= 2
    return np.asarray(turned * np.asarray(1 / np.sqrt(block), vectors.dtype)).reshape(vectors.shape)


def int8_cache(keys: Array) -> Array:
    """Return keys as an int8 cache gives them back: codes in -127..127, one fp32 scale (amax/127) for each key.

    >>> int8_cache(np.array([[127.0, -63.6]]))
    array([[127., -64.]])
    """
    amax = np.abs(keys).max(axis=-1, keepdims=True)
    scale = np.where(amax == 0, 1.0, amax / 127).astype(np.float32).astype(np.float64)
    codes = np.clip(np.rint(keys / scale), -127, 127)
    return codes * scale


def attention(queries: Array, keys: Array) -> Array:
    """Return attention weights, queries by keys: softmax of scores over the root of the head width."""
    scores = queries @ keys.T / np.sqrt(keys.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def divergence(reference: Array, other: Array) -> float:
    """Return the mean Kullback-Leibler divergence of rows of weights, in nats.

    >>> round(divergence(np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]])), 6)
    0.143841
    """
    return float(np.mean(np.sum(reference * (np.log(reference) - np.log(other)), axis=-1)))


def score_error(queries: Array, keys: Array, signs: Array, block: int) -> ScoreError:
    """Return the error of scores: of a plain f32 dot product, and of f64 products of vectors rotated in f32.

    Exact are the f64 products of the f32 vectors that both begin with: what rounding the input to f32 loses is neither
    one's. The plain dot product adds up channel by channel, as the textbook has it: a library's order differs from
    machine to machine.
    """
    q32, k32 = queries.astype(np.float32), keys.astype(np.float32)
    exact = q32.astype(np.float64) @ k32.astype(np.float64).T
    plain = np.zeros(exact.shape, np.float32)
    for query, key in zip(q32.T, k32.T, strict=True):
        plain += np.outer(query, key)
    turned_queries, turned_keys = rotate(q32, signs, block), rotate(k32, signs, block)
    rotated = turned_queries.astype(np.float64) @ turned_keys.astype(np.float64).T

    def relative(scores: Array) -> float:
        return float(np.mean(np.abs(scores - exact)) / np.mean(np.abs(exact)))

    return ScoreError(relative(plain), relative(rotated))


def _divergences(queries: Array, keys: Array, signs: Array, block: int) -> dict[str, float]:
    turned_queries, turned_keys = rotate(queries, signs, block), rotate(keys, signs, block)
    reference = attention(queries, _f16_cache(keys))
    caches = {
        "f16+rotation": attention(turned_queries, _f16_cache(turned_keys)),
        "int8": attention(queries, int8_cache(keys)),
        "int8+rotation": attention(turned_queries, int8_cache(turned_keys)),
    }
    published = {"rotated f16": _rotated_f16(queries, keys, signs, block)}
    return published | {cache: divergence(reference, weights) for cache, weights in caches.items()}


def _rotated_f16(queries: Array, keys: Array, signs: Array, block: int) -> float:
    """Return the divergence that rotating the f16 cache's keys and the queries in f32 makes, without rounding again."""
    q32, k32 = queries.astype(np.float32), keys.astype(np.float16).astype(np.float32)
    turned = (rotate(vectors, signs, block).astype(np.float64) for vectors in (q32, k32))
    return divergence(attention(q32.astype(np.float64), k32.astype(np.float64)), attention(*turned))


def _f16_cache(keys: Array) -> Array:
    return keys.astype(np.float16).astype(np.float64)


def _within(statement: str, row: Row, cache: str, *, inside: bool) -> Check:
    found = row.divergence[cache]
    return Check(statement, (found < BOUND) is inside, f"{found:.1e}")
