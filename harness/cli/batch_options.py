"""What `assay run` is asked of a suite of batches, checked before anything runs."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from assay.harness.batches.batch_report import Files, run_batches
from assay.harness.batches.batch_run import TIMEOUT_S, Settings, Shard, StoreError, plan
from assay.harness.case import MODES, SHAPES
from assay.harness.cli.command_options import Chosen, Reports, Variants
from assay.harness.discover import SUITES
from assay.harness.judge import ledger
from assay.harness.option_groups import group
from assay.harness.report import progress


@dataclass(frozen=True, slots=True)
class Sharding:
    """Which part of a suite of batches is run, and the files that join the parts."""

    shard: str
    resume: Path | None
    summary: Path | None


BATCHES = group(
    "sharding",
    Sharding,
    click.option("--shard", default="1/1", show_default=True, metavar="K/N", help="ops, gradients: part K of N."),
    click.option(
        "--resume",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="ops, gradients: what has ended is kept here, and not run again.",
    ),
    click.option(
        "--summary",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="ops: a small file with the figures of each shard, to which this one's are added.",
    ),
)
"""The options that only suites of batches read."""


@dataclass(frozen=True, slots=True)
class Batches:
    """A suite of batches, and which of them to run."""

    module: str
    chosen: Chosen
    variants: Variants
    sharding: Sharding

    def run(self, facts: Mapping[str, Any], jobs: int, timeout_s: float | None, reports: Reports) -> int:
        """Runs them and gives the exit status. Raises: click.UsageError where there is nothing to run, or no way to."""
        text, modes, shapes = self.chosen.text, self.chosen.modes, self.variants.kinds_of_shapes
        shard, summary = shard_of(self.sharding.shard), self.sharding.summary
        if summary is not None and (text or shapes or set(modes) != set(MODES)):
            raise click.UsageError("--summary is of whole shards: without --filter, --mode and --shapes")
        batches = importlib.import_module(self.module).batches()
        units = plan(batches, self.variants.backends, text, modes, shapes or SHAPES, shard)
        if not units:
            raise click.UsageError(
                f"--filter {text!r} matches no batch of {self.module} in shard {self.sharding.shard}"
            )
        suite, device = self.module.removeprefix(f"{SUITES}.").partition(".")[0], self.chosen.device
        if device != "cpu" and any(unit.batch.judge for unit in units):
            raise click.UsageError(f"--device {device}: {suite} are judged on the CPU")
        settings = Settings(self.module, suite, self.chosen.seed, jobs, timeout_s or TIMEOUT_S, device)
        files = Files(self.sharding.resume, reports.json_path, reports.html_directory, summary)
        try:
            return run_batches(units, settings, facts, shard, files)
        except (StoreError, ledger.LedgerError) as error:
            raise click.UsageError(str(error)) from error


def batches_table(module: str, text: str) -> Table:
    """Each group of a suite of batches of which a batch's name contains the text, with its forms."""
    groups: dict[str, dict[str, None]] = {}
    for batch in importlib.import_module(module).batches():
        if text in batch.name:
            groups.setdefault(batch.group, {})[f"{batch.form} {batch.mode}"] = None
    table = progress.table(("batches", "forms"), ())
    for name, forms in groups.items():
        table.add_row(name, ", ".join(forms))
    return table


def shard_of(text: str) -> Shard:
    """Raises: click.UsageError for what is not K/N with K from 1 to N."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise click.UsageError(f"--shard {text!r}: it is K/N with K from 1 to N, for example 3/8")
    return Shard(int(found[1]), int(found[2]))
