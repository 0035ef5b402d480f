"""The graphs that Dynamo makes of a case, each with what it was first called with."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.calls.clone import copy_call
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.locate.shrinking.graph_program import copied
from assay.harness.observe.observation import one_step, set_mode
from assay.harness.run import made_call

Recorded = tuple[fx.GraphModule, list[Any]]


def case_of(request: Mapping[str, Any]) -> Case:
    """The case that a request names."""
    (case,) = [found for found in discover((request["origin"],)) if found.name == request["case"]]
    return case


def recorded(case: Case, request: Mapping[str, Any]) -> list[Recorded]:
    """The graphs of a step of the case; of what its scenario does, where it brings one.

    A case that is given other Python numbers from call to call is called with each of them. Where the case raises, as
    it may in eager too, the graphs are those that ran before.
    """
    call = copy_call(made_call(case, request["size"], request["seed"], "cpu"))
    found: list[Recorded] = []

    def record(gm: fx.GraphModule, _: Sequence[object]) -> Callable[..., Any]:
        seen: list[Any] = []
        found.append((gm, seen))

        def run(*args: Any) -> Any:
            if not seen:
                seen.extend(_kept(arg) for arg in args)
            return gm.forward(*args)

        return run

    torch._dynamo.reset()
    set_mode(call, request["mode"])
    called = compiled = torch.compile(call.function, backend=record)
    if case.scenario is not None:
        called = functools.partial(case.scenario, compiled)
    with contextlib.suppress(Exception):  # whatever the case raises
        for numbers in case.numbers or ((),):
            numbered = dataclasses.replace(call, args=(*call.args, *numbers))
            one_step(numbered, called, request["mode"], request["seed"])
    return [(gm, seen) for gm, seen in found if seen or not gm.graph.find_nodes(op="placeholder")]


def _kept(value: Any) -> Any:
    return copied(value) if isinstance(value, Tensor) else value
