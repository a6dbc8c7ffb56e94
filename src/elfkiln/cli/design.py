"""`elfkiln design FILE.py`: run a generator on the `aie` stand-in and print the design as generic MLIR."""

from __future__ import annotations

import sys
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json
from elfkiln.errors import EXIT_DONE
from elfkiln.work.design import design_of


def run(arguments: Arguments) -> int:
    """Print the design that the generator FILE.py makes; with --json also its digest and what is in it."""
    printed = design_of(Path(arguments.words[0]))
    if arguments.json:
        print_json(printed.to_json())
    else:
        sys.stdout.write(printed.text)
    return EXIT_DONE
