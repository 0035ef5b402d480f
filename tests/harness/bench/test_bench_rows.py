"""`assay.harness.bench.models`: rows from what the workers said, means, and what is in no mean."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from assay.harness.bench import models as bench
from assay.harness.bench.models import Answer, Bench, BenchRow, Settings

SETTINGS = Settings("assay", ("inductor", "eager"), seed=0, device="cpu", rounds=3, timeout_s=60.0)
KEYS = [
    "case", "mode", "backend", "against", "ms", "against_ms", "speed_ratio", "speed_spread", "compile_s",
    "against_compile_s", "compile_ratio", "memory_ratio", "verdict",
    "copy_share", "dynamo_ms",
]  # fmt: skip


def steady(verdict: str = "same", **pair: Any) -> Answer:
    said = {
        "ms": 2.0,
        "against_ms": 3.0,
        "speed_ratio": 1.5,
        "speed_spread": [1.4, 1.6],
        "error": "",
    }
    return Answer(
        {"infer": {"mode": "infer", "verdict": verdict, "detail": "stride", "pairs": {"inductor": said | pair}}}
    )


def cold(compile_s: float, megabytes: int = 10) -> Answer:
    said = {"mode": "infer", "compile_s": compile_s, "peak_bytes": megabytes << 20, "error": ""}
    return Answer({"infer": said})


def assemble(steady_answer: Answer, cold_answers: dict[tuple[str, str], Answer] | None = None) -> tuple[BenchRow, str]:
    if cold_answers is None:
        cold_answers = {("assay", "infer"): cold(2.0), ("inductor", "infer"): cold(8.0, 11)}
    return bench.assemble("a", "infer", "inductor", SETTINGS, steady_answer, cold_answers)


def test_row_has_exactly_the_keys_of_the_schema_and_ratios_theirs_over_ours() -> None:
    row, reason = assemble(steady())
    assert list(dataclasses.asdict(row)) == KEYS
    assert (row.speed_ratio, row.compile_s, row.against_compile_s, row.compile_ratio) == (1.5, 2.0, 8.0, 4.0)
    assert row.memory_ratio == 1.1
    assert (row.verdict, row.counts, reason) == ("same", True, "")


def test_row_against_eager_has_memory_but_no_compile_time() -> None:
    cold_answers = {("assay", "infer"): cold(2.0, 5), ("eager-none", "infer"): cold(0.0, 10)}
    row, _ = bench.assemble("a", "infer", "eager", SETTINGS, steady(), cold_answers)
    assert (row.compile_s, row.against_compile_s, row.compile_ratio, row.memory_ratio) == (2.0, None, None, 2.0)


def test_row_that_is_not_same_keeps_its_times_and_counts_in_no_mean() -> None:
    row, reason = assemble(steady("diverged"))
    assert row.ms == 2.0 and not row.counts
    assert reason == "diverged: stride"


@pytest.mark.parametrize(
    "failure", [("timeout", "no answer within 60 s (--timeout)"), ("crash", "killed by SIGSEGV: x")]
)
def test_row_of_a_worker_that_did_not_end_well_has_its_verdict(failure: tuple[str, str]) -> None:
    row, reason = assemble(Answer({}, failure), {})
    assert (row.verdict, row.ms, row.compile_s, row.compile_ratio) == (failure[0], None, None, None)
    assert reason == ": ".join(failure)


def test_row_of_a_rival_that_failed_is_in_no_mean_and_is_not_our_failure() -> None:
    nothing = {"ms": None, "against_ms": None, "speed_ratio": None, "speed_spread": None}
    row, reason = assemble(steady(**nothing, error="RuntimeError: theirs"))
    assert row.verdict == "same" and not row.counts and reason == "RuntimeError: theirs"


def test_summary_means_only_over_rows_that_count() -> None:
    good = assemble(steady())[0]
    rows = [
        good,
        dataclasses.replace(good, speed_ratio=6.0, compile_s=1.0, compile_ratio=8.0, memory_ratio=None),
        dataclasses.replace(good, speed_ratio=1000.0, verdict="diverged"),
    ]
    (summary,) = bench.summarize(rows)
    assert (summary.rows, summary.counted) == (3, 2)
    assert summary.speed_ratio == pytest.approx(3.0)
    assert summary.compile_ratio == pytest.approx(32**0.5)
    assert summary.total_compile_ratio == pytest.approx(16 / 3)
    assert summary.memory_ratio == pytest.approx(1.1)


def test_summary_of_nothing_that_counts_claims_nothing() -> None:
    (summary,) = bench.summarize([assemble(steady("crash"))[0]])
    assert (summary.counted, summary.speed_ratio, summary.compile_ratio, summary.memory_ratio) == (0, None, None, None)


def test_document_and_table_say_what_was_left_out_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    row, reason = assemble(steady("diverged"))
    done = Bench((row,), (bench.LeftOut("a", "infer", "inductor", reason),), interrupted=False)
    data = json.loads(json.dumps(bench.document(done, {"torch": "2"})))
    assert data["rows"][0]["speed_spread"] == [1.4, 1.6]
    assert data["left_out"] == [{"case": "a", "mode": "infer", "against": "inductor", "reason": "diverged: stride"}]
    bench.show(Console(width=200), done)
    said = capsys.readouterr().out
    assert "In no mean are 1 of 1 rows" in said and "a infer against inductor: diverged: stride" in said
    assert not done.passes


def test_cold_is_asked_of_each_backend_in_a_process_of_its_own(tmp_path: Path) -> None:
    subject = bench.Subject(
        bench.Case("a", lambda: (print, (), {}), ("infer", "train"), (), ("tiny",)), ("infer", "train"), "tiny"
    )
    asked = [(request.backend, request.modes) for request in bench.cold_requests(subject, SETTINGS)]
    assert asked == [
        ("assay", ("infer",)),
        ("inductor", ("infer",)),
        ("eager-none", ("infer",)),
        ("assay", ("train",)),
        ("inductor", ("train",)),
        ("eager-none", ("train",)),
    ]
