"""What one decoded token costs: launches, weight bytes by role and layout, and a predicted device wait.

The model, fitted on the published per-phase table of Bonsai-2-27B and nothing else:

    wait = sum over roles of (weight bytes of the role / published rate of its phase)
         + launches * contract.LAUNCH_SECONDS
         + head bytes / the rate of the G/U phase

It holds for a decode step at M = 16 that is bound by weight traffic. A packed pb16i weight is 2 bits, so its bytes are
a quarter; its rate is taken to be b8's, since both stream contiguous tiles: that is a prediction, nobody published it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elfkiln.engine import contract
from elfkiln.errors import refusal
from elfkiln.models.catalogue import model_dimensions
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.work.asked import Asked

LAYOUTS = ("rm", "b8", "pb16i")
_MEASURED = ("rm", "b8")
_MLP = frozenset({"G", "U", "GU", "D"})


@dataclass(frozen=True, slots=True)
class RoleCost:
    """One role's part: launches and int8 weight bytes of one pass over the layers."""

    role: str
    launches: int
    int8_bytes: int


@dataclass(frozen=True, slots=True)
class LayoutCost:
    """One layout's weight bytes a token (layers, head) and predicted wait in seconds, beside a published figure."""

    layout: str
    layer_bytes: int
    head_bytes: int
    seconds: float
    predicted_only: bool
    published: float | None

    @property
    def error(self) -> float | None:
        """Predicted over published, minus 1; None where nothing is published."""
        return None if self.published is None else self.seconds / self.published - 1


