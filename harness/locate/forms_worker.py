"""The process that looks for the form of a repro in which a failure shows.

    python -m assay.harness.locate.forms_worker REQUEST ANSWER

The request: `{"pairs": [[text, the same in eager], ...], "ways": [...]}`. The answer is `{"form": number}`: the first
text that ends in one of these ways, while the same in eager passes; nothing where there is none. Each text runs in a
process that is forked off this one, which has imported torch and run nothing.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import time
import traceback
import warnings
from collections.abc import Mapping
from typing import Any

from assay.harness.processes.worker import Say, answering

PASSES, ASSERTS, RAISES, DIES, HANGS = "passes", "asserts", "raises", "dies", "hangs"
"""How a text may end: by an assertion, by another error, by a signal, or not."""
STATUS = (PASSES, ASSERTS, RAISES)
TEXT_S = 20.0
FILE = "<repro>"
POLL_S = 0.02


def look(request: Mapping[str, Any], say: Say) -> None:
    """Says the first form that shows the failure."""
    for number, (text, in_eager) in enumerate(request["pairs"]):
        if outcome_of(text) in request["ways"] and outcome_of(in_eager) == PASSES:
            say({"form": number})
            return


def outcome_of(text: str, limit_s: float = TEXT_S) -> str:
    """How a text ends in a process of its own."""
    number = os.fork()
    if number == 0:
        _run(text)
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            return DIES if os.WIFSIGNALED(status) else STATUS[os.WEXITSTATUS(status)]
        time.sleep(POLL_S)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    return HANGS


def _run(text: str) -> None:
    """Runs a text, and ends the process with a status that says how it ended."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    status = STATUS.index(RAISES)
    try:
        exec(compile(text, FILE, "exec", dont_inherit=True), {"__name__": "__main__"})
        status = STATUS.index(PASSES)
    except AssertionError as error:
        status = STATUS.index(ASSERTS if is_check("".join(traceback.format_exception(error)), FILE) else RAISES)
    finally:
        os._exit(status)


def is_check(said: str, file: str) -> bool:
    """Whether a traceback ends in the check of a file, which stands at its top level. A backend raises assertions of
    its own."""
    last = said.rpartition("Traceback (most recent call last)")[2]
    within = [line for line in last.splitlines() if line.startswith(f'  File "{file}"')]
    return "\nAssertionError" in last and bool(within) and within[-1].endswith("in <module>")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    for module in ("torch._dynamo", "assay.compiler.entry.dynamo"):
        importlib.import_module(module)  # what every text needs, and may not take its time
    answering(look)
