"""The table of the faults that are known to survive, each with the reason: `survivors.toml`.

[[survivor]]
bank = "backends"
name = "replaces_nan_by_zero"
reason = "one sentence: why no ordinary program can show it"
"""

from __future__ import annotations

import tomllib
from pathlib import Path

PATH = Path(__file__).parent / "survivors.toml"
KEYS = ("bank", "name", "reason")


class SurvivorsError(ValueError):
    """A table that cannot be read; the message names the entry and what is wrong with it."""


def read(path: Path = PATH) -> dict[tuple[str, str], str]:
    """The reasons, by bank and name. Raises: SurvivorsError for a missing, unknown or empty key."""
    reasons = {}
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("survivor", []), 1):
        if sorted(entry) != sorted(KEYS) or not all(isinstance(entry[key], str) and entry[key] for key in KEYS):
            raise SurvivorsError(f"{path}: entry {number} needs the texts {', '.join(KEYS)}, and has {entry}")
        reasons[entry["bank"], entry["name"]] = entry["reason"]
    return reasons
