"""The part of `aie.iron` that generators at the dialect level use: `controlflow.range_`."""

from __future__ import annotations

from typing import NoReturn


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(f"aie.iron.{name} is not supported by elfkiln's aie: write generators at the dialect level")
