"""What whole runs of a suite of batches came to, a small record a shard, built over several sessions.

    assay run ops --shard 3/8 --resume STORE --summary suites/benchmarks/results/ops.json

{"schema": 1, "asked": {"suite", "seed", "backends"}, "count": 8,
 "total": {"shards", and the sums of what each shard has},
 "shards": {"3": {"torch", "date", "commits": {commit: units}, "units", "ended", "samples", "same", "given_back",
                  "compiles", "nodes", "nodes_generated", "generated", "seconds", "explained": {"diverged": n},
                  "unexplained": {...}}}}

A shard that runs again takes the place of what it was; its batches may have ended at several commits. `explained`: by
the ledger, by eager that does not agree with itself, or by Dynamo alone. Nodes are counted as in the report of a run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.harness.batches.batch_run import Settings, Shard, StoreError, Unit
from assay.harness.report import documents as report
from assay.harness.report.documents import Row

SUMS = ("units", "ended", "samples", "same", "given_back", "compiles", "nodes", "nodes_generated", "seconds")
KINDS = ("commits", "explained", "unexplained")


def record(figures: Mapping[str, Any], rows: Sequence[Row], facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a shard came to, as plain data: its figures, and how many rows of each kind are not `same`."""
    kinds = {True: Counter[str](), False: Counter[str]()}
    for row in rows:
        kinds[row.judgement.passes][row.result.verdict] += 1
    told = {"explained": dict(kinds[True]), "unexplained": dict(kinds[False])}
    return {"torch": facts.get("torch"), "date": facts.get("date"), **figures, **told}


def total(shards: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The sums over shards."""
    sums = {name: round(sum(one[name] for one in shards.values()), 1) for name in SUMS}
    kinds = {kind: dict(sum((Counter(one[kind]) for one in shards.values()), Counter[str]())) for kind in KINDS}
    generated = sums["nodes_generated"] / sums["nodes"] if sums["nodes"] else None
    return {"shards": len(shards), **sums, **kinds, "generated": generated}


def asked_of(settings: Settings, units: Sequence[Unit]) -> dict[str, Any]:
    """What must be the same for shards to be of one whole."""
    backends = sorted({unit.backend for unit in units})
    return {"suite": settings.suite, "seed": settings.seed, "backends": backends, **on_device(settings)}


def on_device(settings: Settings) -> dict[str, str]:
    """The device where it is not the CPU, of which files from before there was a choice say nothing."""
    return {} if settings.device == "cpu" else {"device": settings.device}


def read(path: Path, asked: Mapping[str, Any], count: int) -> dict[str, dict[str, Any]]:
    """The shards that a file has, none where there is no file yet.

    Raises: StoreError for a file of a whole that was asked or divided otherwise.
    """
    if not path.is_file():
        return {}
    held = json.loads(path.read_text())
    if (held["asked"], held["count"]) != (asked, count):
        raise StoreError(
            f"{path} is of {held['count']} shards asked {held['asked']}, this run of {count} asked {dict(asked)}"
        )
    return dict(held["shards"])


def write(path: Path, new: Mapping[str, Any], asked: Mapping[str, Any], shard: Shard) -> None:
    """Puts the record of one shard into the file, in the place of an earlier one.

    Raises: StoreError, as `read` does.
    """
    held = {**read(path, asked, shard.count), str(shard.number): dict(new)}
    shards = {number: held[number] for number in sorted(held, key=int)}
    content = {"schema": report.SCHEMA, "asked": dict(asked), "count": shard.count, "total": total(shards)}
    report.write_json(path, {**content, "shards": shards})
