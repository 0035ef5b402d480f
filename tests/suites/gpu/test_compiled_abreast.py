"""`python -m assay.suites.gpu.compiled_abreast`: many processes compile, and one at a time is timed."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pytest

from assay.suites.gpu import compiled_abreast
from assay.suites.gpu.compiled_abreast import Others, _timed_alone, row_of
from assay.suites.gpu.zoo import taken_s

COUNTS = """
import sys, time
while True:
    with open(sys.argv[1], "a") as file: file.write(".")
    time.sleep(0.01)
"""
READY_THEN_SLOW = """
import sys, time
print("a line of a library", flush=True)
print("ready", flush=True)
assert sys.stdin.readline() == "go\\n"
time.sleep(0.5)
print('row {"ms": 1.0}', flush=True)
"""


def test_a_first_call_does_not_count_what_it_was_stopped_for() -> None:
    assert taken_s(10, 20, []) == 10
    assert taken_s(10, 20, [(0, 5), (8, 11), (12, 13), (19, 40), (50, 60)]) == 7


def test_others_are_stopped_while_one_is_timed(tmp_path: Path) -> None:
    others, count = Others(), tmp_path / "count"
    with tempfile.TemporaryFile("w+") as said:
        counting = others.start((sys.executable, "-c", COUNTS, str(count)), said)
        timed = others.start((sys.executable, "-c", READY_THEN_SLOW), said)
        while not count.exists():
            time.sleep(0.01)
        assert _timed_alone(timed, others) == {"ms": 1.0}
        ((since, until),) = others.running[counting.pid]
        assert until - since >= 0.5
        then = count.stat().st_size
        while count.stat().st_size == then:  # it goes on
            time.sleep(0.01)
        assert others.end(timed) == [] and len(others.end(counting)) == 1 and not others.running


def test_what_does_not_end_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys, time; print('zoo.bert, train: first call of inductor', file=sys.stderr, flush=True)"
    given = argparse.Namespace(suite="zoo", budget=3.0, end=time.monotonic() + 3.0, passed=[])
    start = Others.start
    slow = (sys.executable, "-c", script + "; time.sleep(60)")
    monkeypatch.setattr(compiled_abreast.Others, "start", lambda self, command, said: start(self, slow, said))
    row = row_of("bert", "train", given, Others())
    assert row["error"] == "not ended within 3.0 s: zoo.bert, train: first call of inductor"
    assert "not begun" in row_of("bert", "infer", argparse.Namespace(**vars(given) | {"end": 0.0}), Others())["error"]
