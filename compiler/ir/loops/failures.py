"""What a launch can fail with: the errors of eager that depend on data, by the names that `Check` gives them.

The classes are eager's; a kernel does not keep which element failed, so the messages say what, not where.
"""

from __future__ import annotations

from assay.compiler.ir.loops.kernel import Check, Kernel
from assay.compiler.ir.loops.rewrite import nodes

FAILURES: dict[str, tuple[type[Exception], str]] = {
    "index": (IndexError, "index is out of bounds for the dimension that it indexes"),
    "row": (IndexError, "index out of range in self"),
    "column": (RuntimeError, "INDICES element is out of DATA bounds"),
    "element": (IndexError, "out of range: tried to access an index beyond the elements of the tensor"),
    "target": (IndexError, "Target is out of bounds."),
    "gather": (RuntimeError, "index is out of bounds for the dimension that it indexes"),
    "probability": (RuntimeError, "all elements of input should be between 0 and 1"),
    "target probability": (RuntimeError, "all elements of target should be between 0 and 1"),
    "zero division": (RuntimeError, "ZeroDivisionError"),
}


def failures_of(kernel: Kernel) -> tuple[str, ...]:
    """The failures that a kernel checks for, in the order of `FAILURES`: of two in one launch the first is raised."""
    found = {node.failure for node in nodes(*(store.expr for store in kernel.stores)) if isinstance(node, Check)}
    return tuple(name for name in FAILURES if name in found)
