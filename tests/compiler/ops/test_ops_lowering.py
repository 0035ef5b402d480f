"""Each lowering against eager, through the reference's loops: operators x dtypes x layouts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from assay.compiler import journal
from assay.compiler.ir.loops.index import Int, Symbol
from assay.compiler.ir.loops.kernel import Call, Const
from assay.compiler.ir.loops.lowered import Tensor as Value
from assay.compiler.ops import OPERATORS, Kind, kind_of
from assay.compiler.ops.registry import Operation, element
from tests.lowering import assert_same, executable, planned, traced

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8)
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "expanded": lambda x: x[:1].expand(3, 4),
    "scalar": lambda x: x[1, 2],
    "empty": lambda x: x[:0],
    "one": lambda x: x[:, 1:2],
    "strided": lambda x: x[:, ::2],
}
UNARY = (
    "neg abs sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh"
    " acosh atanh erf erfc sigmoid floor ceil trunc round sign isnan isinf isfinite logical_not relu gelu silu"
    " hardswish hardsigmoid hardtanh leaky_relu elu softplus mish relu6 square frac nan_to_num"
).split()
BINARY = (
    "add.Tensor sub.Tensor mul.Tensor div.Tensor maximum minimum fmax fmin eq.Tensor ne.Tensor lt.Tensor le.Tensor"
    " gt.Tensor ge.Tensor logical_and logical_or logical_xor remainder.Tensor fmod.Tensor pow.Tensor_Tensor atan2"
).split()


def operator(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(aten, base), overload or "default")


def sample(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Twelve values with the awkward ones among them."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(3, 4, generator=generator) < 0.5
    if not dtype.is_floating_point:
        return torch.randint(1 if dtype is torch.uint8 else -5, 7, (3, 4), generator=generator, dtype=dtype)
    values = torch.randn(3, 4, generator=generator, dtype=torch.float64) * 1.5
    values[0, 0], values[1, 1], values[2, 0], values[1, 2], values[2, 3] = 0.0, math.nan, 0.5, -0.5, math.inf
    return values.to(dtype)


def bounds(dtype: torch.dtype) -> dict[str, float]:
    """One rounding of the storage dtype; for float32 a few units in the last place of a transcendental function."""
    known = {torch.bfloat16: 1.6e-2, torch.float16: 2e-3, torch.float32: 4e-6}
    return {"rtol": known.get(dtype, 1e-7), "atol": known.get(dtype, 1e-7) / 4}


def hold(function: Callable[..., Any], *args: Any, generated: bool = True, mode: str = "fake", **rule: float) -> None:
    """The function compiled, its operators in kernels, beside eager."""
    schedule = planned(traced(function, *args, mode=mode), keep_rounding=True)
    if generated:
        assert not schedule.counts.fallbacks, f"left to ATen: {schedule.counts.fallbacks}"
    expected = function(*args)
    for position, (ours, theirs) in enumerate(zip(executable(schedule)(list(args)), expected, strict=True)):
        assert_same(ours, theirs, f"output {position}", **(rule or bounds(theirs.dtype)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", UNARY)
def test_pointwise_unary_as_eager(name: str, layout: str) -> None:
    op = operator(name)
    hold(lambda x: (op(x),), LAYOUTS[layout](_finite(name, sample(torch.float32))))


def _finite(name: str, x: torch.Tensor) -> torch.Tensor:
    """Without infinities for gelu, where eager itself gives NaN in its vectorized loop and infinity in its tail."""
    return x.masked_fill(x.isinf(), 2.5) if name == "gelu" else x


@pytest.mark.parametrize("dtype", FLOATS[1:])
@pytest.mark.parametrize("name", UNARY)
def test_pointwise_unary_dtypes(name: str, dtype: torch.dtype) -> None:
    op = operator(name)
    is_generated = name != "gelu" or dtype is not torch.float64  # whose last digits are those of eager's own erf
    hold(lambda x: (op(x),), _finite(name, sample(dtype)), generated=is_generated)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [2, 64], ids=["by itself", "in vectors"])
@pytest.mark.parametrize("name", ["gelu", "silu", "tanh", "erf", "sin"])
def test_zeros_keep_their_sign(name: str, count: int, dtype: torch.dtype) -> None:
    x, op = torch.tensor([0.0, -0.0], dtype=dtype).repeat(count), operator(name)
    if not torch.equal(op(x).signbit(), op(x.double()).signbit()):
        pytest.skip("eager loses the sign in this dtype on this processor, and keeps it in float64")
    got = executable(planned(traced(lambda x: (op(x),), x, mode="fake"), keep_rounding=True))([x])[0]
    assert torch.equal(got.signbit(), op(x).signbit())


@pytest.mark.parametrize("dtype", (*INTEGERS, torch.bool))
@pytest.mark.parametrize("name", "abs neg sqrt exp sigmoid floor sign isnan isfinite logical_not relu square".split())
def test_pointwise_unary_of_integers(name: str, dtype: torch.dtype) -> None:
    x, op = sample(dtype), operator(name)
    try:
        op(x)
    except RuntimeError:
        pytest.skip("eager rejects it")
    hold(lambda x: (op(x),), x, generated=False)


@pytest.mark.parametrize(
    "dtypes",
    [(a, a) for a in FLOATS]
    + [
        (torch.float32, torch.int64),
        (torch.bfloat16, torch.float32),
        (torch.int64, torch.int64),
        (torch.int32, torch.uint8),
        (torch.bool, torch.bool),
        (torch.bool, torch.float32),
    ],
)
@pytest.mark.parametrize("name", BINARY)
def test_pointwise_binary_as_eager(name: str, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    op, a, b = operator(name), sample(dtypes[0]), sample(dtypes[1], 1)
    if not dtypes[1].is_floating_point and dtypes[1] is not torch.bool:
        b = b.abs().clamp(min=1)
    try:
        op(a, b)
    except RuntimeError:
        pytest.skip("eager rejects it")
    hold(lambda a, b: (op(a, b),), a, b, generated=False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pointwise_broadcast(layout: str) -> None:
    a, b = LAYOUTS[layout](sample(torch.float32)), torch.randn(5, 1, 1)
    hold(lambda a, b: (a * b + 1, b - a, aten.rsub.Scalar(a, 2, 3), aten.add.Tensor(a, b, alpha=-2)), a, b)


x34 = sample(torch.float32)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scalars": (lambda x: (x + 2, x * 0.5, 1 - x, x / 3, x**2, x**3, x**-1, x**0.5, x**1.7, 2.0**x), (x34,)),
    "integer scalars": (
        lambda i: (i // 3, i % 3, i // -2, i % -2, i**2, i + True, i * 2.5, i > 0.5),
        (sample(torch.int64),),
    ),
    "float floor": (lambda x: (x // 0.7, x % 0.7, aten.div.Tensor_mode(x, 0.3, rounding_mode="trunc")), (x34,)),
    "bitwise": (lambda a, b: (a & b, a | b, a ^ b, ~a, a << 2, a >> 1), (sample(torch.int64), sample(torch.int64, 1))),
    "bitwise bool": (lambda a, b: (a & b, a | b, a ^ b, ~a), (sample(torch.bool), sample(torch.bool, 1))),
    "where": (
        lambda c, a: (torch.where(c, a, 0.0), torch.where(c, 1, a), a.masked_fill(c, -math.inf)),
        (sample(torch.bool), x34),
    ),
    "clamp": (lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0.1), x.clamp(max=0.1), aten.clamp_min(x, 0.2)), (x34,)),
    "clamp tensor": (lambda x, y: (x.clamp(y, y + 1), x.clamp(min=y)), (x34, sample(torch.float32, 1))),
    "gelu tanh": (lambda x: (torch.nn.functional.gelu(x, approximate="tanh"),), (x34,)),
    "conversions": (lambda x: (x.to(torch.bfloat16), x.double(), (x > 0).float(), x.bool(), x.clone()), (x34,)),
    "to integer": (lambda x: (x.to(torch.int32), x.to(torch.bool)), (torch.tensor([-1.7, 0.0, 2.9]),)),
    "addcmul": (
        lambda x, y: (aten.addcmul(x, x, y, value=0.5), aten.addcdiv(x, x, y), aten.lerp.Tensor(x, y, x)),
        (x34, sample(torch.float32, 1)),
    ),
    "creation": (
        lambda x: (
            torch.full((2, 3), 1.5) + 0,
            torch.arange(5) * 2,
            torch.zeros_like(x),
            torch.ones(3, dtype=torch.int32),
            torch.arange(2, 9, 3),
        ),
        (x34,),
    ),
    "tril triu": (lambda x: (x.tril(), x.triu(1), x.tril(-1)), (x34,)),
    "flip roll": (lambda x: (x.flip(0), x.flip(1, 0), x.roll(1, 1), x.roll((-1, 2), (0, 1))), (x34,)),
    "cat": (lambda x: (torch.cat([x, x + 1], 1), torch.cat([x, x[:1], x], 0), torch.cat([x[:0], x])), (x34,)),
    "pad": (
        lambda x: (
            aten.constant_pad_nd(x, [1, 2]),
            aten.constant_pad_nd(x, [1, 0, 2, 1], 3.0),
            aten.constant_pad_nd(x, [-1, 1]),
        ),
        (x34,),
    ),
    "scatter": (lambda x: (aten.slice_scatter(x, x[:, :2] * 2, 1, 1, 3), aten.select_scatter(x, x[0], 0, -1)), (x34,)),
    "slices backward": (
        lambda x: (aten.slice_backward(x, [3, 9], 1, 2, 6, 1), aten.select_backward(x, [3, 2, 4], 1, -1)),
        (x34,),
    ),
    "safe softmax": (
        lambda x: (aten._safe_softmax(x, -1),),
        (torch.tensor([[1.0, -math.inf, 2.0], [-math.inf] * 3, [0.0, 1.0, 2.0]]),),
    ),
    "repeat": (lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1)), (x34,)),
}


@pytest.mark.parametrize("case", CASES)
def test_case_as_eager(case: str) -> None:
    function, args = CASES[case]
    hold(function, *args)


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda x: x.view(6, 4),
    "view split": lambda x: x.view(2, 3, 2, 2),
    "view merge transposed": lambda x: x.transpose(0, 1).reshape(3, 8),
    "view flat": lambda x: x.view(-1),
    "view ones": lambda x: x.view(2, 1, 3, 1, 4),
    "permute": lambda x: x.permute(2, 0, 1),
    "expand": lambda x: x[:, :1].expand(2, 5, 4),
    "expand new": lambda x: x.expand(3, 2, 3, 4),
    "unsqueeze": lambda x: x.unsqueeze(1).unsqueeze(-1),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze dim": lambda x: x[:1].squeeze(0).squeeze(0),
    "slice": lambda x: x[:, 1:, ::2],
    "slice negative": lambda x: x[:, -2:, -100:3],
    "select": lambda x: x[:, -1],
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "diagonal below": lambda x: x.diagonal(-1, 2, 0),
    "split": lambda x: x.split(3, 2)[1],
    "split sizes": lambda x: x.split([1, 3], 2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "chain": lambda x: x.permute(1, 0, 2).reshape(3, 8)[:, 1:7].view(3, 3, 2).transpose(1, 2),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view_is_read_through(name: str) -> None:
    view = VIEWS[name]
    hold(lambda x: (view(x) * 2, view(x * 2) + 1), torch.randn(2, 3, 4))


@pytest.mark.parametrize("name", VIEWS)
def test_view_is_an_argument_and_an_output(name: str) -> None:
    """ATen sees the view with eager's strides; an output that is a view shares memory with its base."""
    view = VIEWS[name]
    hold(lambda x: (aten.cumsum(view(x + 1), 0), view(x + 1)), torch.randn(2, 3, 4), generated=False)


REDUCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: x.sum(),
    "sum dim": lambda x: x.sum(1),
    "sum keepdim": lambda x: x.sum(0, keepdim=True),
    "sum two": lambda x: x.sum((0, 1)),
    "sum to double": lambda x: x.sum(1, dtype=torch.float64),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "mean all": lambda x: x.mean(),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(0),
    "max": lambda x: x.max(),
    "max dim value": lambda x: x.max(1)[0],
    "max dim index": lambda x: x.max(1)[1],
    "min dim index": lambda x: x.min(0, keepdim=True)[1],
    "argmax": lambda x: x.argmax(),
    "argmin dim": lambda x: x.argmin(1),
    "prod": lambda x: x.prod(1),
    "any": lambda x: (x > 0).any(1),
    "all": lambda x: (x > 0).all(),
    "var": lambda x: x.var(1),
    "var biased": lambda x: x.var(0, correction=0),
    "std": lambda x: x.std(1, keepdim=True),
    "var of one": lambda x: x[:, :1].var(1),
    "norm": lambda x: aten.linalg_vector_norm(x, 2, [1]),
    "softmax": lambda x: x.softmax(1),
    "softmax outer": lambda x: x.softmax(0),
    "log softmax": lambda x: x.log_softmax(-1),
    "bool sum": lambda x: (x > 0).sum(1),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_as_eager(name: str, dtype: torch.dtype) -> None:
    function = REDUCTIONS[name]
    hold(lambda x: (function(x),), torch.randn(3, 5, generator=torch.Generator().manual_seed(2)).to(dtype))


