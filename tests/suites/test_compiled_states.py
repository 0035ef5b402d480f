"""The record of compiled states: equal for equal programs, another for another state, count or set of rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.harness.discover import discover
from assay.suites.compiled_states import differences, digest, main, record_of

ROW = "semantics.channels_last_input"


def test_states_of_a_case_are_the_same_each_time() -> None:
    (case,) = discover((ROW,))
    first, second = (record_of(case, "train") for _ in range(2))
    assert first == second and first["compiles"] >= 1 and "error" not in first
    assert {"captured", "joint", "schedule", "call"} & {name[:-3].split("_")[-1] for name in first["states"]}
    assert list(differences({"a": first}, {"a": second})) == []


def test_states_differ_by_their_text_their_counts_and_their_rows() -> None:
    old = {"a": {"states": {"01.py": digest("x")}, "kernels": 2}}
    assert list(differences(old, {"a": {"states": {"01.py": digest("y")}, "kernels": 2}})) == ["a: 01.py is another"]
    assert list(differences(old, {"a": {"states": old["a"]["states"], "kernels": 3}})) == ["a: kernels 2 -> 3"]
    assert list(differences(old, {})) == ["a: only before"] and list(differences({}, old)) == ["a: only after"]


def test_names_of_modules_do_not_count() -> None:
    assert digest("# compiler/ops/indexing/scatter.py:3\ny = 1") == digest("# compiler/ops/rows/scatter.py:3\ny = 1")
    assert digest("y = 1") != digest("y = 2")


def test_states_are_recorded_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "before.json"
    rows = ["semantics", "--filter", "channels_last_input"]
    assert main([*rows, "--json", str(path)]) == 0
    assert main([*rows, "--against", str(path)]) == 0
    changed = json.loads(path.read_text())
    next(iter(changed.values()))["kernels"] += 1
    path.write_text(json.dumps(changed))
    capsys.readouterr()
    assert main([*rows, "--against", str(path)]) == 1 and "kernels" in capsys.readouterr().out
