"""`elfkiln predict`: the time of a launch and of a token, from the design alone."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of, target_of
from elfkiln.cli.report import report_of
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Refused, one_line
from elfkiln.io.canonical import file_sha256
from elfkiln.studies.timing_points import Point, points, root_mean_square
from elfkiln.work.named_design import named_design
from elfkiln.work.predict import Prediction, predict_design
from elfkiln.work.predict_baseline import (
    attest_predictions,
    compare_baseline,
    predicted_table,
    read_baseline,
    write_baseline,
)
from elfkiln.work.predict_token import ModelPrediction, predict_model


def run(arguments: Arguments) -> int:
    """Print the predictions of a design, a model or the published points; return 1 when the baseline is not met."""
    if "--validate" in arguments.flags:
        return _validate(arguments)
    if arguments.words:
        return _designs(arguments)
    return _models(arguments)


def _designs(arguments: Arguments) -> int:
    for key in arguments.keys.keys() - {"root", "target"}:
        raise Refused(f"predict: a design or {key}=, not both")
    if "--baseline" in arguments.valued or "--write-baseline" in arguments.valued:
        raise Refused("predict: a baseline is of names; give model= or plan=")
    files = [arguments.words[0], *([arguments.valued["--compare"]] if "--compare" in arguments.valued else [])]
    project = project_of(arguments)
    target = target_of(project, arguments)
    found = {file: predict_design(named_design(project, target, file)) for file in files}
    if arguments.json:
        print_json({file: [one.to_json() for one in predictions] for file, predictions in found.items()})
        return EXIT_DONE
    for file, predictions in found.items():
        for one in predictions:
            print("\n".join(_design_lines(f"{one_line(Path(file).name)} {one.sequence}", one)))
    if len(files) == 2:
        for first, second in zip(*found.values(), strict=False):
            names = [one_line(Path(file).name) for file in files]
            print(f"{names[1]} takes {second.seconds / first.seconds:.2f} of {names[0]}'s time")
    return EXIT_DONE


def _models(arguments: Arguments) -> int:
    layouts = [arguments.keys.get("layout"), *filter(None, [arguments.valued.get("--compare")])]
    found = []
    for layout in layouts:
        keys = {**arguments.keys, **({"layout": layout} if layout else {})}
        found.append(_predict(replace(arguments, keys=keys)))
    table = predicted_table(tuple(found))
    if arguments.json:
        print_json({"models": [one.to_json() for one in found]})
    else:
        for one in found:
            print("\n".join(_model_lines(one)))
        if len(found) == 2:
            for first, second in zip(found[0].passes, found[1].passes, strict=False):
                ratio = second.seconds[0] / first.seconds[0]
                print(f"{first.what}: {found[1].layout} takes {ratio:.2f} of {found[0].layout}")
    if "--write-baseline" in arguments.valued:
        write_baseline(Path(arguments.valued["--write-baseline"]), table)
    if "--baseline" not in arguments.valued:
        return EXIT_DONE
    baseline = Path(arguments.valued["--baseline"])
    changes = compare_baseline(read_baseline(baseline), table)
    project = project_of(arguments)
    attest_predictions(project, target_of(project, arguments), found, changes, file_sha256(baseline))
    bad = [change for change in changes if change.bad]
    out = sys.stderr if arguments.json else sys.stdout
    for change in changes:
        print(f"{'slower' if change.bad else 'faster'}: {change.name}: {change.text}", file=out)
    print(f"{len(table)} designs against the baseline: {len(bad)} to answer for", file=out)
    return EXIT_DIFFERS if bad else EXIT_DONE


def _predict(arguments: Arguments) -> ModelPrediction:
    asked, report = report_of(arguments, "predict")
    head = report.vocabulary * report.hidden
    return predict_model(project_of(arguments), asked.wanted, head_bytes=head, experts=report.experts)


def _design_lines(title: str, one: Prediction) -> list[str]:
    busy = ", ".join(f"{name} {seconds / one.seconds:.0%}" for name, seconds in one.resources.items())
    return [
        f"{title}: predicted {_ms(one.seconds)} ms [{_ms(one.low)} to {_ms(one.high)}]",
        f"  weights {one.weights_rate / 1e9:.1f} GB/s, {one.tops:.2f} TOPS; roof {_ms(one.roof)} ms",
        f"  bound by the {one.binds}; without that limit {_ms(one.unbound)} ms, then the {one.next}",
        f"  busy: {busy}",
        f"  {one.tasks} tasks, {one.groups} groups of {one.steps} steps",
        f"  {one.short_runs} runs below 512 B, the shortest {one.shortest_run} B",
    ]


def _model_lines(found: ModelPrediction) -> list[str]:
    width = max(len(one.key) for one in found.names)
    lines = [f"{found.model} in {found.layout}: predicted from the designs, not measured"]
    lines.append(f"{'name':<{width}}  launches  predicted ms  range ms         weights GB/s   TOPS  bound by")
    for one in found.names:
        for sequence in one.sequences:
            spread = f"{_ms(sequence.low)}-{_ms(sequence.high)}"
            # A sealed ELF's launches are those of its twins' names above.
            what, launches = (one.key, one.launches) if len(one.sequences) == 1 else (f"  {sequence.sequence}", "-")
            lines.append(
                f"{what:<{width}}  {launches:>8}  {_ms(sequence.seconds):>12}  {spread:<15}  "
                f"{sequence.weights_rate / 1e9:>12.1f}  {sequence.tops:>5.2f}  {sequence.binds}"
            )
    for way in found.passes:
        central, low, high = way.seconds
        lines.append(
            f"{way.what}: predicted {central:.3f} s [{low:.3f} to {high:.3f}]: designs {way.designs[0]:.3f}, "
            f"{way.launches} launches {way.launches * way.launch[0]:.3f}, head {way.head:.3f}"
        )
    return lines


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def _validate(arguments: Arguments) -> int:
    found = tuple(points())
    if arguments.json:
        print_json({"points": [point.to_json() for point in found], "rms": _rms(found)})
        return EXIT_DONE
    width = max(len(point.what) for point in found)
    print(f"{'group':<9}  {'point':<{width}}  published  modelled  unit       error  use")
    for point in found:
        print(
            f"{point.group:<9}  {point.what:<{width}}  {point.published:>9.2f}  {point.modelled:>8.2f}  "
            f"{point.unit:<9}  {point.error:>+5.1%}  {'fitted' if point.fitted else 'held out'}"
        )
    for group, error in _rms(found).items():
        print(f"{group}: root mean square of the held-out errors {error:.1%}")
    return EXIT_DONE


def _rms(found: tuple[Point, ...]) -> dict[str, float]:
    groups = dict.fromkeys(point.group for point in found)
    return {group: root_mean_square(point for point in found if point.group == group) for group in groups}
