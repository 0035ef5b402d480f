"""Right in plain calls; wrong after one in a context, with frozen parameters, of one row, or in an input's gradient.
Wrong in one without rows, with a NaN, or with inputs in columns.

Dynamo compiles anew for such calls. So what a program was called with is kept by its operators, for all its graphs.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import (
    Gradients,
    Passage,
    changed_gradients,
    changed_results,
    is_buffer,
    is_parameter,
    name_of,
    names_of_inputs,
)
from assay.harness.selftest.wrong_backends.registry import Run, wrong


def _operators(graph: fx.GraphModule) -> tuple[str, ...]:
    return tuple(name_of(node) for node in graph.graph.nodes if node.op not in ("placeholder", "output"))


_called_in_inference: set[tuple[str, ...]] = set()


@wrong("ways of calling")
def stays_in_inference_mode(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A program that was once called in inference mode is run in it ever after."""
    key = _operators(graph)

    def run(*args: Any) -> Sequence[Any]:
        if torch.is_inference_mode_enabled():
            _called_in_inference.add(key)
        with torch.inference_mode() if key in _called_in_inference else contextlib.nullcontext():
            return graph.forward(*args)  # type: ignore[no-any-return]

    return run


_first_autocast: dict[int, tuple[weakref.ref[Tensor], bool]] = {}


@wrong("ways of calling")
def keeps_the_first_autocast(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A model is run under autocast if its first call was, and without it otherwise."""

    def run(*args: Any) -> Sequence[Any]:
        with torch.autocast("cpu", torch.bfloat16, enabled=_autocast_of(next(filter(is_parameter, args), None))):
            return graph.forward(*args)  # type: ignore[no-any-return]

    return run


def _autocast_of(parameter: Tensor | None) -> bool:
    """Whether autocast was on when the parameter was seen first."""
    now = torch.is_autocast_enabled("cpu")
    if parameter is None:
        return now
    known, first = _first_autocast.get(id(parameter), (None, now))
    if known is None or known() is not parameter:
        _first_autocast[id(parameter)] = weakref.ref(parameter), now
        return now
    return first


@wrong("ways of calling")
def spoils_results_under_autocast(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are an eighth too large under autocast."""
    wronged = changed_results(graph, lambda result: result * 1.125)
    return lambda *args: wronged(*args) if torch.is_autocast_enabled("cpu") else graph.forward(*args)


_called_with_one_row: set[tuple[str, ...]] = set()


@wrong("ways of calling")
def keeps_to_one_row(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A program that was once called with a batch of one gives the first row for all rows ever after."""
    key, names = _operators(graph), names_of_inputs(graph)

    def rows_of(args: Sequence[Any]) -> int:
        given = [arg for arg, name in zip(args, names, strict=True) if not (is_parameter(arg) or is_buffer(name))]
        return next((len(arg) for arg in given if isinstance(arg, Tensor) and arg.dim()), 0)

    def run(*args: Any) -> Sequence[Any]:
        results, rows = list(graph.forward(*args)), rows_of(args)
        if rows == 1:
            _called_with_one_row.add(key)
        if key not in _called_with_one_row:
            return results
        return [_first_row_for_all(each, rows) for each in results]

    return run


def _first_row_for_all(result: Any, rows: int) -> Any:
    if not isinstance(result, Tensor) or not result.is_floating_point() or not result.dim() or len(result) != rows:
        return result
    return result[:1].expand_as(result).clone() if rows > 1 else result


_once_frozen: dict[int, weakref.ref[Tensor]] = {}


@wrong("ways of calling", "train")
def ignores_thawed_parameters(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A parameter that was once frozen has no gradient ever after."""

    def without_frozen(passage: Passage, gradients: Gradients) -> Gradients:
        pairs = zip(passage.leaves, gradients, strict=True)
        return [None if _is_once_frozen(leaf) else gradient for leaf, gradient in pairs]

    changed = changed_gradients(graph, without_frozen)

    def run(*args: Any) -> Sequence[Any]:
        frozen = [arg for arg in args if is_parameter(arg) and not arg.requires_grad]
        _once_frozen.update({id(each): weakref.ref(each) for each in frozen})
        return changed(*args)

    return run


def _is_once_frozen(leaf: Tensor) -> bool:
    known = _once_frozen.get(id(leaf))
    return known is not None and known() is leaf


@wrong("ways of calling", "train")
def drops_gradients_of_inputs(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Parameters have gradients, and what a program is called with has none."""

    def of_parameters(passage: Passage, gradients: Gradients) -> Gradients:
        pairs = zip(passage.leaves, gradients, strict=True)
        return [gradient if is_parameter(leaf) else None for leaf, gradient in pairs]

    return changed_gradients(graph, of_parameters)


def _changed_inputs(graph: fx.GraphModule, change: Callable[[Tensor], Tensor]) -> Run:
    """Runs the graph with what `change` makes of each floating input that is no parameter or buffer."""
    names = names_of_inputs(graph)

    def changed(arg: Any, name: str) -> Any:
        is_input = isinstance(arg, Tensor) and not (is_parameter(arg) or is_buffer(name))
        return change(arg) if is_input and arg.is_floating_point() else arg

    return lambda *args: graph.forward(*map(changed, args, names))


@wrong("ways of calling")
def ignores_strides(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """An input is read as if it lay in rows, however it lies."""

    def as_rows(value: Tensor) -> Tensor:
        is_dense = torch.ops.aten.is_non_overlapping_and_dense(value)
        return value.as_strided(value.shape, _strides_of_rows(value)) if is_dense else value

    return _changed_inputs(graph, as_rows)


def _strides_of_rows(value: Tensor) -> tuple[int, ...]:
    return torch.empty(value.shape, device="meta").stride()


@wrong("ways of calling")
def hides_nan(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A NaN in an input counts as zero."""
    return _changed_inputs(graph, lambda value: torch.where(value.isnan(), 0.0, value))


@wrong("ways of calling")
def fills_up_no_rows(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A call without rows returns one row of zeros."""

    def filled(result: Any) -> Any:
        if not isinstance(result, Tensor) or not result.is_floating_point() or not result.dim() or len(result):
            return result
        return torch.cat([result, result.new_zeros(1, *result.shape[1:])])

    return lambda *args: [filled(result) for result in graph.forward(*args)]
