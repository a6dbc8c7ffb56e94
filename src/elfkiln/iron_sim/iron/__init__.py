"""The part of `aie.iron` that generators at the dialect level use: `range_`."""
