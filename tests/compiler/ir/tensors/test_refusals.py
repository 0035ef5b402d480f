"""What eager's kernels refuse is asked of the kernels, once, and leaves no trace."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from assay.compiler.entry.aot import aot_function, nop
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.tensors import refusals
from assay.compiler.ir.tensors.refusals import refuse_call
from assay.harness.calls.errors import is_same_error

aten = torch.ops.aten
INTEGERS = torch.ones(3, 4, dtype=torch.int32)
COMPLEX = torch.ones(2, 3, 4, dtype=torch.complex64)
BYTES = torch.ones(1, 1, 2, 2, dtype=torch.uint8)

REFUSED: list[tuple[Any, tuple[Any, ...], type[Exception]]] = [
    (aten.lerp.Scalar, (INTEGERS, INTEGERS, 0.5), NotImplementedError),
    (aten.max.default, (torch.empty(0),), RuntimeError),
    (aten.max.dim, (torch.empty(0, 3), 0), IndexError),
    (aten.smooth_l1_loss.default, (torch.ones(3), torch.ones(3), 1, -1.0), RuntimeError),
    (aten.max_pool2d_with_indices.default, (torch.ones(1, 1, 8, 8), [3, 3], [3, 3], [2, 2]), RuntimeError),
    (aten.native_batch_norm.default, (COMPLEX, None, None, None, None, True, 0.1, 1e-5), NotImplementedError),
    (aten._native_batch_norm_legit.no_stats, (COMPLEX, None, None, True, 0.1, 1e-5), NotImplementedError),
    (aten.native_group_norm.default, (COMPLEX, None, None, 2, 3, 4, 1, 1e-5), NotImplementedError),
    (aten.max_pool2d_with_indices_backward.default,
     (BYTES, torch.ones(1, 1, 4, 4, dtype=torch.uint8), [2, 2], [2, 2], [0, 0], [1, 1], False, BYTES.long()),
     NotImplementedError),
]  # fmt: skip
LARGE = torch.ones(64, 128)
INTO: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (aten.slice_scatter.out, (LARGE, LARGE[:1], 0, 0, 1), {"out": LARGE.to(torch.complex64)}),
    (aten.native_batch_norm.out, (torch.ones(2, 3, 4), None, None, None, None, True, 0.1, 1e-5),
     {"out": torch.ones(2, 3, 4, dtype=torch.int32), "save_mean": torch.ones(3), "save_invstd": torch.ones(3)}),
    (aten.split_with_sizes_copy.out, (torch.ones(3, 2), [1, 2]), {"out": [BYTES[0, 0, :1], BYTES[0, 0]]}),
    (aten.unbind_copy.int_out, (torch.ones(2, 2),), {"out": [BYTES[0, 0, 0], BYTES[0, 0, 1]]}),
]  # fmt: skip
TAKEN: list[tuple[Any, tuple[Any, ...]]] = [
    (aten.lerp.Scalar, (torch.ones(3), torch.ones(3), 0.5)),
    (aten.max_pool2d_with_indices.default, (torch.ones(1, 1, 28, 28), [7, 7])),
    (aten.native_layer_norm.default, (torch.ones(64, 96), [96], None, None, 1e-5)),
    (aten.max.dim, (torch.empty(0, 3), 1)),
    (aten.floor_divide.default, (INTEGERS, INTEGERS)),
    (aten.embedding.default, (torch.ones(4, 2), torch.zeros(3, dtype=torch.int64))),
    (aten.linalg_cholesky_ex.default, (torch.ones(4, 4),)),
    (aten.repeat_interleave.Tensor, (torch.tensor([2, 3]),)),
    (aten.multinomial.default, (torch.ones(4), 2)),
    (aten.index_put.default, (torch.zeros(3, 2, 4), [torch.arange(24).reshape(3, 2, 4) < 13], torch.ones(13), True)),
    (aten.index_put.default, (torch.zeros(9), [torch.arange(9) < 5], torch.ones(5))),
    (aten.masked_scatter.default, (torch.zeros(9), torch.arange(9) < 5, torch.ones(5))),
]


MIXED = (torch.float32, torch.float64, torch.bfloat16, None)
OF_NORMS: list[tuple[Any, tuple[int, ...], tuple[Any, ...]]] = [
    (aten.native_layer_norm.default, (96,), (1e-5,)),
    (aten.native_group_norm.default, (6,), (64, 6, 1, 2, 1e-5)),
]


@pytest.mark.parametrize(("func", "sizes", "rest"), OF_NORMS, ids=["layer", "group"])
def test_norms_refuse_the_mixes_of_dtypes_that_eager_refuses(func: Any, sizes: tuple[int, ...], rest: Any) -> None:
    """Asked with one element, they answer for tensors of any size."""
    refused = 0
    for one, *others in itertools.product(MIXED[:-1], MIXED, MIXED):
        weight, bias = (None if dtype is None else torch.ones(sizes, dtype=dtype) for dtype in others)
        given = ([*sizes],) if func is aten.native_layer_norm.default else ()
        args = (torch.ones(64, *sizes, dtype=one), *given, weight, bias, *rest)
        errors = [_raised(call, args) for call in (func, lambda *args: refuse_call(func, args, {}))]
        assert type(errors[0]) is type(errors[1]), (one, *others)
        refused += errors[0] is not None
    assert 0 < refused < len(MIXED[:-1]) * len(MIXED) ** 2


def _raised(call: Callable[..., object], args: tuple[Any, ...]) -> Exception | None:
    try:
        call(*args)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(("func", "args", "error"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals_are_eagers(func: Any, args: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error) as ours:
        refuse_call(func, args, {})
    with pytest.raises(type(ours.value)):
        func(*args)


@pytest.mark.parametrize(("func", "args", "into"), INTO, ids=lambda value: str(value)[:40])
def test_refusals_of_results_are_eagers(func: Any, args: tuple[Any, ...], into: dict[str, Any]) -> None:
    """Also of large tensors and of operators that are not asked otherwise: `out=` is there for a user alone."""
    with pytest.raises(RuntimeError) as ours:
        refuse_call(func, args, into)
    with pytest.raises(type(ours.value)):
        func(*args, **into)


@pytest.mark.parametrize(("func", "args"), TAKEN, ids=lambda value: str(value)[:40])
def test_refusals_are_not_of_what_eager_takes(func: Any, args: tuple[Any, ...]) -> None:
    func(*args)
    state = torch.get_rng_state()
    refuse_call(func, args, {})
    assert torch.equal(torch.get_rng_state(), state)


def test_refusals_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    args = (torch.ones(5, 7, dtype=torch.float64),)
    refuse_call(aten.erfinv.default, args, {})

    def fail(*_: object) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(refusals.Asked, "run", fail)
    refuse_call(aten.erfinv.default, (torch.ones(6, 8, dtype=torch.float64),), {})


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "slice": (lambda x: (x[2:] + 1).max(), (torch.ones(4), torch.ones(3), torch.ones(2))),
    "rows": (lambda x: (x[:, 2:] * 2).min(1).values, (torch.ones(5, 5), torch.ones(5, 4), torch.ones(5, 2))),
    "one_hot": (lambda x: F.one_hot(x, 3), (torch.ones(2), torch.ones(3))),
    "pool": (lambda x: F.max_pool1d(x, 2), (torch.ones(1, 1, 4, dtype=torch.uint8),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_refusals_are_raised_by_every_call(name: str) -> None:
    """Also where an earlier call was taken, and where what is compiled comes from the cache."""
    program, calls = PROGRAMS[name]
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(program, backend="assay", dynamic=True)
        for value in calls:
            eager, ours = (_outcome(function, value) for function in (program, compiled))
            if isinstance(eager, Exception):
                assert isinstance(ours, Exception) and is_same_error(eager, ours), (value.shape, ours)
            else:
                torch.testing.assert_close(ours, eager)


def _outcome(function: Callable[..., Any], value: Tensor) -> Any:
    try:
        return function(value)
    except Exception as error:
        return error


def test_a_number_that_is_refused_refuses_no_other_one() -> None:
    """float16 holds 5, and not 2**40: a program that was recorded for the one is recorded afresh for the other."""

    def program(x: torch.Tensor, number: int) -> torch.Tensor:
        return x.index_fill(0, torch.tensor([0]), number)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend=assay, options={"fallback": "limits"}, dynamic=True)
    x = torch.ones(3, dtype=torch.float16)
    for number in (-(1 << 40), 1 << 40, 5, 1 << 41, -7):
        if abs(number) < 10:
            assert torch.equal(compiled(x, number), program(x, number))
        else:
            with pytest.raises(RuntimeError, match="without overflow"):
                compiled(x, number)


NUMBERED: dict[str, Callable[[Tensor, int], Any]] = {
    "where": lambda x, n: torch.where(x > 0, x, n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype),
    "full_like": torch.full_like,
    "fill": lambda x, n: x.clone().fill_(n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "clamp": lambda x, n: torch.clamp(x, max=n),
    "alpha": lambda x, n: torch.sub(x, x, alpha=n),
    "element": lambda x, n: (x.__setitem__(0, n), x)[1],
    "unread": lambda x, n: (torch.where(x > 0, x, n), x + 1)[1],
}


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float16], ids=str)
@pytest.mark.parametrize("name", NUMBERED)
def test_a_number_is_refused_that_the_dtype_does_not_hold(name: str, dtype: torch.dtype) -> None:
    """By the call that it is given to, whatever the numbers before it were."""
    torch._dynamo.reset()
    compiled = torch.compile(NUMBERED[name], backend="assay", dynamic=True)
    for number in (5, 1 << 40, 7, -(1 << 63), -3, 300):
        eager, ours = (_given(function, dtype, number) for function in (NUMBERED[name], compiled))
        if isinstance(eager, Exception):
            assert isinstance(ours, Exception) and is_same_error(eager, ours), (number, eager, ours)
        else:
            torch.testing.assert_close(ours, eager)


FRACTIONAL: dict[str, Callable[[Tensor, float], Any]] = {
    **{name: NUMBERED[name] for name in ("full", "full_like", "fill", "alpha", "element")},
    "where": lambda x, n: torch.where(x == 0, x, n),
    "masked_fill": lambda x, n: x.masked_fill(x == 0, n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([0]), n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([0]), n),
    "unread": lambda x, n: (torch.where(x == 0, x, n), x + 1)[1],
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", FRACTIONAL)
def test_a_fraction_is_refused_that_the_dtype_does_not_hold(name: str, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(FRACTIONAL[name], backend="assay", dynamic=True)
    for number in (1.5, 1e300, 2.5, math.inf, -1e39, -0.0):
        eager, ours = (_given(function, dtype, number) for function in (FRACTIONAL[name], compiled))
        if isinstance(eager, Exception):
            assert isinstance(ours, Exception) and is_same_error(eager, ours), (number, eager, ours)
        else:
            torch.testing.assert_close(ours, eager, equal_nan=True)


def _given(function: Callable[..., Any], dtype: torch.dtype, number: float) -> Any:
    try:
        return function(torch.tensor([1.5, 0.0, 2, 0.25]).to(dtype), number)
    except Exception as error:
        return error


TOO_LARGE: dict[str, Callable[[Tensor], Tensor]] = {
    "xlogy": lambda x: torch.xlogy(x, 1 << 40),
    "xlog1py": lambda x: torch.special.xlog1py(x, 1 << 40),
    "remainder": lambda x: torch.remainder(1 << 40, x),
    "power": lambda x: (1 << 40) ** x,
    "of a changed number": lambda x: torch.xlogy(x, x.shape[0] << 40),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_number_is_rounded_to_halves_where_eager_rounds_it(name: str) -> None:
    x = torch.tensor([1.5, 0.0, -2, 0.25], dtype=torch.float16)
    for given in (x, x.clone().requires_grad_()):
        compiled = torch.compile(TOO_LARGE[name], backend="assay", dynamic=True)
        torch.testing.assert_close(compiled(given), TOO_LARGE[name](given), equal_nan=True)


def test_a_tensor_of_another_dtype_is_rounded_to_halves_too() -> None:
    x, wide = torch.tensor([1.5, 0.0, -2, 0.25], dtype=torch.float16), torch.tensor(1 << 40)
    torch.testing.assert_close(torch.compile(torch.xlogy, backend="assay")(x, wide), torch.xlogy(x, wide))


@pytest.mark.parametrize("function", [torch.sub, torch.rsub, torch.add], ids=lambda function: function.__name__)
def test_the_least_integer_as_a_factor(function: Callable[..., Tensor]) -> None:
    """Which eager negates, and gets itself."""
    x = torch.arange(3, dtype=torch.float64)
    compiled = torch.compile(function, backend="assay")
    assert torch.equal(compiled(x, x, alpha=-(1 << 63)), function(x, x, alpha=-(1 << 63)))


def test_unpacking_is_not_asked_with_fewer_pivots_than_rows() -> None:
    """The kernel reads past the end of them, which ended the process where sizes were computed."""

    def f(x: torch.Tensor) -> torch.Tensor:
        factors, pivots = torch.linalg.lu_factor(x)
        return torch.cat([part.sum().view(1) for part in torch.lu_unpack(factors, pivots)])

    compiled = aot_function(f, nop, dynamic=True)
    for rows, columns in ((5, 5), (6, 5), (5, 6)):
        x = torch.eye(rows, columns) + 0.1
        torch.testing.assert_close(compiled(x), f(x))
