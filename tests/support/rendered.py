"""Designs that the project's generators print: rendered, run on the stand-in, and read back."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from elfkiln.design.model import Design
from elfkiln.design.reader import read_design
from elfkiln.design.run_generator import run_generator
from elfkiln.families.family import DesignRequest, render
from projects import CHECKOUT


@cache
def rendered_design(tag: str, M: int, K: int, N: int, columns: int) -> Design:
    """The design of a request; it is shared, so nobody may change it."""
    with tempfile.TemporaryDirectory() as folder:
        return read_design(
            run_generator(render(CHECKOUT, DesignRequest(K, N, M, tag, columns)).text, workdir=Path(folder))
        )
