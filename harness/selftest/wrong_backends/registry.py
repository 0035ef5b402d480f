"""The bank's record of one wrong backend, and the decorator that enrols a function as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

Run = Callable[..., Sequence[Any]]
Compile = Callable[[fx.GraphModule, Sequence[object]], Run]
"""A backend as torch.compile calls it: a graph and example inputs, to what runs the graph."""

GIVEN_BACK = "given back"
MODES = ("infer", "train", "both")
BANK: dict[str, Fault] = {}
CORRECT: dict[str, str] = {}
"""The controls, by name: what each of them is. None of them may be accused."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong backend. `mode` says in which mode the fault shows; the backend is eager in all else.

    What is wrong with a backend is that it runs in eager where its kind is `GIVEN_BACK`; all others may, by design.
    A fault of a warm start shows in the second of two `processes` that share one cache folder.
    """

    name: str
    kind: str
    wrong: str
    mode: str
    backend: Compile
    processes: int = 1


def wrong(kind: str, mode: str = "both", processes: int = 1) -> Callable[[Compile], Compile]:
    """Enrols a backend under the function's name; the function's docstring says what is wrong with it.

    Raises: ValueError for a mode that does not exist, a name that is taken, and a function without a docstring.
    """

    def enrol(compile_graph: Compile) -> Compile:
        name, said = compile_graph.__name__, compile_graph.__doc__
        if mode not in MODES or name in BANK or not said:
            raise ValueError(f"wrong backend {name}: needs a new name, a docstring, and a mode of {', '.join(MODES)}")
        compile_graph.runs_in_eager = kind != GIVEN_BACK  # type: ignore[attr-defined]
        BANK[name] = Fault(name, kind, " ".join(said.split()), mode, compile_graph, processes)
        return compile_graph

    return enrol


def correct(compile_graph: Compile) -> Compile:
    """Enrols a control under the function's name."""
    compile_graph.runs_in_eager = True  # type: ignore[attr-defined]
    CORRECT[compile_graph.__name__] = " ".join((compile_graph.__doc__ or "").split())
    return compile_graph
