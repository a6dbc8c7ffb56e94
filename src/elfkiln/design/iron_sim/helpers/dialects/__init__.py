"""Dialect helpers of `aie.helpers.dialects`."""

from __future__ import annotations

from elfkiln.design.iron_sim.building import absent_from

__getattr__ = absent_from("aie.helpers.dialects")
