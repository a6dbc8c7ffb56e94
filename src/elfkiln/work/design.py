"""What a generator's program prints on the `aie` stand-in."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.design.reader import MAX_CHARACTERS, design_digest, read_design
from elfkiln.design.run_generator import run_generator
from elfkiln.io.reading import read_text


@dataclass(frozen=True, slots=True)
class PrintedDesign:
    """The generic MLIR a program printed."""

    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the text, its digest and what is in it; reads the design."""
        design = read_design(self.text)
        return {
            "cores": len(design.cores),
            "design": self.text,
            "device": design.device,
            "digest": design_digest(self.text),
            "fifos": len(design.fifos),
            "kernels": {kernel.name: kernel.link_with for kernel in design.kernels},
            "name": design.name,
            "sequences": {sequence.name: {"tasks": len(sequence.tasks)} for sequence in design.sequences},
        }


def design_of(path: Path) -> PrintedDesign:
    """Run a Python program in a private folder and return the design it prints; raises what the run raises."""
    program = read_text(path, limit=MAX_CHARACTERS, remedy="name a Python file that builds a design")
    with tempfile.TemporaryDirectory(prefix="elfkiln-design-", ignore_cleanup_errors=True) as folder:
        return PrintedDesign(run_generator(program, workdir=Path(folder), name=path.name))
