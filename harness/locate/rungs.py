"""Ladders: the rungs on which a program can be run, from eager to the whole backend.

    eager dynamo                                              every backend
    captured decomposed partitioned PASS ... written          ours: `stop_after`, operator by operator
    lowered fused                                             ours: loops run by the reference, apart and as fused
    generated recorded warm                                   ours: C++ or Triton, then CUDA graphs where these are
                                                              recorded, then a fresh process whose caches are filled
    aot_eager aot_eager_decomp_partition inductor             Inductor

A backend of somebody else's has a ladder by one call, in the module that defines it:

    register_ladder("my_package.backend:mine", (Rung("traced", "my_package.backend:traced"), ...))

Its rungs stand between `dynamo` and the backend itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch._dynamo

from assay.compiler.entry.stop import CAPTURED, states
from assay.compiler.passes import CHOICES, PASSES
from assay.harness.backends.registry import WITHOUT_DYNAMO, resolve

RECORDING = "cudagraphs="
LOOPS_S = 15.0
"""How long the reference may take to run loops, element by element."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A backend that goes one step further than the one before it. `mode` is the mode that it is run in, where that is
    not the one asked for; `is_warm` runs it in a process that finds its caches filled."""

    name: str
    backend: str
    mode: str = ""
    is_warm: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    limit_s: float | None = None
    """Seconds after which it is not known how the rung fares, where that is less than a run may take."""


_LADDERS: dict[str, tuple[Rung, ...]] = {
    "inductor": (Rung("aot_eager", "aot_eager"), Rung("aot_eager_decomp_partition", "aot_eager_decomp_partition")),
}


def register_ladder(backend: str, rungs: tuple[Rung, ...]) -> None:
    """Gives a backend the rungs between Dynamo and itself, in order.

    Raises: ValueError for two rungs of one name.
    """
    names = [rung.name for rung in rungs]
    if len(set(names)) < len(names):
        raise ValueError(f"the ladder of {backend} has two rungs of one name: {', '.join(names)}")
    _LADDERS[backend] = rungs


def ladder_of(backend: str, device: str = "cpu") -> tuple[Rung, ...]:
    """The rungs of a backend, the backend itself last. Settings that torch.compile takes hold on every rung. On a GPU
    our compiler records CUDA graphs if it is not told not to.

    Raises: BackendError if there is no such backend.
    """
    resolve(backend)  # its module registers its ladder
    bare, *settings = backend.split(",")
    flags = "".join(f",{setting}" for setting in settings if "=" not in setting)
    first = (Rung("eager", "eager-none"), Rung("dynamo", f"eager{flags}"))
    if bare == WITHOUT_DYNAMO:
        return (first[0], Rung("joint", backend))
    if bare in ("assay", "assay-triton"):
        return (*first, *_of_assay(bare, settings, device))
    middle = tuple(_with(rung, flags) for rung in _LADDERS.get(bare, _usual(bare)))
    return (*first, *middle, Rung(bare, backend))


def _with(rung: Rung, flags: str) -> Rung:
    return Rung(rung.name, rung.backend + flags, rung.mode, rung.is_warm, rung.environment)


def _usual(backend: str) -> tuple[Rung, ...]:
    """The ladder of a backend that has told nothing of itself: most are behind AOTAutograd."""
    is_behind = backend not in ("eager", "aot_eager", "aot_eager_decomp_partition")
    return _LADDERS["inductor"][:1] if is_behind and backend in torch._dynamo.list_backends(None) else ()


def _of_assay(bare: str, settings: list[str], device: str) -> tuple[Rung, ...]:
    kept = "".join(f",{setting}" for setting in settings if not setting.startswith(("warm=", RECORDING)))
    recording = "".join(f",{setting}" for setting in settings if setting.startswith(RECORDING))
    stops = [
        Rung(state, f"assay,stop_after={state}{kept}", mode="infer" if state == CAPTURED else "")
        for state in states((*PASSES, *CHOICES))
    ]
    joint = Rung("joint", f"assay,stop_after={CAPTURED}{kept}")
    loops = (
        Rung("lowered", f"assay-loops,fusions=0{kept}", limit_s=LOOPS_S),
        Rung("fused", f"assay-loops{kept}", limit_s=LOOPS_S),
    )
    if bare == "assay-triton":
        interpreted = Rung("interpreted", f"{bare}{kept}", environment=(("TRITON_INTERPRET", "1"),))
        return (stops[0], joint, *stops[1:], *loops, interpreted)
    warm = Rung("warm", f"{bare}{kept}{recording}", is_warm=True)
    if f"{RECORDING}True" in recording or (device != "cpu" and not recording):
        generated = Rung("generated", f"{bare}{kept},{RECORDING}False,warm=False")
        recorded = Rung("recorded", f"{bare}{kept}{recording},warm=False")
        return (stops[0], joint, *stops[1:], *loops, generated, recorded, warm)
    return (stops[0], joint, *stops[1:], *loops, Rung("generated", f"{bare}{kept}{recording},warm=False"), warm)
