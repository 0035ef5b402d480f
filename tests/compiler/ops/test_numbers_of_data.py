"""Numbers that only the data tell, and floats that change: what is around them is generated, and waits for no more than
it has to."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.compiler import journal
from assay.compiler.entry.dynamo import assay

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def captured() -> Iterator[None]:
    torch._dynamo.reset()
    journal.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield
    torch._dynamo.reset()


def fallbacks() -> dict[str, int]:
    found = journal.totals()["fallbacks"]
    assert isinstance(found, dict)
    return found


def chain(x: Tensor) -> Tensor:
    for _ in range(5):
        x = x.sin() * 1.5 + 0.25
    return x


PROGRAMS: dict[str, Program] = {
    "item": lambda x, n: chain(x) * (n.sum() / 4).item(),
    "item as a divisor": lambda x, n: chain(x) / (n[0].item() + 0.5),
    "two items": lambda x, n: chain(x) * n[0].item() + chain(x + 1) * n[1].item(),
    "item as an index": lambda x, n: chain(x)[n[0].item()] * 2,
    "item as a bound": lambda x, n: chain(x)[: n[1].item()].sum() + x.cos(),
    "nonzero": lambda x, n: (chain(x), chain(x).relu().nonzero() * 2),
    "mask": lambda x, n: (chain(x) + 1, x[x > 0].exp() * 2),
    "split": lambda x, n: [chain(part) * 2 for part in torch.split(x, n.tolist())],
    "repeat_interleave": lambda x, n: chain(x[:3].repeat_interleave(n, dim=0)),
    "unique": lambda x, n: (chain(x), n.unique() * 3),
    "item of what was written": lambda x, n: (x.mul_(2), chain(x) * x.amax().item())[1],
    "item between writes": lambda x, n: (x.add_(1), x.sum().item(), x.mul_(2))[1] + x,
}


def test_sizes_that_only_the_data_tell_warn_of_nothing() -> None:
    """Of a graph whose every symbol is such a size, no number is known as it is compiled."""

    def f(x: Tensor, y: Tensor) -> Tensor:
        return x[: y.shape[0]]

    x, y = torch.arange(5.0), torch.zeros(3)
    torch._dynamo.decorators.mark_unbacked(y, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torch.compile(f, backend="assay", fullgraph=True, options={"warm": False, "fallback": "error"})
        assert torch.equal(compiled(x, y), x[:3])


SIZED = ("item as a bound", "split", "repeat_interleave")
"""Programs of which every operator has a size that only the data tell: those are ATen's."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_numbers_of_data_are_eagers(name: str) -> None:
    program = PROGRAMS[name]
    compiled = torch.compile(program, backend=assay)
    for counts in ([1, 2, 3], [3, 2, 1], [2, 2, 2]):
        x, n = torch.randn(6, 4), torch.tensor(counts)
        own, theirs = x.clone(), x.clone()
        torch.testing.assert_close(compiled(own, n), program(theirs, n))
        torch.testing.assert_close(own, theirs)
    totals = journal.totals()
    assert totals["eager_graphs"] == 0 and (int(str(totals["nodes_generated"])) > 0 or name in SIZED)


@pytest.mark.parametrize("name", ["item", "item as a divisor", "item as an index", "mask", "split"])
def test_their_gradients_are_eagers(name: str) -> None:
    program = PROGRAMS[name]
    compiled = torch.compile(program, backend=assay)

    def gradient(function: Program, x: Tensor, n: Tensor) -> Tensor:
        results = function(x, n)
        total = sum(each.sum() for each in results) if isinstance(results, (list, tuple)) else results.sum()
        return torch.autograd.grad(total, x)[0]

    for counts in ([1, 2, 3], [3, 2, 1]):
        x, n = torch.randn(6, 4, requires_grad=True), torch.tensor(counts)
        torch.testing.assert_close(gradient(compiled, x, n), gradient(program, x, n))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_float_that_changes_is_no_call_to_aten(dtype: torch.dtype) -> None:
    compiled = torch.compile(lambda x, s: (x * s).tanh() + x / s, backend=assay)
    for value in (0.5, 0.75, -1.25, 3.0):
        x = torch.randn(8, 16).to(dtype)
        torch.testing.assert_close(compiled(x, value), (x * value).tanh() + x / value)
    assert not fallbacks() and journal.totals()["compiles"] == 2


