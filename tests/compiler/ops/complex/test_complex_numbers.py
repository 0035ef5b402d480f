"""Complex numbers in generated code against eager: arithmetic on awkward values, views, reductions, lookups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.compiler.entry.dynamo import assay, compile_fx_inner
from assay.compiler.ir.loops.text import show_index
from assay.compiler.journal import reset, totals
from tests.lowering import assert_same, check, planned, traced

aten = torch.ops.aten
COMPLEX = (torch.complex64, torch.complex128)
Program = Callable[..., tuple[torch.Tensor, ...]]
EDGES = (0.0, -0.0, 1.0, -1.5, 3e-39, 1e30, math.inf, -math.inf, math.nan)


def awkward(dtype: torch.dtype) -> torch.Tensor:
    """Each edge beside each, three times over: for the vectors of a loop and for its tail."""
    pairs = [complex(a, b) for a, b in itertools.product(EDGES, EDGES)]
    return torch.tensor(pairs * 3, dtype=torch.complex128).to(dtype)


def numbers(*shape: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


ONE: dict[str, Program] = {
    "numbers": lambda x: (x + 1, 2 - x, x * 2.5, x / 3, x + (1 + 2j), x * (0.5 - 1j), (1 - 2j) / x),
    "signs": lambda x: (-x, x.conj().resolve_conj(), x.sgn(), x.conj() * 2, x * x.conj()),
    "parts": lambda x: (x.abs(), x.angle(), x.real + 1, x.imag * 2, torch.view_as_real(x) * 3),
    "powers": lambda x: (x**2, x**3, x**-1, x.reciprocal(), x.square()),
    "chosen": lambda x: (torch.where(x.real > 0, x, x * 2), x.masked_fill(x.imag > 0, 3.0), torch.where(x == x, x, 1j)),
    "dtypes": lambda x: (x.to(torch.complex64), x.to(torch.complex128), x.real.to(torch.complex64)),
    "compared": lambda x: (x == 1, x != x, x == x.real),
}
TWO: dict[str, Program] = {
    "sums": lambda x, y: (x + y, x - y, torch.add(x, y, alpha=2), torch.sub(x, y, alpha=1 - 1j)),
    "products": lambda x, y: (x * y, x * y.conj(), x * y.real),
    "quotients": lambda x, y: (x / y, x / y.real, x.real / y),
    "compared": lambda x, y: (x == y, x != y),
    "made": lambda x, y: (torch.complex(x.real, y.imag),),
    "added": lambda x, y: (torch.addcmul(x, x, y, value=0.5), torch.addcdiv(x, x, y, value=2.0)),
}


def parts_of(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def hold(found: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor, what: str) -> None:
    """The same, part by part, or as near to complex128 as eager is within a few roundings of the parts' sum."""
    assert (found.dtype, found.shape, found.stride()) == (eager.dtype, eager.shape, eager.stride()), what
    if not (eager.is_complex() or eager.is_floating_point()):
        assert torch.equal(found, eager), what
        return
    ours, theirs, true = (parts_of(each) for each in (found, eager, wide))
    special = ~theirs.isfinite()
    assert torch.equal(ours.isnan(), theirs.isnan()), (
        f"{what}: NaN where eager has {theirs[ours.isnan() != theirs.isnan()]}"
    )
    assert torch.equal(ours[special].nan_to_num(7), theirs[special].nan_to_num(7)), what
    size = eager.abs().unsqueeze(-1) if eager.is_complex() else theirs.abs()
    bound = 4 * torch.finfo(theirs.dtype).eps * size + torch.finfo(theirs.dtype).tiny
    bound = torch.maximum(bound, 2 * (theirs - true).abs().to(bound.dtype))
    worse = (ours - theirs).abs() > bound
    assert not worse[~special].any(), f"{what}: {ours[worse & ~special]} instead of {theirs[worse & ~special]}"


