"""`assay run`: what it runs, what it prints, what it writes, how it exits."""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Invoked
from rich.console import Console

from assay.harness.case import Case, case
from assay.harness.cli import commands as cli
from assay.harness.judge import ledger
from assay.harness.outcome import Difference, Result
from assay.harness.report import progress
from assay.harness.run import RunRequest

CASES = """
import torch
from assay.harness.case import case

@case()
def first():
    return (lambda x: x * 2), (torch.ones(3, requires_grad=True),), {}

@case(modes=("infer",), sizes=("tiny", "small"))
def second():
    return (lambda x: x + 1), (torch.ones(3),), {}
"""

STRIDE = Difference("stride", "output.0", "(1, 4) where eager has (4, 1)")


class FakeRun:
    """Stands in for `run_case`: answers from a table of verdicts and keeps what it was asked."""

    def __init__(self, verdicts: dict[str, str] | None = None, interrupt_at: int | None = None) -> None:
        self.verdicts = verdicts or {}
        self.interrupt_at = interrupt_at
        self.asked: list[tuple[str, str, str]] = []
        self.settings: list[RunRequest] = []
        self.limits: list[float | None] = []

    def __call__(
        self, case: Case, mode: str, backend: str, request: RunRequest, limit_s: float | None = None
    ) -> Result:
        if self.interrupt_at == len(self.asked):
            raise KeyboardInterrupt
        self.asked.append((case.name, mode, backend))
        self.settings.append(request)
        self.limits.append(limit_s)
        verdict = self.verdicts.get(case.name, "same")
        differences = (STRIDE,) if verdict == "diverged" else ()
        return Result(case.name, mode, backend, verdict, differences, 3.0, 2.0, 0.5, 8, 6, {"aten.mm": 2}, 1)


@pytest.fixture
def cases(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(CASES)
    return str(path)


def run(monkeypatch: pytest.MonkeyPatch, fake: FakeRun, *arguments: str) -> Invoked:
    monkeypatch.setattr(cli, "run_case", fake)
    monkeypatch.setattr(cli, "run_isolated", fake)
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli.commands, ["run", *arguments])


def test_run_every_case_mode_and_backend_and_exit_zero(monkeypatch: pytest.MonkeyPatch, cases: str) -> None:
    fake = FakeRun()
    result = run(monkeypatch, fake, cases, "--backend", "eager", "--backend", "aot_eager")
    assert result.exit_code == 0, result.output
    assert fake.asked == [
        ("mine.first", "infer", "eager"),
        ("mine.first", "infer", "aot_eager"),
        ("mine.first", "train", "eager"),
        ("mine.first", "train", "aot_eager"),
        ("mine.second", "infer", "eager"),
        ("mine.second", "infer", "aot_eager"),
    ]
    assert "6 of 6 as eager (6 same); speed 1.50×" in result.output  # noqa: RUF001
    assert "75% of 48 nodes generated" in result.output


def test_run_prints_one_plain_line_a_case_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, cases: str
) -> None:
    result = run(monkeypatch, FakeRun(), cases, "--backend", "eager")
    lines = [line for line in result.output.splitlines() if line.startswith("[")]
    assert [line[:5] for line in lines] == ["[1/3]", "[2/3]", "[3/3]"]
    assert "mine.first infer eager  same  1.50× eager, compile 0.50 s" in lines[0]  # noqa: RUF001
    assert "\x1b" not in result.output


def test_run_exits_one_and_lists_the_differences(monkeypatch: pytest.MonkeyPatch, cases: str) -> None:
    result = run(monkeypatch, FakeRun({"mine.second": "diverged"}), cases, "--backend", "eager")
    assert result.exit_code == 1
    assert "mine.second infer eager: diverged" in result.output
    assert "stride at output.0: (1, 4) where eager has (4, 1)" in result.output
    assert "2 of 3 as eager (2 same, 1 diverged)" in result.output


@pytest.mark.parametrize("verdict", ["reference-unstable", "no-oracle", "unsupported", "timeout", "crash"])
def test_run_exits_one_for_every_verdict_but_same(monkeypatch: pytest.MonkeyPatch, cases: str, verdict: str) -> None:
    result = run(monkeypatch, FakeRun({"mine.second": verdict}), cases, "--backend", "eager")
    assert result.exit_code == 1 and verdict in result.output


def test_run_goes_on_where_the_harness_itself_raises(
    monkeypatch: pytest.MonkeyPatch, cases: str, tmp_path: Path
) -> None:
    class Raising(FakeRun):
        def __call__(self, case: Case, mode: str, backend: str, *asked: Any) -> Result:
            if case.name == "mine.first":
                raise TypeError("a bug of the harness")
            return super().__call__(case, mode, backend, *asked)

    path = tmp_path / "report.json"
    result = run(monkeypatch, Raising(), cases, "--backend", "eager", "--json", str(path))
    assert result.exit_code == 1 and "TypeError: a bug of the harness" in result.output
    assert [row["verdict"] for row in json.loads(path.read_text())["results"]] == ["crash", "crash", "same"]


