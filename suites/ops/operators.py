"""OpInfos as batches: each operator in each dtype, each sample in each layout, in each form that it has.

forward    infer   the operator
backward   train   the operator and the gradients of everything that it is differentiable in
in_place   infer   the operator's in-place variant, on the sample's own input
in_place   train   the same on a copy of the input, which autograd would not let go on a leaf
out        infer   the result written to tensors that are given
compile    both    as forward and backward, in one dtype, through torch.compile
errors     infer   inputs that eager rejects, through torch.compile, one by one
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from harness.observe import seed_all
from harness.sample import Batch, Sample
from suites.ops.layouts import LAYOUTS, laid_out

PREFERRED = (torch.float32, torch.float64, torch.int64, torch.complex64)
"""In which dtype an operator goes through torch.compile: the first that it has."""
PLAIN = "contiguous"


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def operator_batches(op: Any) -> Iterator[Batch]:
    """Every batch of an operator."""
    dtypes = sorted(op.supported_dtypes("cpu"), key=str)
    trained = op.supported_backward_dtypes("cpu") if op.supports_autograd else set()
    for dtype in dtypes:
        yield from _of_dtype(op, dtype, dtype in trained)
    if dtypes:
        yield from _through_compile(op, next((dtype for dtype in PREFERRED if dtype in dtypes), dtypes[0]), trained)
    if op.error_inputs_func is not None:
        yield _errors(op)


def _of_dtype(op: Any, dtype: torch.dtype, is_trained: bool) -> Iterator[Batch]:
    name = f"{name_of(op)}.{dtype_name(dtype)}"
    batch = functools.partial(Batch, group=name)
    yield batch(f"{name}.forward", mode="infer", make=functools.partial(_samples, op, dtype, _called))
    if is_trained:
        make = functools.partial(_samples, op, dtype, _differentiated, requires_grad=True)
        yield batch(f"{name}.backward", mode="train", make=make)
    if op.inplace_variant is not None:
        yield batch(f"{name}.in_place", mode="infer", make=functools.partial(_samples, op, dtype, _in_place))
        if is_trained and op.supports_inplace_autograd:
            make = functools.partial(_samples, op, dtype, _in_place_on_a_copy, requires_grad=True)
            yield batch(f"{name}.in_place", mode="train", make=make)
    if op.supports_out:
        yield batch(f"{name}.out", mode="infer", make=functools.partial(_samples, op, dtype, _into_given))


def _through_compile(op: Any, dtype: torch.dtype, trained: Sequence[torch.dtype]) -> Iterator[Batch]:
    name = f"{name_of(op)}.{dtype_name(dtype)}.compile"
    is_trained = dtype in trained
    batch = functools.partial(Batch, name, f"{name_of(op)}.{dtype_name(dtype)}", front="torch.compile")
    yield batch(mode="infer", make=functools.partial(_samples, op, dtype, _called, layouts=()))
    if is_trained:
        make = functools.partial(_samples, op, dtype, _differentiated, requires_grad=True, layouts=())
        yield batch(mode="train", make=make)


def _errors(op: Any) -> Batch:
    def make(seed: int) -> list[Sample]:
        seed_all(seed)
        given = [error.sample_input for error in op.error_inputs("cpu")]
        made = [(str(number), _called(op, sample)) for number, sample in enumerate(given)]
        return [Sample(name, *call) for name, call in made if call is not None]

    name = f"{name_of(op)}.errors"
    return Batch(name, name, "infer", make, front="torch.compile", shapes=("static",), is_together=False)


Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
Form = Callable[[Any, Any], Call | None]


def _samples(
    op: Any,
    dtype: torch.dtype,
    form: Form,
    seed: int,
    requires_grad: bool = False,
    layouts: Sequence[str] = tuple(LAYOUTS),
) -> list[Sample]:
    """Each of the operator's samples in the form, as it comes and then in each layout that changes it."""
    seed_all(seed)
    found = []
    for number, given in enumerate(op.sample_inputs("cpu", dtype, requires_grad=requires_grad)):
        for layout, sample in _in_layouts(given, layouts):
            if (call := form(op, sample)) is not None:
                found.append(Sample(f"{number} {layout}", *call))
    return found


def _in_layouts(sample: Any, layouts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    yield PLAIN, sample
    for layout in layouts:
        made = laid_out((sample.input, sample.args, sample.kwargs), LAYOUTS[layout])
        if made is not None:
            yield layout, _with_values(sample, *made)


def _with_values(sample: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = type(sample)(value, args=args, kwargs=kwargs)
    made.output_process_fn_grad, made.broadcasts_input = sample.output_process_fn_grad, sample.broadcasts_input
    return made


def _called(op: Any, sample: Any) -> Call:
    return op.op, (sample.input, *sample.args), sample.kwargs


def _differentiated(op: Any, sample: Any) -> Call:
    """The operator, and of its result what the database says is differentiable without ambiguity."""
    operator, process = op.op, sample.output_process_fn_grad

    def call(*args: Any, **kwargs: Any) -> Any:
        return process(operator(*args, **kwargs))

    return call, (sample.input, *sample.args), sample.kwargs


def _in_place(op: Any, sample: Any) -> Call | None:
    """None for a sample whose input is too small for the result."""
    if sample.broadcasts_input or not isinstance(sample.input, Tensor | list | tuple):
        return None
    return op.inplace_variant, (sample.input, *sample.args), sample.kwargs


def _in_place_on_a_copy(op: Any, sample: Any) -> Call | None:
    if sample.broadcasts_input or not isinstance(sample.input, Tensor):
        return None
    operator = op.inplace_variant

    def call(value: Tensor, *args: Any, **kwargs: Any) -> Any:
        return operator(value.clone(), *args, **kwargs)

    return call, (sample.input, *sample.args), sample.kwargs


def _into_given(op: Any, sample: Any) -> Call | None:
    """None where the result is not made of tensors. The given tensors hold ones before the call."""
    result = op.op(sample.input, *sample.args, **sample.kwargs)
    if not all(isinstance(leaf, Tensor) and leaf.layout is torch.strided for leaf in pytree.tree_leaves(result)):
        return None
    out = pytree.tree_map(lambda tensor: torch.empty_like(tensor).fill_(1), result)
    return op.op, (sample.input, *sample.args), {**sample.kwargs, "out": tuple(out) if _is_many(out) else out}


def _is_many(value: Any) -> bool:
    return isinstance(value, list | tuple)
