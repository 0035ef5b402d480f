"""The bugs of our own compiler, as data: each is one change of one source file, in `tests/mutants/KIND.toml`.

[[mutant]]
name = "sums_from_one"              # no other mutant has it
file = "compiler/codegen/cpp/kernel.py"
wrong = "A sum begins at one."      # one sentence: what the changed compiler does
before = "init = 0"                 # the text, which stands in the file exactly once
after = "init = 1"
near = ["semantics.layout"]         # may be left out: what is tried first, as harness/selftest/mutant_rows.py says
tests = ["tests/compiler/codegen/cpp/test_cpp_math.py"]  # may be left out: test files of this part of the compiler
backend = "assay-triton"            # may be left out: the backend that runs the changed part; else `assay`
needs = "gpu"                       # may be left out: what a machine must have to run the changed part
"""

from __future__ import annotations

import ast
import dataclasses
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "mutants"
GPU = "gpu"


class MutantError(ValueError):
    """A mutant that cannot be read or applied; the message names it, and says what to mend."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: in `file` the text `before` becomes `after`. Its kind is the name of the table that it stands in."""

    kind: str
    name: str
    file: str
    wrong: str
    before: str
    after: str
    near: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    backend: str = "assay"
    needs: str = ""

    def changed(self, source: str) -> str:
        """The source with the bug in it.

        Raises: MutantError if its text does not stand there exactly once, or what comes out is no other Python.
        """
        if (times := source.count(self.before)) != 1:
            raise MutantError(
                f"mutant {self.name} ({self.kind}.toml): its text stands {times} times in {self.file}, and must stand "
                f"there once; write it anew for the source as it is now:\n{self.before}"
            )
        changed = source.replace(self.before, self.after)
        if _code(self.before) == _code(self.after):
            raise MutantError(f"mutant {self.name} ({self.kind}.toml) changes nothing but comments and spaces")
        if self.file.endswith(".py"):
            self._check(changed)
        return changed

    def _check(self, changed: str) -> None:
        """Raises: MutantError if the change leaves no Python."""
        try:
            ast.parse(changed)
        except SyntaxError as error:
            raise MutantError(f"mutant {self.name} ({self.kind}.toml) is no Python any more: {error}") from error


def _code(text: str) -> list[str]:
    """The words of a text without its comments."""
    return " ".join(line.partition("  #")[0] for line in text.splitlines()).split()


REQUIRED = tuple(f.name for f in dataclasses.fields(Mutant) if f.default is dataclasses.MISSING and f.name != "kind")
LISTS = ("near", "tests")
KEYS = tuple(field.name for field in dataclasses.fields(Mutant) if field.name != "kind")


def read(folder: Path = FOLDER) -> tuple[Mutant, ...]:
    """Every mutant, in the order of the tables and within them.

    Raises: MutantError for a folder without tables, an entry that is not as above, and a name that stands twice.
    """
    tables = sorted(folder.glob("*.toml"))
    if not tables:
        raise MutantError(f"{folder} holds no mutants; they are part of a checkout, and not of an installed package")
    found: dict[str, Mutant] = {}
    for mutant in (mutant for path in tables for mutant in _of_table(path)):
        if found.setdefault(mutant.name, mutant) is not mutant:
            raise MutantError(f"two mutants are named {mutant.name}: in {found[mutant.name].kind} and {mutant.kind}")
    return tuple(found.values())


def _of_table(path: Path) -> Iterator[Mutant]:
    try:
        entries = tomllib.loads(path.read_text())["mutant"]
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise MutantError(f"{path}: it must be TOML with tables [[mutant]] ({error})") from error
    for number, entry in enumerate(entries, 1):
        yield _entry(path, number, entry)


def _entry(path: Path, number: int, entry: dict[str, Any]) -> Mutant:
    missing, unknown = set(REQUIRED) - entry.keys(), entry.keys() - set(KEYS)
    wrong = [name for name, value in entry.items() if not isinstance(value, list if name in LISTS else str)]
    if missing or unknown or wrong:
        named = ", ".join(sorted({*missing, *unknown, *wrong}))
        raise MutantError(f"{path}: entry {number} ({entry.get('name')}): missing, unknown or of another type: {named}")
    lists = {name: tuple(entry[name]) for name in LISTS if name in entry}
    return Mutant(path.stem, **{**entry, **lists})
