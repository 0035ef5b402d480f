"""What a run of batches shows on the terminal and writes as JSON.

{"schema": 1, "environment": {...}, "interrupted": false, "covered": {...}, "samples", "verdicts": {"same": n},
 "given_back", "compiles", "seconds",
 "coverage": {"nodes", "nodes_generated", "generated"},            of the forms forward and backward, static shapes
 "fallbacks": [{"name", "count", "operators": ["softmax", ...]}],  of the same, most frequent first
 "failing": [{"operator", "samples", "of", "verdicts": {...}}],
 "batches": [a row for each batch of which samples are `same`, with their dtypes and layouts],
 "results": [a row for each sample that is not `same`, as in every report]}
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.harness.batches import batch_summary
from assay.harness.batches.batch import AS_MUCH, Tally
from assay.harness.batches.batch_run import Ended, Settings, Shard, Store, Unit, run_units
from assay.harness.judge import ledger
from assay.harness.judge.ledger import Judgement, Known
from assay.harness.outcome import Result
from assay.harness.report import documents as report
from assay.harness.report import progress
from assay.harness.report.documents import Row

EVERY = 200
"""A line of progress each so many units."""
SHOWN = 25
INTERRUPTED = 130
MEASURED = ("forward", "backward")
"""The forms whose nodes are counted for how much is generated."""


@dataclass(slots=True)
class Found:
    """What a run has come to so far."""

    known: Sequence[Known]
    units: int = 0
    samples: int = 0
    given_back: int = 0
    compiles: int = 0
    seconds: float = 0.0
    nodes: int = 0
    nodes_generated: int = 0
    interrupted: bool = False
    verdicts: Counter[str] = field(default_factory=Counter)
    commits: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    callers: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    samples_of: Counter[str] = field(default_factory=Counter)
    verdicts_of: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    rows: list[Row] = field(default_factory=list)
    suite: str = ""
    same: list[Result] = field(default_factory=list)

    def add(self, ended: Ended) -> list[Row]:
        """Counts a unit; the rows of it that do not pass."""
        tally, operator = ended.tally, operator_of(ended.unit)
        self.units += 1
        self.commits[ended.commit] += 1
        self.samples += tally.samples
        self.given_back += tally.given_back
        self.compiles += tally.compiles
        self.seconds += ended.seconds
        self.verdicts.update(tally.verdicts)
        self.samples_of[operator] += tally.samples
        if tally.verdicts["same"]:
            self.same.append(row_of_same(ended.unit, tally, self.suite))
        rows = [Row(result, judged(result, self.known)) for result in tally.failures]
        for row in rows:
            self.verdicts_of[operator][row.result.verdict] += 1
        self.rows += rows
        if ended.unit.batch.form in MEASURED and "dynamic" not in ended.unit.backend.split(","):
            self._count(ended, operator)
        return [row for row in rows if not row.judgement.passes]

    def _count(self, ended: Ended, operator: str) -> None:
        self.nodes += ended.tally.nodes
        self.nodes_generated += ended.tally.nodes_generated
        self.fallbacks.update(ended.tally.fallbacks)
        for name, count in ended.tally.fallbacks.items():
            self.callers[name][operator] += count

    @property
    def passes(self) -> bool:
        return all(row.judgement.passes for row in self.rows)

    @property
    def generated(self) -> float | None:
        return self.nodes_generated / self.nodes if self.nodes else None


def row_of_same(unit: Unit, tally: Tally, suite: str) -> Result:
    """The row of those samples of a batch that are as eager."""
    name, mode = f"{suite}.{unit.batch.name}", unit.batch.mode
    detail = f"{tally.verdicts['same']} of {tally.samples} samples"
    dtypes, layouts = tuple(sorted(tally.dtypes)), tuple(sorted(tally.layouts))
    return Result(name, mode, unit.backend, "same", detail=detail, dtypes=dtypes, layouts=layouts)


def judged(result: Result, known: Sequence[Known]) -> Judgement:
    """What passes: what the ledger knows, what eager itself does not settle, and what Dynamo alone does as well."""
    if result.verdict in ("reference-unstable", "no-oracle"):
        return Judgement(True, (f"{result.verdict}: eager itself does not settle it",))
    if result.detail.endswith(AS_MUCH):
        return Judgement(True, (AS_MUCH,))
    return ledger.judge(result, known, datetime.date.today())


def operator_of(unit: Unit) -> str:
    """The group without its dtype: `softmax.with_dtype`."""
    name, _, dtype = unit.batch.group.rpartition(".")
    return name or dtype


@dataclass(frozen=True, slots=True)
class Files:
    """What a run of batches reads and writes: its store of ended units, its reports, the summary of all shards."""

    resume: Path | None = None
    json_path: Path | None = None
    html: Path | None = None
    summary: Path | None = None


def run_batches(units: Sequence[Unit], settings: Settings, facts: Mapping[str, Any], shard: Shard, files: Files) -> int:
    """Runs the units, shows and writes; gives the exit status: 0 when every sample is as eager or in the ledger.

    Raises: StoreError for a file to resume, or a summary, that belongs to another run.
    """
    console, found = progress.terminal(), Found(ledger.read(device=settings.device), suite=settings.suite)
    own = {"suite": settings.suite, "seed": settings.seed, "torch": facts["torch"], **batch_summary.on_device(settings)}
    store = Store(files.resume, own) if files.resume else None
    asked = batch_summary.asked_of(settings, units)
    if files.summary is not None:
        batch_summary.read(files.summary, asked, shard.count)
    before = store.read(units) if store is not None else []
    for ended in before:
        found.add(ended)
    done = {ended.unit.key for ended in before}
    left = [unit for unit in units if unit.key not in done]
    console.print(covered_line(units, shard, len(before)), soft_wrap=True)
    try:
        for new in run_units(left, settings):
            ended = dataclasses.replace(new, commit=facts.get("commit") or "")
            if store is not None:
                store.add(ended)
            _tell(console, found, found.add(ended), len(units))
    except KeyboardInterrupt:
        found.interrupted = True
    if files.json_path is not None:
        report.write_json(files.json_path, document(found, units, facts, shard))
    if files.html is not None:
        report.write_html(files.html, report.render_html(found.rows, facts, interrupted=found.interrupted))
    if files.summary is not None:
        record = batch_summary.record(figures(found, units), found.rows, facts)
        batch_summary.write(files.summary, record, asked, shard)
    show(console, found)
    return INTERRUPTED if found.interrupted else 0 if found.passes else 1


def figures(found: Found, units: Sequence[Unit]) -> dict[str, Any]:
    """The numbers of a run that a summary keeps."""
    names = ("samples", "given_back", "compiles", "nodes", "nodes_generated", "generated")
    counts = {"units": len(units), "ended": found.units, "same": found.verdicts["same"]}
    counted = {name: getattr(found, name) for name in names}
    return {"commits": dict(found.commits), **counts, **counted, "seconds": round(found.seconds, 1)}


def _tell(console: Console, found: Found, failing: Sequence[Row], count: int) -> None:
    for row in failing[:3]:
        console.print(progress.result_line(row), soft_wrap=True)
    if len(failing) > 3:
        console.print(f"  and {len(failing) - 3} more of this batch", soft_wrap=True)
    if found.units % EVERY == 0:
        console.print(Text(f"[{found.units}/{count}] ") + totals_line(found), soft_wrap=True)
        console.file.flush()


def covered(units: Sequence[Unit], shard: Shard) -> dict[str, Any]:
    """What a run covers, as data."""
    forms = Counter(f"{unit.batch.form} {unit.batch.mode}" for unit in units)
    return {
        "shard": f"{shard.number}/{shard.count}",
        "operators": len({operator_of(unit) for unit in units}),
        "groups": len({unit.batch.group for unit in units}),
        "units": len(units),
        "backends": sorted({unit.backend for unit in units}),
        "forms": dict(sorted(forms.items())),
    }


def covered_line(units: Sequence[Unit], shard: Shard, before: int) -> str:
    data = covered(units, shard)
    forms = ", ".join(data["forms"])
    return (
        f"Shard {data['shard']}: {data['operators']} operators in {data['groups']} groups of one dtype, "
        f"{data['units']} batches ({forms}) on {', '.join(data['backends'])}; {before} of them had ended before"
    )


def show(console: Console, found: Found) -> None:
    if found.fallbacks:
        console.print(fallback_table(found))
    if found.rows:
        console.print(failing_table(found))
    console.print(totals_line(found), soft_wrap=True)
    if found.interrupted:
        console.print("Interrupted; only the batches that had ended are reported.", style="bold yellow")


def totals_line(found: Found) -> Text:
    """`4012 samples as eager (4010 same, 2 diverged), 12 of them in eager; 76% of 9120 nodes generated; 310 s`"""
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in found.verdicts.most_common())
    explained = sum(row.is_known for row in found.rows)
    line = Text(f"{found.samples} samples: {verdicts or 'none'}", style="bold")
    line += Text(f"; {explained} of them explained; {found.given_back} given back to eager", style="")
    if found.nodes:
        line += Text(f"; {report.percent(found.generated)} of {found.nodes} nodes generated", style="")
    return line + Text(f"; {found.compiles} compiles in {found.seconds:.0f} s", style="")


def fallback_table(found: Found) -> Table:
    """The operators of ATen that were called the most."""
    table = progress.table(("called", "most by"), ("times", "operators"))
    for name, count in found.fallbacks.most_common(SHOWN):
        callers = found.callers[name]
        most = ", ".join(operator for operator, _ in callers.most_common(4))
        table.add_row(name, most, str(count), str(len(callers)))
    return table


def failing_table(found: Found) -> Table:
    """The operators with the most samples that are not `same`."""
    table = progress.table(("operator", "verdicts"), ("samples", "of"))
    for operator, verdicts in _failing(found)[:SHOWN]:
        told = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())
        table.add_row(operator, told, str(verdicts.total()), str(found.samples_of[operator]))
    return table


def _failing(found: Found) -> list[tuple[str, Counter[str]]]:
    return sorted(found.verdicts_of.items(), key=lambda item: -item[1].total())


def document(found: Found, units: Sequence[Unit], facts: Mapping[str, Any], shard: Shard) -> dict[str, Any]:
    """The JSON report as plain data."""
    return report.finite(
        {
            "schema": report.SCHEMA,
            "environment": dict(facts),
            "interrupted": found.interrupted,
            "covered": covered(units, shard),
            **{name: getattr(found, name) for name in ("samples", "given_back", "compiles", "seconds")},
            "verdicts": dict(found.verdicts),
            "coverage": {name: getattr(found, name) for name in ("nodes", "nodes_generated", "generated")},
            "fallbacks": [
                {"name": name, "count": count, "operators": [one for one, _ in found.callers[name].most_common()]}
                for name, count in found.fallbacks.most_common()
            ],
            "failing": [
                {
                    "operator": name,
                    "samples": verdicts.total(),
                    "of": found.samples_of[name],
                    "verdicts": dict(verdicts),
                }
                for name, verdicts in _failing(found)
            ],
            "batches": [dataclasses.asdict(row) for row in found.same],
            "results": [{**dataclasses.asdict(row.result), **dataclasses.asdict(row.judgement)} for row in found.rows],
        }
    )
