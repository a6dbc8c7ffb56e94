"""`elfkiln draw`: a picture of a design: the array, the taps of A, B and C, and one step's time."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of, target_of
from elfkiln.errors import EXIT_DONE, one_line
from elfkiln.io.files import write_atomic
from elfkiln.work.draw import draw_design
from elfkiln.work.named_design import named_design


def run(arguments: Arguments) -> int:
    """Write the picture of one design."""
    project = project_of(arguments)
    text = arguments.words[0]
    picture = draw_design(named_design(project, target_of(project, arguments), text), Path(text).stem)
    out = arguments.keys.get("out")
    if out is not None:
        write_atomic(Path(out), picture.encode())
    if arguments.json:
        print_json({"design": text, "out": out, "bytes": len(picture.encode())})
    elif out is None:
        print(picture, end="")
    else:
        print(f"{one_line(out)}: {len(picture.encode()):,} bytes")
    return EXIT_DONE
