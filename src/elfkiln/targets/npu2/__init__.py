"""Target npu2: the real toolchain, pinned, installed, driven and distrusted."""
