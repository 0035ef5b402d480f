"""Whether the fault of a wrong backend is made small from a whole model: `assay repro` on models of the zoo.

Each fault is located by the first model that shows it, and each begins with another model. The rung that is right is
the wrong backend itself, as Dynamo and eager below it are right.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from assay.harness.selftest.locate_bank import NO_MODEL, NOT_DONE, SHRINK_S, Located, children_cpu_s, repro_found
from assay.harness.selftest.mutant_rows import MODELS, hashed
from assay.harness.selftest.wrong_backends import BANK, Fault

MODULE = "assay.harness.selftest.wrong_backends"


def wanted_backends(text: str, every: int = 1) -> list[Fault]:
    """The wrong backends with one of the texts, which commas divide, in their kind or name; one in so many."""
    named = [fault for fault in BANK.values() if any(part in f"{fault.kind} {fault.name}" for part in text.split(","))]
    return named[::every]


def models_for(name: str) -> Sequence[str]:
    """The models to try a fault on, in order."""
    place = hashed(name) % len(MODELS)
    return (*MODELS[place:], *MODELS[:place])


def locate_backend(name: str) -> Located:
    """What `assay repro` finds of a fault, in the first model that shows it. Only that model's time counts.

    A model whose time was up says nothing. Where no other one shows the fault, it is to be tried again.
    """
    cut = ""
    for model in models_for(name):
        located = _in_model(BANK[name], model)
        if located.is_shown:
            return located
        cut = cut or located.why
    return dataclasses.replace(located, why=cut or NO_MODEL)


def _in_model(fault: Fault, model: str) -> Located:
    """How the fault fares in one model; it is not shown where the model is as eager."""
    start, cpu_before_s = time.monotonic(), children_cpu_s()
    mode, backend = "train" if fault.mode == "train" else "infer", f"{MODULE}:{fault.name}"
    found, why = repro_found(model, mode, backend, SHRINK_S, {})
    is_cut = why.startswith(NOT_DONE)
    row = f"{model} {mode}" if found or (why and not is_cut) else ""
    used = time.monotonic() - start, children_cpu_s() - cpu_before_s
    file = f"{fault.backend.__module__.removeprefix('assay.').replace('.', '/')}.py"
    return Located(
        fault.name, file, row, found.get("first", ""), (backend,), *used, found.get("calls"),
        found.get("failures", 0), found.get("runs", 0), found.get("why", "") or f"{model}: {why}" * is_cut or why,
    )  # fmt: skip