@pytest.mark.parametrize("name", ["sum dim", "mean", "amax", "argmax", "min dim index", "prod", "softmax"])
def test_reduction_with_nan(name: str) -> None:
    function = REDUCTIONS[name]
    hold(lambda x: (function(x),), x34)


@pytest.mark.parametrize("name", ["sum", "sum dim", "prod", "any", "all", "amax"])
def test_reduction_of_nothing(name: str) -> None:
    function = REDUCTIONS[name]
    hold(lambda x: (function(x),), torch.randn(0, 3) if name != "sum dim" else torch.randn(3, 0))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_reduction_of_integers(dtype: torch.dtype) -> None:
    hold(lambda x: (x.sum(1), x.amax(0), x.prod(1), x.argmin(1), x.max()), sample(dtype))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm_and_its_gradient(affine: bool, dtype: torch.dtype) -> None:
    x, w, b, g = (torch.randn(s).to(dtype) for s in ((2, 3, 4), (4,), (4,), (2, 3, 4)))

    def function(x: Any, w: Any, b: Any, g: Any) -> Any:
        parameters = (w, b) if affine else (None, None)
        y, mean, rstd = aten.native_layer_norm(x, [4], *parameters, 1e-5)
        back = aten.native_layer_norm_backward(g, x, [4], mean, rstd, *parameters, [True, affine, affine])
        return (y, mean, rstd, *(part for part in back if part is not None))

    hold(function, x, w, b, g, rtol=5 * bounds(dtype)["rtol"], atol=5 * bounds(dtype)["rtol"])


