"""The operators: their records by kind, and `lower`, from a functional graph to elements of logical tensors.

A record is made when its module is imported, so all of them are imported here.
"""

from assay.compiler.ops import library as library
from assay.compiler.ops.calls import attention, contraction, drawn_numbers, generators, products, random, transfers
from assay.compiler.ops.complex import functions, numbers, reductions
from assay.compiler.ops.indexing import creation, indexing, lookup, resampling, scatter, unfolding, views, windows
from assay.compiler.ops.losses import class_losses, losses
from assay.compiler.ops.lower import kind_of, lower
from assay.compiler.ops.pointwise import activations, pointwise, special
from assay.compiler.ops.reductions import reduction, scans, searching, softmax_and_norms, sorting
from assay.compiler.ops.registry import OPERATORS, Kind, Op, record

RECORDED = (
    (attention, contraction, drawn_numbers, generators, library, products, random, transfers),
    (functions, numbers, reductions),
    (creation, indexing, lookup, resampling, scatter, unfolding, views, windows),
    (class_losses, losses),
    (activations, pointwise, special),
    (reduction, scans, searching, softmax_and_norms, sorting),
)
"""The modules that have records."""

__all__ = ["OPERATORS", "RECORDED", "Kind", "Op", "kind_of", "lower", "record"]
