"""Faults that show only in what autograd and the caller keep of a call: each is found, and by its own field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.compiler.codegen.call import epilogue
from assay.harness.backends.registry import Backend, resolve
from assay.harness.case import Case, Made
from assay.harness.case import case as declare
from assay.harness.outcome import Result
from assay.harness.run import RunRequest, run_case

Function = Callable[..., Any]
Scenario = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """A program, what a wrong compiler makes of it, and the fields in which that shows."""

    program: Function
    wrong: Callable[[Function], Function]
    found: frozenset[str]
    tags: tuple[str, ...] = ("bookkeeping",)
    mode: str = "infer"
    scenario: Scenario | None = None
    inputs: Callable[[], tuple[Tensor, ...]] = lambda: (torch.arange(1.0, 5.0).view(1, 4),)


def ran(fault: Fault, backend: Backend, tags: tuple[str, ...] | None = None) -> Result:
    def made() -> Made:
        return fault.program, fault.inputs(), {}

    case: Case = declare(name="program", tags=fault.tags if tags is None else tags, scenario=fault.scenario)(made)
    return run_case(case, fault.mode, backend, RunRequest(timed=False))


def after(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    return lambda function: lambda *args: change(function(*args))


def doubled(x: Tensor) -> Tensor:
    return x * 2


def writes_twice(x: Tensor) -> Tensor:
    return x.add_(1).mul_(2) * 1


def as_one_write(function: Function) -> Function:
    def call(x: Tensor) -> Tensor:
        version = x._version
        result: Tensor = function(x)
        torch._C._autograd._unsafe_set_version_counter((x,), (version + 1,))
        return result

    return call


def view_of_an_intermediate(x: Tensor) -> Tensor:
    return (x * 2)[0]


def conjugate(x: Tensor) -> Tensor:
    return (x * 2j).conj()


def turns_gradients_off(x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    return x * 2


def leaves_the_mode(function: Function) -> Function:
    def call(x: Tensor) -> Any:
        mode = torch.is_grad_enabled()
        result = function(x)
        torch.set_grad_enabled(mode)
        return result

    return call


def frees_the_second(x: Tensor, y: Tensor) -> Tensor:
    y.untyped_storage().resize_(0)
    return x * 2


def keeps_the_memory(function: Function) -> Function:
    return lambda x, y: x * 2


def in_inference_mode(f: Function, x: Tensor) -> Tensor:
    with torch.inference_mode():
        result: Tensor = f(x)
        return result


def outside_inference_mode(function: Function) -> Function:
    def call(x: Tensor) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            return function(x.clone())

    return call


def writes_its_result(f: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    y = f(x)
    y.add_(1)
    return x, y


def first_row(x: Tensor) -> Tensor:
    return x[0]


def two_leaves() -> tuple[Tensor, ...]:
    return torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)


def two_tensors() -> tuple[Tensor, ...]:
    return torch.ones(3), torch.ones(3)


def product_of_two(x: Tensor, y: Tensor) -> Tensor:
    return x * y


def backwards_in_turn(function: Function) -> Function:
    """Autograd reaches the leaves in the other order."""
    return lambda x, y: y * x


FAULTS = {
    "stride_of_a_single_row": Fault(
        doubled, after(lambda y: torch.empty_strided((1, 4), (9, 1)).copy_(y)), frozenset({"stride"})
    ),
    "two_writes_count_as_one": Fault(writes_twice, as_one_write, frozenset({"version"})),
    "no_view": Fault(view_of_an_intermediate, after(lambda y: y.clone()), frozenset({"view"})),
    "conjugate_made": Fault(conjugate, after(lambda y: y.resolve_conj()), frozenset({"conj", "view"})),
    "grad_mode_kept": Fault(turns_gradients_off, leaves_the_mode, frozenset({"ambient"}), (), "train"),
    "memory_kept": Fault(frees_the_second, keeps_the_memory, frozenset({"is_allocated"}), (), inputs=two_tensors),
    "no_inference_tensor": Fault(
        doubled, outside_inference_mode, frozenset({"is_inference"}), (), scenario=in_inference_mode
    ),
    "caller_writes_a_copy": Fault(
        first_row,
        after(lambda y: y.clone()),
        frozenset({"mutation", "values", "version", "alias", "earlier"}),
        (),
        scenario=writes_its_result,
    ),
    "hooks_out_of_order": Fault(
        product_of_two, backwards_in_turn, frozenset({"hooks"}), ("hooks",), "train", inputs=two_leaves
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_bookkeeping_faults_are_found(fault: Fault) -> None:
    result = ran(fault, Backend("wrong", fault.wrong))
    assert result.verdict == "diverged", (result.verdict, result.detail)
    assert {found.field for found in result.differences} == fault.found, result.differences
    assert ran(fault, Backend("right", lambda function: function)).verdict == "same"


@pytest.mark.parametrize("name", ["stride_of_a_single_row", "two_writes_count_as_one", "no_view"])
def test_bookkeeping_is_compared_only_where_it_is_asked(name: str) -> None:
    assert ran(FAULTS[name], Backend("wrong", FAULTS[name].wrong), tags=()).verdict == "same"


def test_fault_of_the_compiler_is_found_without_dynamo(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(writes_twice, lambda function: function, frozenset({"version"}))
    assert ran(fault, resolve("assay-aot")).verdict == "same"
    monkeypatch.setattr(epilogue, "bump_version", lambda tensor, by: None)
    assert {found.field for found in ran(fault, resolve("assay-aot")).differences} == {"version"}


def test_fault_of_symbolic_sizes_is_found_with_them_alone() -> None:
    fault = Fault(doubled, lambda function: function, frozenset(), ())
    backend = "tests.wrong_backends:doubles_with_symbols"
    assert ran(fault, resolve(backend)).verdict == "fell-back", "it hands the graph back as it is"
    found = ran(fault, resolve(f"{backend},dynamic"))
    assert (found.verdict, {each.field for each in found.differences}) == ("diverged", {"values"})
