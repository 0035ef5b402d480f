"""Integers that change from call to call, in every place that takes one: `python -m assay.suites.changing_integers`.

    compiled(x, 2), compiled(x, 3), compiled(x, -1), compiled(x, -7), ...      each as eager, value or class of error

Torch makes a number that has changed symbolic: its sign and its range are guards, or are unknown to the compiler. No
number may have generated code read or write beside its memory, whatever it turns out to be. Positions take numbers far
beyond any size too; forms whose result grows with the number do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.suites.changing import main

Function = Callable[[Tensor, int], Tensor]
Observed = str | tuple[Tensor, Tensor | None]

NEAR = (2, 3, 1, -1, -2, 0, 4, -7, 9, -5, 5)
FAR = (2, 3, 1 << 31, -1, -(1 << 31), 1 << 40, -(1 << 62), (1 << 63) - 1, -(1 << 63))
RECOMPILES = 64


def _written(write: Callable[[Tensor, int], object]) -> Function:
    """What `write` makes of a copy of its tensor."""

    def f(x: Tensor, n: int) -> Tensor:
        y = x * 1
        write(y, n)
        return y * 2

    return f


def _set_select(y: Tensor, n: int) -> None:
    y[n] = -1


def _set_column(y: Tensor, n: int) -> None:
    y[:, n] = -1


def _set_from(y: Tensor, n: int) -> None:
    y[n:] = 7


def _set_until(y: Tensor, n: int) -> None:
    y[:n] *= 3


def _set_part(y: Tensor, n: int) -> None:
    y[: max(n, 0)] *= 3


def _set_window(y: Tensor, n: int) -> None:
    y[n : n + 2, 1:n] += 5


def _set_element(y: Tensor, n: int) -> None:
    y[n, n] = 3


def _set_at_data(y: Tensor, n: int) -> None:
    y[torch.tensor([0, 1]) + n] = 4


def _set_steps(y: Tensor, n: int) -> None:
    y[::n] = 4


def _at(n: int, *shape: int) -> Tensor:
    """An index that is the number everywhere, and data to the compiler."""
    return torch.full(shape, n, dtype=torch.int64)


def _of_one_number(x: Tensor, n: int) -> Tensor:
    """The tensor, from an operator for which Dynamo compiles a program for the very number."""
    return x.nan_to_num(posinf=n)


POSITIONS: dict[str, Function] = {
    "correction of a variance": lambda x, n: x.var(0, correction=n),
    "correction of a deviation": lambda x, n: (x * 2).std(1, correction=n, keepdim=True),
    "select": lambda x, n: x[n] * 2,
    "select of a column": lambda x, n: x[:, n] * 2,
    "select of an element": lambda x, n: x[n, n] * 2,
    "select before the last": lambda x, n: x[n - 1] + x[-n],
    "select of a transposed": lambda x, n: x.t()[n] * 2,
    "select of computed": lambda x, n: (x * 2)[n] + 1,
    "select twice": lambda x, n: x[n:][0] + x[:n][-1],
    "slice from": lambda x, n: x[n:] * 2,
    "slice until": lambda x, n: x[:n] * 2,
    "slice of columns": lambda x, n: x[:, n:] * 2,
    "slice of computed": lambda x, n: (x * 2)[n:].sum(0),
    "slice window": lambda x, n: x[n : n + 2] * 2,
    "slice back": lambda x, n: x[n - 2 : n] * 2,
    "slice negated": lambda x, n: x[-n:] * 2,
    "slice beside a slice": lambda x, n: x[n:, :n] * 2,
    "slice of a slice": lambda x, n: x[1:][n:] * 2,
    "slice, as it is": lambda x, n: x[n:],
    "slice from a difference": lambda x, n: x[x.shape[0] - n :] * 2,
    "slice until a product": lambda x, n: x[: n * 2] * 2,
    "slice from a difference, of one number": lambda x, n: x[x.shape[0] - n :] * _of_one_number(x, n)[:1],
    "slice until a sum, of one number": lambda x, n: x[: n + 1] * _of_one_number(x, n)[:1],
    "comparison with a product, of one number": lambda x, n: (x == n * 2) * _of_one_number(x, n),
    "clamp at a product, of one number": lambda x, n: x.clamp(max=n * 2) * _of_one_number(x, n),
    "slice by steps": lambda x, n: x[::n] * 2,
    "slice from, by steps": lambda x, n: x[n::2] * 2,
    "write select": _written(_set_select),
    "write column": _written(_set_column),
    "write from": _written(_set_from),
    "write until": _written(_set_until),
    "write window": _written(_set_window),
    "write element": _written(_set_element),
    "write by data": _written(_set_at_data),
    "write by steps": _written(_set_steps),
    "list": lambda x, n: x[[n, 0]] * 2,
    "data": lambda x, n: x[_at(n, 3)] * 2,
    "data and data": lambda x, n: x[_at(n, 3), _at(n, 3)] * 2,
    "select method": lambda x, n: x.select(1, n) * 2,
    "narrow": lambda x, n: x.narrow(0, n, 1) * 2,
    "narrow length": lambda x, n: x.narrow(0, 1, n) * 2,
    "index_select": lambda x, n: x.index_select(0, _at(n, 2)) * 2,
    "index_fill": lambda x, n: x.index_fill(0, _at(n, 2), 3.0) * 2,
    "index_add": lambda x, n: x.index_add(0, _at(n, 2), x[:2] * 2),
    "index_copy": lambda x, n: x.index_copy(0, _at(n, 1), x[:1] * 2),
    "index_put": lambda x, n: x.index_put((_at(n, 2),), x[0] * 2, accumulate=True),
    "gather": lambda x, n: x.gather(1, _at(n, 5, 2)) * 2,
    "take": lambda x, n: x.take(_at(n, 3)) * 2,
    "take_along_dim": lambda x, n: torch.take_along_dim(x, _at(n, 5, 1), 1) * 2,
    "scatter": lambda x, n: x.scatter(1, _at(n, 5, 1), x[:, :1] * 2),
    "scatter_add": lambda x, n: x.scatter_add(1, _at(n, 5, 1), x[:, :1] * 2),
    "scatter_reduce": lambda x, n: x.scatter_reduce(1, _at(n, 5, 1), x[:, :1] * 2, "amax"),
    "select_scatter": lambda x, n: x.select_scatter(x[0] * 2, 0, n),
    "slice_scatter": lambda x, n: x.slice_scatter(x[n:] * 2, 0, n),
    "slice_scatter until": lambda x, n: x.slice_scatter(x[:n] * 2, 0, 0, n),
    "diagonal": lambda x, n: x.diagonal(n) * 2,
    "diagonal_scatter": lambda x, n: x.diagonal_scatter(x.diagonal(n) * 2, n),
    "tril": lambda x, n: x.tril(n) * 2,
    "triu": lambda x, n: x.triu(n) * 2,
    "as_strided": lambda x, n: (x * 1).as_strided((2, 2), (4, 1), n) * 2,
    "roll": lambda x, n: x.roll(n, 0) * 2,
    "roll flat": lambda x, n: x.roll(n) * 2,
    "roll both": lambda x, n: x.roll((n, -n), (0, 1)) * 2,
    "unfold": lambda x, n: x.unfold(0, 2, n) * 2,
    "unfold size": lambda x, n: x.unfold(0, n, 1) * 2,
    "embedding": lambda x, n: F.embedding(_at(n, 3), x) * 2,
    "embedding with padding": lambda x, n: F.embedding(_at(n, 3), x, padding_idx=1) * 2,
    "embedding_bag": lambda x, n: F.embedding_bag(_at(n, 2, 3), x, mode="sum") * 2,
    "cross_entropy": lambda x, n: F.cross_entropy(x, _at(n, 5)),
    "nll_loss": lambda x, n: F.nll_loss(x.log_softmax(1), _at(n, 5)),
    "one_hot": lambda x, n: F.one_hot(_at(n, 2), 4) * x[:2],
    "flip": lambda x, n: x.flip(n) * 2,
    "transpose": lambda x, n: x.transpose(0, n) * 2,
    "movedim": lambda x, n: x.movedim(0, n) * 2,
    "unsqueeze": lambda x, n: x.unsqueeze(n) * 2,
    "squeeze": lambda x, n: x[:1].squeeze(n) * 2,
    "sum": lambda x, n: x.sum(n) * 2,
    "softmax": lambda x, n: x.softmax(n) * 2,
    "cumsum": lambda x, n: x.cumsum(n) * 2,
    "sort": lambda x, n: x.sort(n).values * 2,
    "cat": lambda x, n: torch.cat([x, x * 2], n),
    "stack": lambda x, n: torch.stack([x, x * 2], n),
    "unbind": lambda x, n: x.unbind(0)[n] * 2,
    "rot90": lambda x, n: x.rot90(n) * 2,
    "topk": lambda x, n: x.topk(n).values * 2,
    "kthvalue": lambda x, n: x.kthvalue(n).values * 2,
    "item of a shape": lambda x, n: x * x.shape[n],
    "range beside": lambda x, n: x * (torch.arange(4) + n),
    "compared with a range": lambda x, n: torch.where(torch.arange(5)[:, None] < n, x, -x),
    "product": lambda x, n: x * n + n,
    "floor division": lambda x, n: x * (n // 2) + n % 3,
    "greatest": lambda x, n: x * max(n, 1) + min(n, 3),
    "slice from a remainder": lambda x, n: x[n % 3 :] * 2,
    "clamp at a sum": lambda x, n: x.clamp(max=n - 1) * 2,
    "factor of a product": lambda x, n: x.add(x, alpha=n * 2),
    "sum with a product": lambda x, n: x + n * 3,
    "negated factor": lambda x, n: torch.addcmul(x, x, x, value=-n),
    "fill with a sum": lambda x, n: x.masked_fill(x > 0, n + 1) * 2,
    "range beside a product": lambda x, n: x * (torch.arange(4) + n * 2),
    "position by arithmetic": lambda x, n: x[n % 5] + x[(n // 2) % 5],
    "part": lambda x, n: x[: max(n, 0)] * x[: max(n, 0)],
    "part of columns": lambda x, n: x[:, : max(n, 0)].exp(),
    "part and what it is of": lambda x, n: (x[: max(n, 0)] * 2).sum() + x * 2,
    "rows of a part": lambda x, n: x[:, : max(n, 0)].sum(1) * 2,
    "softmax of a part": lambda x, n: x[:, : max(n, 0)].softmax(1) * 2,
    "running sums of a part": lambda x, n: x[:, : max(n, 0)].cumsum(1) * 2,
    "order of a part": lambda x, n: x[:, : max(n, 0)].sort(1).values * 2,
    "roll of a part": lambda x, n: x[: max(n, 0)].roll(1, 0) * 2,
    "flip of a part": lambda x, n: x[: max(n, 0)].flip(0) * 2,
    "padded part": lambda x, n: F.pad(x[:, : max(n, 0)] * 2, (1, 2), value=3.0) * 2,
    "part before a tensor": lambda x, n: torch.cat([x[: max(n, 0)] * 2, x]) * 2,
    "part behind a tensor": lambda x, n: torch.cat([x, x[:, : max(n, 0)] * 2], 1) * 2,
    "two parts": lambda x, n: torch.cat([x[: max(n, 0)] * 2, x[max(n, 0) :] * 3]) * 2,
    "part on a diagonal": lambda x, n: (x[0, : max(n, 0)] * 2).diag_embed(1) * 2,
    "diagonal of a part": lambda x, n: x[:, : max(n, 0)].diagonal() * 2,
    "part put into a tensor": lambda x, n: x.slice_scatter(x[: max(n, 0)] * 2, 0, 0, max(n, 0)) * 2,
    "part put on a diagonal": lambda x, n: x.diagonal_scatter(x.diagonal(max(n, 0)) * 2, max(n, 0)) * 2,
    "write a part": _written(_set_part),
    "product with a part": lambda x, n: x[:, : max(n, 0)] @ x[:, : max(n, 0)].t() * 2,
    "windows of a part": lambda x, n: F.pad(x[: max(n, 0)] * 2, (0, 0, 2, 0)).unfold(0, 2, 1) * 2,
    "lookup in a part": lambda x, n: x[: max(n, 0)][_at(0, 2)] * 2,
    "chunk": lambda x, n: torch.cat([part * 2 for part in x.chunk(n)]),
    "chunk of columns": lambda x, n: torch.cat([part * 2 for part in torch.unsafe_chunk(x, n, 1)], 1),
    "split": lambda x, n: torch.cat([part * 2 for part in x.split(n)]),
    "split in two": lambda x, n: x.split([n, 5 - n])[1] * 2,
    "tensor_split at": lambda x, n: x.tensor_split([n], 0)[0] * 2,
    "arange by steps": lambda x, n: torch.arange(0, 5, n) + x[:1, :1],
    "arange of a few": lambda x, n: torch.arange(n, n + 3) + x[:3, :3],
    "arange of a few floats": lambda x, n: torch.arange(n, n + 3, dtype=torch.float64) + x[:3, :3],
    "arange by long steps": lambda x, n: torch.arange(0, n, max(abs(n // 2), 1)).sum() + x,
    "arange across zero": lambda x, n: torch.arange(-n, n, n).sum() + x,
}
"""Forms with a number that is a position or a value: those that are far out of range are refused, or clamped."""

SIZES: dict[str, Function] = {
    "pad": lambda x, n: F.pad(x, (n, 1)) * 2,
    "pad both": lambda x, n: F.pad(x, (1, n, n, 2)) * 2,
    "pad reflect": lambda x, n: F.pad(x[None], (n, 1), mode="reflect") * 2,
    "pad replicate": lambda x, n: F.pad(x[None], (1, n), mode="replicate") * 2,
    "pad circular": lambda x, n: F.pad(x[None], (n, 0), mode="circular") * 2,
    "diag_embed": lambda x, n: x.diag_embed(n) * 2,
    "repeat": lambda x, n: x.repeat(n, 1) * 2,
    "tile": lambda x, n: x.tile(n) * 2,
    "repeat_interleave": lambda x, n: x.repeat_interleave(n, 0) * 2,
    "repeat_interleave by data": lambda x, n: x.repeat_interleave(_at(n, 5), 0) * 2,
    "expand": lambda x, n: x[:1].expand(n, 4) * 2,
    "tensor_split": lambda x, n: x.tensor_split(n)[0] * 2,
    "view": lambda x, n: x.view(n, -1) * 2,
    "reshape": lambda x, n: x[:4].reshape(-1, n) * 2,
    "unflatten": lambda x, n: x.unflatten(1, (n, -1)) * 2,
    "zeros": lambda x, n: torch.zeros(n, 4) + x[:1],
    "arange": lambda x, n: torch.arange(n) + x[:1, :1],
    "arange from": lambda x, n: torch.arange(n, 5) + x[:1, :1],
    "linspace": lambda x, n: torch.linspace(0, 1, n) + x[:1, :1],
    "eye": lambda x, n: torch.eye(n, 4) + x[:1],
    "one_hot classes": lambda x, n: F.one_hot(_at(1, 2), n) + x[:2, :1],
    "interpolate": lambda x, n: F.interpolate(x[None], size=n) * 2,
    "interpolate linear": lambda x, n: F.interpolate(x[None], size=n, mode="linear") * 2,
    "adaptive_avg_pool": lambda x, n: F.adaptive_avg_pool1d(x[None], n) * 2,
    "avg_pool": lambda x, n: F.avg_pool1d(x[None], n) * 2,
    "avg_pool stride": lambda x, n: F.avg_pool1d(x[None], 2, n) * 2,
    "max_pool": lambda x, n: F.max_pool1d(x[None], n) * 2,
    "max_pool padding": lambda x, n: F.max_pool1d(x[None], 4, 1, n) * 2,
    "image to columns": lambda x, n: F.unfold(x[None, None], (n, 2)) * 2,
    "power": lambda x, n: x**n,
    "matrix_power": lambda x, n: x[:4].matrix_power(n),
    "clamp": lambda x, n: x.clamp(n, 3) * 2,
    "remainder": lambda x, n: x % n,
    "whole division": lambda x, n: x.to(torch.int64) // n + x,
    "shift left": lambda x, n: (x.to(torch.int64) << n) + x,
    "shift right": lambda x, n: (x.to(torch.int64) >> n) + x,
    "to integers": lambda x, n: (x * 0 + n * 50.5).to(torch.int32) + x,
}
"""Forms whose result grows with the number."""


OVERFLOWS = "eager's own sums of the number and a size overflow 64 bits, and it says so"
EXCUSED = {
    "slice by steps": OVERFLOWS,
    "write by steps": OVERFLOWS,
    "roll": OVERFLOWS,
    "roll both": OVERFLOWS,
    "list": "torch keeps 32 bits: suites/upstream_bugs/list_keeps_32_bits_of_a_symbolic_integer.py",
}
"""Forms that are not as eager for numbers of more than 32 bits, and why."""


@dataclass(frozen=True, slots=True)
class Difference:
    form: str
    n: int
    wanted: object
    got: object

    def __str__(self) -> str:
        return f"{self.form}, n = {self.n}: eager {self.wanted}, compiled {self.got}"


def differences(form: str, function: Function, numbers: tuple[int, ...], dynamic: bool | None) -> list[Difference]:
    """Where a compiled form is not as eager, called with each of the numbers in turn, and Dynamo alone is."""
    wanted = [_observed(function, n) for n in numbers]
    got = _called("assay", function, numbers, dynamic)
    found = [Difference(form, *three) for three in zip(numbers, wanted, got, strict=True) if not _is_same(*three[1:])]
    if not found:
        return []
    alone = dict(zip(numbers, _called("eager", function, numbers, dynamic), strict=True))
    return [one for one in found if not (_is_same(alone[one.n], one.got) or _is_excused(one))]


def _is_excused(difference: Difference) -> bool:
    return difference.form in EXCUSED and abs(difference.n) > 1 << 32


def _called(backend: str, function: Function, numbers: tuple[int, ...], dynamic: bool | None) -> list[Observed]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=RECOMPILES):
        compiled = torch.compile(function, backend=backend, dynamic=dynamic)
        return [_observed(compiled, n) for n in numbers]


def _observed(function: Function, n: int) -> Observed:
    """The result with its gradient for ones, which have memory of their own, or the class of the error."""
    x = torch.linspace(-3, 4, 20).reshape(5, 4).requires_grad_()
    try:
        y = function(x, n)
        if y.requires_grad:
            y.backward(torch.ones_like(y))
        return y.detach(), x.grad
    except Exception as error:
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def _is_same(wanted: object, got: object) -> bool:
    if isinstance(wanted, str) or isinstance(got, str):
        return wanted == got
    assert isinstance(wanted, tuple) and isinstance(got, tuple)
    return all(_is_same_tensor(a, b) for a, b in zip(wanted, got, strict=True))


def _is_same_tensor(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    is_alike = a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
    return is_alike and torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


@dataclass(frozen=True, slots=True)
class Run:
    """One form with its numbers and how they are compiled."""

    form: str
    function: Function
    numbers: tuple[int, ...]
    dynamic: bool | None

    @property
    def name(self) -> str:
        shown = {None: "automatic", True: "dynamic", False: "static"}[self.dynamic]
        return f"{self.form}/{'far' if self.numbers is FAR else 'near'}/{shown}"

    def differences(self) -> list[Difference]:
        return differences(self.form, self.function, self.numbers, self.dynamic)


def runs() -> Iterator[Run]:
    for form, function in (POSITIONS | SIZES).items():
        for numbers in (NEAR, FAR) if form in POSITIONS else (NEAR,):
            yield from (Run(form, function, numbers, dynamic) for dynamic in (None, True, False))


if __name__ == "__main__":
    raise SystemExit(main(runs()))
