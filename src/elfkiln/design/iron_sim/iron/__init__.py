"""The part of `aie.iron` that generators at the dialect level use: `controlflow.range_`."""

from __future__ import annotations

from elfkiln.design.iron_sim.building import absent_from

__getattr__ = absent_from("aie.iron")
