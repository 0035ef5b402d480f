"""A plugin for pytest that takes note of what a test hands to the fixture `same_as_eager`, and checks nothing."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from assay.harness.case import Made
    from assay.harness.outcome import Result


CALL = re.compile(r" \(call (\d+)\)$")


@dataclass(frozen=True, slots=True)
class Test:
    """A test that uses the fixture: how pytest calls it, and its file."""

    __test__ = False
    name: str
    path: Path


def name_of(test: str, number: int) -> str:
    """What a call of the fixture is called: as its test, the first one. `tests/test_mine.py::test_it (call 2)`"""
    return test if number == 1 else f"{test} (call {number})"


def test_and_number(name: str) -> tuple[str, int]:
    """The test that a name is of, and the number of its call."""
    found = CALL.search(name)
    return (name[: found.start()], int(found[1])) if found else (name, 1)


class Captor:
    """Keeps the call of that number, and ends the test there. Those before it are taken to be as eager."""

    def __init__(self, number: int = 1) -> None:
        self.call: Made | None = None
        self._left = number

    def hold(self, test: Test, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result:
        """What the fixture calls, as of a `Holder`."""
        self._left -= 1
        if self._left > 0:
            return importlib.import_module("assay.harness.outcome").Result(test.name, "", "", "same")  # type: ignore[no-any-return]
        self.call = self.call or (function, tuple(args), dict(kwargs))
        pytest.skip("what it hands over is known")


def captor_of(config: pytest.Config) -> Captor | None:
    """The captor of a run of pytest; None in an ordinary run."""
    return next((plugin for plugin in config.pluginmanager.get_plugins() if isinstance(plugin, Captor)), None)
