"""Cases: named programs that the harness runs, each made afresh for every run.

A case is a callable with its arguments. Some properties show only in what a caller does with the callable. For these a
case may bring a *scenario*, a function `scenario(compiled, *args, **kwargs)`. It is called in the callable's place, and
its result or error is observed:

    def write_the_first(f, w):
        y, z = f(w)
        y.mul_(2)
        return z

    @case(scenario=write_the_first)
    def a_write_to_an_output_is_seen_through_its_view(): ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MODES = ("infer", "train")
SIZES = ("tiny", "small", "full")
SHAPES = ("static", "dynamic")

Made = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """A program by name; `make(size)` gives `(callable, args, kwargs)`, new objects each time.

    `origin` is where the case was found, in the form that `discover` takes, so that another process can find it too.
    """

    name: str
    function: Callable[..., Made]
    modes: tuple[str, ...]
    tags: tuple[str, ...]
    sizes: tuple[str, ...]
    origin: str = ""
    shapes: tuple[str, ...] = ("static",)
    """How sizes are compiled where a run does not say: as constants, or with `torch.compile(dynamic=True)`."""
    scenario: Callable[..., Any] | None = None
    numbers: tuple[tuple[Any, ...], ...] = ()
    """What each call is given after the arguments; there are as many calls then. None: the calls are alike."""

    def make(self, size: str) -> Made:
        """The callable with its arguments. The harness seeds torch's RNG before it calls this."""
        if "size" in inspect.signature(self.function).parameters:
            return self.function(size=size)
        return self.function()


def case(
    *,
    modes: tuple[str, ...] = MODES,
    tags: tuple[str, ...] = (),
    sizes: tuple[str, ...] = ("tiny",),
    name: str = "",
    shapes: tuple[str, ...] = ("static",),
    scenario: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Made]], Case]:
    """Declares a case: a function that makes `(callable, args, kwargs)` afresh, optionally for a `size`.

    `scenario(compiled, *args, **kwargs)` is called in the callable's place where it is given.

    Raises: ValueError for a mode, size or kind of shapes that does not exist.
    """
    _check("mode", modes, MODES)
    _check("size", sizes, SIZES)
    _check("kind of shapes", shapes, SHAPES)

    def declare(function: Callable[..., Made]) -> Case:
        called = name or function.__name__
        return Case(called, function, modes, tags, sizes, shapes=shapes, scenario=scenario)

    return declare


def _check(what: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    for one in given:
        if one not in known:
            raise ValueError(f"case: {what} {one!r} does not exist; it is one of {', '.join(known)}")
