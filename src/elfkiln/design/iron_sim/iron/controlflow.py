"""`range_`, under the name IRON gives it."""

from __future__ import annotations

from elfkiln.design.iron_sim.helpers.dialects.scf import _for as range_

__all__ = ["range_"]
