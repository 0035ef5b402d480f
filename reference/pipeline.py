"""The same compile in its simplest form, as a torch.compile backend: `backend="assay_reference"`.

    record the call on real tensors, functionalized, with its gradients; run the graph node by node

It compiles nothing, keeps everything for backward and records again on every call, so there is little to get wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.ir.tensors.wrappers import is_wrapper
from assay.reference.effects import Effects, effects
from assay.reference.evaluate import evaluate

PRINT = getattr(torch.ops.higher_order, "print", None)
Flat = Callable[..., Sequence[Any]]


def assay_reference(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Flat:
    """A Dynamo graph, recorded and evaluated anew on each call."""

    wrappers = [node.op for node in gm.graph.nodes if is_wrapper(node.meta.get("example_value"))]
    if wrappers and "placeholder" not in wrappers:
        return gm.forward  # around what is being recorded, none would hold numbers
    if PRINT is not None and gm.graph.find_nodes(op="call_function", target=PRINT):
        return gm.forward  # each further run would print again

    def call(*args: Any) -> Sequence[Any]:
        found = effects(gm, _copies(args))
        if found.metadata or torch.is_inference_mode_enabled():
            return gm(*args)  # type: ignore[no-any-return]
        if not (torch.is_grad_enabled() and any(_needs_grad(value) for value in args)):
            results = evaluate(record(gm, args), args)
            return [_aliased_input(index, results, args, found) for index in range(len(results))]
        simple = not found.data and not any(relation[0] == "base view" for relation in found.results)
        return _with_gradients(gm, args, found) if simple else gm(*args)

    return call


def _with_gradients(gm: fx.GraphModule, args: Sequence[Any], found: Effects) -> Sequence[Any]:
    """Outputs from the recorded call; its gradients from autograd over the same call, run again on copies."""
    results = list(_Recorded.apply(gm, found.flows, *args))
    return [_aliased(index, results, args, found) for index in range(len(results))]


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gm: fx.GraphModule, flows: tuple[bool, ...], *args: Any) -> tuple[Any, ...]:
        ctx.gm, ctx.flows, ctx.state = gm, flows, torch.get_rng_state()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*[value for value in args if isinstance(value, torch.Tensor)])
        ctx.others = [None if isinstance(value, torch.Tensor) else value for value in args]
        results = evaluate(record(gm, args), _copies(args))
        ctx.mark_non_differentiable(
            *[r for r, flows in zip(results, ctx.flows, strict=True) if isinstance(r, torch.Tensor) and not flows]
        )
        return tuple(results)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        args = [next(saved) if value is None else value for value in ctx.others]
        leaves = [i for i, value in enumerate(args) if _needs_grad(value)]

        def joint(values: Sequence[Any], given: Sequence[Any]) -> list[Any]:
            results = ctx.gm(*values)
            flowing = [r for r, given in zip(results, wanted, strict=True) if given is not None]
            return list(torch.autograd.grad(flowing, [values[i] for i in leaves], given, allow_unused=True))

        wanted = [t if flows else None for t, flows in zip(tangents, ctx.flows, strict=True)]
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            grads = joint(_copies(args), [tangent for tangent in wanted if tangent is not None])
        by_leaf = dict(zip(leaves, grads, strict=True))
        return (None, None, *(by_leaf.get(i) for i in range(len(args))))


def record(gm: fx.GraphModule, args: Sequence[Any]) -> fx.GraphModule:
    """The functional ATen graph of a call; writes of inputs stand at its end as `copy_`."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        return make_fx(torch.func.functionalize(gm, remove="mutations"))(*_copies(args))


def _aliased(index: int, results: Sequence[Any], args: Sequence[Any], found: Effects) -> Any:
    """Result `index`, made the alias that it is in eager."""
    relation, value = found.results[index], results[index]
    if relation[0] == "result":
        return results[relation[1]]
    if relation[0] == "result view":
        return _view(results[relation[1]], value, found, index)
    return _aliased_input(index, results, args, found)


def _aliased_input(index: int, results: Sequence[Any], args: Sequence[Any], found: Effects) -> Any:
    relation, value = found.results[index], results[index]
    if relation[0] == "input":
        return args[relation[1]]
    return _view(args[relation[1]], value, found, index) if relation[0] == "input view" else value


def _view(base: torch.Tensor, like: torch.Tensor, found: Effects, index: int) -> torch.Tensor:
    with torch.set_grad_enabled(found.flows[index]):
        view = torch.as_strided(base, like.shape, like.stride(), like.storage_offset())
    return view if found.views[index] else view.detach()


def _copies(args: Sequence[Any]) -> list[Any]:
    return [
        value.detach().clone().requires_grad_(value.requires_grad) + 0
        if _needs_grad(value)
        else (value.clone() if isinstance(value, torch.Tensor) else value)
        for value in args
    ]


def _needs_grad(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
