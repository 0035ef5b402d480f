"""A night to publish: rows of two backends, causes, a repro, series with planted changes."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from assay.harness.remember.causes import assign_by_kind
from assay.harness.remember.store import Cluster, Run, Store
from assay.harness.report.documents import Row
from tests.harness.remember.rows import FACTS, row
from tests.harness.site.profiled import profile

COMMITS = 12
ERRORS = [
    {"graph": 1, "node": "h = linear    # h = self.l(x)", "eager": 1e-8, "ours": 1e-8},
    {"graph": 1, "node": "y = gelu    # return gelu(h) <b>", "eager": 1e-8, "ours": 1e-3},
    {"graph": 1, "node": "z = log", "eager": 1e-8, "ours": None},
]
PLANTED = {"compile_s zoo.bert train assay": (6, 1.05, "s"), "ms kernel.softmax assay": (8, 1.10, "ms")}


def night(store: Store, count: int = 40) -> Run:
    """A run with so many rows, after one that has another failure; measured over twelve commits."""
    base = store.begin(FACTS | {"commit": "aaa1111"}, {})
    store.add(base, row("zoo.case_1", "diverged", "stride", "inductor"))
    store.end(base)
    run = store.begin(FACTS | {"commit": "bbb2222", "date": "2026-11-28"}, {"night": True})
    for each in _rows(count):
        store.add(run, each)
    failed = [kept for kept in store.rows(run) if kept.kind == "diverged alias"]
    repro = {"repro": "import torch\nassert <b>1</b>\n", "issue": "### an issue", "failed": 3, "runs": 3, "calls": 2}
    located = Cluster("f" * 64, "assay, fused: diverged alias in add+mul", "fused", "bbb2222", "2026-11-28",
                      {"kind": "diverged alias", "confidence": 0.992, "form": "v0", **repro})  # fmt: skip
    store.assign(failed[1:], located)
    twice = dataclasses.replace(located, signature="e" * 64, name="assay, lowered: diverged stride in add+mul",
                                rung="lowered", first_seen="2026-11-29")  # fmt: skip
    store.assign(failed[:1], twice)
    states = [
        {"graph": "graph_001", "state": name, "text": f"class G:\n  a = {name}\n  b"} for name in ("joint", "fold")
    ]
    store.attach(failed[0], "states", store.keep("states", json.dumps(states).encode()))
    store.attach(failed[0], "errors", store.keep("errors", json.dumps(ERRORS).encode()))
    _take_apart(store, run)
    assign_by_kind(store, run)
    measure(store, run)
    store.end(run)
    return store.run(run.id)


def _take_apart(store: Store, run: Run) -> None:
    """Profiles of two rows that are as eager."""
    for number, mode in ((6, "train"), (12, "infer")):
        row = next(kept for kept in store.rows(run) if kept.result.case == f"zoo.case_{number}")
        store.attach(row, "profile", store.keep("profile", json.dumps(profile(mode)).encode()))


def _rows(count: int) -> list[Row]:
    made = []
    for number in range(count):
        backend = ("assay", "inductor,dynamic")[number % 2]
        suite = ("zoo", "semantics", "programs")[number % 3]
        kind = {0: ("diverged", "alias"), 1: ("crash", ""), 2: ("diverged", "values")}.get(number % 20, ("same", ""))
        one = row(f"{suite}.case_{number}", *kind, backend=backend, passes=number % 20 == 2)
        timed = dataclasses.replace(
            one.result, compile_s=0.1 + number % 7, ms=1.0, eager_ms=1.5, detail="said <i>so</i>",
            dtypes=("float32", "int64") if number % 4 else ("bfloat16",),
            layouts=("contiguous",) if number % 5 else ("contiguous", "transposed"),
        )  # fmt: skip
        made.append(dataclasses.replace(one, result=timed))
    return made


def measure(store: Store, run: Run) -> None:
    """Twelve commits of each series, with 0.5 % of noise; two with a step, one without."""
    drawn = np.random.default_rng(7)
    for name, (place, ratio, unit) in {**PLANTED, "ms zoo.vit infer assay": (0, 1.0, "ms")}.items():
        values = 2.0 * np.exp(drawn.normal(0, 0.005, COMMITS))
        values[place:] *= ratio
        store.measured(
            run.id,
            [{"series": name, "commit": f"c{at:02d}", "position": at, "value": float(value), "unit": unit,
              "kernels": "same"} for at, value in enumerate(values)],
        )  # fmt: skip
