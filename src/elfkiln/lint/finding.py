"""Findings: what lint has to say about a design, one line each."""

from __future__ import annotations

from dataclasses import dataclass, field

from elfkiln.errors import brief
from elfkiln.hardware.limits import Limit
from elfkiln.lint.rules import ERROR, rule


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule broken in one place: `where` names the tile, FIFO or task, `source` who sets the limit.

    `message` is the whole sentence: place, what was expected, what was found, and what later tools do about it.
    """

    rule: str
    severity: str
    where: str
    limit: int | str | None
    value: int | str | None
    source: str
    message: str

    @property
    def line(self) -> str:
        """The finding on one line, as `elfkiln lint` prints it."""
        return f"{self.severity} {self.rule} {self.message} [{self.source}]"


@dataclass(slots=True)
class Findings:
    """Collects the findings of one run for one target."""

    target: str
    found: list[Finding] = field(default_factory=list)

    def add(
        self,
        name: str,
        where: str,
        what: str,
        *,
        limit: Limit | int | str | None = None,
        value: int | str | None = None,
        note: str = "",
    ) -> None:
        """Add a finding of the rule `name`: `what` is said first, then limit and value, then what the tools do."""
        broken = rule(name)
        if self.target not in broken.targets:
            return
        bound = limit.value if isinstance(limit, Limit) else limit
        source = limit.source if isinstance(limit, Limit) else broken.source
        text = f"{where}: {what}"
        if bound is not None:
            least_or_most = "at most " if isinstance(limit, Limit) else ""
            text += f": expected {least_or_most}{_text(bound)}, found {_text(value)}"
        for part in (note, broken.downstream):
            if part:
                text += f"; {part}"
        self.found.append(Finding(name, broken.severity, where, bound, value, source, brief(text, 600)))

    @property
    def errors(self) -> bool:
        """Whether an error is among the findings."""
        return any(finding.severity == ERROR for finding in self.found)


def _text(value: int | str | None) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
