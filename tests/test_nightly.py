"""Which tests are nightly: what was measured to take too long, and what needs a fixture that does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from conftest import PARTS, together

pytest_plugins = ["pytester"]
CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = """
import pytest

@pytest.fixture(scope="module")
def slow_fixture():
    return 1

def test_slow(): pass

def test_quick(): pass

def test_by_its_fixture(slow_fixture): pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(test_it=TESTS)
    pytester.makeini("[pytest]\nmarkers = nightly")
    pytester.mkdir("tests").joinpath("slow.json").write_text(
        '{"tests": {"test_it.py::test_slow": 12}, "fixtures": {"test_it.py::slow_fixture": 70}}'
    )
    return pytester


def test_nightly_is_what_took_too_long(project: pytest.Pytester) -> None:
    ran = project.runpytest("-m", "not nightly", "-v")
    ran.assert_outcomes(passed=1, deselected=2)
    ran.stdout.fnmatch_lines(["*test_quick PASSED*"])


def test_nightly_is_measured_by_an_option(project: pytest.Pytester) -> None:
    project.runpytest("--measure-slow", "measured.json").assert_outcomes(passed=3)
    assert (project.path / "measured.json").read_text() == '{\n "tests": {},\n "fixtures": {}\n}\n'


def test_a_file_is_in_one_process_but_for_those_of_many_tests() -> None:
    named = [f"test_which[{number}]" for number in range(200)]
    assert {together(f"tests/a/test_others.py::{name}") for name in named} == {"tests/a/test_others.py"}
    parts = Counter(together(f"tests/a/test_semantics.py::{name}") for name in named)
    assert len(parts) == PARTS and max(parts.values()) < 200 / PARTS * 3
