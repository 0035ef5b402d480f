"""The process that runs texts of repros, each in a process forked off it.

    python -m tests.harness.locate.outcomes_of_texts REQUEST ANSWER

The request: `{"texts": [...]}`; the answer: `{"outcome": how}` for each. A process of tests is not to be forked: what
other tests ran there has left threads behind, and a child waits for those for ever.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from assay.harness.locate.forms_worker import outcome_of
from assay.harness.processes.worker import Say, answering, ask, cold_environment


def outcomes_of(*texts: str) -> list[str]:
    """How each text ends."""
    with cold_environment() as cold:
        return [line["outcome"] for line in ask(__name__, {"texts": texts}, 300.0, cold).lines]


def say_outcomes(request: Mapping[str, Any], say: Say) -> None:
    for text in request["texts"]:
        say({"outcome": outcome_of(text, 60.0)})


if __name__ == "__main__":
    importlib.import_module("torch._dynamo")
    importlib.import_module("assay.compiler.entry.dynamo")
    answering(say_outcomes)
