"""A plugin for pytest: a team's own tests hold their functions to eager.

    pytest --assay-backend=inductor                      the backend; a name, or module:attribute

    def test_my_layer(same_as_eager):
        same_as_eager(my_layer, torch.randn(4, 8))

The fixture calls the function as `assay run` would: several times, with gradients where it has any, and compares all
that can be observed. The test fails where something differs, and shows what. Without the option it is held with
`eager`, Dynamo alone.

A call that is not done after `--assay-timeout=S` fails its test, and shows where it was. What hangs in compiled code,
or ends the process, does so in a process of its own with `--assay-isolate`: only its test fails.

`--assay-record=URL` keeps what was found in a store of runs. There a test is called as pytest calls it, and its second
call of the fixture is `NAME (call 2)`. `assay ladder`, `bisect`, `shrink` and `repro` take that name.

pytest loads this file in every run of an environment with Assay in it, so torch is loaded by the first test that asks.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from assay.harness.captor import Captor, Test, captor_of

if TYPE_CHECKING:
    from assay.harness.held_by_pytest import Holder
    from assay.harness.outcome import Result

    SameAsEager = Callable[..., Result]

DEFAULT = "eager"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("assay", "holding functions to eager")
    group.addoption("--assay-backend", default=DEFAULT, metavar="NAME", help="the backend of torch.compile to hold")
    group.addoption("--assay-timeout", type=float, default=300.0, metavar="S", help="seconds that a call may take")
    group.addoption("--assay-isolate", action="store_true", help="hold each call in a process of its own")
    group.addoption("--assay-record", default="", metavar="URL", help="keep what was found in this store of runs")


def pytest_configure(config: pytest.Config) -> None:
    """Raises: pytest.UsageError for a backend that torch does not have, or that this machine cannot run."""
    name = config.getoption("--assay-backend")
    if name != DEFAULT and (reason := _holding().why_not(name)):
        raise pytest.UsageError(reason)


@pytest.fixture(scope="session")
def assay_holder(request: pytest.FixtureRequest) -> Iterator[Holder | Captor]:
    """What holds functions to eager, on the backend and into the store that the command line names."""
    if (captor := captor_of(request.config)) is not None:
        yield captor
        return
    options = request.config.getoption
    wanted = _holding().Wanted(options("--assay-backend"), options("--assay-timeout"), options("--assay-isolate"))
    with _holding().Holder.open(wanted, options("--assay-record")) as holder:
        yield holder


@pytest.fixture
def same_as_eager(request: pytest.FixtureRequest, assay_holder: Holder | Captor) -> SameAsEager:
    """Holds a function with its arguments to eager, on the backend of the command line."""

    def hold(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Result:
        result = assay_holder.hold(Test(request.node.nodeid, request.node.path), function, args, kwargs)
        if result.verdict not in ("same", "fell-back"):
            pytest.fail(_holding().told(result), pytrace=False)
        return result

    return hold


def _holding() -> Any:
    return importlib.import_module("assay.harness.held_by_pytest")
