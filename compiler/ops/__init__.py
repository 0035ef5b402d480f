"""The operators: their records by kind, and `lower`, from a functional graph to elements of logical tensors."""

from compiler.ops import (
    activations,
    composite,
    contraction,
    creation,
    indexing,
    lookup,
    losses,
    pointwise,
    random,
    reduction,
    resampling,
    scans,
    scatter,
    special,
    views,
    windows,
)
from compiler.ops.lower import kind_of, lower
from compiler.ops.registry import OPERATORS, Kind, Op, record

__all__ = [
    "OPERATORS",
    "Kind",
    "Op",
    "activations",
    "composite",
    "contraction",
    "creation",
    "indexing",
    "kind_of",
    "lookup",
    "losses",
    "lower",
    "pointwise",
    "random",
    "record",
    "reduction",
    "resampling",
    "scans",
    "scatter",
    "special",
    "views",
    "windows",
]
