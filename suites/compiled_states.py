"""The digest of every state that the compiler makes, case by case: it proves that a change changes nothing.

    python -m assay.suites.compiled_states --json before.json zoo semantics
    python -m assay.suites.compiled_states --against before.json zoo semantics      exit code 1 where anything differs

A state is a file of `ASSAY_DUMP`: the graph after each pass, the schedule, each generated source, the call. Lines that
name modules of the compiler count without these names. Beside the states a record has the counts of nodes and kernels.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from assay.compiler import journal
from assay.compiler.entry.dynamo import assay
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.observe.observation import one_step, seed_all, set_mode
from assay.harness.run import made_call

Record = dict[str, Any]
NAMES = re.compile(r"\b(?:assay\.)?compiler[\w./]*")
CHECKOUT = str(Path(__file__).parents[1])
COUNTS = ("compiles", "nodes", "nodes_generated", "kernels", "eager_graphs", "fallbacks")


def record_of(case: Case, mode: str, seed: int = 0) -> Record:
    """What one step of a case compiles to: the digests of its `states`, the counts, and the `error` that it raises."""
    torch._dynamo.reset()
    journal.reset()
    found: Record = {}
    with tempfile.TemporaryDirectory(prefix="assay-states-") as folder:
        try:
            call = made_call(case, "tiny", seed, "cpu")
            set_mode(call, mode)
            compiled = torch.compile(call.function, backend=assay, options={"dump": folder, "warm": False})
            seed_all(seed)
            one_step(call, compiled, mode, seed)
        except Exception as error:
            found["error"] = type(error).__name__
        found["states"] = _states(Path(folder))
    totals = journal.totals()
    return found | {name: totals[name] for name in COUNTS}


def _states(folder: Path) -> dict[str, str]:
    """The digest of each file, by the number of its graph within the folder and its name."""
    graphs = sorted(path for path in folder.iterdir() if path.is_dir())
    return {
        f"{number}/{path.name}": digest(path.read_text())
        for number, graph in enumerate(graphs)
        for path in sorted(graph.iterdir())
    }


def digest(text: str) -> str:
    """What a state is told by; names of the compiler's modules and the place of the checkout do not count."""
    return hashlib.sha256(NAMES.sub("compiler", text.replace(CHECKOUT, "")).encode()).hexdigest()[:20]


def records(names: Sequence[str], text: str, one_in: int) -> Iterator[tuple[str, Record]]:
    """The records of all cases of suites whose name has `text` in it, or of one in so many."""
    rows = [(case, mode) for case in discover(names) if text in case.name for mode in case.modes]
    for case, mode in rows[::one_in]:
        yield f"{case.name} {mode}", record_of(case, mode)


def differences(before: Mapping[str, Record], after: Mapping[str, Record]) -> Iterator[str]:
    """A sentence for each row that is not as before: the first state that differs, or the counts."""
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield f"{name}: only {'after' if old is None else 'before'}"
            continue
        for state in dict.fromkeys([*old["states"], *new["states"]]):
            if old["states"].get(state) != new["states"].get(state):
                yield f"{name}: {state} is another"
                break
        else:
            changed = [key for key in old if key != "states" and old[key] != new.get(key)]
            if changed:
                yield f"{name}: {', '.join(f'{key} {old[key]} -> {new.get(key)}' for key in changed)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Records, and compares. Returns 1 where anything differs."""
    parser = argparse.ArgumentParser(
        prog="python -m assay.suites.compiled_states", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("suites", nargs="+")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--against", type=Path, help="an earlier record of the same rows")
    parser.add_argument("--filter", default="", help="only rows whose name has this in it")
    parser.add_argument("--one-in", type=int, default=1, help="one row in so many")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    found = dict(records(given.suites, given.filter, given.one_in))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    told = list(differences(json.loads(given.against.read_text()), found)) if given.against is not None else []
    states = sum(len(row["states"]) for row in found.values())
    print(*told, f"{len(found)} rows, {states} states, {len(told)} differ", sep="\n")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