@dataclass(frozen=True, slots=True)
class DecodeReport:
    """The whole report of one model."""

    model: str
    roles: tuple[RoleCost, ...]
    layouts: tuple[LayoutCost, ...]
    vocabulary: int
    run: contract.PublishedRun | None
    experts: int = 1
    hidden: int = 0

    @property
    def launches(self) -> int:
        """Launches of one pass over the layers; the head's are not counted."""
        return sum(role.launches for role in self.roles)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; bytes, seconds."""
        return {
            "model": self.model,
            "launches": self.launches,
            "published_launches": self.run.launches if self.run else None,
            "vocabulary": self.vocabulary,
            "experts": self.experts,
            "launch_seconds": contract.LAUNCH_SECONDS,
            "roles": [
                {"role": role.role, "launches": role.launches, "int8_bytes": role.int8_bytes} for role in self.roles
            ],
            "layouts": [
                {
                    "layout": cost.layout,
                    "layer_bytes": cost.layer_bytes,
                    "head_bytes": cost.head_bytes,
                    "seconds": cost.seconds,
                    "prediction_only": cost.predicted_only,
                    "published_seconds": cost.published,
                    "error": cost.error,
                }
                for cost in self.layouts
            ],
        }

    def text(self) -> str:
        """Return the lines for a person."""
        lines = [f"{self.model}: one decoded token", f"{'role':<8} launches  int8 weight GB"]
        lines += [f"{r.role:<8} {r.launches:>8}  {r.int8_bytes / 1e9:>14.3f}" for r in self.roles]
        turns = (
            f"run {self.experts} times a layer" if self.experts > 1 else "run once a layer (a mixture: give experts=)"
        )
        lines.append(f"G, U, GU and D {turns}")
        published = f" (published {self.run.launches})" if self.run else ""
        lines.append(f"launches without the head: {self.launches}{published}")
        lines.append(f"head: {self.vocabulary} rows" if self.vocabulary else "head: left out (vocab= gives its rows)")
        lines.append("layout  layers GB  head GB  total GB  predicted s  published s  error")
        for cost in self.layouts:
            known = f"{cost.published:.2f}" if cost.published is not None else "-"
            error = f"{cost.error:+.1%}" if cost.error is not None else "a prediction: nothing is published"
            total = (cost.layer_bytes + cost.head_bytes) / 1e9
            lines.append(
                f"{cost.layout:<6}  {cost.layer_bytes / 1e9:>9.3f}  {cost.head_bytes / 1e9:>7.3f}  {total:>8.3f}  "
                f"{cost.seconds:>11.2f}  {known:>11}  {error}"
            )
        lines.append(
            f"predicted s = sum(role bytes / published phase rate) + launches * {contract.LAUNCH_SECONDS * 1e3:.2f} ms "
            f"+ head bytes / G-U rate"
        )
        lines.append(
            "these are the rates of the old generator's designs, and the launch overhead, as one run published them"
        )
        return "\n".join(lines)


def token_report(project: Project, asked: Asked, *, vocabulary: int | None = None, experts: int = 1) -> DecodeReport:
    """Return the report of a plan, or of a model below plans/; see `decode_report`."""
    if asked.plan is not None:
        hidden, layers = asked.plan.hidden, len(asked.plan.layers)
    else:
        hidden, layers = model_dimensions(project, asked.wanted.model)
    return decode_report(asked.wanted, hidden=hidden, layers=layers, vocabulary=vocabulary, experts=experts)


def decode_report(
    wanted: RequirementSet, *, hidden: int, layers: int, vocabulary: int | None, experts: int = 1
) -> DecodeReport:
    """Return the report of a requirement set.

    `vocabulary` is the rows of the lm_head (0: leave it out); None takes it from the published run of the same hidden
    size and layer count, if there is one. Raises `Refused` for a negative one.
    `experts` is how often a layer's MLP runs for one token: the chosen experts of a mixture, which neither a plan nor
    a role table states.
    """
    if vocabulary is not None and vocabulary < 0:
        raise refusal("vocab", expected="0 or more rows", found=vocabulary)
    roles: dict[str, RoleCost] = {}
    for need in wanted.requirements:
        if need.name is None or need.name.m16:
            continue
        past = roles.get(need.name.role, RoleCost(need.name.role, 0, 0))
        launches = need.launches * (experts if need.name.role in _MLP else 1)
        weights = launches * need.name.K * need.name.N
        roles[need.name.role] = RoleCost(past.role, past.launches + launches, past.int8_bytes + weights)
    costs = tuple(roles.values())
    run = _published_run(hidden, layers, costs)
    rows = vocabulary if vocabulary is not None else (run.vocabulary if run else 0)
    if run is not None and rows != run.vocabulary:
        # Its times include the head it had.
        run = None
    published = dict(run.seconds) if run else {}
    layouts = tuple(_layout_cost(layout, costs, rows * hidden, published.get(layout)) for layout in LAYOUTS)
    return DecodeReport(wanted.model, costs, layouts, rows, run, experts, hidden)


def _published_run(hidden: int, layers: int, roles: tuple[RoleCost, ...]) -> contract.PublishedRun | None:
    """Return the published run of a model of these dimensions, launches and bytes; None if nobody published one."""
    launches = sum(role.launches for role in roles)
    layer_bytes = sum(role.int8_bytes for role in roles)
    for run in contract.PUBLISHED_RUNS:
        gigabytes = (layer_bytes + run.vocabulary * hidden) / 1e9
        same_shape = (run.hidden, run.layers, run.launches) == (hidden, layers, launches)
        if same_shape and round(gigabytes, 2) == run.weight_gigabytes:
            return run
    return None


def rate_of(role: str, layout: str) -> float:
    """Return the published rate of a role's phase in bytes per second; the mean of the phases for other roles."""
    column = "rm" if layout == "rm" else "b8"
    for phase in contract.PHASE_RATES:
        if role in phase.roles:
            return float(getattr(phase, column)) * 1e9
    return sum(float(getattr(phase, column)) for phase in contract.PHASE_RATES) / len(contract.PHASE_RATES) * 1e9


def _layout_cost(layout: str, roles: tuple[RoleCost, ...], head_bytes: int, published: float | None) -> LayoutCost:
    share = contract.weight_layout(layout).weight_bits / 8
    # The head stays int8 in every layout: only layer weights are ternary.
    head_seconds = head_bytes / rate_of("G", layout)
    seconds = sum(role.int8_bytes * share / rate_of(role.role, layout) for role in roles)
    seconds += sum(role.launches for role in roles) * contract.LAUNCH_SECONDS + head_seconds
    layer_bytes = round(sum(role.int8_bytes for role in roles) * share)
    return LayoutCost(layout, layer_bytes, head_bytes, seconds, layout not in _MEASURED, published)
