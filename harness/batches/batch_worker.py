"""The child of a run of batches: runs each unit that its parent names on its standard input, and says what it does.

A line of JSON each way: `{"unit": "...", "backend": "...", "together": 24, "excluded": []}` in; out, at once:

    {"event": "alive"}                                     ready for units
    {"event": "running", "samples": ["0 contiguous"]}      before each compile, so that the parent knows what ended it
    {"event": "end", "tally": {...}, "seconds": 1.2}       the unit has ended
    {"event": "error", "detail": "..."}                    the unit's samples could not be made
"""

from __future__ import annotations

import functools
import importlib
import json
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from assay.harness.batches.batch import How, run_batch
from assay.harness.batches.sample import Batch, key_of
from assay.harness.calls.cycles import set_aside
from assay.harness.processes import many_compiles

Say = Callable[[dict[str, Any]], None]


def serve(batches: Mapping[str, Batch], lines: Iterable[str], settings: Mapping[str, Any], say: Say) -> None:
    """Runs the units that the lines name, one after the other."""
    say({"event": "alive"})
    for line in lines:
        request = json.loads(line)
        how = How(
            request["backend"], settings["seed"], settings["suite"], request["together"], tuple(request["excluded"]),
            functools.partial(_running, say, settings["device"]), device=settings["device"],
        )  # fmt: skip
        event = _ended(batches[request["unit"]], how)
        _end_if_nothing_runs(settings["device"])
        say(event)


def _running(say: Say, device: str, names: Sequence[str]) -> None:
    _end_if_nothing_runs(device)
    say({"event": "running", "samples": list(names)})


def _end_if_nothing_runs(device: str) -> None:
    """Ends the process where an assertion has failed on its GPU: nothing runs there any more, and all that comes after
    would fail. What was running is named last then."""
    if device == "cpu":
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)


def _ended(batch: Batch, how: How) -> dict[str, Any]:
    began = time.monotonic()
    try:
        tally = run_batch(batch, how)
    except Exception:
        return {"event": "error", "detail": traceback.format_exc()}
    return {"event": "end", "tally": tally.data(), "seconds": time.monotonic() - began}


def main(argument: str) -> None:
    """Serves; whatever a sample prints goes to standard error."""
    settings = json.loads(argument)
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    many_compiles.measure_no_guards()
    many_compiles.forget_absent_devices()
    suite = importlib.import_module(settings["module"])
    batches = {key_of(batch): batch for batch in suite.batches()}
    set_aside()
    serve(batches, sys.stdin, settings, functools.partial(_said, output))


def _said(output: Any, event: dict[str, Any]) -> None:
    print(json.dumps(event), file=output, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
