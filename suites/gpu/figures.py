"""A GPU's figures, each beside its bar: `python -m assay.suites.gpu.figures --rows rows.jsonl --seconds 500`.

    part -> a process of its own, with a limit -> rows -> figures

A row is written as soon as its part ends. Parts that have rows at this commit are not run again, so whatever is cut
off goes on where it stopped. Parts that were too slow, or failed, have a row that says so. `--parts` chooses by a part
of the name, `--list` shows what there is; without time (`--seconds 0`) figures are made of the rows that are there.

On a machine with several GPUs each has a part of its own; tests come before, on all of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.harness.measure import geometric_mean

Row = dict[str, Any]
RECORDED = ("--backend", "assay,cudagraphs=True", "--against", "inductor,triton.cudagraphs=True")
MODELS = (
    "bert distilbert roberta gpt2 llama qwen2 gemma2 mixtral t5 mamba rwkv vit convnext resnet mobilenet_v2 swin "
    "segformer clip whisper minilm"
).split()
TESTERS = 14
"""Processes that run tests on each GPU, where pytest knows of such."""
CORES = 16
"""For how many of the host's cores one of them stands."""
NAMED = 60
"""Tests that failed, in a row."""
REASONS = 200
"""Lines of what pytest says of them."""
COLUMNS = 400
"""Of the lines in which pytest says why tests failed."""
RESERVED_S = 15.0
"""What is left unused at the end, for what is running to be stopped and written."""


@dataclass(frozen=True, slots=True)
class Part:
    """A module that is run with arguments, and with `--json FILE` if it writes its rows there; for so long at most."""

    name: str
    module: str
    arguments: tuple[str, ...]
    limit_s: float
    writes_rows: bool = True
    needs_all: bool = False
    """Whether it takes every GPU there is."""


CATALOGUE = "tests/suites/gpu/test_suites.py"
"""The catalogue of semantics, which takes as long as all other tests."""