BACKWARD: dict[str, Callable[..., Any]] = {
    "gelu": lambda g, x: aten.gelu_backward(g, x),
    "gelu tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": lambda g, x: aten.silu_backward(g, x),
    "tanh": lambda g, x: aten.tanh_backward(g, x),
    "sigmoid": lambda g, x: aten.sigmoid_backward(g, x),
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0),
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -0.5, 0.5),
    "hardswish": lambda g, x: aten.hardswish_backward(g, x * 3),
    "hardsigmoid": lambda g, x: aten.hardsigmoid_backward(g, x * 3),
    "leaky_relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "elu": lambda g, x: aten.elu_backward(g, 1.0, 1.0, 1.0, False, x),
    "elu result": lambda g, x: aten.elu_backward(g, 1.5, 1.0, 1.0, True, x),
    "softplus": lambda g, x: aten.softplus_backward(g, x, 1.0, 20.0),
    "softmax": lambda g, x: aten._softmax_backward_data(g, x.softmax(1), 1, torch.float32),
    "log softmax": lambda g, x: aten._log_softmax_backward_data(g, x.log_softmax(0), 0, torch.float32),
    "dropout": lambda g, x: aten.native_dropout_backward(g, x > 0, 2.0),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_as_eager(name: str) -> None:
    function = BACKWARD[name]
    hold(lambda g, x: (function(g, x),), torch.randn(3, 5), torch.randn(3, 5), rtol=2e-5, atol=2e-6)


