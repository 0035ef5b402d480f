"""Rows on Dask are those of a single process; a worker that dies is no end, and a task that kills two is a crash."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="rows on a cluster need Dask: tox -e cluster")

from click.testing import CliRunner

from assay.harness.cli.commands import commands
from assay.harness.cluster.rows import LOCAL, Task, client_of, run_tasks
from assay.harness.outcome import Result
from tests.harness.cluster.dying import run_or_die

CASES = str(Path(__file__).parents[1] / "locate" / "wrong_gelu.py")
UNTIMED = {"eager_ms", "ms", "compile_s", "eager_ms_spread", "ms_spread", "speed_spread"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_TEST_MARKER", str(tmp_path_factory.mktemp("markers")))
        with client_of(LOCAL, 2) as made:
            yield made


def facts(result: Result) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(result).items() if name not in UNTIMED}


def test_cluster_gives_the_rows_of_a_single_process(tmp_path: Path) -> None:
    found = []
    for place, extra in enumerate(([], ["--cluster"])):
        path = tmp_path / f"{place}.json"
        arguments = ["run", CASES, "--backend", "eager", "--mode", "infer", "--isolate", "--json", str(path), *extra]
        assert CliRunner().invoke(commands, arguments).exit_code == 0
        found.append(
            [{k: v for k, v in row.items() if k not in UNTIMED} for row in json.loads(path.read_text())["results"]]
        )
    assert len(found[0]) == 2 and found[0] == found[1]


def test_cluster_runs_a_task_again_whose_worker_died(client: Any) -> None:
    tasks = [Task("", "dies_once", "infer", "a"), Task("", "dies_always", "infer", "b")]
    once, always = run_tasks(client, tasks, run_or_die)
    assert once.verdict == "same"
    assert (always.verdict, always.detail) == ("crash", "it ended 2 workers of the cluster with no other task on them")


def test_cluster_says_that_no_scheduler_answers() -> None:
    with pytest.raises(OSError), client_of("tcp://127.0.0.1:1", 1):
        pass
