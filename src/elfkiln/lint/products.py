"""A design that multiplies: its sequences walk A, B and C as a GEMM does, or the product is another one."""

from __future__ import annotations

from elfkiln.design.gemm import are_operands, why_no_gemm
from elfkiln.design.model import Design, MemRef
from elfkiln.lint.finding import Findings


def lint_products(design: Design, findings: Findings) -> None:
    """Warn of a sequence over A, B and C whose tasks are not a GEMM's, where a core calls a kernel of such tiles.

    Only where lint has found no error: what is said here often follows from one. It is a warning, since a design may
    well mean another product; what is built under an artifact name has to be that name's GEMM, or is refused.
    """
    if findings.errors or not _multiplies(design):
        return
    for sequence in design.sequences:
        # One without tasks (`init` of a sealed program) loads the array and multiplies nothing.
        if sequence.tasks and are_operands([argument.element for argument in sequence.arguments]):
            why = why_no_gemm(sequence, design)
            if why is not None:
                findings.add("gemm-walk", f"sequence {sequence.name}", "its tasks", limit="those of a GEMM", value=why)


def _multiplies(design: Design) -> bool:
    return any(
        are_operands([one.element for one in kernel.parameters if isinstance(one, MemRef)]) for kernel in design.kernels
    )
