"""Right at first, wrong later: what begins with a later call, and what is kept from an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import (
    changed_results,
    is_buffer,
    is_parameter,
    is_real,
    names_of_inputs,
    places,
    value_from,
)
from assay.harness.selftest.wrong_backends.registry import Run, wrong


def _by_call(graph: fx.GraphModule, is_wrong: Callable[[int], bool], factor: float) -> Run:
    """Results multiplied in the calls whose number, from 1 on, is wrong."""
    count = 0

    def run(*args: Any) -> Sequence[Any]:
        nonlocal count
        count += 1
        return wronged(*args) if is_wrong(count) else graph.forward(*args)

    wronged = changed_results(graph, lambda result: result * factor)
    return run


@wrong("late calls")
def goes_wrong_at_call_4(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """From call 4 on, results are a tenth too large."""
    return _by_call(graph, lambda count: count >= 4, 1.1)


@wrong("late calls")
def goes_wrong_once(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The results of call 5 alone are a tenth too large."""
    return _by_call(graph, lambda count: count == 5, 1.1)


@wrong("late calls")
def raises_at_call_10(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """From call 10 on, a call raises."""
    count = 0

    def run(*args: Any) -> Sequence[Any]:
        nonlocal count
        count += 1
        if count >= 10:
            raise RuntimeError("the memory of a recording is used up")
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


def _memoised(graph: fx.GraphModule, key_of: Callable[[Sequence[Any]], object]) -> Run:
    """The results' numbers of the first call with the same key."""
    kept: dict[object, list[Tensor | None]] = {}

    def run(*args: Any) -> Sequence[Any]:
        key, results = key_of(args), list(graph.forward(*args))
        if key not in kept:
            own = places(results, args)
            kept[key] = [each.detach().clone() if n in own else None for n, each in enumerate(results)]
            return results
        pairs = zip(results, kept[key], strict=True)
        return [each if old is None else value_from(each, old) for each, old in pairs]

    return run


@wrong("late calls")
def memoises_results(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Every call returns copies of the first call's results."""
    return _memoised(graph, lambda args: None)


@wrong("late calls")
def memoises_by_shape(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A call returns the results of the first call whose inputs have the same shapes."""
    return _memoised(graph, lambda args: tuple(arg.shape if isinstance(arg, Tensor) else arg for arg in args))


@wrong("late calls")
def memoises_by_inputs(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A call returns the results of the first call with the same inputs, whatever has become of the parameters."""
    return _memoised(graph, _numbers_of_inputs)


def _numbers_of_inputs(args: Sequence[Any]) -> tuple[object, ...]:
    own = [arg for arg in args if not is_parameter(arg) and not is_real(arg)]
    return tuple(arg.numpy(force=True).tobytes() if isinstance(arg, Tensor) else arg for arg in own)


@wrong("late calls")
def memoises_by_address(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A call whose inputs lie where those of an earlier call lay returns its results."""
    return _memoised(graph, lambda args: tuple(arg.data_ptr() for arg in args if isinstance(arg, Tensor)))


def _with_stale(graph: fx.GraphModule, is_stale: Callable[[str, Any], bool], first_stale: int = 2) -> Run:
    """Inputs that are stale have the numbers that they had in the call before the first stale one."""
    names, count = names_of_inputs(graph), 0
    kept: list[Tensor | None] = []

    def run(*args: Any) -> Sequence[Any]:
        nonlocal count
        count += 1
        if count < first_stale:
            kept[:] = [
                arg.detach().clone() if isinstance(arg, Tensor) and is_stale(name, arg) else None
                for name, arg in zip(names, args, strict=True)
            ]
            return graph.forward(*args)  # type: ignore[no-any-return]
        return graph.forward(  # type: ignore[no-any-return]
            *(arg if old is None else _renewed(arg, old) for arg, old in zip(args, kept, strict=True))
        )

    return run


def _renewed(arg: Tensor, old: Tensor) -> Tensor:
    return arg + (old - arg).detach() if arg.requires_grad else old.clone()


@wrong("late calls")
def keeps_the_first_parameters(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Parameters are constants, with the numbers that they had in the first call."""
    return _with_stale(graph, lambda name, arg: is_parameter(arg))


@wrong("late calls")
def keeps_the_first_bias(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Parameters of one dimension are constants, with the numbers that they had in the first call."""
    return _with_stale(graph, lambda name, arg: is_parameter(arg) and arg.dim() == 1)


@wrong("late calls", "infer")
def keeps_the_first_buffers(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Buffers that are only read are constants, with the numbers that they had in the first call."""
    stale = _with_stale(graph, lambda name, arg: is_buffer(name) and is_real(arg))
    return graph.forward if torch.is_grad_enabled() else stale


@wrong("late calls")
def replays_recorded_inputs(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """From call 4 on, a call reads the inputs of call 3, as a recording does whose inputs were not copied in."""
    return _with_stale(graph, lambda name, arg: not is_parameter(arg) and not is_buffer(name), first_stale=4)


@wrong("late calls")
def overwrites_earlier_results(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A call writes its results where those of the call before are, as a replayed recording does."""
    buffers: dict[int, Tensor] = {}

    def run(*args: Any) -> Sequence[Any]:
        results = list(graph.forward(*args))
        for n in places(results, args):
            if n not in buffers or buffers[n].shape != results[n].shape:
                buffers[n] = torch.empty_like(results[n].detach())
            results[n].data = buffers[n].copy_(results[n].detach())
        return results

    return run


@wrong("late calls", "train")
def overwrites_what_it_saved(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A forward writes what it saves for its backward where the forward before has put the same."""
    slots: dict[int, Tensor] = {}

    def run(*args: Any) -> Sequence[Any]:
        count = 0

        def pack(tensor: Tensor) -> int:
            nonlocal count
            count += 1
            slots[count] = tensor.detach() if tensor.is_leaf else tensor
            return count

        with torch.autograd.graph.saved_tensors_hooks(pack, slots.__getitem__):
            return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong("late calls")
def keeps_the_first_numbers(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Python numbers, and tensors without dimensions, are those of the first call."""
    kept: list[object] = []

    def run(*args: Any) -> Sequence[Any]:
        kept[:] = kept or [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
        pairs = zip(args, kept, strict=True)
        return graph.forward(  # type: ignore[no-any-return]
            *(arg if isinstance(arg, Tensor) and arg.dim() else first for arg, first in pairs)
        )

    return run
