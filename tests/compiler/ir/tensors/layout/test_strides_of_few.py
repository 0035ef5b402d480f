"""Strides of results along dimensions of no or one element are eager's, however the operands lie."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

LAID_OUT: dict[str, Callable[[], Tensor]] = {
    "one row in columns": lambda: torch.randn(4, 1).t(),
    "nothing in columns": lambda: torch.randn(4, 0).t(),
    "no columns": lambda: torch.randn(0, 4).t(),
    "one inner": lambda: torch.randn(3, 1, 4).permute(2, 0, 1),
    "one outer": lambda: torch.randn(3, 1, 4).permute(1, 2, 0),
    "columns": lambda: torch.randn(3, 4).t(),
    "expanded": lambda: torch.randn(1, 4).expand(3, 4),
    "gaps": lambda: torch.randn(1, 8)[:, ::2],
    "a row of as many": lambda: torch.randn(16).as_strided((1, 4), (4, 4)),
    "one channel": lambda: torch.randn(2, 1, 3, 5).to(memory_format=torch.channels_last),
    "one image": lambda: torch.randn(1, 3, 4, 4).permute(0, 2, 3, 1),
    "two of one": lambda: torch.randn(5, 1, 2, 1).permute(3, 2, 1, 0),
}
OTHERS: dict[str, Callable[[Tensor], object]] = {
    "a number": lambda x: 2,
    "a number's tensor": lambda x: torch.tensor(2.0),
    "itself": lambda x: x,
    "rows": lambda x: torch.randn(x.shape),
    "a row": lambda x: torch.randn(x.shape[-1:]),
    "columns": lambda x: torch.ones(x.shape).transpose(0, 1).contiguous().transpose(0, 1),
}


def values(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = x.sin() * y
    chosen = torch.where(x > 0, x, y)
    sums = x.sum(1, keepdim=True) * 2
    return (
        x * y,
        x + y,
        x - y,
        x / y,
        x == y,
        z,
        z.relu(),
        x.clamp(0, 1).pow(2) * y,
        chosen,
        sums,
        z.transpose(0, 1) + 1,
    )


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("laid_out", LAID_OUT)
def test_results_have_the_strides_of_eager_along_dimensions_of_one_element_or_none(
    laid_out: str, dynamic: bool
) -> None:
    x = LAID_OUT[laid_out]()
    for name, make in OTHERS.items():
        y = make(x)
        torch._dynamo.reset()
        expected = values(x, y)  # type: ignore[arg-type]
        found = torch.compile(values, backend="assay", dynamic=dynamic, fullgraph=True)(x, y)  # type: ignore[arg-type]
        assert [each.stride() for each in found] == [each.stride() for each in expected], name


def test_gradients_have_the_strides_of_eager_along_dimensions_of_one_element() -> None:
    x = torch.randn(4, 1).t()
    eager, ours = (x.detach().requires_grad_() for _ in range(2))
    (eager * 2).sin().sum().backward()
    torch.compile(lambda x: (x * 2).sin().sum(), backend="assay")(ours).backward()
    assert ours.grad is not None and eager.grad is not None and ours.grad.stride() == eager.grad.stride()


def test_division_of_integers_is_asked_for_strides_of_ones() -> None:
    x, y = torch.randint(1, 9, (4, 1)).t(), torch.randint(1, 9, (4,))
    torch._dynamo.reset()
    for f in (lambda a, b: a // b, lambda a, b: a % b):
        found = torch.compile(f, backend="assay", fullgraph=True)(x, y)
        assert torch.equal(found, f(x, y)) and found.stride() == f(x, y).stride()


def test_a_draw_that_is_asked_for_strides_is_about_the_devices_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a host with several GPUs torch warns of whoever keeps the random state of all."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.random, "_fork_rng_warned_already", False)
    x = torch.randn(4, 1).t()
    torch._dynamo.reset()
    run = torch.compile(F.dropout, backend="assay", fullgraph=True, options={"fallback": "error"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert run(x).stride() == F.dropout(x).stride()
    assert not any("fork_rng" in str(warning.message) for warning in caught)


@pytest.mark.parametrize(
    "name", ["one row in columns", "one inner", "expanded", "gaps", "two of one", "a row of as many"]
)
@pytest.mark.parametrize("lead", [(1,), (1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("many", [1, 3])
def test_strides_of_what_is_expanded_to_more_dimensions(name: str, lead: tuple[int, ...], many: int) -> None:
    """A new dimension of size 1 has the stride 0 in front of one that is expanded."""
    x = LAID_OUT[name]()
    size = (*lead, *(many if own == 1 else -1 for own in x.shape))

    def expanded(x: Tensor) -> tuple[Tensor, ...]:
        wide = x.expand(size)
        return wide, wide + 1, wide.neg() * 2

    compiled = torch.compile(expanded, backend="assay", options={"fallback": "error"}, dynamic=False)
    for ours, eager in zip(compiled(x), expanded(x), strict=True):
        assert ours.stride() == eager.stride() and torch.equal(ours, eager)


def test_what_is_expanded_to_more_dimensions_is_a_view_of_what_is_written_behind_it() -> None:
    def program(x: Tensor) -> Tensor:
        wide = x.expand(1, 3, 3)
        x.fill_(2)
        return wide

    x = torch.randn(12)[9:10].view(1, -1)
    wide = torch.compile(program, backend="assay")(x)
    assert (wide == 2).all() and wide.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("program", [lambda x: x.expand(1, 3), lambda x: x.expand(1, 3).unsqueeze(0)])
def test_what_is_expanded_to_more_dimensions_is_made_by_one_call(program: Callable[[Tensor], Tensor]) -> None:
    """Eager's strides are had by other calls than that of the program; autograd knows of the latter."""
    x = torch.randn(1, requires_grad=True)
    for made in (program(x), torch.compile(program, backend="assay")(x)):
        names = [made.grad_fn.name(), made.grad_fn.next_functions[0][0].name()]  # type: ignore[union-attr]
        assert names == (
            ["ExpandBackward0", "torch::autograd::AccumulateGrad"]
            if made.dim() == 2
            else ["UnsqueezeBackward0", "ExpandBackward0"]
        )


OF_NOTHING: dict[str, Callable[[], Tensor]] = {
    "no columns by channels": lambda: torch.empty_strided((2, 3, 4, 0), (0, 1, 0, 3)),
    "a volume by channels": lambda: torch.empty_strided((2, 3, 2, 4, 0), (0, 1, 0, 0, 3)),
    "with gaps": lambda: torch.empty(1, 0, 6)[..., ::2],
    "cut out": lambda: torch.empty(3, 5, 4, 0)[1:, 1:3],
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("laid_out", OF_NOTHING)
def test_results_without_elements_lie_as_what_they_are_of(laid_out: str, dynamic: bool) -> None:
    """Eager's kernels keep the strides of what has no elements, which need be no products of sizes."""

    def program(x: Tensor) -> tuple[Tensor, ...]:
        return F.relu6(x), torch.lerp(x, x, 0.4), F.hardtanh(x) + 1

    torch._dynamo.reset()
    x = OF_NOTHING[laid_out]().requires_grad_()
    compiled = torch.compile(program, backend="assay", dynamic=dynamic, options={"fallback": "error"})
    assert [each.stride() for each in compiled(x)] == [each.stride() for each in program(x)]
