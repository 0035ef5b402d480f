"""`python -m assay.suites.gpu.figures`: what is run, what is kept, and what figures are made of rows."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from assay.harness.backends.registry import resolve
from assay.harness.bench.steps import make_step
from assay.harness.discover import discover
from assay.suites.gpu import correct, figures
from assay.suites.gpu.figures import FIGURES, MODELS, Part, Row, counted, go_on, main, parts, read, run

ZOO_ROW = {"ms": 2.0, "eager_ms": 8.0, "speed_ratio": 1.25}
ZOO_ROW |= {"first_call_s_assay": 3.0, "first_call_s_inductor": 12.0, "first_call_s_eager-none": 0.1}
ZOO_ROW |= {"peak_bytes_assay": 90, "peak_bytes_inductor": 100, "peak_bytes_eager-none": 200}


def lines(rows: list[Row]) -> dict[str, str]:
    return {figure.name: figure.line(rows) for figure in FIGURES}


def test_figures_of_rows_are_held_to_their_bars() -> None:
    found = lines([{"part": "zoo train bert", "commit": "a", **ZOO_ROW}])
    assert "1.250  at least 1.1: met, of 1 rows" in found["zoo, training: Inductor's time over ours"]
    assert "0.250  at most 0.5: met" in found["first calls, training: ours over Inductor's"]
    assert "0.900  at most 1: met" in found["memory of training: ours over Inductor's"]
    assert "4.000  at least 1: met" in found["zoo: eager's time over ours, the least"]
    assert "not measured" in found["zoo, inference: Inductor's time over ours"]


def test_figures_below_their_bars_are_missed() -> None:
    rows = [{"part": "kernels", "commit": "a", "assay_share": share} for share in (0.95, 0.53)]
    found = lines(rows)
    assert "0.710  at least 0.9: MISSED, of 2 rows" in found["kernels: share of a copy's rate"]
    assert "0.530  at least 0.75: MISSED" in found["kernels: the least share"]


def test_figures_name_what_is_not_same() -> None:
    verdicts = {"correct infer bert": "same", "correct train gpt2": "diverged"}
    rows: list[Row] = [{"part": part, "commit": "a", "verdict": verdict} for part, verdict in verdicts.items()]
    name = "zoo at full that is not same"
    assert "0.000  at most 0: met, of 1 rows" in lines(rows[:1])[name]
    assert "1.000  at most 0: MISSED, of 2 rows (correct train gpt2 diverged)" in lines(rows)[name]
    failed: Row = {"part": "correct train vit", "commit": "a", "error": "it took longer than 240 s"}
    assert "2.000  at most 0: MISSED, of 3 rows" in lines([*rows, failed])[name]
    assert "correct train vit failed" in lines([*rows, failed])[name] and "not measured" in lines([])[name]


def test_figures_of_tiny_calls_tell_dynamos_share() -> None:
    rows = [{"part": "overhead infer", "commit": "a", "ms": 0.02, "against_ms": 0.025, "speed_ratio": 1.25}]
    name = "a tiny call, no gradients: ours over Inductor's"
    assert lines(rows)[name].endswith("0.800  at most 0.85: met, of 1 rows")
    told = lines([{**rows[0], "dynamo_own_ms": 0.0075}])[name]
    assert told.endswith("of 1 rows; Dynamo's own: 7.5 of 20.0 and 25.0 us")


def test_dynamo_takes_its_share_of_a_tiny_call() -> None:
    from assay.suites.gpu.zoo import behind_dynamo

    (case,) = [case for case in discover(("overhead",)) if case.name == "overhead.tiny_function"]
    steps = [make_step(case, "infer", resolve(name).wrap, size="tiny", seed=0, device="cpu")
             for name in ("eager", "eager-none")]  # fmt: skip
    found = behind_dynamo(steps[0], steps[1], 5, "cpu")
    assert 0 < found["dynamo_own_ms"] < found["dynamo_ms"] < 10


@pytest.mark.parametrize("backend", ["assay", "tests.faulty_backends:loses_a_rounding"])
def test_models_are_judged_where_they_are_made(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the zoo needs it")
    path = tmp_path / "rows.json"
    correct.main(
        ["--device", "cpu", "--size", "tiny", "--mode", "train", "--backend", backend, "--json", str(path), "vit"]
    )
    (row,) = json.loads(path.read_text())["rows"]
    assert (row["model"], row["precision"], row["size"]) == ("zoo.vit", "float32", "tiny")
    assert (row["verdict"] == "same") is (backend == "assay") and bool(row["differences"]) is (backend != "assay")


def test_what_was_measured_at_this_commit_is_measured_no_more(tmp_path: Path) -> None:
    path, asked = tmp_path / "rows.jsonl", list[str]()

    def start(part: Part, limit_s: float, devices: str) -> list[Row]:
        asked.append(part.name)
        return [{"speed_ratio": 2.0}, {"speed_ratio": 3.0}]

    some = list(parts())[:3]
    go_on(some[:2], path, 1000, "a", start)
    go_on(some, path, 1000, "a", start)
    assert asked == [part.name for part in some] and len(read(path)) == 6
    go_on(some[:1], path, 1000, "b", start)
    assert [row["commit"] for row in read(path)] == ["a"] * 4 + ["b"] * 2


def test_nothing_is_begun_without_time(tmp_path: Path) -> None:
    go_on(parts(), tmp_path / "rows.jsonl", 20, "a", lambda part, *given: pytest.fail(part.name))


def test_each_gpu_has_a_part_of_its_own_and_tests_have_all_of_them(tmp_path: Path) -> None:
    path, seen, both = tmp_path / "rows.jsonl", list[tuple[str, str]](), threading.Barrier(2, timeout=60)

    def start(part: Part, limit_s: float, devices: str) -> list[Row]:
        seen.append((part.name, devices))
        if not part.needs_all:
            both.wait()  # raises unless two of them run at once
        return [{"speed_ratio": 2.0}]

    some = list(parts())[:6]
    go_on(some, path, 1000, "a", start, ["0", "1"])
    assert seen[:2] == [("tests", "0,1"), ("catalogue", "0,1")]
    assert {devices for _, devices in seen[2:]} == {"0", "1"}
    assert sorted(name for name, _ in seen) == sorted(row["part"] for row in read(path)) != []
    assert len(seen) == len(some)


def test_a_part_sees_the_gpus_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[str]()

    def started(command: list[str], env: dict[str, str], **more: object) -> CompletedProcess[str]:
        seen.append(env["CUDA_VISIBLE_DEVICES"])
        return CompletedProcess(command, 1, "", "")

    monkeypatch.setattr(figures.subprocess, "run", started)
    run(Part("one", "assay.suites.gpu.zoo", (), 60), 60, "3")
    assert seen == ["3"]


def test_the_host_names_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert figures.devices_of_host() == ["2", "3"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(figures.shutil, "which", lambda name: None)
    assert figures.devices_of_host() == [""]
    listed = CompletedProcess([], 0, "GPU 0: NVIDIA H100\nGPU 1: NVIDIA H100\n", "")
    monkeypatch.setattr(figures.shutil, "which", lambda name: name)
    monkeypatch.setattr(figures.subprocess, "run", lambda *command, **more: listed)
    assert figures.devices_of_host() == ["0", "1"]


def test_a_part_that_fails_or_takes_too_long_says_so() -> None:
    (failed,) = run(Part("bad", "assay.suites.gpu.zoo", ("nothing",), 60), 60)
    assert "no cases of zoo: nothing" in failed["error"]
    (slow,) = run(Part("slow", "assay.suites.gpu.zoo", (), 1), 1)  # which imports torch for longer
    assert slow == {"error": "it took longer than 1 s"}


def test_tests_are_counted_by_what_pytest_says_last() -> None:
    found = counted("..F\n____ b ____\n> f()\nE   no\nFAILED a.py::b - no\n1 failed, 170 passed, 2 skipped in 36.76s\n")
    assert found["reasons"] == ["____ b ____", "E   no"]
    assert found["failed"] == 1 and found["names"] == ["FAILED a.py::b - no"]
    assert counted("171 passed in 36.76s")["passed"] == 171 and "failed" not in counted("")
    assert counted("1 failed, 2 passed in 3.10s\nsys:1: ResourceWarning: unclosed file <name=96>\n")["failed"] == 1
    silent: list[Row] = [{"part": "tests", "commit": "a", **counted("Killed")}]
    assert "not measured" in lines(silent)["tests that failed"]


def test_parts_name_every_model_of_the_zoo() -> None:
    pytest.importorskip("transformers", reason="the zoo needs it")
    assert {case.name.removeprefix("zoo.") for case in discover(("zoo",))} == set(MODELS)
    assert len({part.name for part in parts()}) == len(list(parts()))


def test_main_lists_parts_and_makes_figures_of_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"part": "optimizer sgd", "commit": "a", "speed_ratio": 1.5}) + "\n")
    main(["--rows", str(path), "--list", "--parts", "recorded"])
    assert len(capsys.readouterr().out.split("\n")) == len(MODELS) + 1
    main(["--rows", str(path), "--seconds", "0"])
    assert "1.500  at least 1: met" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--rows", str(path), "--parts", "nothing"])


def test_a_checkout_without_a_repository_has_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*command: object, **more: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(figures.subprocess, "run", missing)
    assert figures.commit_of_checkout() == ""