def test_a_float_that_changes_has_eagers_gradients() -> None:
    compiled = torch.compile(lambda x, s: (x * s).tanh() + x / s, backend=assay)
    for value in (0.5, 0.75, -1.25):
        x = torch.randn(8, 16, requires_grad=True)
        (own,) = torch.autograd.grad(compiled(x, value).sum(), x)
        torch.testing.assert_close(own, torch.autograd.grad(((x * value).tanh() + x / value).sum(), x)[0])
    assert not fallbacks()


@pytest.mark.parametrize("shift", [0.0, 100.0, -100.0])
def test_beside_a_mask_only_the_lookup_is_atens(shift: float) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = chain(x) + shift
        picked = y[y > 0]
        return picked * 2, y + picked.shape[0]

    x = torch.randn(8, 16)
    torch.testing.assert_close(torch.compile(program, backend=assay)(x), program(x))
    assert fallbacks()["aten.index.Tensor"] == 1 and int(str(journal.totals()["nodes_generated"])) > 0


def test_an_item_in_a_chain_keeps_it_one_kernel() -> None:
    x, n = torch.randn(64, 64), torch.tensor([2.5])
    torch.testing.assert_close(
        torch.compile(lambda x, n: chain(x) * n.item(), backend=assay)(x, n), chain(x) * n.item()
    )
    totals = journal.totals()
    assert (totals["kernels"], totals["nodes"]) == (1, totals["nodes_generated"])


def test_a_float_that_changes_compiles_once_more_and_stays_generated() -> None:
    compiled = torch.compile(lambda x, s: chain(x) * s + s, backend=assay)
    x = torch.randn(6, 4)
    for value in (1.5, 2.5, -3.5, 0.0, -0.0, math.inf, math.nan, 7.25):
        torch.testing.assert_close(compiled(x, value), chain(x) * value + value, equal_nan=True)
    totals = journal.totals()
    assert totals["nodes"] == totals["nodes_generated"] and int(str(totals["compiles"])) <= 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_a_float_that_changes_is_rounded_as_eager_rounds_it(dtype: torch.dtype) -> None:
    compiled = torch.compile(lambda x, s: (x * s, x + s, x / s), backend=assay)
    x = torch.arange(1, 9).to(dtype)
    for value in (0.1, 1 / 3, 2.5):
        torch.testing.assert_close(compiled(x, value), (x * value, x + value, x / value))


def test_a_check_of_data_still_raises_before_what_follows() -> None:
    def program(x: Tensor, n: Tensor) -> Tensor:
        count = n.item()
        torch._check(count > 1)
        return chain(x) * count

    compiled = torch.compile(program, backend=assay)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x, torch.tensor(2)), chain(x) * 2)
    with pytest.raises(RuntimeError):
        compiled(x, torch.tensor(1))


def _columns_written(x: Tensor, chosen: Tensor, values: Tensor) -> Tensor:
    x[:, chosen] = values
    return x


WRITTEN: dict[str, Program] = {
    "by a number": lambda x, m: x.sin().masked_fill(m, 2.0) + torch.index_put(x, (m,), torch.tensor(3.0)),
    "by a row": lambda x, m: torch.index_put(x.sin(), (m[:, 0],), x[0] * 2) * 2,
    "by one element": lambda x, m: torch.index_put(x.sin(), (m,), x[0, :1]) * 2,
    "behind a dimension": lambda x, m: _columns_written(x.sin(), m[0], x[:, :1]) * 2,
}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_a_mask_chooses_written_by_fewer_is_generated(name: str, dynamic: bool) -> None:
    program = WRITTEN[name]
    compiled = torch.compile(program, backend=assay, dynamic=dynamic)
    x = torch.randn(6, 4)
    torch.testing.assert_close(compiled(x, x > 0), program(x, x > 0))
    assert not fallbacks() and not journal.totals()["eager"]


def test_mask_of_other_sizes_is_refused_as_eager() -> None:
    def write(x: Tensor, m: Tensor) -> Tensor:
        return torch.index_put(x, (m,), torch.tensor(3.0))

    for run in (write, torch.compile(write, backend=assay)):
        with pytest.raises((IndexError, RuntimeError)):
            run(torch.randn(6, 4), torch.ones(1, 4, dtype=torch.bool))
