"""The generated parts of the documents: `python -m assay.suites.tables` writes them, and a test holds them current.

A generated part stands between two comments, `<!-- table: NAME -->` and `<!-- /table -->`. Nothing in it is typed. It
comes from the JSON of measurements, from the ledger, from docstrings, or from the compiler itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from assay.suites.tables import (
    command_line,
    compiler_facts,
    known_limits,
    library_rows,
    measured,
    night,
    places,
    selftests,
    structure,
    upstream,
    zoo_rows,
)

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- /table -->)", re.S)

TABLES: Mapping[str, Callable[[], str]] = {
    "summary": measured.summary,
    "zoo_on_cpu": measured.zoo_on_cpu,
    "kernels_on_cpu": measured.kernels_on_cpu,
    "calls_on_cpu": measured.calls_on_cpu,
    "memory_budgets": measured.memory_budgets,
    "operators_database": measured.operators_database,
    "libraries_run": library_rows.libraries_run,
    "planted": measured.planted,
    "located": night.located,
    "located_missed": night.located_missed,
    "banks": selftests.banks,
    "banks_in_words": selftests.banks_in_words,
    "false_alarms": selftests.false_alarms,
    "night_in_words": night.night_in_words,
    "causes_of_a_night": night.causes_of_a_night,
    "language": measured.language,
    "whole_backwards": measured.whole_backwards,
    "zoo_on_gpu": measured.zoo_on_gpu,
    "architectures_on_gpu": measured.architectures_on_gpu,
    "zoo_recorded_on_gpu": measured.zoo_recorded_on_gpu,
    "distributed_on_gpu": measured.distributed_on_gpu,
    "kernels_on_gpu": measured.kernels_on_gpu,
    "products_on_gpu": measured.products_on_gpu,
    "zoo_models": zoo_rows.zoo_models,
    "commands": command_line.commands_of_assay,
    "options": compiler_facts.options,
    "modes": compiler_facts.modes,
    "environment": compiler_facts.environment,
    "counts": compiler_facts.counts,
    "passes": compiler_facts.passes,
    "called_operators": compiler_facts.called_operators,
    "refusals": compiler_facts.refusals,
    "export_bans": compiler_facts.export_bans,
    "given_back": known_limits.given_back,
    "differences": known_limits.differences,
    "slow_operators": known_limits.slow_operators,
    "bugs_upstream": upstream.bugs_upstream,
    "places": places.places,
    "rooms": structure.rooms,
    "structure": structure.before_and_after,
}


def documents() -> list[Path]:
    """The documents that have generated parts."""
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    return [page for page in pages if TABLE.search(page.read_text())]


def filled(text: str) -> str:
    """A document with its generated parts as they are now. Raises: KeyError for a name that is not in `TABLES`."""
    return TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)
