"""The pivot: a design as data, its reader, its dialect, its access patterns, and the `aie` stand-in."""
