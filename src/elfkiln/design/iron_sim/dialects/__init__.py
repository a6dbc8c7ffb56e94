"""The dialects: `aie`, `aiex` and `arith`."""
