"""What an input may be beside its dtype, shape and strides: every public door either does as eager does with it, or
raises an error of the compiler's own. The doors are called with plain inputs first, then with each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.entry.aot import aot_function, aot_module_simplified
from assay.compiler.entry.dynamo import compile_fx, compile_fx_inner
from assay.compiler.errors import AssayError

DTYPES = (torch.float32, torch.complex64)


class Marked(Tensor):
    """A subclass that keeps torch's own behaviour."""


def _whole() -> Tensor:
    return torch.arange(1, 19)


def _plain(dtype: torch.dtype) -> Tensor:
    return (_whole()[:6].to(dtype) * (1 + 2j if dtype.is_complex else 1)).view(2, 3).clone()


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "conj": lambda x: x.conj(),
    "neg": torch._neg_view,
    "conj and neg": lambda x: torch._neg_view(x.conj()),
    "offset": lambda x: torch.cat([x.flatten()] * 2)[1:7].view(2, 3),
    "unaligned": lambda x: torch.zeros(6 * x.element_size() + 8, dtype=torch.uint8)[x.element_size() :][
        : 6 * x.element_size()
    ].view(x.dtype).view(2, 3).copy_(x),
    "leaf": lambda x: x.requires_grad_(),
    "result": lambda x: x.requires_grad_().clone(),
    "parameter": nn.Parameter,
    "frozen parameter": lambda x: nn.Parameter(x, requires_grad=False),
    "zero": lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype),
    "subclass": lambda x: x.as_subclass(Marked),
    "sparse": lambda x: x.to_sparse(),
    "mkldnn": lambda x: x.to_mkldnn() if x.dtype is torch.float32 else x,
    "meta": lambda x: x.to("meta"),
    "view": lambda x: x.clone()[:],
    "detached": lambda x: x.detach(),
}  # fmt: skip


def _inference(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.clone()


KINDS["inference"] = _inference


def scaled(x: Tensor) -> tuple[Tensor, ...]:
    return (x * 2,)


def summed(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(0), (x + 1).abs()


def viewed(x: Tensor) -> tuple[Tensor, ...]:
    return x.view(-1), x + 1


def written(x: Tensor) -> tuple[Tensor, ...]:
    x.mul_(3)
    return (x + 1,)


PROGRAMS = (summed, viewed, written)
FUNCTIONAL = (scaled, summed)
Program = Callable[[Tensor], tuple[Tensor, ...]]
Flat = Callable[[Tensor], Sequence[Tensor]]


def _node_by_node(gm: fx.GraphModule, _: object) -> Callable[..., Any]:
    return gm.forward


class Called(nn.Module):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.program(x)


def by_compile_fx(program: Program, x: Tensor) -> Flat:
    return compile_fx(fx.symbolic_trace(program), [x])


def by_compile_fx_inner(program: Program, x: Tensor) -> Flat:
    run = compile_fx_inner(make_fx(program)(x), [x])
    return lambda value: run([value])


def by_aot_module_simplified(program: Program, x: Tensor) -> Flat:
    return aot_module_simplified(Called(program), [x], lambda gm, given: compile_fx_inner(gm, given))


def by_aot_function(program: Program, x: Tensor) -> Flat:
    return aot_function(program, lambda gm, given: compile_fx_inner(gm, given))


DOORS = (by_compile_fx, by_compile_fx_inner, by_aot_module_simplified, by_aot_function)


def _outcome(run: Flat, kind: str, dtype: torch.dtype) -> object:
    """What a call shows: its results, what its input holds afterwards and the gradient that it gets; or its error."""
    x = KINDS[kind](_plain(dtype))
    try:
        results = run(x)
    except AssayError as error:
        return error
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return type(error)
    if kind == "meta":
        return [(one.shape, one.device.type) for one in results]
    required = [one for one in results if one.requires_grad]
    if required:
        sum(one.abs().sum() for one in required).backward()  # type: ignore[union-attr]
    return [*map(_seen, results), _seen(x), len(required), _seen(x.grad) if x.is_leaf else None]


def _seen(value: Tensor | None) -> object:
    if value is None:
        return None
    dense = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
    numbers = torch.view_as_real((dense.resolve_conj().resolve_neg() + 0).to(torch.complex64)).round(decimals=3)
    return type(value), value.dtype, value.is_conj(), value.is_neg(), numbers.tolist()


def _differs(got: object, want: object, takes_history: bool) -> bool:
    if isinstance(got, AssayError) or got == want:
        return False
    if not takes_history and isinstance(got, list) and isinstance(want, list):
        return bool([one[1:] for one in got[:-3]] != [one[1:] for one in want[:-3]])
    return True


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_input_of_any_kind_is_taken_as_eager_takes_it(door: Callable[..., Flat], dtype: torch.dtype) -> None:
    programs = FUNCTIONAL if door is by_compile_fx_inner else PROGRAMS
    wrong = []
    for program in programs:
        run = door(program, _plain(dtype))
        run(_plain(dtype))
        for kind in KINDS:
            got, want = _outcome(run, kind, dtype), _outcome(program, kind, dtype)
            if _differs(got, want, door is not by_compile_fx_inner):
                wrong.append(f"{program.__name__} of {kind}: {got}, eager {want}")
    assert not wrong, "\n".join(wrong)


def multiplied(x: Tensor) -> tuple[Tensor, ...]:
    return (x @ x.transpose(0, 1),)


def test_plain_inputs_are_served_after_others() -> None:
    run = compile_fx(fx.symbolic_trace(scaled), [_plain(torch.complex64)])
    for kind in ("conj", "plain", "neg", "plain", "conj"):
        x = KINDS[kind](_plain(torch.complex64))
        torch.testing.assert_close(run(x)[0], (x * 2).resolve_conj().resolve_neg())


@pytest.mark.parametrize("door", [by_compile_fx, by_aot_module_simplified], ids=lambda door: door.__name__)
def test_a_call_in_another_mode_is_eagers(door: Callable[..., Flat]) -> None:
    with torch.no_grad():
        run = door(scaled, torch.ones(2, 3, requires_grad=True))
    x = torch.ones(2, 3, requires_grad=True)
    assert run(x)[0].requires_grad
    with torch.no_grad():
        assert not run(x)[0].requires_grad
    run = door(multiplied, x)
    assert run(x)[0].dtype is torch.float32
    with torch.autocast("cpu"):
        assert run(x)[0].dtype is torch.bfloat16
