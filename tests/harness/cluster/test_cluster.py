"""Rows on Dask are those of a single process; a worker that dies is no end, and a task that kills two is a crash."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="rows on a cluster need Dask: tox -e cluster")

import distributed
from click.testing import CliRunner

from assay.harness.cli.commands import commands
from assay.harness.cluster import rows
from assay.harness.cluster.rows import LOCAL, Task, client_of, run_tasks
from assay.harness.outcome import Result
from tests.harness.cluster.dying import MARKERS, row_or_death

CASES = str(Path(__file__).with_name("rows_here.py"))
WRONG = "tests.harness.cluster.rows_here:doubles_later_calls"
UNTIMED = {"eager_ms", "ms", "compile_s", "eager_ms_spread", "ms_spread", "speed_spread"}
NOBODY = "tcp://127.0.0.1:1"
KILLS_TWO = ("crash", "it ended 2 workers of the cluster with no other task on them")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[distributed.Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARKERS, str(tmp_path_factory.mktemp("marks")))
        with client_of(LOCAL, 2) as made:
            yield made


def told(path: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit status of `assay run`, and the rows of its report without their times."""
    status = CliRunner().invoke(commands, ["run", *arguments, "--json", str(path)]).exit_code
    found = json.loads(path.read_text())["results"]
    return status, [{name: value for name, value in row.items() if name not in UNTIMED} for row in found]


def test_cluster_gives_the_rows_of_a_single_process(client: distributed.Client, tmp_path: Path) -> None:
    asked = [f"{CASES}::plain", "--backend", WRONG, "--backend", "eager", "--seed", "3"]
    single = told(tmp_path / "single.json", *asked, "--isolate")
    assert told(tmp_path / "cluster.json", *asked, "--cluster", client.scheduler.address) == single
    assert single[0] == 1 and [row["verdict"] for row in single[1]] == ["diverged", "same"]


def test_cluster_runs_a_row_again_whose_worker_died(client: distributed.Client, tmp_path: Path) -> None:
    status, found = told(tmp_path / "rows.json", CASES, "--filter", "kills", "--backend", "eager",
                         "--cluster", client.scheduler.address)  # fmt: skip
    assert [(row["case"], row["verdict"]) for row in found] == [
        ("rows_here.kills_once", "same"), ("rows_here.kills_always", "crash"),
    ]  # fmt: skip
    assert (status, found[1]["detail"]) == (1, KILLS_TWO[1])


def task(name: str) -> Task:
    return Task({"case": name, "mode": "infer", "backend": "a"})


def ran(client: distributed.Client, tasks: Sequence[Task]) -> dict[str, tuple[str, str]]:
    return {row.case: (row.verdict, row.detail) for row in run_tasks(client, tasks, row_or_death)}


def test_cluster_blames_the_task_alone_that_kills_workers(client: distributed.Client) -> None:
    names = ("dies_once", "dies_always", "lives")
    assert ran(client, [task(name) for name in names]) == {
        "dies_once": ("same", ""), "dies_always": KILLS_TWO, "lives": ("same", ""),
    }  # fmt: skip


def test_cluster_tells_a_worker_all_that_is_asked_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Task] = []

    def run_none(client: object, tasks: Sequence[Task]) -> Iterator[Result]:
        seen.extend(tasks)
        return iter(())

    monkeypatch.setattr(rows, "client_of", lambda *given: contextlib.nullcontext())
    monkeypatch.setattr(rows, "run_tasks", run_none)
    options = ["--seed", "7", "--thorough", "--warm", "--timeout", "9", "--cluster"]
    CliRunner().invoke(commands, ["run", f"{CASES}::plain", "--backend", "eager", *options])
    (one,) = seen
    asked = one.request["asked"]
    seen_of_it = asked["seed"], asked["is_thorough"], one.timeout_s, one.is_warm
    assert seen_of_it == (7, True, 9, True)


def test_cluster_waits_for_no_worker_once_all_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "WORKERS_S", 0.3)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None, host="127.0.0.1") as empty,
        distributed.Client(empty) as alone,
        pytest.raises(OSError, match="no worker"),
    ):
        list(run_tasks(alone, [task("lives")], row_or_death))


def test_cluster_says_that_no_scheduler_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ANSWER_S", 0.2)
    found = CliRunner().invoke(commands, ["run", f"{CASES}::plain", "--backend", "eager", "--cluster", NOBODY])
    assert found.exit_code == 2 and f"--cluster {NOBODY}: " in found.output


def test_cluster_says_that_a_scheduler_has_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "WORKERS_S", 0.2)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None, host="127.0.0.1") as empty,
        pytest.raises(OSError, match="no worker"),
        client_of(empty.scheduler_address, 1),
    ):
        pass
