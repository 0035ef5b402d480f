"""What a call costs when there is next to nothing to compute: guards, calling convention, autograd."""

from __future__ import annotations

from assay.harness.measure import Step

from .subject import BACKENDS, MODES, Results, Subject, require_same, results

FUNCTIONS = ("overhead.tiny_function", "overhead.tiny_module", "overhead.two_inputs", "overhead.mutation_and_alias")


class Overhead:
    """A call of a tiny compiled function."""

    timeout = 300
    param_names = ("function", "mode", "backend")
    params = (FUNCTIONS, MODES, BACKENDS)
    step: Step

    def setup_cache(self) -> Results:
        return results(FUNCTIONS)

    setup_cache.timeout = 900  # type: ignore[attr-defined]

    def setup(self, found: Results, function: str, mode: str, backend: str) -> None:
        subject = Subject(function, mode, backend)
        require_same(found, subject)
        self.step = subject.step()
        for _ in range(3):
            self.step()

    def time_call(self, found: Results, function: str, mode: str, backend: str) -> None:
        self.step()
