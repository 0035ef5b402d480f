"""Hypothesis profiles: `pytest tests/suites/programs --hypothesis-profile nightly --hypothesis-seed 3` is one shard of
a night. Without one, `ci` holds. Failing programs are made smaller by the harness, which is much faster at it."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

COMMON = settings(
    deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate), suppress_health_check=tuple(HealthCheck)
)

settings.register_profile("ci", COMMON, max_examples=40, derandomize=True, database=None)
settings.register_profile("nightly", COMMON, max_examples=50_000, print_blob=True)
settings.register_profile("debug", COMMON, max_examples=10)
if settings().max_examples == settings.get_profile("default").max_examples:
    settings.load_profile("ci")
