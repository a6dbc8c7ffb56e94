"""The sources of ours that decide a sim ELF's bytes. Apart from what compiles: recipes need only this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from elfkiln.families.family import KernelObject
from elfkiln.io.canonical import sha256_hex
from elfkiln.targets.sim.compiler import kernel_sources, package_sources, runtime_sources


def source_digests(kernel_root: Path, kernels: Sequence[KernelObject]) -> dict[str, str]:
    """Return the sha256 of every source of ours that decides the bytes of a sim ELF, by relative name.

    These are the microkernels and their headers (`kernels/...`), the simulator with its runtime, and the modules that
    make and read designs (`elfkiln/...`). Raises `Refused` naming a microkernel source that is not there.
    """
    sources: Mapping[str, bytes] = {
        **{f"elfkiln/{name}": data for name, data in package_sources().items()},
        **{f"elfkiln/targets/sim/{name}": data for name, data in runtime_sources().items()},
    }
    digests = {name: sha256_hex(data) for name, data in sources.items()}
    for kernel in kernels:
        digests |= {name: sha256_hex(data) for name, data in kernel_sources(kernel_root, kernel.source).items()}
    return dict(sorted(digests.items()))