def test_hardsigmoid_backward_in_float64_is_as_inexact_as_eager() -> None:
    """Eager multiplies by the sixth of float32, whatever the dtype."""
    given = torch.randn(3, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    hold(lambda g, x: (BACKWARD["hardsigmoid"](g, x),), *given, rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.uint16])
def test_unsupported_dtype_is_left_to_aten(dtype: torch.dtype) -> None:
    x = torch.tensor([1, 2, 3]).to(dtype)
    assert planned(traced(lambda x: (x.clone(),), x)).counts.generated == 0
    hold(lambda x: (x.clone(),), x, generated=False, rtol=1e-6, atol=1e-6)


def quotients(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        a // b,
        a % b,
        torch.fmod(a, b),
        torch.div(a, b, rounding_mode="trunc"),
        aten.div(a, b, rounding_mode="floor"),
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_as_eager(dtype: torch.dtype) -> None:
    low = 0 if dtype is torch.uint8 else -7
    a = torch.arange(low, 9).to(dtype)[:, None]
    b = torch.tensor([d for d in range(low, 6) if d], dtype=dtype)
    hold(quotients, a, b)
    hold(lambda a: quotients(a, 3), a)


def test_integer_division_by_zero_raises_as_eager() -> None:
    a, b = torch.tensor([4, 6]), torch.tensor([2, 3])
    for which in range(5):
        run = executable(planned(traced(lambda a, b: (quotients(a, b)[which],), a, b)))  # noqa: B023
        run([a, b])
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            run([a, torch.tensor([2, 0])])


def test_integer_division_by_zero_of_what_nobody_reads_raises_as_eager() -> None:
    a, b = torch.tensor([4, 6]), torch.tensor([2, 3])
    run = executable(planned(traced(lambda a, b: ((a // b)[:1] * 2,), a, b)))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run([a, torch.tensor([2, 0])])


def test_kinds_of_operators() -> None:
    expected = {
        "mm": Kind.contraction,
        "convolution": Kind.contraction,
        "relu": Kind.pointwise,
        "sum.dim_IntList": Kind.reduction,
        "view": Kind.view,
        "embedding": Kind.indexing,
        "native_dropout": Kind.random,
        "copy_": Kind.effect,
        "full": Kind.creation,
        "cumsum": Kind.scan,
        "native_layer_norm": Kind.composite,
        "_scaled_dot_product_flash_attention_for_cpu": Kind.contraction,
    }
    assert {name: kind_of(operator(name)) for name in expected} == expected
    assert kind_of(aten.relu_.default) is Kind.effect


def test_every_record_names_an_operator() -> None:
    """A record that is misspelt would never be found."""
    missing = [name for name in OPERATORS if _lookup(name) is None]
    assert not missing, missing


def _lookup(name: str) -> Any:
    namespace, base, *overload = name.split(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return getattr(packet, overload[0] if overload else "default", None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_product_and_a_sum_as_dynamo_writes_them(dtype: torch.dtype) -> None:
    """`addcmul_` with a value reaches a backend as one operator of Dynamo's own, in each step of an optimizer."""

    def program(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x.clone().addcmul_(a, b, value=0.3)

    x, a, b = (torch.randn(5, 7).to(dtype) for _ in range(3))
    before = journal.totals()["fallbacks"]
    found = torch.compile(program, backend="assay", options={"fallback": "error"})(x, a, b)
    assert journal.totals()["fallbacks"] == before
    torch.testing.assert_close(found, program(x, a, b))


def test_layer_norm_of_halves_has_gradients_of_its_float32_weights() -> None:
    """As under autocast on the CPU, where what is stored in another dtype than its memory's is no number."""

    def gradients(g: torch.Tensor, x: torch.Tensor, *stored: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean, rstd, w, b = stored
        return torch.ops.aten.native_layer_norm_backward(g, x, [16], mean, rstd, w, b, [True, True, True])

    x, g = (torch.randn(8, 16).bfloat16() for _ in range(2))
    w, b = torch.randn(16), torch.randn(16)
    _, mean, rstd = torch.native_layer_norm(x, [16], w, b, 1e-5)
    schedule = planned(traced(gradients, g, x, mean, rstd, w, b))
    found = executable(schedule)([g, x, mean, rstd, w, b])
    assert not schedule.counts.fallbacks
    for ours, eagers in zip(found, gradients(g, x, mean, rstd, w, b), strict=True):
        assert_same(ours, eagers, "gradient", rtol=2e-2, atol=2e-2)


def test_a_rule_whose_result_is_in_another_dtype_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    known = OPERATORS["aten.relu"]
    wrong = replace(known, rule=lambda operation: (element(operation.tensor("self"), (Symbol("d0"),), torch.float64),))
    monkeypatch.setitem(OPERATORS, "aten.relu", wrong)
    assert planned(traced(lambda x: (torch.relu(x),), torch.ones(8))).counts.fallbacks == {"aten.relu": 1}


def _beside_a_number(half: torch.Tensor, number: torch.Tensor) -> tuple[torch.Tensor, ...]:
    computed = (half + number, number - half, number * half, half * number, number / half, half / number)
    powers = (half**1.0001, half + 1.0001, half - 1.0001, torch.atan2(half, number))
    return (*computed, *powers, half < number, half >= number, half == number, half < 1.0001, half == 1.0001)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_lowering_rounds_a_number_beside_halves_as_a_cpu_does(dtype: torch.dtype) -> None:
    """It is rounded first, unless it is a second factor or a divisor."""
    half, number = torch.tensor([3.0, 1.0, 7.0, 60000.0], dtype=dtype), torch.tensor(1.0001)
    ours = torch.compile(_beside_a_number, backend="assay")(half, number)
    for index, (one, eager) in enumerate(zip(ours, _beside_a_number(half, number), strict=True)):
        assert one.dtype is eager.dtype and one.shape == eager.shape
        assert torch.equal(one, eager), f"result {index}: ours {one.tolist()}, eager's {eager.tolist()}"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("number", [2.0**130, -(2.0**130)])
def test_a_divisor_beyond_float32_is_an_inverse_on_a_gpu_alone(number: float, device: str) -> None:
    """Eager's kernel for CUDA takes the inverse in float64. On a CPU the divisor is infinite, and the quotient zero."""
    x = Value("x", (Int(4),), (Int(1),), Int(0), torch.float32, torch.device(device))
    operation = Operation("div", {"self": x, "other": number}, (x,), ())
    (quotient,) = OPERATORS["aten.div.Tensor"].rule(operation)
    assert isinstance(quotient, Call)
    expected = ("mul", Const(1 / number, torch.float32)) if device == "cuda" else ("div", Const(number, torch.float32))
    assert (quotient.op, quotient.args[1]) == expected
