"""ELFs on the NPU itself, through XRT's pyxrt: checked to the last int32, then timed.

Nothing in this package was run on a device. It is written from the sources of XRT and of the amdxdna driver, and tested
against a stand-in pyxrt over the simulator that has their traps. docs/device.md has versions, containers and remedies.
"""
