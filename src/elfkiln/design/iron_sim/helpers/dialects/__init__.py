"""Dialect helpers of `aie.helpers.dialects`."""
