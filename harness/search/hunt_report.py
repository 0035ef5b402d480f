"""What a hunt shows on the terminal and writes as JSON.

{"schema": 1, "environment": {...}, "settings": {...}, "interrupted": false, "programs", "valid", "given_back",
 "seconds", "verdicts": {"same": n}, "coverage": [{"operation", "layout", "dtype", "count"}],
 "failures": [{"kind", "operations", "times", "index", "source", "alone", "is_smallest", "result", "passes"}]}
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from assay.harness.report import documents as report
from assay.harness.report import progress
from assay.harness.search.hunt import Failure, Found, Settings, hunt

EVERY = 100
"""A line of progress each so many programs. Then, and at each new failure, the report is written as well."""
INTERRUPTED = 130


def run_hunt(settings: Settings, facts: Mapping[str, Any], json_path: Path | None) -> int:
    """Hunts, shows and writes; gives the exit status: 0 when every difference is explained."""
    console = progress.terminal_beside(json_path)

    def write(found: Found) -> None:
        if json_path is not None:
            report.write_json(json_path, document(found, settings, facts))

    def tell(found: Found, failure: Failure | None) -> None:
        if failure is not None:
            show_failure(console, failure)
        elif found.programs % EVERY == 0:
            console.print(totals_line(found), soft_wrap=True)
        if json_path != report.STDOUT and (failure is not None or found.programs % EVERY == 0):
            write(dataclasses.replace(found, interrupted=True))  # should it be killed, it holds these

    found = hunt(settings, tell)
    write(found)
    show(console, found, settings)
    return INTERRUPTED if found.interrupted else 0 if found.passes else 1


def show_failure(console: Console, failure: Failure) -> None:
    """A new failure as it is found: what differs, then the program."""
    result = failure.result
    heading = Text(f"{result.backend} {result.mode} program {failure.index}: ", style="bold")
    console.print(heading + progress.verdict_text(result.verdict, failure.judgement.passes), soft_wrap=True)
    for found in result.differences[:3]:
        console.print(Text(f"  {found.field} at {found.path}: {found.detail}"[:300]), soft_wrap=True)
    if result.detail:
        console.print(Text(f"  {result.detail[:300]}"), soft_wrap=True)
    if failure.alone != "same":
        console.print(Text(f"  Dynamo alone: {failure.alone}"), soft_wrap=True)
    console.print(Text("\n".join(f"    {line}" for line in failure.source.splitlines() if line)), soft_wrap=True)


def totals_line(found: Found) -> Text:
    """`300 programs (99% valid, 2% given back to eager): 590 same, 10 diverged; 4 kinds of failure; 0.12 s each`"""
    count = max(1, found.programs)
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in found.verdicts.most_common())
    shares = f"{found.valid / count:.1%} valid, {found.given_back / count:.1%} given back to eager"
    line = Text(f"{found.programs} programs ({shares}): {verdicts}", style="bold")
    return line + Text(f"; {len(found.failures)} kinds of failure; {found.seconds / count:.2f} s each", style="")


def show(console: Console, found: Found, settings: Settings) -> None:
    console.print(coverage_table(found))
    for key, failure in found.failures.items():
        excused = "" if not failure.judgement.passes else f" (explained: {'; '.join(failure.judgement.notes)})"
        told = (
            f"{found.times[key]:>4} times {failure.result.backend}: {key[1]} in {'+'.join(failure.operations)}{excused}"
        )
        console.print(Text(told), soft_wrap=True)
    console.print(totals_line(found), soft_wrap=True)
    if found.failures:
        console.print(f"Failing programs are in {settings.store}, each a file that runs with torch alone.")
    if found.interrupted:
        console.print("Interrupted; only the programs that had ended are reported.", style="bold yellow")


def coverage_table(found: Found) -> Any:
    """Operation x layout, counted over dtypes; the JSON report has the dtypes too."""
    layouts = [name for name, _ in _summed(found, 1).most_common()]
    by = Counter[tuple[str, str]]()
    for (operation, layout, _), count in found.coverage.items():
        by[operation, layout] += count
    table = progress.table(("operation",), (*layouts, "dtypes"))
    for operation, _ in _summed(found, 0).most_common():
        dtypes = {dtype for name, _, dtype in found.coverage if name == operation}
        table.add_row(operation, *(str(by[operation, layout] or "") for layout in layouts), str(len(dtypes)))
    return table


def _summed(found: Found, part: int) -> Counter[str]:
    summed: Counter[str] = Counter()
    for key, count in found.coverage.items():
        summed[key[part]] += count
    return summed


def document(found: Found, settings: Settings, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report as plain data."""
    coverage = [
        {"operation": operation, "layout": layout, "dtype": dtype, "count": count}
        for (operation, layout, dtype), count in sorted(found.coverage.items())
    ]
    return report.finite(
        {
            "schema": report.SCHEMA,
            "environment": dict(facts),
            "settings": {**dataclasses.asdict(settings), "store": str(settings.store)},
            "interrupted": found.interrupted,
            "programs": found.programs,
            "valid": found.valid,
            "given_back": found.given_back,
            "seconds": found.seconds,
            "verdicts": dict(found.verdicts),
            "coverage": coverage,
            "failures": [_failure(found, failure) for failure in found.failures.values()],
        }
    )


def _failure(found: Found, failure: Failure) -> dict[str, Any]:
    data = {name: getattr(failure, name) for name in ("kind", "operations", "index", "source", "alone", "is_smallest")}
    judged = dataclasses.asdict(failure.judgement)
    return {**data, "times": found.times[failure.key], "result": dataclasses.asdict(failure.result), **judged}
