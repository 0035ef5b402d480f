"""Torch's own checks of gradients, on a compiled program, with what they say of the program in eager as reference.

    first order     torch.autograd.gradcheck        its gradients against differences of its results
    second order    torch.autograd.gradgradcheck    the same of the gradients

One compiled callable serves all orders. The verdict is the first of these that applies:

    no-oracle      the program cannot be made or copied, or fails every check in eager
    unsupported    the backend declined the program
    crash          the backend raised something where eager's check passes
    diverged       a check fails that passes in eager; `differences` has the order, and what the check says
    no-oracle      one order fails in eager too, the other passes
    same

A check calls the program many times; each call begins from the same state of the generator, so what it draws is a
constant. The exact mode compares every element of the Jacobian, the fast mode one random projection of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.utils import _pytree as pytree

from assay.harness.backends import registry as backends
from assay.harness.backends.registry import Backend
from assay.harness.calls.clone import Call, CloneError, copy_call
from assay.harness.case import Case
from assay.harness.observe.observation import Raised
from assay.harness.outcome import Difference, Result
from assay.harness.run import CaseError, compiled_by, first_lines, made_call, verdict_of_error

FIELDS = ("gradient", "second gradient")
"""What a failing check of each order is called among the differences."""
EXACT_ELEMENTS = 60
"""Up to so many elements that gradients are taken with respect to, the check is exact where nothing else is said."""
SHOWN_LINES = 12


@dataclass(frozen=True, slots=True)
class Checks:
    """What is checked, and how. `is_fast`: None for what the number of elements says. `nondeterminism`: by how much
    two backwards of one forward may differ."""

    orders: int = 2
    is_fast: bool | None = None
    nondeterminism: float = 0.0

    def judge(self, case: Case, backend: Backend, seed: int) -> Result:
        """The row of a case on a backend. What the case or the backend raises is a verdict."""
        (mode,) = case.modes
        torch._dynamo.reset()
        try:
            made = made_call(case, "tiny", seed, "cpu")
            calls = (copy_call(made), copy_call(made))
        except (CaseError, CloneError) as error:
            return Result(case.name, mode, backend.name, "no-oracle", detail=str(error))
        before = backends.statistics(backend.name)
        try:
            verdict, detail, differences = self._verdict(*calls, backend, seed)
        finally:
            torch._dynamo.reset()
        counted = backends.counted_since(before, backends.statistics(backend.name))
        return Result(
            case.name,
            mode,
            backend.name,
            verdict,
            differences,
            nodes=counted.nodes,
            nodes_generated=counted.nodes_generated,
            fallbacks=counted.fallbacks,
            detail=detail,
            eager=counted.eager,
        )

    def _verdict(self, eager: Call, ours: Call, backend: Backend, seed: int) -> tuple[str, str, tuple[Difference, ...]]:
        """The verdict, its detail, and what differs."""
        failing = [self._failure(order, eager, eager.function, seed) for order in range(self.orders)]
        told = [f"eager rejects the {FIELDS[order]} itself: {_said(error)}"
                for order, error in enumerate(failing) if error is not None]  # fmt: skip
        differences = []
        with backend.ambient():
            compiled = compiled_by(backend, ours.function)
            for order in (order for order, error in enumerate(failing) if error is None):
                error = self._failure(order, ours, compiled, seed)
                if isinstance(error, GradcheckError):
                    differences.append(Difference(FIELDS[order], "output", self._told(order, ours, error)))
                elif error is not None:
                    return *verdict_of_error(1, Raised(error, FIELDS[order])), ()
        if differences:
            return "diverged", "; ".join(told), tuple(differences)
        return ("no-oracle" if told else "same"), "; ".join(told), ()

    def _failure(self, order: int, call: Call, function: Callable[..., Any], seed: int) -> Exception | None:
        """What the check of one order raises of a function called as `call` says; None where it passes."""
        given, fill = _open(call)

        def results(*values: Tensor) -> tuple[Tensor, ...]:
            torch.manual_seed(seed)
            args, kwargs = fill(values)
            return tuple(_tensors(function(*args, **kwargs)))

        more: dict[str, Any] = {"gen_non_contig_grad_outputs": False} if order else {}
        torch.manual_seed(seed)
        try:
            (gradcheck, gradgradcheck)[order](
                results,
                given,
                nondet_tol=self.nondeterminism,
                fast_mode=self._is_fast(given),
                check_grad_dtypes=True,
                **more,
            )
        except Exception as error:
            return error
        return None

    def _is_fast(self, given: Sequence[Tensor]) -> bool:
        return sum(value.numel() for value in given) > EXACT_ELEMENTS if self.is_fast is None else self.is_fast

    def _told(self, order: int, call: Call, error: GradcheckError) -> str:
        name = (gradcheck, gradgradcheck)[order].__name__
        mode = "fast" if self._is_fast(_open(call)[0]) else "exact"
        return f"{name} ({mode} mode) passes in eager; here: {_said(error)}"


def _open(call: Call) -> tuple[tuple[Tensor, ...], Callable[[Sequence[Tensor]], tuple[Any, Any]]]:
    """The tensors that gradients are taken with respect to, and the arguments with others in their place."""
    leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
    places: dict[int, Tensor] = {
        id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad and leaf.numel()
    }

    def fill(values: Sequence[Tensor]) -> tuple[Any, Any]:
        now = dict(zip(places, values, strict=True))
        args, kwargs = pytree.tree_unflatten([now.get(id(leaf), leaf) for leaf in leaves], spec)
        return args, kwargs

    return tuple(places.values()), fill


def _tensors(result: object) -> Iterator[Tensor]:
    return (leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))


def _said(error: Exception) -> str:
    """The class of an error, and the beginning of its message."""
    if not isinstance(error, GradcheckError):
        return f"{type(error).__name__}: {first_lines(error)}"
    lines = [line.strip() for line in str(error).strip().splitlines()]
    return " ".join(line for line in lines[:SHOWN_LINES] if line)
