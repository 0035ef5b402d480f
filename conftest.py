"""Tests see every compile: nothing is made from what an earlier run kept. Those of warm starts ask for it.

A test that leaves the process another than it found it fails: what comes after it would depend on the order. So does
one for which Dynamo has compiled a function as often as it may: that runs in eager from then on, and never differs.

A test is `nightly`, and no part of `python -m tox`, if the last measurement says that it takes more than 2 seconds of
a core, or that it needs a fixture that takes more than a minute: `tests/slow.json`, which
`python -m pytest --measure-slow tests/slow.json` writes anew. What the default run has of the same searches is slices.

Where `CUDA_VISIBLE_DEVICES` names several GPUs, each process of tests begins at another one, and sees all of them.
"""

from __future__ import annotations

import functools
import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch._dynamo import config as dynamo_config
from torch._dynamo import list_backends, register_backend
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config

from assay.compiler.entry.dynamo import assay
from assay.harness.calls.cycles import set_aside
from assay.harness.processes import many_compiles

os.environ.setdefault("ASSAY_WARM", "0")
os.environ.setdefault("ASSAY_MACHINE", "default")
os.environ.setdefault("ASSAY_VERIFY", "1")
dynamo_config.fail_on_recompile_limit_hit = True
settings.register_profile("untimed", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")  # how fast examples are drawn says how busy the machine is
many_compiles.measure_no_guards()
many_compiles.forget_absent_devices()


def begun_at(devices: list[str], worker: str) -> list[str]:
    """The devices from another one on for each worker, as gw3."""
    start = int(worker.removeprefix("gw") or 0) % len(devices)
    return devices[start:] + devices[:start]


_VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
if len(_VISIBLE) > 1:
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(begun_at(_VISIBLE, os.environ.get("PYTEST_XDIST_WORKER", "")))

if "assay" not in list_backends():  # run from a checkout, with nothing installed
    register_backend(assay, "assay")


SLOW = Path(__file__).parent / "tests" / "slow.json"
MOST_TEST_S, MOST_FIXTURE_S = 2.0, 60.0
"""What a test of the default run, and a fixture that such tests share, may take of a core."""
ALWAYS = ("test_architecture.py::", "test_documents.py::")
"""What every change is held to, however long it takes."""
MEASURED: dict[str, dict[str, float]] = {"tests": {}, "fixtures": {}}


@functools.cache
def slow() -> dict[str, dict[str, float]]:
    """What took longer than it may when it was measured, in seconds, by the name of its file and its own."""
    return json.loads(SLOW.read_text()) if SLOW.is_file() else {"tests": {}, "fixtures": {}}


def name_of(nodeid: str) -> str:
    """A test without the folder of its file: files move."""
    file, _, test = nodeid.partition("::")
    return f"{Path(file).name}::{test}"


def fixture_name(definition: Any) -> str:
    return f"{Path(definition.baseid or 'conftest.py').name}::{definition.argname}"


def is_nightly(item: pytest.Item) -> bool:
    """Whether a test takes too long for the default run, itself or by a fixture."""
    if name_of(item.nodeid) in slow()["tests"]:
        return True
    needed: dict[str, Sequence[Any]] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return any(fixture_name(each) in slow()["fixtures"] for found in needed.values() for each in found)


IN_PARTS = ("test_semantics.py",)
"""Files of many tests that share nothing: one process would still be at them when all others are done."""
PARTS = 16


def together(nodeid: str) -> str:
    """What a test is run in one process with: its file, as the file's fixtures are shared, or a part of it."""
    file = nodeid.partition("::")[0]
    return f"{file} {zlib.crc32(nodeid.encode()) % PARTS}" if file.endswith(IN_PARTS) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadfile`; other ways to hand out tests are left to the plugin."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class InParts(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return InParts(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--measure-slow", metavar="PATH", help="write which tests and fixtures are too slow to PATH")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in filter(is_nightly, items):
        item.add_marker(pytest.mark.nightly)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    """Times the fixtures that tests share; their reports tell it, from whichever process they ran in."""
    start = time.perf_counter()
    result = yield
    if fixturedef.scope != "function":
        MEASURED["fixtures"][fixture_name(fixturedef)] = time.perf_counter() - start
    return result


def pytest_runtest_teardown(item: pytest.Item) -> None:
    item.user_properties.append(("fixture_s", dict(MEASURED["fixtures"])))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        MEASURED["tests"][name_of(report.nodeid)] = report.duration
    for fixtures in (value for name, value in report.user_properties if name == "fixture_s"):
        MEASURED["fixtures"].update(fixtures)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--measure-slow")
    if path and not hasattr(session.config, "workerinput"):
        most = {"tests": MOST_TEST_S, "fixtures": MOST_FIXTURE_S}
        found = {kind: {n: round(s) for n, s in sorted(MEASURED[kind].items()) if s > most[kind]} for kind in most}
        found["tests"] = {name: s for name, s in found["tests"].items() if not name.startswith(ALWAYS)}
        Path(path).write_text(json.dumps(found, indent=1) + "\n")


def environment_variables() -> dict[str, str]:
    """The project's own: pytest and other backends set theirs as they go."""
    return {name: value for name, value in os.environ.items() if name.startswith("ASSAY")}


AMBIENT = (
    environment_variables,
    torch.get_num_threads,
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    torch.get_default_dtype,
    torch.are_deterministic_algorithms_enabled,
    torch.get_float32_matmul_precision,
    torch.is_anomaly_enabled,
)
SETTINGS = (dynamo_config, functorch_config, inductor_config)
"""What torch's front end and its own compilers are set to."""


def ambient() -> dict[str, object]:
    """Each state that a test has to leave as it found it, by name."""
    set_to = {f"{of.__name__}.{name}": value for of in SETTINGS for name, value in of.get_config_copy().items()}
    return {read.__name__: read() for read in AMBIENT} | set_to


def leave_autocast() -> None:
    """Makes autocast forget what it has cast. A graph enters and leaves it by two calls. After an error between them it
    counts as entered, and reads the casts of values that have changed since."""
    torch.autocast_increment_nesting()
    while torch.autocast_decrement_nesting() > 0:
        pass
    torch.clear_autocast_cache()


@pytest.fixture(autouse=True)
def ambient_state_is_left_alone() -> Iterator[None]:
    torch._dynamo.reset()
    set_aside()  # the tests and what they import are a million objects, through which each row would look for cycles
    leave_autocast()
    before = ambient()
    yield
    assert ambient() == before, "the test changed the process for those after it"
