"""How compile time grows with the graph: of the whole compile by backend, of our partitioner and fuser alone."""

from __future__ import annotations

import torch

from assay.compiler import journal
from assay.harness.backends.registry import graph_compiler
from assay.harness.bench.compile_time.scaling import exponent_of, programs
from assay.harness.measure import cpu_s

from .subject import NotSame, empty_caches

PROGRAMS = ("chain", "recurrence")
SIZES = (40, 80, 160)
COMPILERS = ("assay", "inductor")
STAGES = ("differentiate", "partition", "lower", "fuse", "plan", "emit")
TINY = 8

Grown = dict[tuple[str, str], list[tuple[int, dict[str, float]]]]
"""By program and backend: a size with the seconds of the processors, and those of each stage of ours."""


class _Grown:
    """What the benchmarks of this file share: every program is compiled once for all of them, with its gradients."""

    timeout = 600

    def setup_cache(self) -> Grown:
        return {
            (program, backend): [(size, compiled(program, size, backend)) for size in (TINY, *SIZES)][1:]
            for program in PROGRAMS for backend in COMPILERS
        }  # fmt: skip

    setup_cache.timeout = 1800  # type: ignore[attr-defined]


def compiled(program: str, size: int, backend: str) -> dict[str, float]:
    """The seconds of a compile of forward and backward, by the processors' clock as `cpu_s`, and by stage.

    Raises: NotSame where a result or a gradient is not eager's.
    """
    torch.manual_seed(0)
    torch._dynamo.reset()
    module, inputs = programs()[program].make(size)
    eager = _result(module, inputs)
    before, start = dict(_seconds()), cpu_s()
    with empty_caches():
        ours = _result(graph_compiler(backend)[0](module, list(inputs)), inputs)
    spent = {"cpu_s": cpu_s() - start}
    for name, mine, theirs in zip(("result", *("gradient",) * len(inputs)), ours, eager, strict=True):
        if not torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4):
            raise NotSame(f"{program} of {size} on {backend}: {name} is not eager's")
    return spent | {name: seconds - before.get(name, 0.0) for name, seconds in _seconds().items()}


def _result(function: object, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The result of a call, and the gradients of its sum."""
    for value in inputs:
        value.requires_grad_().grad = None
    (result,) = function(*inputs)  # type: ignore[operator]
    result.sum().backward()
    return (result.detach(), *(value.grad.clone() for value in inputs if value.grad is not None))


def _seconds() -> dict[str, float]:
    return dict(journal.totals()["seconds"])  # type: ignore[call-overload]


class CompileGrowth(_Grown):
    """A whole compile, by backend: the processors' seconds of the largest size, and the exponent over all."""

    param_names = ("program", "backend")
    params = (PROGRAMS, COMPILERS)

    def track_cpu_s(self, found: Grown, program: str, backend: str) -> float:
        return found[program, backend][-1][1]["cpu_s"]

    track_cpu_s.unit = "s"  # type: ignore[attr-defined]

    def track_exponent(self, found: Grown, program: str, backend: str) -> float:
        return _exponent(found[program, backend], "cpu_s")

    track_exponent.unit = "exponent"  # type: ignore[attr-defined]


class StageGrowth(_Grown):
    """The stages of our compiler, the partitioner and the fuser among them."""

    param_names = ("program", "stage")
    params = (PROGRAMS, STAGES)

    def track_stage_s(self, found: Grown, program: str, stage: str) -> float:
        return found[program, "assay"][-1][1].get(stage, 0.0)

    track_stage_s.unit = "s"  # type: ignore[attr-defined]

    def track_exponent(self, found: Grown, program: str, stage: str) -> float:
        return _exponent(found[program, "assay"], stage)

    track_exponent.unit = "exponent"  # type: ignore[attr-defined]


def _exponent(rows: list[tuple[int, dict[str, float]]], name: str) -> float:
    """1 is linear; not a number where less than two sizes took any time."""
    found = exponent_of([(size, spent.get(name, 0.0)) for size, spent in rows])
    return float("nan") if found is None else found
