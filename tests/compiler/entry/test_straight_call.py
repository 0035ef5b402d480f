"""A straight call takes the calls that are like its own and no others; what it returns is what the search returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, fx, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

from assay.compiler.entry.aot import aot_function
from assay.compiler.entry.straight_call import MISS, straight_call

X, Y = torch.randn(8), torch.randn(8, requires_grad=True)
GRID = torch.randn(4, 4)


def made(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """A straight call whose compile returns what it is given, as a list."""
    count = len({id(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)})
    call = straight_call(args, kwargs, list, pytree.tree_structure([0] * count))
    assert call is not None
    return call


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "two": ((X, Y), {}),
    "keywords": ((X,), {"scale": Y, "by": 3}),
    "nested": (((X, [Y, None]), {"a": X, "b": (GRID,)}), {}),
    "constants": ((X, 3, 2.0, -0.0, True, "text", None, torch.float32, torch.device("cpu")), {}),
    "parameter": ((nn.Parameter(torch.ones(8)), X), {}),
    "transposed": ((GRID.t(), X), {}),
    "not_a_leaf": ((Y * 2, X), {}),
    "none": ((3,), {}),
    "view": ((GRID[1:], GRID[:1]), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_straight_call_takes_its_own_call(name: str) -> None:
    args, kwargs = CALLS[name]
    results = made(args, kwargs)(args, kwargs)
    leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    distinct = list({id(leaf): leaf for leaf in leaves}.values())
    assert results is not MISS and len(results) == len(distinct)
    assert all(one is other for one, other in zip(results, distinct, strict=True))


def others() -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Calls that are each unlike `(X, Y), {}` in one thing."""
    y = Y.detach()
    yield "one more", (X, Y, X), {}
    yield "one less", (X,), {}
    yield "a keyword", (X, Y), {"z": 1}
    yield "by keyword", (X,), {"y": Y}
    yield "a list", ([X], Y), {}
    yield "shape", (torch.randn(9), Y), {}
    yield "more dimensions", (torch.randn(8, 1), Y), {}
    yield "strides", (torch.randn(16)[::2], Y), {}
    yield "dtype", (X.double(), Y), {}
    yield "device", (X.to("meta"), Y), {}
    yield "requires_grad", (X, y), {}
    yield "requires_grad too", (X.clone().requires_grad_(), Y), {}
    yield "no leaf", (X, Y * 1), {}
    yield "parameter", (X, nn.Parameter(y)), {}
    yield "the same twice", (X, X), {}
    yield "the same twice, with gradient", (Y, Y), {}
    yield "a constant", (X, 3), {}
    yield "conj", (torch.randn(8, dtype=torch.complex64).conj(), Y), {}
    with torch.inference_mode():
        made_there = torch.randn(8)
    yield "inference tensor", (made_there, Y), {}


@pytest.mark.parametrize(("name", "args", "kwargs"), [pytest.param(*case, id=case[0]) for case in others()])
def test_straight_call_misses_what_is_unlike_it(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert made((X, Y), {})(args, kwargs) is MISS


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        (3, 4), (3, 3.0), (1, True), (True, 1), (0.0, -0.0), (1.0, 1), ("a", "b"), (None, 0), ((1, 2), [1, 2]),
        (float("nan"), 0.0), (torch.float32, torch.float64), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ((), None),
    ],
)  # fmt: skip
def test_straight_call_tells_constants_apart(mine: object, other: object) -> None:
    call = made((X, mine), {})
    assert call((X, mine), {}) is not MISS and call((X, other), {}) is MISS


def test_straight_call_keeps_one_tensor_in_two_slots_apart_from_two() -> None:
    call = made((X, X), {})
    assert call((X, X), {}) is not MISS and call((Y.detach(), Y.detach()), {}) is MISS
    assert call((GRID[0], GRID[0]), {}) is MISS


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "grad": nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "autocast_half": lambda: torch.autocast("cpu", dtype=torch.float16),
    "deterministic": lambda: Deterministic(),
}


class Deterministic(AbstractContextManager[None]):
    def __enter__(self) -> None:
        torch.use_deterministic_algorithms(True)

    def __exit__(self, *_: object) -> None:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("args", [(X,), (3,)], ids=["tensor", "no tensor"])
@pytest.mark.parametrize("mine", MODES)
def test_straight_call_is_for_one_ambient_mode(mine: str, args: tuple[Any, ...]) -> None:
    with MODES[mine]():
        call = made(args, {})
    for name, mode in MODES.items():
        with mode():
            assert (call(args, {}) is not MISS) is (name == mine), name


def test_straight_call_gives_up_on_what_it_cannot_tell() -> None:
    spec = pytree.tree_structure(0)
    for value in (X.to_sparse(), object(), {1: X}, torch.nn.utils.parametrize, 1j):
        assert straight_call((X, value), {}, list, spec) is None


class Named(NamedTuple):
    one: Any
    other: Any


STRUCTURES: list[Any] = [0, (0,), [0, 0], (0, [0, (0,)]), {"a": 0, "b c": (0,)}, [], {1: 0}, Named(0, [0])]


@pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
def test_straight_call_rebuilds_the_results(structure: Any) -> None:
    leaves, spec = pytree.tree_flatten(structure)
    call = straight_call((X,), {}, lambda _: tuple(range(len(leaves))), spec)
    assert call is not None
    result = call((X,), {})
    assert result == pytree.tree_unflatten(range(len(leaves)), spec) and type(result) is type(structure)


class Counted:
    """A graph compiler that counts its graphs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, gm: fx.GraphModule, _: object) -> fx.GraphModule:
        self.count += 1
        return gm


@pytest.mark.parametrize("dynamic", [False, True])
def test_aot_function_answers_alike_at_every_call(dynamic: bool) -> None:
    """Calls of many kinds, interleaved and repeated: values and gradients are eager's, searched for or not."""

    def f(x: Tensor, y: Tensor, scale: float) -> dict[str, Any]:
        return {"product": x * y / scale, "size": x.shape[0], "grad": torch.is_grad_enabled()}

    compiled, counted = None, Counted()
    compiled = aot_function(f, counted, dynamic=dynamic)
    for round_ in range(4):
        for size in (2, 3, 3, 3):
            for scale in (0.0, -0.0):
                for mode in (nullcontext, torch.no_grad):
                    x, y = torch.ones(size), torch.full((size,), 2.0, requires_grad=True)
                    with mode():
                        got, want = compiled(x, y, scale), f(x, y, scale)
                    assert got["size"] == want["size"] and got["grad"] == want["grad"], (round_, size, scale)
                    assert torch.equal(got["product"], want["product"])
                    if got["product"].requires_grad:
                        (gradient,) = torch.autograd.grad(got["product"].sum(), y)
                        assert torch.equal(gradient, torch.autograd.grad(want["product"].sum(), y)[0])
    assert counted.count == (2 * 3 if dynamic else 4 * 3), "two scales, two modes; with gradients two graphs each"


def test_aot_function_under_no_grad_returns_what_needs_no_gradient() -> None:
    compiled = aot_function(lambda x: (x @ x, x.t()), Counted())
    x = torch.randn(3, 3, requires_grad=True)
    for _ in range(4):
        with torch.no_grad():
            product, transposed = compiled(x)
            want = x @ x, x.t()
        assert product.requires_grad is want[0].requires_grad is False
        assert transposed.requires_grad is want[1].requires_grad and transposed.is_leaf is want[1].is_leaf
        assert compiled(x)[0].requires_grad


@pytest.mark.parametrize("count", [1, 2, 5, 7, 20])
def test_aot_function_tells_overlapping_inputs_by_pairs_and_by_storages(count: int) -> None:
    """The first is written, apart from the others at first, then over the memory of the last."""

    def f(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inputs[0].add_(1)
        last = inputs[-1]
        return last * 2, last.view(2, -1), last.view(2, 3, 1).permute(2, 0, 1).expand(4, -1, -1)

    def arguments(is_shared: bool) -> list[Tensor]:
        memory = torch.arange(10.0)
        last = memory[2:8] if is_shared else torch.arange(6.0)
        return [memory, *(torch.ones(3) for _ in range(count - 2)), last][-count:]

    compiled = aot_function(f, Counted())
    for is_shared in (False, True, False, True, True):
        given, expected = arguments(is_shared), arguments(is_shared)
        got, want = compiled(*given), f(*expected)
        for one, other in zip([*got, *given], [*want, *expected], strict=True):
            assert one.shape == other.shape and one.stride() == other.stride()
            assert torch.equal(one, other), (count, is_shared)
        got[1].zero_(), want[1].zero_()
        assert all(torch.equal(one, other) for one, other in zip(given, expected, strict=True))


def test_a_wrapper_is_known_again_by_what_is_inside() -> None:
    """The third call like another goes straight; another class, context, size or inner tensor does not."""
    traced: list[torch.Size] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        traced.append(x.shape)
        return x * 2

    def pair(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return TwoTensor(torch.randn(shape).to(dtype), torch.randn(shape).to(dtype))

    compiled = aot_function(f, lambda graph, _: graph)
    for _ in range(4):
        x: Any = pair(3)
        found: Any = compiled(x)
        assert torch.equal(found.b, x.b * 2)
    straight = straight_call((pair(3),), {}, lambda given: [given[0]], pytree.tree_structure(0))
    assert straight is not None
    x = pair(3)
    assert straight((x,), {}) is x
    others = (pair(4), pair(3, dtype=torch.float64), torch.randn(3), TwoTensor(pair(3), pair(3)))
    for other in (*others, pair(3).requires_grad_()):
        assert straight((other,), {}) is MISS
    for other in others:
        assert compiled(other).shape == other.shape
    assert len(traced) == 1 + len(others)


def test_no_straight_call_is_made_for_a_view_whose_history_autograd_refuses_to_tell() -> None:
    memory = torch.randn(4, requires_grad=True).clone()
    with torch.no_grad():
        view = memory[:2]
    memory.mul_(2)
    assert straight_call((view,), {}, list, pytree.tree_structure([0])) is None
