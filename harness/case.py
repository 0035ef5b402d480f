"""Cases: named programs that the harness runs, each made afresh for every run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MODES = ("infer", "train")
SIZES = ("tiny", "small", "full")

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

    def make(self, size: str) -> Made:
        """The callable with its arguments. The harness seeds torch's RNG before it calls this."""
        if "size" in inspect.signature(self.function).parameters:
            return self.function(size=size)
        return self.function()


def case(
    *, modes: tuple[str, ...] = MODES, tags: tuple[str, ...] = (), sizes: tuple[str, ...] = ("tiny",), name: str = ""
) -> Callable[[Callable[..., Made]], Case]:
    """Declares a case: a function that makes `(callable, args, kwargs)` afresh, optionally for a `size`.

    Raises: ValueError for a mode or size that does not exist.
    """
    for mode in modes:
        if mode not in MODES:
            raise ValueError(f"case: mode {mode!r} does not exist; the modes are {', '.join(MODES)}")
    for size in sizes:
        if size not in SIZES:
            raise ValueError(f"case: size {size!r} does not exist; the sizes are {', '.join(SIZES)}")

    def declare(function: Callable[..., Made]) -> Case:
        return Case(name or function.__name__, function, tuple(modes), tuple(tags), tuple(sizes))

    return declare
