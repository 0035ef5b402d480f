"""What `assay run` is asked of a suite of batches, checked before anything runs."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from assay.harness.batches.batch_report import run_batches
from assay.harness.batches.batch_run import TIMEOUT_S, Settings, Shard, StoreError, plan
from assay.harness.case import MODES, SHAPES
from assay.harness.discover import SUITES
from assay.harness.judge import ledger
from assay.harness.report import progress


def BATCHES(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that only suites of batches read."""
    for option in (
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
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Batches:
    """A suite of batches, and which of them to run."""

    module: str
    text: str
    modes: Sequence[str]
    backends: Sequence[str]
    shapes: Sequence[str] | None
    seed: int
    shard: str
    resume: Path | None
    summary: Path | None = None
    device: str = "cpu"

    def run(
        self, facts: Mapping[str, Any], jobs: int, timeout_s: float | None, json_path: Path | None, html: Path | None
    ) -> int:
        """Runs them and gives the exit status. Raises: click.UsageError where there is nothing to run, or no way to."""
        shard = shard_of(self.shard)
        if self.summary is not None and (self.text or self.shapes or set(self.modes) != set(MODES)):
            raise click.UsageError("--summary is of whole shards: without --filter, --mode and --shapes")
        batches = importlib.import_module(self.module).batches()
        units = plan(batches, self.backends, self.text, self.modes, self.shapes or SHAPES, shard)
        if not units:
            raise click.UsageError(f"--filter {self.text!r} matches no batch of {self.module} in shard {self.shard}")
        suite = self.module.removeprefix(f"{SUITES}.").partition(".")[0]
        if self.device != "cpu" and any(unit.batch.judge for unit in units):
            raise click.UsageError(f"--device {self.device}: {suite} are judged on the CPU")
        settings = Settings(self.module, suite, self.seed, jobs, timeout_s or TIMEOUT_S, self.device)
        try:
            return run_batches(units, settings, facts, shard, self.resume, json_path, html, self.summary)
        except (StoreError, ledger.LedgerError) as error:
            raise click.UsageError(str(error)) from error


def batches_table(module: str, text: str) -> Table:
    """Each group of a suite of batches of which a batch's name contains the text, with its forms."""
    groups: dict[str, dict[str, None]] = {}
    for batch in importlib.import_module(module).batches():
        if text in batch.name:
            groups.setdefault(batch.group, {})[f"{batch.form} {batch.mode}"] = None
    table = progress.table(("batches", "forms"), ())
    for group, forms in groups.items():
        table.add_row(group, ", ".join(forms))
    return table


def shard_of(text: str) -> Shard:
    """Raises: click.UsageError for what is not K/N with K from 1 to N."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise click.UsageError(f"--shard {text!r}: it is K/N with K from 1 to N, for example 3/8")
    return Shard(int(found[1]), int(found[2]))
