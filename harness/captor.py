"""A plugin for pytest that takes note of what a test hands to the fixture `same_as_eager`, and checks nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from assay.harness.case import Made
    from assay.harness.outcome import Result


class Captor:
    """Keeps the first call, and ends the test there."""

    def __init__(self) -> None:
        self.call: Made | None = None

    def hold(self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result:
        """What the fixture calls, as of a `Holder`."""
        self.call = self.call or (function, tuple(args), dict(kwargs))
        pytest.skip("what it hands over is known")


def captor_of(config: pytest.Config) -> Captor | None:
    """The captor of a run of pytest; None in an ordinary run."""
    return next((plugin for plugin in config.pluginmanager.get_plugins() if isinstance(plugin, Captor)), None)
