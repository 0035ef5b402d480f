"""Objects that are held after the call is over."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import is_buffer, is_parameter, names_of_inputs
from assay.harness.selftest.wrong_backends.registry import Run, wrong


@wrong("held memory")
def keeps_all_results(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The results of every call are kept alive."""
    kept: list[Sequence[Any]] = []

    def run(*args: Any) -> Sequence[Any]:
        kept.append(graph.forward(*args))
        return kept[-1]

    return run


@wrong("held memory")
def keeps_all_inputs(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The inputs of every call are kept alive."""
    names = names_of_inputs(graph)
    kept: list[list[Any]] = []

    def run(*args: Any) -> Sequence[Any]:
        pairs = zip(names, args, strict=True)
        kept.append([arg for name, arg in pairs if not is_parameter(arg) and not is_buffer(name)])
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong("held memory")
def keeps_the_last_inputs(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The inputs of the last call are kept alive after the caller has let go of them."""
    names = names_of_inputs(graph)
    kept: list[Any] = []

    def run(*args: Any) -> Sequence[Any]:
        pairs = zip(names, args, strict=True)
        kept[:] = [arg for name, arg in pairs if not is_parameter(arg) and not is_buffer(name)]
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong("held memory")
def grows_with_every_call(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A megabyte more is held after every call."""
    kept: list[Tensor] = []

    def run(*args: Any) -> Sequence[Any]:
        kept.append(torch.zeros(1 << 18))
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong("held memory", "train")
def reads_inputs_that_were_given_up(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Backward reads the inputs of its call by their addresses, though the caller may have let go of them."""
    names = names_of_inputs(graph)

    def run(*args: Any) -> Sequence[Any]:
        pairs = zip(names, args, strict=True)
        given = [arg for name, arg in pairs if not is_parameter(arg) and not is_buffer(name)]
        places = [(arg.data_ptr(), arg.nbytes) for arg in given if isinstance(arg, Tensor) and arg.nbytes]
        read = [ctypes.string_at(*place) for place in places]
        results = graph.forward(*args)
        for result in results:
            if isinstance(result, Tensor) and result.requires_grad and not result.is_leaf:
                result.register_hook(
                    lambda gradient: gradient * (read == [ctypes.string_at(*place) for place in places])
                )
        return results  # type: ignore[no-any-return]

    return run
