"""`assay triage`, `assay record` and `assay merge`: what runs have found, kept in a store."""

from __future__ import annotations

import datetime
import importlib
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from assay.harness.judge import ledger
from assay.harness.option_groups import group
from assay.harness.report import documents as report
from assay.harness.report import progress

NEEDED = {"sqlalchemy": "SQLAlchemy", "alembic": "Alembic", "plotly": "Plotly", "distributed": "Dask's distributed"}
"""Packages that not every installation has, by what to call them."""
URL = click.option("--store", "url", default=None, metavar="URL", help="Default: sqlite:///.assay/runs.sqlite")


def needed(module: str) -> Any:
    """A module of ours that imports a package which need not be there.

    Raises: click.UsageError that says what to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in NEEDED:
            raise
        raise click.UsageError(f"this needs {NEEDED[name]}: python -m pip install 'assay[nightly]'") from error


def opened(url: str | None, is_made: bool = True) -> Any:
    """The store of a URL; one that is not there is made, where that is asked for.

    Raises: click.UsageError where it cannot be opened.
    """
    module = needed("assay.harness.remember.store")
    try:
        return module.Store.open(url or module.DEFAULT, is_made)
    except module.StoreError as error:
        raise click.UsageError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Files:
    """Where what is said of a run is written, by format."""

    json_path: Path | None
    junit: Path | None
    sarif: Path | None


FILES = group(
    "files",
    Files,
    click.option("--json", "json_path", type=click.Path(path_type=Path), is_flag=False, flag_value=report.STDOUT),
    click.option("--junit", type=click.Path(path_type=Path), help="Write JUnit's XML."),
    click.option("--sarif", type=click.Path(path_type=Path), help="Write SARIF."),
)


@click.command()
@click.argument("name", default="last", metavar="[RUN]")
@URL
@click.option("--base", metavar="RUN", help="The run to hold it against; default: the last one before it.")
@click.option("--locate", "locate_s", type=click.FloatRange(min=0), default=0.0, metavar="S",
              help="Seconds to spend on locating and shrinking failures.")  # fmt: skip
@click.option("--replay", is_flag=True, help="Run the repros of causes and of excuses again.")
@FILES
def triage(name: str, url: str | None, base: str | None, locate_s: float, replay: bool, files: Files) -> None:
    """Say what a run found: its causes, which of them are new, known or fixed, and what is flaky.

    RUN is `last`, the beginning of a run's id, or a commit. Exit 0: nothing is new, and no excuse of the ledger is
    stale. Exit 1: something is. Exit 3: no row of the run has ended.
    """
    store, module = opened(url, is_made=False), needed("assay.harness.remember.verdict_on_run")
    console = progress.terminal_beside(files.json_path)
    run, before = runs_of(store, name, base)
    if locate_s:
        locate = needed("assay.harness.remember.causes").locate_within
        locate(store, run, locate_s, lambda text: console.print(Text(text), soft_wrap=True))
    verdict = module.judge_run(store, run, before, ledger.read())
    if replay:
        again = needed("assay.harness.remember.replays").replayed
        verdict = again(verdict, ledger.read(), lambda text: console.print(Text(text), soft_wrap=True))
    for line in lines_of(verdict):
        console.print(line, soft_wrap=True)
    write(verdict, files)
    sys.exit(verdict.status)


def runs_of(store: Any, name: str, base: str | None) -> tuple[Any, Any]:
    """The run and its base. Raises: click.UsageError for one that the store does not have."""
    run = run_of(store, name)
    if base is not None:
        return run, run_of(store, base)
    return run, needed("assay.harness.remember.verdict_on_run").base_of(store, run)


def run_of(store: Any, name: str) -> Any:
    """A run of the store. Raises: click.UsageError for one that it does not have."""
    try:
        return store.run(name)
    except needed("assay.harness.remember.store").StoreError as error:
        raise click.UsageError(str(error)) from error


def lines_of(verdict: Any) -> list[Text]:
    """A line a cause: its state, how many rows, its name, when it was first seen. A duplicate says which one is kept,
    and a new one has a command that shows more. Then the sentence."""
    styles = {"new": "bold red", "known": "yellow", "excused": "dim", "fixed": "green"}
    lines = []
    for cause in verdict.causes:
        counted = ", ".join(f"{backend} {count}" for backend, count in cause.by_backend.items())
        seen = f"since {cause.cluster.first_commit or cause.cluster.first_seen}"
        line = Text(f"{cause.state:<8}", style=styles[cause.state]) + Text(
            f"{len(cause.rows):>4}  {cause.cluster.name}"
        )
        lines.append(line + Text(f"  [{counted}; {seen}; {cause.cluster.signature[:8]}]", style="dim"))
        if cause.duplicate is not None:
            lines.append(Text(f"          {cause.duplicate.sentence()}", style="dim"))
        elif cause.state == "new" and not cause.rows[0].is_drawn:
            case, mode, backend = (shlex.quote(part) for part in cause.rows[0].key)
            lines.append(Text(f"          assay repro {case} --mode {mode} --backend {backend}", style="dim"))
    lines += [Text(f"flaky    {' '.join(key)}", style="yellow") for key in verdict.flaky]
    lines += [Text(f"stale    the ledger excuses {each.case} {each.field}", style="bold red") for each in verdict.stale]
    if not verdict.rows:
        lines.append(Text("the run has no rows: it says nothing of the backends", style="bold red"))
    return [*lines, Text(verdict.sentence(), style="bold")]


def write(verdict: Any, files: Files) -> None:
    formats = needed("assay.harness.remember.formats")
    if files.json_path is not None:
        document = needed("assay.harness.remember.verdict_on_run").document(verdict)
        report.write_json(files.json_path, report.finite(document))
    if files.junit is not None:
        files.junit.write_text(formats.junit(verdict))
    if files.sarif is not None:
        report.write_json(files.sarif, formats.sarif(verdict))


@click.command()
@click.argument("reports", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@URL
def record(reports: tuple[Path, ...], url: str | None) -> None:
    """Take JSON reports of `assay run` into the store, as one run."""
    documents = [read_report(path) for path in reports]
    store, today, known = opened(url), datetime.date.today(), ledger.read()
    run = store.begin(documents[0]["environment"], {"reports": [path.name for path in reports]})
    reports_of = needed("assay.harness.remember.reports")
    found = [each for document in documents for each in reports_of.reported(document)]
    for each in found:
        store.add(run, each.judged(known, today))
    reports_of.keep_programs(store, run, found)
    store.end(run)
    click.echo(f"run {run.id[:8]}: {len(found)} rows")


def read_report(path: Path) -> dict[str, Any]:
    """A report of `assay run`. Raises: click.UsageError for any other file."""
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise click.UsageError(f"{path}: not JSON ({error})") from error
    if not isinstance(document, dict) or "environment" not in document:
        raise click.UsageError(f"{path}: not a report of `assay run --json`")
    return document


@click.command()
@click.argument("target")
@click.argument("sources", nargs=-1, required=True)
def merge(target: str, sources: tuple[str, ...]) -> None:
    """Take the runs of stores into the store TARGET. All are URLs, as sqlite:///night.sqlite."""
    stores = {source: opened(source, is_made=False) for source in sources}
    into = opened(target)
    for source, store in stores.items():
        count = needed("assay.harness.remember.merge").merge(into, store)
        click.echo(f"{source}: {count} new runs")


COMMANDS = (triage, record, merge)
