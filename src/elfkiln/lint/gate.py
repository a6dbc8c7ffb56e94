"""The gate before a compile: a design with an error of lint is not compiled, for either target."""

from __future__ import annotations

from elfkiln.design.model import Design
from elfkiln.errors import BuildFailed, with_log
from elfkiln.lint import ERROR, lint


def pass_lint(design: Design, target: str) -> list[str]:
    """Lint a design and return its findings as log lines; raise `BuildFailed` with the first when one is an error."""
    findings = lint(design, target)
    lines = [f"lint: {finding.line}" for finding in findings]
    errors = [finding for finding in findings if finding.severity == ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more; see elfkiln lint)" if len(errors) > 1 else ""
        raise with_log(BuildFailed(f"lint: {errors[0].line}{more}"), "".join(f"{line}\n" for line in lines))
    return lines
