"""How a row of the zoo becomes a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.harness.case import SIZES, Case, Made, case
from assay.suites.zoo.feeds import Feed

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The settings of a model's configuration: those of each size, and those that are `always` the same."""

    tiny: Settings
    small: Settings
    full: Settings
    always: Settings = field(default_factory=dict)

    def of(self, size: str) -> dict[str, Any]:
        settings: dict[str, Settings] = {"tiny": self.tiny, "small": self.small, "full": self.full}
        return {**self.always, **settings[size]}


def model(
    architecture: Callable[..., Any],
    configuration: Any,
    feed: Callable[[Any, str], Feed],
    *,
    tags: tuple[str, ...],
    sizes: Sizes,
) -> Case:
    """One architecture as a case, named by its configuration: random weights, and the inputs that `feed` makes.

    What a row leaves out of its `full` size is as published.
    """

    def make(size: str) -> Made:
        config = configuration(**sizes.of(size))
        return architecture(config), (), feed(config, size)

    return case(name=configuration.model_type, tags=tags, sizes=SIZES)(make)