def compiled(program: Program, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What C++ gives; nothing may fall back."""
    reset()
    found = compile_fx_inner(traced(program, *args).module, list(args))(list(args))
    assert totals()["fallbacks"] == {}
    return tuple(found)


def every(programs: dict[str, Program]) -> Program:
    return lambda *args: tuple(result.clone() for program in programs.values() for result in program(*args))


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_arithmetic_on_awkward_values_as_eager(dtype: torch.dtype) -> None:
    x = awkward(dtype)
    a, b = (each.reshape(-1).contiguous() for each in torch.meshgrid(x[:81], x[:81], indexing="ij"))
    for programs, args in ((ONE, (x,)), (TWO, (a, b))):
        function = every(programs)
        found, eager = compiled(function, *args), function(*args)
        wide = function(*(each.to(torch.complex128) for each in args))
        for number, results in enumerate(zip(found, eager, wide, strict=True)):
            hold(*results, f"result {number}")


FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "sinh", "cosh", "sin", "cos")
FAR = (*EDGES, 0.7, -1e-30, 50.0, -95.0, 300.0, math.pi / 2)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_functions_of_complex_numbers_on_awkward_values_as_eager(dtype: torch.dtype) -> None:
    """Beside the edges about the unit circle, where logarithms are small."""
    edges = torch.tensor([complex(a, b) for a, b in itertools.product(FAR, FAR)], dtype=torch.complex128)
    sizes, angles = 1 + 1e-7 * torch.arange(-100, 100).double(), torch.linspace(-3.14, 3.14, 200, dtype=torch.float64)
    x = torch.cat([edges, torch.polar(sizes, angles), numbers(200, dtype=torch.complex128) * 3]).to(dtype)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(getattr(torch, name)(x) for name in FUNCTIONS)

    results = zip(compiled(function, x), function(x), function(x.to(torch.complex128)), strict=True)
    for name, each in zip(FUNCTIONS, results, strict=True):
        hold(*each, name)


# ---- shapes, layouts, views ------------------------------------------------------------------------------------------

PROGRAMS: dict[str, Program] = {
    "broadcast": lambda x: (x + x[0], x * x[:, :1], x / x.real[1:2]),
    "views": lambda x: (
        x.t() * 2,
        x[:, 1::2] + 1,
        x.reshape(-1)[3:] - x.view(-1)[:-3],
        x.unsqueeze(1).expand(4, 3, 6) * 1,
    ),
    "parts": lambda x: (x.real.t() + x.imag.t(), torch.view_as_real(x)[..., 1] * 2, torch.view_as_real(x).sum(-1)),
    "of pairs": lambda x: (torch.view_as_complex(torch.view_as_real(x) * 2).t() + 1,),
    "conjugates": lambda x: (x.conj() * x, x.conj().t() + 1, x.conj().conj() * 2, x.conj()[1:].real + 1, x.mH @ x),
    "conjugate of a result": lambda x: ((x * 2).conj() + x, (x + 1).conj().t() * 2),
    "moved": lambda x: (x.flip(1), x.roll(2, 0), torch.cat([x, x * 2]), torch.stack([x, x + 1], 1), x.repeat(2, 1)),
    "triangles": lambda x: (x.tril(), x.triu(1), x.trace()),
    "sums": lambda x: (x.sum(), x.sum(0), (x * 2).sum(1, keepdim=True), x.mean(), x.mean(1), x.cumsum(1)),
    "counts": lambda x: ((x * (x.real > 0)).count_nonzero(0), x.any(), x.all(1), x.norm(), x.norm(dim=1)),
    "moments": lambda x: (x.var(), x.std(0), *torch.var_mean(x, 1, correction=0), *torch.std_mean(x)),
    "norms": lambda x: (x.norm(), x.norm(1, dim=1), x.norm(math.inf), torch.linalg.vector_norm(x, 3, dim=0)),
    "cross": lambda x: (torch.linalg.cross(x[:3], x[1:], dim=0), torch.linalg.cross(x[:, :3], x[:1, 3:])),
    "filled": lambda x: (torch.nn.functional.pad(x, (1, 2), value=1.5), x.index_fill(0, ROWS, 0), torch.diag_embed(x)),
    "normalized": lambda x: (x / x.abs().sum(1, keepdim=True), (x - x.mean(0)) * 2),
    "created": lambda x: (torch.zeros_like(x) + x, torch.full((3,), 1 + 2j), torch.ones(2, dtype=x.dtype) * 2),
    "looked up": lambda x: (x[torch.tensor([3, 0])], x.gather(1, torch.tensor([[5, 0]])), x.index_select(0, ROWS)),
    "scattered": lambda x: (x.index_put((ROWS,), x[:2] * 2), x.scatter(0, ROWS[None], x[2:3, :2])),
    "stored twice": lambda x: ((y := x * 2), y + 1, y.real),
    "polar": lambda x: (torch.polar(x.abs(), x.angle()), torch.complex(x.real, x.abs())),
}
ROWS = torch.tensor([2, 1])
FALLBACKS = {"conjugates": {"aten.mm"}}


@pytest.mark.parametrize("name", PROGRAMS)
def test_complex_programs_as_eager(name: str) -> None:
    bounds = {"rtol": 1e-5, "atol": 1e-5}
    schedule = check(PROGRAMS[name], numbers(4, 6), **bounds)
    assert set(schedule.counts.fallbacks) <= FALLBACKS.get(name, set())
    if name not in ("views", "of pairs"):
        check(PROGRAMS[name], numbers(6, 4).t(), **bounds)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_complex_programs_with_dynamic_sizes(mode: str) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * y.conj(), (x.t() + 1).abs(), (x * 2).sum(0), torch.view_as_real(x + y), x[:, 1:].real * 2

    schedule = check(program, numbers(4, 6), numbers(4, 6) * 2, mode=mode, rtol=1e-5, atol=1e-5)
    assert not schedule.counts.fallbacks


def test_complex_programs_of_nothing_as_eager() -> None:
    empty = torch.empty(0, 3, dtype=torch.complex64)
    schedule = check(lambda x: (x * 2, x.sum(0), x.sum(), x.conj() + 1, x.abs(), x.real + 1), empty)
    assert not schedule.counts.fallbacks


def test_compiled_complex_programs_and_gradients_as_eager() -> None:
    """All programs in one compile, by the C++ of this machine, with the gradient of the input."""

    def run(function: Program) -> list[torch.Tensor]:
        x = numbers(4, 6).requires_grad_()
        results = function(x)
        floating = [each for each in results if each.requires_grad]
        weights = [numbers(*each.shape).real if not each.is_complex() else numbers(*each.shape) for each in floating]
        (gradient,) = torch.autograd.grad(floating, x, [w.to(e.dtype) for w, e in zip(weights, floating, strict=True)])
        return [each.detach() for each in results] + [gradient]

    function = every({name: program for name, program in PROGRAMS.items() if name not in ("counts",)})
    reset()
    ours, theirs = run(torch.compile(function, backend=assay)), run(function)
    assert set(totals()["fallbacks"]) <= {"aten.mm", "aten.clone"}  # of a conjugate that was kept for the backward
    for number, (found, expected) in enumerate(zip(ours, theirs, strict=True)):
        assert_same(found, expected, f"result {number}", rtol=1e-4, atol=1e-4)


def test_complex_products_in_vectors_are_rounded_as_eagers() -> None:
    """The elements that are left over eager computes with a fused product: theirs of a conjugate are not real."""
    x, y = numbers(1024), numbers(1024).flip(0)
    product, norm = compiled(lambda x, y: (x * y, x * x.conj()), x, y)
    assert torch.equal(product, x * y)
    assert not norm.imag.any()


def test_conjugates_in_and_out_of_a_graph_as_eager() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.conj(), (x * 2).conj(), x + 1, x.conj().imag

    for x in (numbers(5), numbers(5).conj()):
        for found, expected in zip(torch.compile(function, backend=assay)(x), function(x), strict=True):
            assert (found.is_conj(), found.is_neg()) == (expected.is_conj(), expected.is_neg())
            assert_same(found, expected, "result")


def test_complex_lanes_are_stored_by_one_kernel() -> None:
    schedule = planned(traced(lambda x, y: ((x * y + 1) / y,), numbers(8), numbers(8)))
    (kernel,) = schedule.kernels
    assert [show_index(store.index) for store in kernel.stores] == ["2*i0", "2*i0 + 1"]


def test_complex_to_real_is_left_to_eager_which_warns() -> None:
    assert check(lambda x: (x.to(torch.float32),), numbers(3)).counts.fallbacks == {"aten._to_copy": 1}


def test_complex_lookup_out_of_range_raises_as_eager() -> None:
    function = torch.compile(lambda x, i: x[i] * 2, backend=assay)
    for wrong in (torch.tensor([0, 9]), torch.tensor([-8, 0])):
        with pytest.raises(IndexError):
            function(numbers(4, 6), wrong)


def test_a_lookup_of_complex_numbers_copied_onto_itself() -> None:
    """Which part is read is known when the kernel is written, and a lookup is all that is left of the choice."""

    def program(x: torch.Tensor) -> torch.Tensor:
        found = x[torch.tensor([5, 3, 5])]
        found.copy_(found)
        return found

    x = torch.randn(6, dtype=torch.complex64)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(program, backend=assay)(x), program(x))


@pytest.mark.parametrize("dtype", COMPLEX)
def test_index_add_into_a_vector_multiplies_an_infinity_as_eager(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.index_add(0, index, source)

    source = torch.tensor([complex(math.inf, 1.0), 1 + 2j], dtype=dtype)
    given = torch.zeros(3, dtype=dtype), torch.tensor([2, 0]), source
    found = torch.compile(f, backend="assay")(*given)
    torch.testing.assert_close(torch.view_as_real(found), torch.view_as_real(f(*given)), equal_nan=True)
    assert found[2].imag.isnan()


ZEROS_AND_INFINITIES = (0.0, -0.0, complex(0.0, -0.0), complex(-0.0, -0.0), complex(0.0, math.inf), 2.5j)
FILLING: dict[str, Any] = {
    "scatter": lambda x, index, value: x.scatter(0, index, value),
    "index_fill": lambda x, index, value: x.index_fill(0, index, value),
    "masked_fill": lambda x, index, value: x.masked_fill(x.real == 1, value),
    "where": lambda x, index, value: torch.where(x.real > 3, x, value),
    "new_full": lambda x, index, value: x.new_full((3,), value),
    "pad": lambda x, index, value: torch.nn.functional.pad(x, (1, 2), value=complex(value).real),
    "product": lambda x, index, value: x * value,
}


@pytest.mark.parametrize("value", ZEROS_AND_INFINITIES, ids=str)
@pytest.mark.parametrize("name", FILLING)
def test_complex_constants_keep_infinities_and_signs_of_zeros(name: str, value: complex) -> None:
    x, index = torch.ones(4, dtype=torch.complex64), torch.tensor([3, 1])
    found = torch.view_as_real(torch.compile(FILLING[name], backend="assay", dynamic=False)(x, index, value))
    expected = torch.view_as_real(FILLING[name](x, index, value))
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.signbit() | found.isnan(), expected.signbit() | expected.isnan())
