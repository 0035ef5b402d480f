"""Models of the zoo, one of each kind: steady state, cold compile time, peak memory."""

from __future__ import annotations

from assay.harness.measure import Step, cold_compile, first_call_s, peak_bytes

from .subject import BACKENDS, EAGER, MODES, Results, Subject, empty_caches, require_same, results

MODELS = ("zoo.distilbert", "zoo.llama", "zoo.convnext")
"""None has dropout, as Inductor draws numbers of its own. None has gradients with other strides under Inductor: a
backend that is not `same` has no time to show."""

COMPILERS = tuple(backend for backend in BACKENDS if backend != EAGER)


class Proven:
    """What the benchmarks of models share."""

    timeout = 600
    param_names = ("model", "mode", "backend")
    params: tuple[tuple[str, ...], ...] = (MODELS, MODES, BACKENDS)

    def setup_cache(self) -> Results:
        """Runs once for both; asv hands what it returns to every `setup`."""
        return results(MODELS)

    setup_cache.timeout = 1800  # type: ignore[attr-defined]


class SteadyState(Proven):
    """A call of a compiled model: one inference, or one forward and backward."""

    step: Step

    def setup(self, found: Results, model: str, mode: str, backend: str) -> None:
        subject = Subject(model, mode, backend)
        require_same(found, subject)
        self.step = subject.step()
        for _ in range(3):
            self.step()

    def time_step(self, found: Results, model: str, mode: str, backend: str) -> None:
        self.step()

    def track_peak_bytes(self, found: Results, model: str, mode: str, backend: str) -> float:
        """How far memory rises above its resting level within a step; not a number where the system can't tell."""
        peak = peak_bytes(self.step)
        return float("nan") if peak is None else float(peak)

    track_peak_bytes.unit = "bytes"  # type: ignore[attr-defined]


class ColdCompile(Proven):
    """The first call with empty caches, less what Dynamo needs to trace the model."""

    params = (MODELS, MODES, COMPILERS)

    def setup(self, found: Results, model: str, mode: str, backend: str) -> None:
        subject = Subject(model, mode, backend)
        require_same(found, subject)
        with empty_caches():  # what importing a backend costs belongs to no model
            first_call_s(Subject("overhead.tiny_function", mode, backend).step())

    def track_compile_s(self, found: Results, model: str, mode: str, backend: str) -> float:
        subject = Subject(model, mode, backend)
        with empty_caches():
            return cold_compile(lambda chosen: subject.step_under(str(chosen)), backend).compile_s

    track_compile_s.unit = "s"  # type: ignore[attr-defined]
