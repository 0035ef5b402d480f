"""OpInfos as batches: each operator in each dtype, each sample in its layouts, in each form that it has.

    forward    infer   the operator
    backward   train   the operator and the gradients of everything that it is differentiable in
    in_place   infer   the operator's in-place variant, on the sample's own input
    in_place   train   the same on a copy of the input, which autograd would not let go on a leaf
    out        infer   the result written to tensors that are given
    compile    both    as forward and backward, in one dtype, through torch.compile
    errors     infer   inputs that eager rejects, through torch.compile, one by one

The product of all is taken where a compile is cheap and its axes are not alike. In the operator's first dtype every
sample comes in every layout. In other dtypes it comes as it is, and in one more layout that its number and the dtype
choose. Written forms come in one of all layouts.

A symbolic size takes ten times the time of a number. With dynamic shapes up to `MOST` samples of the first dtype come,
and `SOME` of each other dtype, in one layout each. Written forms come in the first dtype alone.
"""

from __future__ import annotations

import functools
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.harness.batches.sample import Batch, Sample
from assay.harness.observe.observation import seed_all
from assay.suites.ops.database import autograd_function_db, op_db
from assay.suites.ops.layouts import LAYOUTS, laid_out

FIRST = (torch.float32, torch.float64, torch.int64, torch.complex64)
"""The first dtype of an operator is the first of these that it has."""
RACING = tuple(f"nn.functional.max_unpool{n}d" for n in (1, 2, 3))
"""Of which eager's threads race for the places that several numbers go to, and which therefore run in one thread
(upstream_bugs/unpooling_to_one_place_races.py)."""
PLAIN = "contiguous"
UNINITIALISED = (
    *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
    *("resize_", "resize_as_"),
)
"""Operators whose results hold whatever the memory held."""
MOST, SOME = 6, 1
"""How many samples of the first dtype, and of any other, run with dynamic shapes."""


Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
Form = Callable[[Any, Any], Call | None]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which samples, in which layouts. `layouts`: how many of all that change a sample, None for every one; the sample
    as it is comes too, or with `is_one` is one among them. `most`: how many samples, None for all."""

    layouts: int | None = None
    is_one: bool = False
    most: int | None = None


EVERY = Choice()
PLAIN_AND_ONE = Choice(layouts=1)
ONE = Choice(is_one=True)
MOST_OF_ONE = Choice(is_one=True, most=MOST)
SOME_OF_ONE = Choice(is_one=True, most=SOME)
AS_IT_IS = Choice(layouts=0)
SOME_AS_THEY_ARE = Choice(layouts=0, most=SOME)


def batches() -> Iterator[Batch]:
    """Every batch of the operators, in the database's order."""
    for op in (*op_db, *autograd_function_db):
        yield from operator_batches(op)


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def operator_batches(op: Any) -> Iterator[Batch]:
    """Every batch of an operator."""
    dtypes = sorted(op.supported_dtypes("cpu"), key=str)
    first = next((dtype for dtype in FIRST if dtype in dtypes), dtypes[0] if dtypes else None)
    trained = op.supported_backward_dtypes("cpu") if op.supports_autograd else set()
    for dtype in dtypes:
        is_first = dtype == first
        forms = tuple(_forms(op, dtype in trained))
        yield from _of_forms(
            op, dtype, forms, "static", EVERY if is_first else PLAIN_AND_ONE, EVERY if is_first else ONE
        )
        dynamic = forms if is_first else tuple(form for form in forms if not form.is_written)
        yield from _of_forms(op, dtype, dynamic, "dynamic", *(2 * (MOST_OF_ONE if is_first else SOME_OF_ONE,)))
        if is_first:
            yield from _through_compile(op, dtype, forms)
    if op.error_inputs_func is not None:
        yield _errors(op)


@dataclass(frozen=True, slots=True)
class _Form:
    name: str
    mode: str
    call: Form
    is_written: bool = False

    @property
    def requires_grad(self) -> bool:
        return self.mode == "train"


def _forms(op: Any, is_trained: bool) -> Iterator[_Form]:
    yield _Form("forward", "infer", called)
    if is_trained:
        yield _Form("backward", "train", differentiated)
    if op.inplace_variant is not None:
        yield _Form("in_place", "infer", _in_place, is_written=True)
        if is_trained and op.supports_inplace_autograd:
            yield _Form("in_place", "train", _in_place_on_a_copy, is_written=True)
    if op.supports_out:
        yield _Form("out", "infer", _into_given, is_written=True)


def _of_forms(
    op: Any, dtype: torch.dtype, forms: Sequence[_Form], shapes: str, choice: Choice, written: Choice
) -> Iterator[Batch]:
    group = f"{name_of(op)}.{dtype_name(dtype)}"
    for form in forms:
        make = functools.partial(_samples, op, dtype, form, written if form.is_written else choice)
        yield Batch(f"{group}.{form.name}", group, form.mode, make, shapes=(shapes,), is_serial=op.name in RACING)


