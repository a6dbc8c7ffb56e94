"""`elfkiln sbom model=...`: the bill of materials of a set, as CycloneDX JSON."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import one_asked_of, project_of
from elfkiln.errors import EXIT_DONE, Refused
from elfkiln.io.files import write_atomic


def run(arguments: Arguments) -> int:
    """Print the bill, or write it to the file that `out=` names; it is JSON with or without --json."""
    try:
        from elfkiln.work.sbom import sbom
    except ImportError as error:
        raise Refused(f"sbom: {error.name} is not installed; pip install elfkiln[sbom], or make .venv anew") from error
    project = project_of(arguments)
    text = sbom(project, one_asked_of(project, arguments, "sbom"))
    if "out" in arguments.keys:
        write_atomic(Path(arguments.keys["out"]), f"{text}\n".encode())
    else:
        print(text)
    return EXIT_DONE
