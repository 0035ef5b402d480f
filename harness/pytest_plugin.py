"""A plugin for pytest: a team's own tests hold their functions to eager.

    pytest --assay-backend=inductor                      the backend; a name, or module:attribute

    def test_my_layer(same_as_eager):
        same_as_eager(my_layer, torch.randn(4, 8))

The fixture calls the function as `assay run` would: several times, with gradients where it has any, and compares all
that can be observed. The test fails where something differs, and shows what. Without the option it is held with
`eager`, Dynamo alone. `--assay-record=URL` keeps what was found in a store of runs.
"""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from assay.harness.backends.registry import BackendError, resolve
from assay.harness.case import Case
from assay.harness.judge import ledger
from assay.harness.outcome import Result
from assay.harness.report.documents import Row
from assay.harness.report.environment import environment
from assay.harness.run import run_case

SameAsEager = Callable[..., Result]
SHOWN = 5
DEFAULT = "eager"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("assay", "holding functions to eager")
    group.addoption("--assay-backend", default=DEFAULT, metavar="NAME", help="the backend of torch.compile to hold")
    group.addoption("--assay-record", default="", metavar="URL", help="keep what was found in this store of runs")


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--assay-backend")
    try:
        resolve(name) if name != DEFAULT else None
    except BackendError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture(scope="session")
def assay_record(request: pytest.FixtureRequest) -> Iterator[Callable[[Result], None]]:
    """Keeps results in the store of `--assay-record`; nowhere without it."""
    url = request.config.getoption("--assay-record")
    if not url:
        yield lambda result: None
        return
    store = importlib.import_module("assay.harness.remember.store").Store.open(url)
    run = store.begin(environment(), {"pytest": request.config.getoption("--assay-backend")})
    known, today = ledger.read(), datetime.date.today()
    yield lambda result: store.add(run, Row(result, ledger.judge(result, known, today)))
    store.end(run)


@pytest.fixture
def same_as_eager(request: pytest.FixtureRequest, assay_record: Callable[[Result], None]) -> SameAsEager:
    """Holds a function with its arguments to eager, on the backend of the command line."""
    name = request.node.nodeid.rpartition("/")[2].replace("::", ".")

    def hold(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Result:
        mode = "train" if _has_gradients(function, args, kwargs) else "infer"
        case = Case(name, lambda: (function, args, kwargs), (mode,), (), ("tiny",))
        result = run_case(case, mode, request.config.getoption("--assay-backend"), timed=False)
        assay_record(result)
        if result.verdict not in ("same", "fell-back"):
            pytest.fail(told(result), pytrace=False)
        return result

    return hold


def _has_gradients(function: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Whether the function's parameters or its arguments require gradients."""
    given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    own = list(function.parameters()) if isinstance(function, torch.nn.Module) else []
    return any(tensor.requires_grad for tensor in (*given, *own))


def told(result: Result) -> str:
    """What a failing test shows."""
    lines = [f"{each.field} at {each.path}: {each.detail}" for each in result.differences[:SHOWN]]
    return "\n".join([f"{result.backend}, {result.mode}: {result.verdict} {result.detail}".rstrip(), *lines])
