"""`assay nightly`, `assay publish`, `assay measure` and `assay regressions`: from a night's run to its page."""

from __future__ import annotations

import dataclasses
import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from assay.harness.backends.registry import BackendError, resolve
from assay.harness.cli.store_commands import URL, needed, opened, runs_of
from assay.harness.judge import ledger
from assay.harness.option_groups import group
from assay.harness.report import documents as report
from assay.harness.report import progress
from assay.harness.report.environment import environment

BACKENDS = click.option("--backend", "backends", multiple=True, default=("assay",), show_default=True, metavar="NAME")
OUTPUT = click.option("--output", type=click.Path(path_type=Path), default=Path(".assay/night"), show_default=True,
                      metavar="DIR", help="Where the pages and reports go.")  # fmt: skip
SITE = Path(".assay/night/site")


def check_known(backends: Sequence[str]) -> None:
    """Raises: click.UsageError for a backend that torch does not have."""
    try:
        for name in backends:
            resolve(name)
    except BackendError as error:
        raise click.UsageError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Extent:
    """How long a night may take, which parts it has, what is drawn, whether it goes on with one that was killed."""

    budget_s: float
    only: str
    seed: int | None
    continues: bool


EXTENT = group(
    "extent",
    Extent,
    click.option("--budget", "budget_s", type=click.FloatRange(min=60), default=3600.0, show_default=True, metavar="S",
                 help="Seconds that the whole night may take."),
    click.option("--only", default="", metavar="PART[,PART]",
                 help="zoo, semantics, ops, programs, machine, selftest, measure."),
    click.option("--seed", type=int, help="Of what is drawn; default: the day."),
    click.option("--continue", "continues", is_flag=True, help="Go on with the night in DIR, if it was killed."),
)  # fmt: skip


@click.command()
@BACKENDS
@OUTPUT
@URL
@EXTENT
def nightly(backends: tuple[str, ...], output: Path, url: str | None, extent: Extent) -> None:
    """Run a whole night within a time, and write its page: what broke, where, since when, and is it new.

    Exit 0: nothing is new. Exit 1: something is, an excuse is stale, or a part wrote no report. Exit 3: nothing ran.
    """
    night, done = needed("assay.harness.night.night"), needed("assay.harness.night.done")
    check_known(backends)
    day = datetime.date.today().toordinal() if extent.seed is None else extent.seed
    names = tuple(name.strip() for name in extent.only.split(",") if name.strip())
    if unknown := [name for name in names if name not in night.NAMES]:
        raise click.UsageError(f"--only {unknown[0]!r}: the parts of a night are {', '.join(night.NAMES)}")
    store = url or f"sqlite:///{output}/runs.sqlite"
    settings = night.Settings(backends, extent.budget_s, output, store, day, names, extent.continues)
    console = progress.terminal()
    try:
        ended = night.run_night(settings, lambda text: console.print(Text(text), soft_wrap=True))
    except (done.FolderError, needed("assay.harness.remember.store").StoreError) as error:
        raise click.UsageError(str(error)) from error
    for line in ended.summary():
        console.print(Text(line), soft_wrap=True)
    sys.exit(ended.status)


@click.command()
@click.argument("name", default="last", metavar="[RUN]")
@URL
@click.option("--base", metavar="RUN", help="The run to hold it against; default: the last one before it.")
@click.option("--output", type=click.Path(path_type=Path), default=SITE, show_default=True, metavar="DIR")
def publish(name: str, url: str | None, base: str | None, output: Path) -> None:
    """Write the site of a run: static pages in one folder."""
    store = opened(url, is_made=False)
    run, before = runs_of(store, name, base)
    verdict = needed("assay.harness.remember.verdict_on_run").judge_run(store, run, before, ledger.read())
    click.echo(needed("assay.harness.site.publish").publish(store, verdict, output))


@click.command()
@BACKENDS
@URL
@click.option("--limit", "limit_s", type=click.FloatRange(min=1), default=300.0, show_default=True, metavar="S")
@click.option("--apart", "takes_apart", is_flag=True, help="Also take a step of a few cases apart, for the site.")
def measure(backends: tuple[str, ...], url: str | None, limit_s: float, takes_apart: bool) -> None:
    """Measure this commit: first call, steady call, calls of Python functions; kept in the store."""
    check_known(backends)
    store, facts = opened(url), environment()
    run = store.begin(facts, {"measure": list(backends)})
    commit = str(facts["commit"] or run.started)
    samples = list(needed("assay.harness.track.measure").measured(backends, limit_s, commit, say=click.echo))
    store.measured(run.id, samples)
    if takes_apart:
        needed("assay.harness.night.step_profiles").keep_profiles(store, run, limit_s, say=click.echo)
    store.end(run)
    for sample in samples:
        click.echo(f"{sample['series']}: {sample['value']:.4g} {sample['unit']}")


@click.command()
@URL
@click.option("--asv", "asv_folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
              help="Also asv's results, as .asv/results.")  # fmt: skip
@click.option("--json", "json_path", type=click.Path(path_type=Path), is_flag=False, flag_value=report.STDOUT)
def regressions(url: str | None, asv_folder: Path | None, json_path: Path | None) -> None:
    """List what got worse from commit to commit: by how much, at which commit, and whether the kernels changed.

    Exit 0: nothing did. Exit 1: something did.
    """
    module = needed("assay.harness.track.regressions")
    samples: list[Any] = list(opened(url, is_made=url is None).samples())
    if asv_folder is not None:
        samples += needed("assay.harness.track.asv_results").samples_of(asv_folder)
    found = module.regressions_of(samples)
    console = progress.terminal_beside(json_path)
    for each in found:
        console.print(Text(f"{each.sentence()} (p {each.p:.4f})"), soft_wrap=True)
    console.print(Text(f"{len(found)} regressions in {len(module.series_of(samples))} series", style="bold"))
    if json_path is not None:
        report.write_json(json_path, {"schema": 1, "regressions": [dataclasses.asdict(each) for each in found]})
    sys.exit(1 if found else 0)


COMMANDS = (nightly, publish, measure, regressions)
