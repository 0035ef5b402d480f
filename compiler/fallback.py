"""What becomes of a call that the compiler cannot take, as the option `fallback` says.

          a declared limit (Unsupported)    an error that no limit declares (Unexpected)
eager     eager, counted and said           eager, counted and said
limits    eager, counted and said           eager's own error where eager raises, else the compiler's
error     raised                            raised
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import fx
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils import _pytree as pytree

from assay.compiler.errors import Unexpected, Unsupported, VerifyError
from assay.compiler.journal import count_cut, count_eager

Run = Callable[..., Any]
TANGENTS = (torch.preserve_format, torch.contiguous_format)
"""How tangents lie: as the results do, or in rows. `flip` refuses some dtypes along the innermost dimension alone."""


class GivenBack:
    """Counts the calls of one graph that run in eager. Each call counts as a graph, or as a cut where the graph
    `is_part` of another. The graph's `nodes` count once for each reason."""

    def __init__(self, nodes: int = 1, is_part: bool = False) -> None:
        self._nodes = nodes
        self._count = count_cut if is_part else count_eager
        self._reasons: set[str] = set()

    def count(self, reason: str) -> None:
        nodes = 0 if reason in self._reasons else self._nodes
        self._reasons.add(reason)
        self._count(reason, nodes)


def nodes_of(*graphs: fx.GraphModule) -> int:
    """The calls of graphs and of the graphs inside them, each once, apart from those that take an item out of a
    tuple."""
    inside = {module for graph in graphs for module in graph.modules()}
    modules = (module for module in inside if isinstance(module, fx.GraphModule))
    nodes = (node for module in modules for node in module.graph.nodes)
    return sum(node.op.startswith("call_") and node.target is not operator.getitem for node in nodes)


def give_back(eager: Run, reason: Unsupported, fallback: str, count: Callable[[str], None]) -> Run:
    """What runs in the place of the compiled call. Raises: `reason`, where `fallback` is `error`."""
    if fallback == "error":
        raise reason
    if fallback == "limits" and isinstance(reason, Unexpected):
        return _of_backward(eager, reason) if reason.in_backward else _unless_eager_raises(eager, reason)
    count(str(reason))
    return eager


def _unless_eager_raises(eager: Run, reason: Unexpected) -> Run:
    """Raises eager's error where eager raises, as the program is then wrong; else the compiler's."""

    def run(*args: object, **kwargs: object) -> Any:
        eager(*args, **kwargs)
        raise raised_by(reason)

    return run


def _of_backward(eager: Run, reason: Unexpected) -> Run:
    """Eager, where its backward fails as the recording of it did: the program's own fault, so that nothing is counted.
    Else the call raises the compiler's error."""
    is_the_programs = False

    def run(*args: object, **kwargs: object) -> Any:
        nonlocal is_the_programs
        wanted = [] if is_the_programs else _edges((args, kwargs))  # before the call writes any of them
        results = eager(*args, **kwargs)
        is_the_programs = is_the_programs or _fails_in_backward((results, args, kwargs), wanted)
        if not is_the_programs:
            raise raised_by(reason)
        return results

    return run


def raised_by(reason: Unexpected) -> BaseException:
    """What the compiler raised, which is no refusal of the program. The interpreter of torch.fx makes a RuntimeError
    of a KeyError."""
    cause = reason.__cause__
    if cause is not None and isinstance(cause.__cause__, KeyError):
        return cause.__cause__
    return cause or VerifyError(str(reason)).with_traceback(reason.__traceback__)


def _edges(given: object) -> list[GradientEdge]:
    """Where the gradients of tensors go, and those of what they are views of: a write gives a view another history.
    Of views whose history autograd refuses to tell there is none."""
    found = []
    for value in _differentiable(given):
        bases = [base for base in [value._base] if base is not None and base.requires_grad]
        for tensor in (*bases, value):
            with suppress(RuntimeError):
                found.append(get_gradient_edge(tensor))
    return found


def _fails_in_backward(made: object, wanted: Sequence[GradientEdge]) -> bool:
    """Whether eager's backward of what a call gave and wrote raises. It can be differentiated afterwards. Views whose
    history autograd refuses to tell are not asked: each would raise, whatever else of the program is right."""
    made = [value for value in _differentiable(made) if _is_made(value)]
    if not wanted or not made:
        return False
    with torch.random.fork_rng(devices=[]):
        for layout in TANGENTS:
            tangents = [torch.ones_like(result, memory_format=layout) for result in made]
            try:
                torch.autograd.grad(made, wanted, tangents, retain_graph=True, allow_unused=True)
            except Exception:
                return True
    return False


def _is_made(value: torch.Tensor) -> bool:
    try:
        return not value.is_leaf
    except RuntimeError:
        return False


def _differentiable(values: object) -> Sequence[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
