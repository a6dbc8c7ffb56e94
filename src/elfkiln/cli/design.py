"""`elfkiln design FILE.py`: run a generator on the `aie` stand-in and print the design as generic MLIR."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import print_json
from elfkiln.design.reader import MAX_CHARACTERS, design_digest, read_design
from elfkiln.design.run_generator import run_generator
from elfkiln.errors import EXIT_DONE
from elfkiln.io.reading import read_text

HELP = "run an IRON generator without the real aie package and print its design as generic MLIR"
SPEC = Spec(words=("FILE.py",))


def run(arguments: Arguments) -> int:
    """Print the design that the generator FILE.py makes; with --json also its digest and what is in it."""
    path = Path(arguments.words[0])
    program = read_text(path, limit=MAX_CHARACTERS, remedy="name a Python file that builds a design")
    with tempfile.TemporaryDirectory(prefix="elfkiln-design-", ignore_cleanup_errors=True) as folder:
        text = run_generator(program, workdir=Path(folder), name=path.name)
    if not arguments.json:
        sys.stdout.write(text)
        return EXIT_DONE
    design = read_design(text)
    print_json(
        {
            "cores": len(design.cores),
            "design": text,
            "device": design.device,
            "digest": design_digest(text),
            "fifos": len(design.fifos),
            "kernels": {kernel.name: kernel.link_with for kernel in design.kernels},
            "name": design.name,
            "sequences": {sequence.name: {"tasks": len(sequence.tasks)} for sequence in design.sequences},
        }
    )
    return EXIT_DONE
