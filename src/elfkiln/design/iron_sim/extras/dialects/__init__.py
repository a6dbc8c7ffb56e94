"""The extended dialect builders of `aie.extras.dialects`."""
