"""Backends of torch.compile that are wrong in one way each, for the state machine: `tests.wrong_backends:NAME`.

Each runs the graph as it is and then does its one wrong thing, so that nothing else can give it away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

Run = Callable[..., Any]


def right(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Nothing wrong: what the others are made of."""
    return gm.forward


def kills_its_process_once(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The first of all processes that compiles ends there; the file that the environment names tells the others."""
    try:
        open(os.environ["ASSAY_TEST_DIED"], "x").close()
    except FileExistsError:
        return gm.forward
    os._exit(7)


def drops_a_write(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The numbers of a written input are put back."""

    def run(*args: Any) -> Any:
        before = [(arg, arg.detach().clone()) for arg in args if isinstance(arg, Tensor)]
        results = gm.forward(*args)
        for arg, numbers in before:
            arg.data.copy_(numbers)
        return results

    return run


def hands_out_one_buffer_twice(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A later call of the same sizes writes its results where the earlier ones are."""
    kept: dict[tuple[int, torch.Size], Tensor] = {}

    def run(*args: Any) -> Any:
        results = gm.forward(*args)
        for index, result in enumerate(results):
            if isinstance(result, Tensor) and not result._is_view() and not result.is_inference():
                buffer = kept.setdefault((index, result.shape), result.detach())
                if buffer.dtype == result.dtype and buffer.data_ptr() != result.data_ptr():
                    result.data = buffer.copy_(result.detach())
        return results

    return run


def keeps_a_stale_overlap(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """If the first call had disjoint inputs, all calls are run on copies that are written back."""
    is_disjoint: list[bool] = []

    def run(*args: Any) -> Any:
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        owners = [tensor.untyped_storage()._cdata for tensor in tensors]
        is_disjoint.append(len(set(owners)) == len(owners))
        if not is_disjoint[0] or any(tensor.requires_grad for tensor in tensors):
            return gm.forward(*args)
        copies = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
        results = gm.forward(*copies)
        for arg, copied in zip(args, copies, strict=True):
            if isinstance(arg, Tensor) and (copied.is_inference() or copied._version):
                arg.copy_(copied)
        return results

    return run


def turns_none_into_zero(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Every result depends on every input, by a zero."""

    def run(*args: Any) -> Any:
        results = gm.forward(*args)
        taking = [arg for arg in args if isinstance(arg, Tensor) and arg.requires_grad]
        nothing = sum(torch.zeros_like(arg).mul(arg).nansum() for arg in taking)
        return [
            each + nothing if isinstance(each, Tensor) and each.requires_grad and not each._is_view() else each
            for each in results
        ]

    return run


def reuses_its_seed(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call draws the same numbers; the stream moves on as it should."""
    state = torch.get_rng_state()

    def run(*args: Any) -> Any:
        before = torch.get_rng_state()
        torch.set_rng_state(state)
        results = gm.forward(*args)
        torch.set_rng_state(before)
        gm.forward(*(arg.detach().clone() if isinstance(arg, Tensor) else arg for arg in args))
        return results

    return run


def copies_its_views(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A result that is a view is handed out as a copy."""

    def run(*args: Any) -> Any:
        results = gm.forward(*args)
        return [each.clone() if isinstance(each, Tensor) and each._is_view() else each for each in results]

    return run


def loses_its_graph(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are detached from the second call on."""
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(1)
        results = gm.forward(*args)
        return results if len(calls) == 1 else [each.detach() if isinstance(each, Tensor) else each for each in results]

    return run


def keeps_the_first_parameters(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A parameter is read as it was in the first call."""
    first: list[Tensor | None] = []

    def run(*args: Any) -> Any:
        if not first:
            first.extend(arg.detach().clone() if isinstance(arg, torch.nn.Parameter) else None for arg in args)
        stale = [arg if old is None else arg + (old - arg).detach() for arg, old in zip(args, first, strict=True)]
        return gm.forward(*stale)

    return run


def compiles_every_call(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Compiles its graph again each time that it is called."""

    def run(*args: Any) -> Any:
        torch._dynamo.utils.counters["stats"]["unique_graphs"] += 1
        return gm.forward(*args)

    return run


def doubles_with_symbols(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are doubled where a size is symbolic."""
    is_dynamic = any(isinstance(example, torch.SymInt) for example in example_inputs)
    if not is_dynamic:
        return gm.forward
    return lambda *args: tuple(result * 2 for result in gm.forward(*args))
