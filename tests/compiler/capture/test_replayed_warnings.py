"""Functions of torch that warn in Python, and that a graph keeps whole: each call warns again, from the user's line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from assay.compiler.entry.aot import aot_function
from assay.compiler.entry.dynamo import compile_fx_inner

BATCH = torch.ones(3, 4)


Unary = Callable[[torch.Tensor], torch.Tensor]


def dropped(x: torch.Tensor) -> torch.Tensor:
    return F.dropout2d(x, 0.5, False) * 2


def compiled(function: Unary) -> Unary:
    torch._dynamo.reset()
    return torch.compile(function, backend="assay", options={"fallback": "error"})


def recorded_ahead(function: Unary) -> Unary:
    return aot_function(function, fw_compiler=compile_fx_inner)


@pytest.mark.parametrize("front", [compiled, recorded_ahead])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_warned_by_each_call(front: Callable[[Unary], Unary], requires_grad: bool) -> None:
    run, given = front(dropped), BATCH.clone().requires_grad_(requires_grad)
    run(given)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(given)
        (warning,) = caught
        assert warning.category is UserWarning and "Received a 2-D input to dropout2d" in str(warning.message)
        first = dropped.__code__.co_firstlineno
        assert (Path(warning.filename), warning.lineno) == (Path(__file__), first + 1)


@pytest.mark.parametrize("front", [compiled, recorded_ahead])
def test_warned_as_an_error_raises(front: Callable[[Unary], Unary]) -> None:
    run = front(dropped)
    run(BATCH)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Received a 2-D input"):
            run(BATCH)
    assert torch.equal(run(BATCH), BATCH * 2)


def test_warned_once_by_default() -> None:
    run = recorded_ahead(dropped)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            run(BATCH)
    assert len(caught) == 1


def test_warned_of_nothing_more() -> None:
    run = compiled(torch.sin)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            run(BATCH)
    assert [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)] == []


def test_warned_of_no_gradient_that_an_input_begins_to_have() -> None:
    """Recording asks autograd much of its inputs, also where a write makes one the result of a node."""

    def write(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return total.add_(x * 2)

    x = torch.ones(4, requires_grad=True)
    torch.set_warn_always(True)  # else this is said once in a process
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            aot_function(write, fw_compiler=compile_fx_inner)(x, torch.zeros(4)).sum().backward()
    finally:
        torch.set_warn_always(False)
    assert [str(warning.message) for warning in caught if "leaf" in str(warning.message)] == []


def test_warned_from_the_module_that_called() -> None:
    """A module's forward is the line that eager names, and so is it where it is called as it stands."""
    module, given = torch.nn.KLDivLoss(), (torch.zeros(3), torch.ones(3))
    run = recorded_ahead(module)
    run(*given)
    places = []
    for function in (module, run):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(*given)
        places.append([(warning.filename, warning.lineno, str(warning.message)) for warning in caught])
    assert places[0] == places[1] and len(places[0]) == 1


VARIANCES: dict[str, Unary] = {
    "std": lambda x: x.std(),
    "of rows": lambda x: x.var(0),
    "both": lambda x: torch.std_mean(x, 0, correction=5)[0],
    "none": lambda x: x.var(0, correction=0),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", VARIANCES)
def test_warned_of_no_degrees_of_freedom(name: str, dynamic: bool) -> None:
    program = VARIANCES[name]
    torch._dynamo.reset()
    run = torch.compile(program, backend="assay", dynamic=dynamic, options={"fallback": "error"})
    for size in (1, 1, 4, 4, 7, 0, 0):
        eager, ours = (_said(f, torch.ones(size)) for f in (program, run))
        assert eager == ours, size


def _said(function: Unary, x: torch.Tensor) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(x)
    return [str(one.message).split(" (Triggered")[0] for one in caught if issubclass(one.category, UserWarning)]
