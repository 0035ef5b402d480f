"""The compiler without its kernels, as a backend: each operator runs in ATen, and its result is laid out as recorded.

A kernel writes its result with the strides that are recorded for it. So a result that is recorded with other strides
than eager's has them here too, and no kernel has to be built to see it. The result of a view is left as it is: it
follows from the strides of what it is a view of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from assay.compiler.entry.dynamo import compile_fx
from assay.compiler.errors import Unsupported
from assay.compiler.fallback import give_back, nodes_of
from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.ir.tensors.layout.strides import hints, is_known
from assay.compiler.journal import count_eager
from assay.compiler.options import Options


def assay_recorded(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """As the backend `assay`, without kernels. Symbolic sizes are taken for those of the call that is compiled."""
    asked = Options.of(options, mode)
    try:
        return compile_fx(gm, example_inputs, _laid_out, options)
    except Unsupported as reason:
        return give_back(gm.forward, reason, asked.fallback, lambda said: count_eager(said, nodes_of(gm)))


def _laid_out(graph: fx.GraphModule, _: Sequence[object], **_keywords: object) -> GraphCall:
    """The graph, run operator by operator. It keeps what it is given until its caller lets go of it: a gradient that
    nobody else held would be taken over as it lies."""

    def run(args: list[object]) -> Sequence[object]:
        return _LaidOut(graph).run(*args)  # type: ignore[no-any-return]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class _LaidOut(fx.Interpreter):
    """Runs a graph; each result that is no view has the strides that are recorded for it."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        recorded = n.meta.get("val")
        if n.op != "call_function" or not isinstance(n.target, torch._ops.OpOverload) or n.target.is_view:
            return result
        made, spec = pytree.tree_flatten(result)
        said = pytree.tree_leaves(recorded)
        if len(made) != len(said):
            return result
        return pytree.tree_unflatten([_as_recorded(*pair) for pair in zip(made, said, strict=True)], spec)


def _as_recorded(result: object, recorded: object) -> object:
    if not isinstance(result, Tensor) or not isinstance(recorded, Tensor) or result.layout is not torch.strided:
        return result
    if not all(map(is_known, recorded.stride())) or result.shape != tuple(recorded.shape):
        return result
    strides = tuple(hints(recorded.stride()))
    if result.stride() == strides:
        return result
    return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device).copy_(result)