def _through_compile(op: Any, dtype: torch.dtype, forms: Sequence[_Form]) -> Iterator[Batch]:
    group = f"{name_of(op)}.{dtype_name(dtype)}"
    for form in forms:
        for shapes, choice in (("static", AS_IT_IS), ("dynamic", SOME_AS_THEY_ARE)) if not form.is_written else ():
            make = functools.partial(_samples, op, dtype, form, choice)
            serial = op.name in RACING
            yield Batch(f"{group}.compile", group, form.mode, make, "torch.compile", (shapes,), is_serial=serial)


def _errors(op: Any) -> Batch:
    def make(seed: int) -> list[Sample]:
        seed_all(seed)
        given = [error.sample_input for error in op.error_inputs("cpu")]
        made = [(str(number), called(op, sample)) for number, sample in enumerate(given)]
        return [Sample(name, *call) for name, call in made if call is not None]

    name = f"{name_of(op)}.errors"
    return Batch(name, name, "infer", make, front="torch.compile", shapes=("static",), is_together=False)


def _samples(op: Any, dtype: torch.dtype, form: _Form, choice: Choice, seed: int) -> list[Sample]:
    """The operator's samples in the form, in the layouts that are chosen for each."""
    seed_all(seed)
    given = list(enumerate(op.sample_inputs("cpu", dtype, requires_grad=form.requires_grad)))
    salt = f"{name_of(op)} {dtype} {form.name}"
    found = []
    for number, sample in some(given, choice.most, salt):
        for layout, laid in _in_layouts(sample, choice, zlib.crc32(f"{salt} {number}".encode())):
            if (call := form.call(op, laid)) is not None:
                found.append(Sample(f"{number} {layout}", *call))
    return found


def some(samples: Sequence[tuple[int, Any]], most: int | None, salt: str) -> Sequence[tuple[int, Any]]:
    """So many of the samples at most, by a hash of their numbers."""
    if most is None or len(samples) <= most:
        return samples
    chosen = sorted(samples, key=lambda item: zlib.crc32(f"{salt} {item[0]}".encode()))[:most]
    return sorted(chosen, key=lambda item: item[0])


def _in_layouts(sample: Any, choice: Choice, number: int) -> Iterator[tuple[str, Any]]:
    """The sample as it is, and in layouts that change it; where not all are wanted, those from `number` on."""
    found = [(PLAIN, sample)]
    for layout, change in LAYOUTS.items() if choice.layouts != 0 else ():
        made = laid_out((sample.input, sample.args, sample.kwargs), change)
        if made is not None:
            found.append((layout, _with_values(sample, *made)))
    if choice.is_one:
        yield found[number % len(found)]
        return
    yield found.pop(0)
    wanted = len(found) if choice.layouts is None else min(choice.layouts, len(found))
    yield from (found[(number + index) % len(found)] for index in range(wanted))


def _with_values(sample: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = type(sample)(value, args=args, kwargs=kwargs)
    made.output_process_fn_grad, made.broadcasts_input = sample.output_process_fn_grad, sample.broadcasts_input
    return made


def called(op: Any, sample: Any) -> Call:
    operator = _zeroed(op.op) if op.name in UNINITIALISED else _function(op.op)
    return operator, (sample.input, *sample.args), sample.kwargs


def _zeroed(operator: Callable[..., Any]) -> Callable[..., Any]:
    """The operator, its result then filled: what the memory held before is not a result."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs).zero_()

    return call


def _function(operator: Callable[..., Any]) -> Callable[..., Any]:
    """A callable object as a function: what it caches is nothing that its caller sees."""
    if isinstance(operator, types.FunctionType | types.BuiltinFunctionType | types.MethodDescriptorType):
        return operator

    def call(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    return call


def differentiated(op: Any, sample: Any) -> Call:
    """The operator, and of its result what the database says is differentiable without ambiguity."""
    operator, process = op.op, sample.output_process_fn_grad

    def call(*args: Any, **kwargs: Any) -> Any:
        return process(operator(*args, **kwargs))

    return call, (sample.input, *sample.args), sample.kwargs


def _in_place(op: Any, sample: Any) -> Call | None:
    """None for a sample whose input is too small for the result."""
    if sample.broadcasts_input or not isinstance(sample.input, Tensor | list | tuple):
        return None
    return _function(op.inplace_variant), (sample.input, *sample.args), sample.kwargs


def _in_place_on_a_copy(op: Any, sample: Any) -> Call | None:
    if sample.broadcasts_input or not isinstance(sample.input, Tensor):
        return None
    operator = op.inplace_variant

    def call(value: Tensor, *args: Any, **kwargs: Any) -> Any:
        return operator(value.clone(), *args, **kwargs)

    return call, (sample.input, *sample.args), sample.kwargs


def _into_given(op: Any, sample: Any) -> Call | None:
    """None where the result is not made of tensors, or eager rejects the sample, which is the affair of other forms.

    The given tensors hold ones before the call.
    """
    try:
        result = op.op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return None
    if not all(isinstance(leaf, Tensor) and leaf.layout is torch.strided for leaf in pytree.tree_leaves(result)):
        return None
    out = pytree.tree_map(lambda tensor: torch.empty_like(tensor).fill_(1), result)
    return (
        _function(op.op),
        (sample.input, *sample.args),
        {**sample.kwargs, "out": tuple(out) if _is_many(out) else out},
    )


def _is_many(value: Any) -> bool:
    return isinstance(value, list | tuple)
