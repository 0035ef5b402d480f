"""What the terminal shows: progress while cases run, and the tables at the end.

On a terminal a live line says what runs now and how many are left. Elsewhere (a file, a pipe, CI) each case is one
plain line when it ends. Every line that ends a case stays in both.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

from assay.harness.outcome import Result
from assay.harness.report.documents import STDOUT, Row, Totals, count, fraction, milliseconds, percent, seconds, times

PLAIN_WIDTH = 200
"""Where no terminal says how wide it is, wide enough that no cell of a table is cut."""


def terminal(stderr: bool = False) -> Console:
    """A console that never cuts a table short when its output is a file or a pipe."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)


def terminal_beside(json_path: Path | None) -> Console:
    """The console of a command; on standard error where its report goes to standard output."""
    return terminal(stderr=json_path == STDOUT)


class Progress(Protocol):
    """Told of each piece of work as it begins and ends; a context manager."""

    def begin(self, label: str) -> None: ...

    def end(self, line: Text) -> None: ...

    def skip(self) -> None:
        """One piece fewer to do."""

    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def progress(console: Console, pieces: int) -> Progress:
    return LiveProgress(console, pieces) if console.is_terminal else PlainProgress(console, pieces)


class LiveProgress:
    """A spinner, a bar and what runs now, under the lines of what has ended."""

    def __init__(self, console: Console, pieces: int) -> None:
        self._pieces = pieces
        self._bar = RichProgress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=pieces)

    def begin(self, label: str) -> None:
        self._bar.update(self._task, description=label)

    def end(self, line: Text) -> None:
        self._bar.console.print(line)
        self._bar.advance(self._task)

    def skip(self) -> None:
        self._pieces -= 1
        self._bar.update(self._task, total=self._pieces)

    def __enter__(self) -> LiveProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class PlainProgress:
    """One line a piece, `[ 3/26] text (1.2 s)`, written out at once so that a log can be followed."""

    def __init__(self, console: Console, pieces: int) -> None:
        self._console = console
        self._pieces = pieces
        self._ended = 0
        self._made_s = time.monotonic()
        self._began_s: dict[str, float] = {}

    def begin(self, label: str) -> None:
        self._began_s[label] = time.monotonic()

    def end(self, line: Text) -> None:
        """Where several pieces have begun, it is the one whose label the line begins with; else the last."""
        self._ended += 1
        named = [label for label in self._began_s if line.plain.startswith(label)]
        label = next(iter(named or list(self._began_s)[-1:]), "")
        took_s = time.monotonic() - self._began_s.pop(label, self._made_s)
        place = f"[{self._ended:>{len(str(self._pieces))}}/{self._pieces}] "
        self._console.print(Text(place) + line + Text(f"  ({took_s:.1f} s)"), soft_wrap=True)
        self._console.file.flush()

    def skip(self) -> None:
        self._pieces -= 1

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def verdict_text(verdict: str, is_known: bool = False) -> Text:
    """Green for same, yellow for what the ledger knows, red for the rest; the word says it without colour too."""
    if is_known:
        return Text(f"{verdict} (known)", style="yellow")
    return Text(verdict, style="green" if verdict == "same" else "bold red")


def label(case: str, mode: str, backend: str) -> str:
    return f"{case} {mode} {backend}"


def result_line(row: Row) -> Text:
    """How one case ended, in one line."""
    result = row.result
    line = Text(f"{label(result.case, result.mode, result.backend)}  ")
    line += verdict_text(result.verdict, row.is_known)
    if result.is_warm:
        line += Text(f"  {result.detail.partition(';')[0]}")
    if row.speed is not None:
        line += Text(f"  {row.shown_speed} eager, compile {seconds(result.compile_s)} s")
    if not row.judgement.passes:
        line += Text(f"  {first_reason(result)}")
    return line


def first_reason(result: Result) -> str:
    """The first difference, or the last line of the detail, where a traceback has its message."""
    if result.differences:
        first = result.differences[0]
        return f"{first.field} at {first.path}"
    return result.detail.strip().rpartition("\n")[2]


NUMBER_COLUMNS = ("eager ms", "ms", "speed", "compile s", "generated", "breaks")


def table(text_columns: Sequence[str], number_columns: Sequence[str]) -> Table:
    """An empty table: texts to the left, numbers to the right."""
    made = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name in text_columns:
        made.add_column(name, overflow="fold")
    for name in number_columns:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def results_table(rows: Sequence[Row]) -> Table:
    """A row a result, in the order in which they ran."""
    made = table(("case", "mode", "backend", "verdict"), NUMBER_COLUMNS)
    for row in rows:
        result = row.result
        made.add_row(
            result.case,
            result.mode,
            result.backend,
            verdict_text(result.verdict, row.is_known),
            milliseconds(result.eager_ms),
            milliseconds(result.ms),
            row.shown_speed,
            seconds(result.compile_s),
            fraction(result.nodes_generated, result.nodes),
            count(result.graph_breaks),
        )
    return made


def totals_line(totals: Totals) -> Text:
    """`28 of 30 as eager (28 same, 2 diverged); speed 1.31x; compile 14.20 s; 71% of 940 nodes generated`"""
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in totals.verdicts.items())
    line = Text(f"{totals.passed} of {totals.rows} as eager", style="bold")
    line += Text(f" ({verdicts})" if verdicts else "", style="")
    if totals.speed is not None:
        noise = f", {totals.noise} left out as noise" if totals.noise else ""
        line += Text(f"; speed {times(totals.speed)} eager's (geometric mean over same{noise})", style="")
    line += Text(f"; compile {seconds(totals.compile_s)} s", style="")
    if totals.nodes:
        line += Text(f"; {percent(totals.generated)} of {totals.nodes} nodes generated", style="")
    return line


MOST_LINES = 3
"""Of what a row says beside its first difference, where not everything is asked for."""


def difference_lines(rows: Sequence[Row], is_verbose: bool = False) -> list[Text]:
    """What to show of each row that is not `same`, in at most 12 lines, or all of it if `is_verbose`.

    The lines are its name, where it differs first and by how much, and its detail. Then come what the ledger says, and
    the command that runs it again.
    """
    return [line for row in rows if row.result.verdict != "same" for line in _lines_of(row, is_verbose)]


def _lines_of(row: Row, is_verbose: bool) -> Iterator[Text]:
    result = row.result
    name = label(result.case, result.mode, result.backend)
    yield Text(f"{name}: ", style="bold") + verdict_text(result.verdict, row.is_known)
    shown = result.differences if is_verbose else result.differences[:1]
    for difference in shown:
        yield Text(f"  {difference.field} at {difference.path}: {difference.detail}")
        if difference.act and not is_verbose:
            yield Text(f"    {difference.path.partition(':')[0]} is: {difference.act}")
    if more := Counter(difference.field for difference in result.differences[len(shown) :]):
        told = ", ".join(f"{count} {field}" for field, count in more.most_common())
        yield Text(f"  and {sum(more.values())} more ({told}): --verbose shows them")
    yield from _first_of(result.detail.strip().splitlines(), is_verbose)
    yield from _first_of(row.judgement.notes, is_verbose)
    yield Text(f"  again: assay run {result.case} --mode {result.mode} --backend {result.backend}", style="dim")


def _first_of(lines: Sequence[str], is_verbose: bool) -> Iterator[Text]:
    yield from (Text(f"  {line}") for line in (lines if is_verbose else lines[:MOST_LINES]))
