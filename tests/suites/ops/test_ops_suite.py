"""Batches: many samples in one compile, each with a verdict of its own."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from assay.harness.batches import batch_summary
from assay.harness.batches.batch import AS_MUCH, How, Tally, run_batch
from assay.harness.batches.batch_report import Files, Found, document, judged, run_batches
from assay.harness.batches.batch_run import Ended, Settings, Shard, Store, StoreError, plan, run_units
from assay.harness.batches.sample import Batch, Sample
from assay.harness.case import MODES, SHAPES
from assay.harness.cli.commands import commands
from assay.harness.outcome import Result
from tests.toy_batches import ALL, drawn, plus, rejected, samples, shifted

TOYS = "tests.toy_batches"


def tally_of(batch: Batch, backend: str) -> Tally:
    return run_batch(batch, How(backend, 0, "toys"))


def failing(tally: Tally) -> dict[str, str]:
    """Verdicts of samples that are not `same`, by what stands in the brackets of their names."""
    return {result.case.partition("[")[2].rstrip("]"): result.verdict for result in tally.failures}


def test_batch_of_samples_that_are_as_eager_is_one_compile() -> None:
    tally = tally_of(ALL, "eager")
    assert (tally.samples, dict(tally.verdicts), tally.compiles, tally.failures) == (5, {"same": 5}, 1, [])


def test_batch_with_strides_that_are_symbols_is_one_compile() -> None:
    """Without Dynamo no input of the graph is such a stride: it is read off its tensor."""

    def make(seed: int) -> list[Sample]:
        torch.manual_seed(seed)
        rooms = (torch.randn(6, 3)[:, 1], torch.randn(4, 5, 2)[1:, :, 0], torch.randn(5, 4).t())
        return [Sample(str(number), shifted, (room,), {}) for number, room in enumerate(rooms)]

    tally = tally_of(Batch("toys.forward", "toys", "infer", make), "assay,dynamic")
    assert (dict(tally.verdicts), tally.compiles, tally.nodes_generated) == ({"same": 3}, 1, 3)


@pytest.mark.parametrize(
    "backend, expected",
    [
        ("wrong_in_difference", {"3 shifted": "diverged"}),
        ("refuses_sort", {"2 ordered": "unsupported"}),
    ],
)
def test_batch_names_the_sample_that_is_wrong(backend: str, expected: dict[str, str]) -> None:
    tally = tally_of(ALL, f"{TOYS}:{backend}")
    assert failing(tally) == expected
    assert tally.samples == 5 and tally.verdicts["same"] == 4


def test_batch_finds_what_is_wrong_only_among_others() -> None:
    (failure,) = tally_of(ALL, f"{TOYS}:breaks_among_many").failures
    assert failure.case.endswith("[1 squared]") and failure.verdict == "diverged"
    assert failure.detail.startswith("only among others") and failure.differences


def test_batch_of_which_eager_rejects_one_judges_all() -> None:
    batch = Batch("toys.forward", "toys", "infer", samples(plus, rejected, shifted))
    for backend in ("eager", "assay"):
        tally = tally_of(batch, backend)
        assert dict(tally.verdicts) == {"same": 3}, failing(tally)
    assert failing(tally_of(batch, f"{TOYS}:wrong_in_difference")) == {"2 shifted": "diverged"}


def test_batch_says_where_dynamo_alone_fails_as_much() -> None:
    def named(x: torch.Tensor) -> torch.Tensor:
        return x + (2 if torch.compiler.is_compiling() else 1)

    batch = Batch("toys.forward", "toys", "infer", samples(plus, named), front="torch.compile")
    (ours,) = tally_of(batch, "assay").failures
    assert ours.case.endswith("[1 named]") and ours.detail.endswith(AS_MUCH) and judged(ours, ()).passes
    (theirs,) = tally_of(ALL, f"{TOYS}:wrong_in_difference").failures
    assert not theirs.detail and not judged(theirs, ()).passes


def test_batch_of_random_samples_draws_as_eager() -> None:
    batch = Batch("toys.forward", "toys", "infer", samples(drawn, plus, drawn))
    assert dict(tally_of(batch, "assay").verdicts) == {"same": 3}


def test_batch_counts_what_is_called_and_what_goes_to_eager() -> None:
    def resized(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y.untyped_storage().resize_(64)
        return y + 1

    def middle(x: torch.Tensor) -> torch.Tensor:
        return x.median()

    tally = tally_of(Batch("toys.forward", "toys", "infer", samples(plus, middle, resized)), "assay")
    assert dict(tally.verdicts) == {"same": 2, "fell-back": 1} and not tally.given_back
    assert tally.fallbacks["aten.median"] == 1 and (tally.nodes, tally.nodes_generated) == (5, 3)  # one was cut out
    assert Tally.read(json.loads(json.dumps(tally.data()))) == tally


def test_batch_in_training_compares_gradients() -> None:
    batch = Batch("toys.backward", "toys", "train", samples(plus, shifted))
    assert tally_of(batch, "assay").verdicts == {"same": 2}
    tally = tally_of(batch, f"{TOYS}:doubles_gradients")
    assert failing(tally) == {"0 plus": "diverged", "1 shifted": "diverged"}
    assert {difference.field for result in tally.failures for difference in result.differences} == {"gradient"}


def test_shards_are_all_units_once() -> None:
    batches = [Batch(f"op{n}.float32.forward", f"op{n}.float32", "infer", samples(plus)) for n in range(50)]
    found = [plan(batches, ("assay",), "", ("infer",), ("static", "dynamic"), Shard(k, 4)) for k in (1, 2, 3, 4)]
    keys = Counter(unit.key for units in found for unit in units)
    assert len(keys) == 100 and set(keys.values()) == {1} and all(found)
    assert all(zlib.crc32(unit.batch.group.encode()) % 4 == 2 for unit in found[2])


def test_store_survives_a_kill_and_knows_its_run(tmp_path: Path) -> None:
    units = plan([ALL], ("assay",), "", ("infer",), ("static", "dynamic"), Shard())
    path, tally = tmp_path / "run.json", Tally(samples=1)
    tally.judged(Result("toys[0]", "infer", "assay", "crash", detail="it ended"))
    store = Store(path, {"seed": 0})
    assert store.read(units) == []
    store.add(Ended(units[0], tally, 1.5))
    with path.open("a") as file:
        file.write('{"unit": "toys.float32.forw')
    (ended,) = Store(path, {"seed": 0}).read(units)
    assert ended.unit is units[0] and ended.tally == tally
    Store(path, {"seed": 0}).add(Ended(units[1], Tally(), 0.1))
    assert len(Store(path, {"seed": 0}).read(units)) == 2
    with pytest.raises(StoreError, match="another run"):
        Store(path, {"seed": 1}).read(units)


def test_units_that_end_their_process_are_named() -> None:
    units = plan([ALL], ("tests.faulty_backends:dies_on_matmul",), "", ("infer",), ("static",), Shard())
    (ended,) = run_units(units, Settings(TOYS, "toys", timeout_s=120))
    assert failing(ended.tally) == {"1 squared": "crash"}
    assert ended.tally.samples == 5 and ended.tally.verdicts["same"] == 4


def test_report_counts_forward_and_backward_nodes_by_caller() -> None:
    found = Found(())
    static, dynamic = plan([ALL], ("assay",), "", ("infer",), ("static", "dynamic"), Shard())
    tally = Tally(samples=2, nodes=3, nodes_generated=2, fallbacks=Counter({"aten.sort": 1}))
    for unit in (static, dynamic):
        found.add(Ended(unit, tally, 1.0))
    data = document(found, [static, dynamic], {}, Shard())
    assert data["coverage"] == {"nodes": 3, "nodes_generated": 2, "generated": 2 / 3}
    assert data["fallbacks"] == [{"name": "aten.sort", "count": 1, "operators": ["toys"]}] and data["samples"] == 4


def test_summary_adds_shards_up_over_sessions(tmp_path: Path) -> None:
    """A shard that runs again takes the place of what it was; what was asked otherwise is refused."""
    path, store, unit = (
        tmp_path / "ops.json",
        tmp_path / "store",
        plan([ALL], ("eager",), "", MODES, SHAPES, Shard())[0],
    )
    settings, facts = Settings(TOYS, "toys"), {"torch": "2", "commit": "b", "date": "today"}
    Store(store, {"suite": "toys", "seed": 0, "torch": "2"}).read([unit])
    tally = Tally(samples=2, nodes=4, nodes_generated=3, verdicts=Counter(same=1, crash=1))
    tally.failures.append(Result("toys[0]", "infer", "eager", "crash"))
    Store(store, {}).add(Ended(unit, tally, 1.5, "a"))
    assert run_batches([unit], settings, facts, Shard(2, 3), Files(resume=store, summary=path)) == 1
    asked = batch_summary.asked_of(settings, [unit])
    new = {**batch_summary.read(path, asked, 3)["2"], "commits": {"b": 1}, "unexplained": {}, "same": 2}
    batch_summary.write(path, new, asked, Shard(1, 3))
    data = json.loads(path.read_text())
    assert list(data["shards"]) == ["1", "2"] and data["shards"]["2"]["unexplained"] == {"crash": 1}
    total = data["total"]
    assert (total["shards"], total["units"], total["samples"], total["same"]) == (2, 2, 4, 3)
    assert total["commits"] == {"a": 1, "b": 1} and total["generated"] == 0.75 and total["seconds"] == 3.0
    with pytest.raises(StoreError, match="3 shards"):
        batch_summary.write(path, new, asked, Shard(1, 4))


@pytest.mark.parametrize(
    "options, told",
    [
        (["--shard", "9/8"], "K/N"),
        (["--shard", "0/8"], "K/N"),
        (["--filter", "no_such_operator"], "matches no batch"),
        (["--summary", "whole.json", "--mode", "infer"], "whole shards"),
    ],
)
def test_run_of_batches_refuses_what_makes_no_sense(options: list[str], told: str) -> None:
    done = CliRunner().invoke(commands, ["run", TOYS, *options])
    assert done.exit_code == 2 and told in done.output


def test_list_of_batches_shows_groups_and_forms() -> None:
    done = CliRunner().invoke(commands, ["list", TOYS, "--filter", "toys"])
    assert done.exit_code == 0 and "toys.float32" in done.output and "forward infer" in done.output
    assert "more.float32" not in done.output
