"""How a row of the zoo becomes a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.harness.case import SIZES, Case, Made, case
from assay.suites.zoo.feeds import Feed

Settings = Mapping[str, Any]


def model(
    architecture: Callable[..., Any],
    configuration: Any,
    feed: Callable[[Any, str], Feed],
    *,
    tags: tuple[str, ...],
    tiny: Settings,
    small: Settings,
    full: Settings,
    always: Settings | None = None,
) -> Case:
    """One architecture as a case, named by its configuration: random weights, and the inputs that `feed` makes.

    The configuration is `configuration(**always, **of_the_size)`; what a row leaves out of `full` is as published.
    """
    settings = {"tiny": tiny, "small": small, "full": full}

    def make(size: str) -> Made:
        config = configuration(**(always or {}), **settings[size])
        return architecture(config), (), feed(config, size)

    return case(name=configuration.model_type, tags=tags, sizes=SIZES)(make)
