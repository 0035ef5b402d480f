"""What a call writes to inputs, parameters and buffers, and the versions that tell of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import is_buffer, is_parameter, is_real, names_of_inputs, on_copies
from assay.harness.selftest.wrong_backends.registry import Run, wrong


@wrong("writes", "train")
def drops_write_back(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """What the graph writes to its inputs never reaches the caller's tensors."""
    return lambda *args: graph.forward(*(arg.clone() if isinstance(arg, Tensor) else arg for arg in args))


Written = list[tuple[Tensor, Tensor]]
"""Each buffer that the graph writes, with what it writes there."""


def _writing(graph: fx.GraphModule, write: Callable[[Written], None]) -> Run:
    """Runs the graph on copies and leaves its writes to `write`."""

    def run(*args: Any) -> Sequence[Any]:
        results, written = on_copies(graph, args)
        write(written)
        return results

    return run


def _write(written: Written) -> None:
    for buffer, made in written:
        buffer.copy_(made)


@wrong("writes", "train")
def drops_the_last_write(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Of the buffers that the graph writes, the last keeps its numbers."""
    return _writing(graph, lambda written: _write(written[:-1]))


@wrong("writes", "train")
def drops_counts(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Integers that the graph counts up in buffers stay as they are."""
    return _writing(graph, lambda written: _write([pair for pair in written if pair[0].is_floating_point()]))


@wrong("writes", "train")
def doubles_writes(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """What a call changes in a buffer is changed by twice as much."""
    return _writing(graph, lambda written: _write([(buffer, 2 * made - buffer) for buffer, made in written]))


@wrong("writes", "train")
def delays_writes(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """What a call writes is there after the next call."""
    pending: Written = []

    def write(written: Written) -> None:
        _write(pending)
        pending[:] = written

    return _writing(graph, write)


@wrong("writes", "train")
def hides_writes_from_versions(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Buffers are written without a new version, so that autograd cannot tell."""
    return _writing(graph, lambda written: _write([(buffer.data, made) for buffer, made in written]))


@wrong("writes")
def adds_versions(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Every input that requires no gradient has a new version, as if it had been written."""

    def run(*args: Any) -> Sequence[Any]:
        for arg in args:
            if isinstance(arg, Tensor) and not arg.requires_grad and not arg.is_inference():
                torch.autograd.graph.increment_version(arg)
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong("writes", "infer")
def writes_buffers_it_only_reads(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """In inference, running statistics and other real buffers move by a thousandth."""
    names = names_of_inputs(graph)

    def run(*args: Any) -> Sequence[Any]:
        results = graph.forward(*args)
        for name, arg in zip(names, args, strict=True):
            if is_buffer(name) and is_real(arg) and not torch.is_grad_enabled():
                arg.mul_(1.001)
        return results  # type: ignore[no-any-return]

    return run


@wrong("writes")
def uses_inputs_as_scratch(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The numbers of an input that the program only reads are spoilt after the call."""
    names = names_of_inputs(graph)

    def run(*args: Any) -> Sequence[Any]:
        results = graph.forward(*args)
        own = [arg for name, arg in zip(names, args, strict=True) if not is_buffer(name) and not is_parameter(arg)]
        for arg in [arg for arg in own if isinstance(arg, Tensor) and not arg.requires_grad][:1]:
            arg.data[..., 0] = 0
        return results  # type: ignore[no-any-return]

    return run


@wrong("writes", "infer")
def rounds_parameters_in_place(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """In inference, the caller's parameters are rounded to bfloat16 for good, after the first call."""

    def run(*args: Any) -> Sequence[Any]:
        results = graph.forward(*args)
        for arg in args:
            if is_parameter(arg) and not torch.is_grad_enabled():
                arg.data.copy_(arg.data.bfloat16())
        return results  # type: ignore[no-any-return]

    return run
