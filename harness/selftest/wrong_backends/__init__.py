"""Deliberately wrong backends: `assay run zoo --backend assay.harness.selftest.wrong_backends:scales_results`.

Each is eager's graph with one fault, told by its docstring. `BANK` holds their records, `CORRECT` the controls. A new
one is a function under `@wrong(kind)` in the module of its kind.
"""

from __future__ import annotations

from types import ModuleType

from assay.harness.selftest.wrong_backends import (
    ambient_state,
    controls,
    ends_of_process,
    given_back,
    gradients,
    held_memory,
    kept_state,
    late_calls,
    leaf_hooks,
    narrow_conditions,
    only_there,
    operators,
    raised_errors,
    random_streams,
    sharing,
    tensor_facts,
    unguarded,
    unwatched,
    values,
    ways_of_calling,
    writes,
)
from assay.harness.selftest.wrong_backends.registry import BANK, CORRECT, Compile, Fault

__all__ = ["BANK", "CORRECT", "Fault"]

_KINDS: tuple[ModuleType, ...] = (
    values, operators, gradients, late_calls, kept_state, sharing, tensor_facts, writes, leaf_hooks, random_streams,
    raised_errors, ambient_state, held_memory, narrow_conditions, unguarded, unwatched, only_there, ways_of_calling,
    given_back, ends_of_process, controls,
)  # fmt: skip


def __getattr__(name: str) -> Compile:
    """A backend of the bank by its name."""
    found = next((vars(module)[name] for module in _KINDS if name in vars(module)), None)
    if found is None or not callable(found):
        raise AttributeError(f"the bank has no backend {name!r}; it has {', '.join(sorted({*BANK, *CORRECT}))}")
    return found  # type: ignore[no-any-return]
