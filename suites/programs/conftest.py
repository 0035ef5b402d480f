"""Hypothesis profiles: `pytest suites/programs --hypothesis-profile nightly --hypothesis-seed 3` is one shard of a
night. Without one, `ci` holds."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

HEALTH = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile(
    "ci", max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=HEALTH
)
settings.register_profile("nightly", max_examples=50_000, deadline=None, suppress_health_check=HEALTH, print_blob=True)
settings.register_profile(
    "debug", max_examples=10, deadline=None, suppress_health_check=HEALTH, phases=(Phase.reuse, Phase.generate)
)
if settings().max_examples == settings.get_profile("default").max_examples:
    settings.load_profile("ci")