def parts() -> Iterator[Part]:
    """All of them, those first that tell most in least time."""
    tests = ("-q", "-m", "gpu and not full", "--benchmark-disable", "-p", "no:cacheprovider")
    cores = os.cpu_count() or 1
    testers = min(cores, TESTERS * max(1, cores // CORES))
    side_by_side = ("-n", str(testers)) if find_spec("xdist") else ()
    folders = ("tests", f"--ignore={CATALOGUE}")
    yield Part("tests", "pytest", (*tests, *side_by_side, *folders), 560, writes_rows=False, needs_all=True)
    yield Part("catalogue", "pytest", (*tests, *side_by_side, CATALOGUE), 560, writes_rows=False, needs_all=True)
    overhead = ("--suite", "overhead", "--precision", "float32", "--rounds", "5", "tiny_function", "two_inputs")
    for mode in ("infer", "train"):
        yield Part(f"overhead {mode}", "assay.suites.gpu.zoo", (*overhead, "--mode", mode), 90)
    yield Part("kernels", "assay.suites.gpu.bench", (), 200)
    yield Part("products", "assay.suites.gpu.products", (), 200)
    for name in ("adamw", "sgd"):
        yield Part(f"optimizer {name}", "assay.suites.gpu.optimizers", (name, "--rounds", "5"), 150)
    yield Part("layers", "assay.suites.gpu.layers", ("--rounds", "5"), 150)
    for model in MODELS:
        for mode in ("infer", "train"):
            yield Part(f"zoo {mode} {model}", "assay.suites.gpu.zoo", ("--mode", mode, "--rounds", "5", model), 150)
    for model in MODELS:
        for mode in ("infer", "train"):
            yield Part(f"correct {mode} {model}", "assay.suites.gpu.correct", ("--mode", mode, model), 300)
    for model in MODELS:
        given = ("--mode", "infer", "--rounds", "5", *RECORDED, model)
        yield Part(f"recorded infer {model}", "assay.suites.gpu.zoo", given, 120)


# ---- figures


@dataclass(frozen=True, slots=True)
class Figure:
    """What a number is of the rows of some parts, and which it has to be: at least the bar, or at most it."""

    name: str
    parts: str
    value: Callable[[Sequence[Row]], float | None]
    bar: float
    is_least: bool = True
    beside: Callable[[Sequence[Row]], str] = lambda rows: ""
    """What the line says beside the number."""

    def line(self, rows: Sequence[Row]) -> str:
        own = [row for row in rows if row["part"].startswith(self.parts)]
        value = self.value(own)
        sign = "at least" if self.is_least else "at most"
        if value is None:
            return f"{self.name:48s} not measured (bar: {sign} {self.bar:g})"
        is_met = value >= self.bar if self.is_least else value <= self.bar
        judged = f"{sign} {self.bar:g}: {'met' if is_met else 'MISSED'}, of {len(own)} rows"
        return f"{self.name:48s} {value:7.3f}  {judged}{self.beside(own)}"


def _mean(key: str) -> Callable[[Sequence[Row]], float | None]:
    return lambda rows: geometric_mean(row.get(key) for row in rows)


def _least(key: str) -> Callable[[Sequence[Row]], float | None]:
    return lambda rows: min((row[key] for row in rows if key in row), default=None)


def _slowest_beside_eager(rows: Sequence[Row]) -> float | None:
    return min((row["eager_ms"] / row["ms"] for row in rows if "ms" in row), default=None)


def _share(start: str) -> Callable[[Sequence[Row]], float | None]:
    """The mean of ours over theirs, of two numbers of each row whose names begin so."""

    def mean(rows: Sequence[Row]) -> float | None:
        pairs = [[value for name, value in row.items() if name.startswith(start)][:2] for row in rows]
        return geometric_mean(pair[0] / pair[1] for pair in pairs if len(pair) == 2 and all(pair))

    return mean


def _not_same(rows: Sequence[Row]) -> float | None:
    """How many rows have another verdict, or none; a part that failed has a row as well."""
    return sum(row.get("verdict") != "same" for row in rows) if rows else None


def _which_are_not(rows: Sequence[Row]) -> str:
    found = [f"{row['part']} {row.get('verdict', 'failed')}" for row in rows if row.get("verdict") != "same"]
    return f" ({'; '.join(found)})" if found else ""


def _dynamos_share(rows: Sequence[Row]) -> str:
    """What Dynamo itself takes of a call, beside ours and Inductor's, in microseconds, which no backend can save."""
    told = [row for row in rows if "dynamo_own_ms" in row]
    each = (
        f"{row['dynamo_own_ms'] * 1e3:.1f} of {row['ms'] * 1e3:.1f} and {row['against_ms'] * 1e3:.1f}" for row in told
    )
    return f"; Dynamo's own: {', '.join(each)} us" if told else ""


def _inverse(key: str) -> Callable[[Sequence[Row]], float | None]:
    return lambda rows: geometric_mean(1 / row[key] for row in rows if row.get(key))


def _chosen_ratio(rows: Sequence[Row]) -> float | None:
    """What measuring gains over the library: where it stays with that, nothing."""
    return geometric_mean(row["speed_ratio"] if row["is_chosen"] else 1.0 for row in rows if "is_chosen" in row)


def _of_tiny_calls(what: str, mode: str, bar: float) -> Figure:
    name = f"a tiny call, {what}: ours over Inductor's"
    return Figure(name, f"overhead {mode}", _inverse("speed_ratio"), bar, False, _dynamos_share)


FIGURES = (
    Figure("tests that failed", "tests", lambda rows: rows[-1].get("failed") if rows else None, 0, False),
    Figure("cases that failed", "catalogue", lambda rows: rows[-1].get("failed") if rows else None, 0, False),
    Figure("kernels: share of a copy's rate", "kernels", _mean("assay_share"), 0.90),
    Figure("kernels: the least share", "kernels", _least("assay_share"), 0.75),
    Figure("products: the library's time over the faster way's", "products", _chosen_ratio, 1.0),
    Figure("zoo, inference: Inductor's time over ours", "zoo infer", _mean("speed_ratio"), 1.15),
    Figure("zoo, training: Inductor's time over ours", "zoo train", _mean("speed_ratio"), 1.10),
    Figure("zoo: eager's time over ours, the least", "zoo", _slowest_beside_eager, 1.0),
    Figure("zoo, recordings on both sides, inference", "recorded", _mean("speed_ratio"), 1.05),
    Figure("first calls, inference: ours over Inductor's", "zoo infer", _share("first_call_s_"), 0.5, False),
    Figure("first calls, training: ours over Inductor's", "zoo train", _share("first_call_s_"), 0.5, False),
    Figure("memory of training: ours over Inductor's", "zoo train", _share("peak_bytes_"), 1.0, False),
    _of_tiny_calls("no gradients", "infer", 0.85),
    _of_tiny_calls("and backward", "train", 0.6),
    Figure("zoo at full that is not same", "correct", _not_same, 0, False, _which_are_not),
    Figure("optimizers: Inductor's time over ours", "optimizer", _mean("speed_ratio"), 1.0),
    Figure("layers compiled one by one: Inductor's time over ours", "layers", _mean("speed_ratio"), 1.0),
)


# ---- running


def run(part: Part, limit_s: float, devices: str = "") -> list[Row]:
    """The rows of a part; one that says why, where there are none. `devices` are those it sees, all if none."""
    environment = os.environ | {"COLUMNS": str(COLUMNS)} | ({"CUDA_VISIBLE_DEVICES": devices} if devices else {})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        written = ["--json", str(path)] if part.writes_rows else []
        command = [sys.executable, "-m", part.module, *part.arguments, *written]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=environment)
            said, code = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired:
            said, code = f"it took longer than {limit_s:.0f} s", None
        rows: list[Row] = json.loads(path.read_text())["rows"] if path.exists() else []
    if not part.writes_rows and code is not None:
        return [counted(said)]
    return rows or [{"error": said[-500:] if code != 0 else "it wrote no rows"}]


_COUNTS = re.compile(r"\d+ (passed|failed|errors?|skipped|deselected)\b.* in [\d.]+s")


def counted(said: str) -> Row:
    """The numbers of tests in the last line that pytest prints, after which there may be others, and what failed."""
    lines = said.strip().splitlines()
    last = next((line for line in reversed(lines) if _COUNTS.search(line)), "")
    if not last:
        return {"error": "pytest did not say how many tests failed: " + said[-300:]}
    words = last.replace(",", "").split()
    found = {word: int(number) for number, word in itertools.pairwise(words) if number.isdigit()}
    failed = found.get("failed", 0) + found.get("errors", 0) + found.get("error", 0)
    named = [line[:COLUMNS] for line in lines if line.startswith(("FAILED", "ERROR"))]
    reasons = [line[:COLUMNS] for line in lines if line.startswith(("E   ", "____"))]
    row: Row = {"passed": found.get("passed", 0), "failed": failed, "said": last}
    return row | {"names": named[:NAMED], "reasons": reasons[:REASONS]}


def go_on(
    chosen: Iterable[Part], path: Path, seconds: float, commit: str, start: Callable[..., list[Row]] = run,
    devices: Sequence[str] = ("",),
) -> None:  # fmt: skip
    """Runs the parts that have no rows at this commit, as long as there is time, one on each of `devices`."""
    known = {row["part"] for row in read(path) if row["commit"] == commit}
    waiting = [part for part in chosen if part.name not in known]
    end = time.monotonic() + seconds
    turn = threading.Lock()

    def work(queue: list[Part], visible: str) -> None:
        while True:
            with turn:
                left = end - time.monotonic() - RESERVED_S
                part = next((part for part in queue if left >= min(part.limit_s, 30)), None)
                if part is None:
                    return
                queue.remove(part)
            rows = start(part, min(part.limit_s, left), visible)
            with turn:
                with path.open("a") as file:
                    file.writelines(json.dumps({"part": part.name, "commit": commit, **row}) + "\n" for row in rows)
                print(f"{part.name}: {len(rows)} rows {rows[-1].get('error', '')[-200:]}", flush=True)

    work([part for part in waiting if part.needs_all], ",".join(devices))
    shared = [part for part in waiting if not part.needs_all]
    with ThreadPoolExecutor(len(devices)) as workers:
        for done in [workers.submit(work, shared, visible) for visible in devices]:
            done.result()


def devices_of_host() -> list[str]:
    """The GPUs by number, or one name that chooses none, where there are none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    listed = shutil.which("nvidia-smi")
    found = subprocess.run([listed, "-L"], capture_output=True, text=True).stdout.splitlines() if listed else []
    return [str(index) for index, line in enumerate(found) if line.startswith("GPU")] or [""]


def read(path: Path) -> list[Row]:
    """The rows; of a part that ran at several commits those of the last one."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    last = {row["part"]: row["commit"] for row in rows}
    return [row for row in rows if row["commit"] == last[row["part"]]]


def commit_of_checkout() -> str:
    """What is checked out; empty where no repository is."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assay.suites.gpu.figures")
    parser.add_argument("--rows", type=Path, required=True, help="a file of rows, which is added to")
    parser.add_argument("--seconds", type=float, default=500.0, help="how long all of it may take")
    parser.add_argument("--parts", default="", help="only those with this in their names")
    parser.add_argument("--commit", default=commit_of_checkout(), help="what rows are told apart by")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(arguments)
    chosen = [part for part in parts() if given.parts in part.name]
    if not chosen:
        parser.error(f"no part has {given.parts!r} in its name; --list shows them")
    if given.list:
        print("\n".join(part.name for part in chosen))
        return
    go_on(chosen, given.rows, given.seconds, given.commit, devices=devices_of_host())
    print("\n".join(figure.line(read(given.rows)) for figure in FIGURES))


if __name__ == "__main__":
    main()
