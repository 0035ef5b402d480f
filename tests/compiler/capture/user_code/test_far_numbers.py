"""Numbers beyond 64 bits in programs that are compiled for one number alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.dynamo import assay

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1


def begins(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return x[1 - n :] * 2, x.nan_to_num(posinf=n)


def ends(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return x[1:, : x.shape[1] - n] * 2, x.nan_to_num(posinf=n)


def written(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    y = x * 1
    y[: x.shape[0] - n] = 7
    return y, x.nan_to_num(posinf=n)


def compared(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return x == n * 2, x.nan_to_num(posinf=n)


@pytest.mark.parametrize("f", [begins, ends, written, compared])
def test_a_number_that_is_computed_beyond_64_bits_is_as_in_eager(f: object) -> None:
    numbers = (2, 3, GREATEST) if f is compared else (2, LEAST, GREATEST)  # eager compares with none below 64 bits
    compiled = torch.compile(f, backend=assay, options={"fallback": "error"})  # type: ignore[call-overload]
    for n in numbers:
        for mine, eager in zip(compiled(x := torch.randn(4, 3), n), f(x, n), strict=True):  # type: ignore[operator]
            assert torch.equal(mine, eager) and mine.shape == eager.shape, n


FAR = -(1 << 62)
ROLLS = {
    "one": lambda x, n: x.roll(n, -1),
    "flat": torch.roll,
    "named": lambda x, n: torch.roll(input=x, shifts=(1, n), dims=(0, 1)),
    "less": lambda x, n: x.roll(n - 1, 0),
    "more": lambda x, n: x.roll(dims=0, shifts=n + 1),
}


@pytest.mark.parametrize("name", ROLLS)
def test_a_roll_by_far_numbers_is_as_in_eager(name: str) -> None:
    roll, x = ROLLS[name], torch.arange(12.0).view(3, 4)
    torch._dynamo.reset()
    compiled = torch.compile(roll, backend=assay, dynamic=True)
    for n in (3, LEAST, -2, LEAST + 1, FAR - 1, FAR, FAR + 1, GREATEST - 1, GREATEST):
        try:
            expected = roll(x, n)
        except (RuntimeError, ValueError) as error:
            with pytest.raises(type(error)):
                compiled(x, n)
        else:
            assert torch.equal(compiled(x, n), expected), n


TAKEN: dict[str, Callable[[Tensor, int], Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "rsub": torch.rsub,
    "div": torch.div,
    "divided": lambda x, n: n / x,
    "remainder": torch.remainder,
    "pow": torch.pow,
    "xlogy": torch.xlogy,
    "xlogy of a number": lambda x, n: torch.xlogy(n, x),
    "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "clamp": lambda x, n: torch.clamp(x, max=n),
    "where": lambda x, n: torch.where(x > 1, x, n),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "full": lambda x, n: x + torch.full_like(x, n),
    "twice as much": lambda x, n: x * (2 * n),
}


@pytest.mark.parametrize("name", TAKEN)
def test_an_integer_of_64_bits_without_a_sign_is_taken_as_in_eager(name: str) -> None:
    """Whatever integers were given before; and its gradient."""
    compiled = torch.compile(TAKEN[name], backend=assay, options={"fallback": "error"})
    for n in (3, GREATEST, GREATEST + 1, 2 * GREATEST + 1, 5):
        if name == "twice as much" and n > GREATEST:
            continue  # no number for eager
        found = []
        for function in (TAKEN[name], compiled):
            x = torch.tensor([1.5, 2.5, 0.5], requires_grad=True)
            result = function(x, n)
            found.append((result.detach(), *torch.autograd.grad(result.sum(), x)))
        torch.testing.assert_close(found[1], found[0], equal_nan=True, msg=lambda told, n=n: f"{n}: {told}")


def written_by_a_list(x: Tensor, n: int) -> Tensor:
    y = x * 1
    y[[n, 0]] = 7
    return y


IN_A_LIST: dict[str, Callable[[Tensor, int], Tensor]] = {
    "as_tensor": lambda x, n: torch.as_tensor([n, 1]) * 1,
    "tensor": lambda x, n: torch.tensor([[n, 0], [1, 2]]) + 0,
    "new_tensor": lambda x, n: x.new_tensor([n, 0], dtype=torch.int64),
    "index": lambda x, n: x[[n, 0]],
    "index beside none": lambda x, n: x[None, [n, 0]],
    "write": written_by_a_list,
}


@pytest.mark.parametrize("name", IN_A_LIST)
def test_a_number_in_a_list_is_all_of_its_bits(name: str) -> None:
    """Also beyond the 32 bits that torch keeps of a symbol in a list."""
    compiled = torch.compile(IN_A_LIST[name], backend=assay, options={"fallback": "error"})
    for n in (2, 1 << 31, -(1 << 31) - 1, (1 << 62) - 1, -(1 << 62) - 1, LEAST, GREATEST):
        found: list[object] = []
        for function in (IN_A_LIST[name], compiled):
            try:
                found.append(function(torch.arange(9.0), n).tolist())
            except IndexError:
                found.append("refused")
        assert found[0] == found[1], (n, found)


DRAWN: dict[str, Callable[[Tensor, int], Tensor]] = {
    "half": lambda x, n: x.clone().normal_(n * 0.5, 1),
    "whole": lambda x, n: x.clone().uniform_(n * 1.0, n * 1.0 + 1e19),
}


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("far", [GREATEST, GREATEST - 511, GREATEST - 512, LEAST])
def test_a_number_behind_a_far_one_is_drawn_around(name: str, far: int) -> None:
    """What is computed of a far number is guarded to be that float, also where a float of it is 2**63."""
    compiled = torch.compile(DRAWN[name], backend=assay, options={"fallback": "error"})
    for n in (1 << 31, far, 9, 10):
        found: list[Tensor] = []
        for function in (DRAWN[name], compiled):
            torch.manual_seed(0)
            found.append(function(torch.zeros(3), n))
        torch.testing.assert_close(found[1], found[0], msg=lambda told, n=n: f"{n}: {told}")
