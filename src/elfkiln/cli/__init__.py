"""The `elfkiln` command: one module per verb."""

from __future__ import annotations

import sys

# Verb -> module below elfkiln.cli. A verb's module has HELP (one line), SPEC (an Arguments spec) and run(arguments).
VERBS: dict[str, str] = {
    "check-missing": "check_missing",
    "design": "design",
    "compare-runs": "compare_runs",
    "cross-check": "cross_check",
    "diff": "diff",
    "draw": "draw",
    "elfs": "elfs",
    "explain": "explain",
    "export": "export",
    "inspect": "inspect",
    "import": "import_sets",
    "install": "install",
    "kv-gate": "kv_gate",
    "lint": "lint",
    "list": "list_models",
    "lookup": "lookup",
    "plan": "plan",
    "predict": "predict",
    "pull": "pull",
    "push": "push",
    "toolchain": "toolchain",
    "report": "report",
    "resolve": "resolve",
    "verify": "verify",
}


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code: 0 done, 1 something missing or differing, 2 usage or refused input."""
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] == "check-missing":
        from elfkiln.work.fast_check import main as fast_check

        try:
            answer = fast_check(words[1:])
            sys.stdout.flush()
        except OSError as error:
            sys.stderr.write(f"elfkiln: {error.strerror or error}\n")
            return 1
        if answer is not None:
            return answer
    from elfkiln.cli.dispatch import dispatch

    return dispatch(words)
