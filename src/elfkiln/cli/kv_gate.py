"""`elfkiln kv-gate`: the KV contract's arithmetic, measured on synthetic vectors."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, refusal
from elfkiln.studies.kv_gate import (
    CACHES,
    DRAWS,
    HEAD_WIDTH,
    KEYS,
    OUTLIER_CHANNELS,
    QUERIES,
    Measurement,
    measure,
)


def run(arguments: Arguments) -> int:
    """Measure and print; return 1 when the published shape does not come out."""
    measurement = measure(
        _number(arguments, "seed", 0),
        _number(arguments, "outliers", OUTLIER_CHANNELS),
        _number(arguments, "block", HEAD_WIDTH),
    )
    if arguments.json:
        print_json(_data(measurement))
    else:
        print("\n".join(_lines(measurement)))
    return EXIT_DONE if measurement.holds else EXIT_DIFFERS


def _number(arguments: Arguments, key: str, default: int) -> int:
    text = arguments.keys.get(key)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise refusal(f"kv-gate: {key}", expected="a whole number", found=repr(text))
    return int(text)


def _lines(measurement: Measurement) -> list[str]:
    vectors = f"head width {HEAD_WIDTH}, {KEYS} keys, {QUERIES} queries, {DRAWS} draws, seed {measurement.seed}"
    lines = [
        f"{vectors}, {measurement.outliers} outlier channels, Hadamard block {measurement.block}",
        "mean divergence of the attention weights from those of the f16 cache, in nats:",
        "",
        f"{'keys':<14}" + "".join(f"{cache:>15}" for cache in CACHES) + f"{'rotation worth':>16}",
    ]
    for row in measurement.rows:
        cells = "".join(f"{row.divergence[cache]:>15.2e}" for cache in CACHES)
        lines.append(f"{row.label:<14}{cells}{row.worth:>15.1f}x")
    error = measurement.score_error
    lines += ["", f"f32 scores: relative error {error.plain:.1e} as they are, {error.rotated:.1e} rotated", ""]
    lines += [f"{'yes' if check.holds else 'NO':<4}{check.statement}: {check.measured}" for check in measurement.checks]
    return lines


def _data(measurement: Measurement) -> dict[str, object]:
    return {
        "settings": {
            "head_width": HEAD_WIDTH,
            "keys": KEYS,
            "queries": QUERIES,
            "draws": DRAWS,
            "outliers": measurement.outliers,
            "block": measurement.block,
            "seed": measurement.seed,
        },
        "rows": [
            {"severity": row.severity, "divergence": row.divergence, "rotation_worth": row.worth}
            for row in measurement.rows
        ],
        "score_error": {"plain": measurement.score_error.plain, "rotated": measurement.score_error.rotated},
        "checks": [
            {"statement": check.statement, "holds": check.holds, "measured": check.measured}
            for check in measurement.checks
        ],
        "holds": measurement.holds,
    }