def test_run_excuses_what_the_ledger_lists(monkeypatch: pytest.MonkeyPatch, cases: str) -> None:
    tomorrow = datetime.date.today() + datetime.timedelta(1)
    known = ledger.Known("mine.*", "infer", "*", "stride", "a reason", "someone", tomorrow)
    monkeypatch.setattr(cli.ledger, "read", lambda device: (known,))
    result = run(monkeypatch, FakeRun({"mine.second": "diverged"}), cases, "--backend", "eager")
    assert result.exit_code == 0, result.output
    assert "diverged (known)" in result.output and "a reason" in result.output


def test_run_writes_json_and_html(monkeypatch: pytest.MonkeyPatch, cases: str, tmp_path: Path) -> None:
    json_path, html = tmp_path / "report.json", tmp_path / "html"
    fake = FakeRun({"mine.first": "diverged"})
    run(monkeypatch, fake, cases, "--backend", "eager", "--json", str(json_path), "--html", str(html), "--seed", "7")
    data = json.loads(json_path.read_text())
    assert [result["verdict"] for result in data["results"]] == ["diverged", "diverged", "same"]
    assert data["results"][0]["differences"][0]["field"] == "stride"
    assert data["environment"]["seed"] == 7 and data["environment"]["torch"] and not data["interrupted"]
    assert "mine.first" in (html / "index.html").read_text()


def test_run_interrupted_writes_what_had_ended_and_exits_130(
    monkeypatch: pytest.MonkeyPatch, cases: str, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    result = run(monkeypatch, FakeRun(interrupt_at=2), cases, "--backend", "eager", "--json", str(path))
    assert result.exit_code == 130
    data = json.loads(path.read_text())
    assert data["interrupted"] is True
    assert [(row["case"], row["mode"]) for row in data["results"]] == [("mine.first", "infer"), ("mine.first", "train")]
    assert "Interrupted" in result.output


def test_run_filter_and_mode_choose_what_runs(monkeypatch: pytest.MonkeyPatch, cases: str) -> None:
    fake = FakeRun()
    run(monkeypatch, fake, cases, "--backend", "eager", "--filter", "first", "--mode", "train")
    assert fake.asked == [("mine.first", "train", "eager")]


def test_run_passes_its_settings_on(monkeypatch: pytest.MonkeyPatch, cases: str) -> None:
    fake = FakeRun()
    run(monkeypatch, fake, cases, "--backend", "eager", "--seed", "3", "--size", "small")
    assert fake.settings[0] == RunRequest(size="tiny", seed=3, device="cpu", is_thorough=False), (
        "a case without that size runs a smaller one"
    )
    assert fake.settings[2].size == "small"


@pytest.mark.parametrize(("options", "limit_s"), [(["--isolate"], 600.0), (["--timeout", "2.5"], 2.5)])
def test_run_isolated_has_a_limit(
    monkeypatch: pytest.MonkeyPatch, cases: str, options: list[str], limit_s: float
) -> None:
    fake = FakeRun()
    run(monkeypatch, fake, cases, "--backend", "eager", *options)
    assert fake.limits[0] == limit_s


@pytest.mark.parametrize(
    ("sizes", "wanted", "chosen"),
    [
        (("tiny", "small", "full"), "small", "small"),
        (("full", "tiny"), "small", "tiny"),
        (("tiny",), "full", "tiny"),
        (("full",), "tiny", "full"),
    ],
)
def test_size_for_is_the_nearest_smaller_one(sizes: tuple[str, ...], wanted: str, chosen: str) -> None:
    declared = case(sizes=sizes)(lambda: (print, (), {}))
    assert cli.size_for(declared, wanted) == chosen


def test_live_progress_shows_what_runs_and_keeps_what_ended() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress.progress(console, 2) as shown:
        shown.begin("case one")
        shown.end(progress.Text("one: same"))
        shown.begin("case two")
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "one: same" in written and "case two" in written and "1/2" in written


def test_the_table_shows_what_is_unknown_as_a_dash_and_cuts_nothing() -> None:
    long_name = "suite." + "long_" * 20
    console = Console(file=io.StringIO(), width=progress.PLAIN_WIDTH)
    row = cli.Row(Result(long_name, "infer", "eager", "timeout"), ledger.Judgement(False))
    console.print(progress.results_table([row]))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert long_name in written and "timeout" in written and "–" in written and "…" not in written  # noqa: RUF001


def test_run_writes_the_report_alone_to_standard_output(monkeypatch: pytest.MonkeyPatch, cases: str) -> None:
    result = run(monkeypatch, FakeRun(), cases, "--backend", "eager", "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert len(data["results"]) == 3 and data["interrupted"] is False
    assert "3 of 3 as eager" in result.stderr
