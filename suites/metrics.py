"""Counts what makes a house readable: files a folder, lengths of functions, cycles of folders, long sentences.

    python -m assay.suites.metrics                                   prints the counts of this checkout
    python -m assay.suites.metrics --root DIR --json FILE            counts another checkout, and keeps the counts
    python -m assay.suites.metrics --against FILE                    prints both, and exits with 1 if a count got worse

Every count is better when it is smaller.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import inspect
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from assay.suites.signatures import GIVEN, MOST_PARAMETERS, parameters

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("compiler", "reference", "harness", "suites")
TEXTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", *PACKAGES, "tests")
MOST_WORDS = 30
IGNORED = re.compile(r"# type: ignore")
THRESHOLD = re.compile(r"^(?:LEAST|MOST|FEWEST)_[A-Z_]+ *(?::[^=]*)?=", re.M)
NO_PROSE = re.compile(r"\s*[|#]|\s*>>>|    |.*\S {2,}\S")
"""A line of a table, a heading, a session, code, or columns."""
BLOCK = re.compile(r"\n\s*\n|\n(?=\s*[-*|#]\s)")
SENTENCE = re.compile(r"(?<=[.!?;:])\s+(?=[A-Z`\"(])")
WORD = re.compile(r"[A-Za-z]{2,}")

Counts = dict[str, float]


def counts_of(root: Path = ROOT) -> Counts:
    """All counts of a checkout, by name."""
    return {
        **_folders(root),
        **_functions(root),
        **_imports(root),
        **_crowded(root),
        "`LEAST_` and `MOST_` constants in compiler/": _matches(root / "compiler", THRESHOLD),
        "`# type: ignore` in compiler/": _matches(root / "compiler", IGNORED),
        f"sentences of over {MOST_WORDS} words": sum(1 for path in _texts(root) for _ in long_sentences(path)),
        "lines of README.md": _lines(root / "README.md"),
        "lines of compiler/pipeline.py": _lines(root / "compiler" / "pipeline.py"),
    }


def _folders(root: Path) -> Counts:
    """How many modules the largest folders hold."""
    sizes = {package: _modules_in(root / package) for package in (*PACKAGES, "tests")}
    most = {f"modules in the largest folder of {name}/": max(found.values()) for name, found in sizes.items() if found}
    return {"modules of compiler/": sum(sizes["compiler"].values()), **most}


def _modules_in(package: Path) -> dict[Path, int]:
    """The number of modules in each folder, which counts none of its own folders' modules."""
    found: dict[Path, int] = {}
    for path in package.rglob("*.py"):
        if path.name != "__init__.py":
            found[path.parent] = found.get(path.parent, 0) + 1
    return found


def _functions(root: Path) -> Counts:
    found: Counts = {}
    for package in ("compiler", "harness"):
        lengths = sorted(_lengths(root / package))
        found[f"lines of a function of {package}/, median"] = statistics.median(lengths)
        found[f"lines of a function of {package}/, 90th percentile"] = lengths[len(lengths) * 9 // 10]
        found[f"lines of the longest function of {package}/"] = lengths[-1]
    return found


def _lengths(package: Path) -> Iterator[int]:
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1


def _crowded(root: Path) -> Counts:
    """How many functions take many parameters, and of how many of these the signature is ours to choose."""
    found = list(_of_many_parameters(root))
    elsewhere = {name.rpartition(".")[2] for name in GIVEN}
    counted = f"functions of over {MOST_PARAMETERS} parameters"
    return {counted: len(found), f"{counted} whose signature is ours": sum(name not in elsewhere for name in found)}


def _of_many_parameters(root: Path) -> Iterator[str]:
    for path in (path for package in PACKAGES for path in (root / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(parameters(node)) > MOST_PARAMETERS:
                yield node.name


def _imports(root: Path) -> Counts:
    """The pairs of rooms of the compiler that import each other, and the rooms that lie on a cycle."""
    arrows = {room: targets - {room} for room, targets in arrows_of(root).items()}
    pairs = sum(
        1 for folder in arrows for other in arrows[folder] if folder < other and folder in arrows.get(other, ())
    )
    on_cycle = sum(1 for room in arrows if room in _reached(arrows, arrows[room]))
    return {
        "pairs of rooms of compiler/ that import each other": pairs,
        "rooms of compiler/ on a cycle of imports": on_cycle,
    }


def arrows_of(root: Path) -> dict[str, set[str]]:
    """The rooms of the compiler, each with the rooms that its modules import at their top.

    A room is a folder of `compiler/` with all that is in it, or a module that lies in none.
    """
    arrows: dict[str, set[str]] = {}
    for path in sorted((root / "compiler").rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        arrows.setdefault(_room(name), set()).update(_imported_rooms(path))
    return arrows


def _imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        module = (node.module or "").removeprefix("assay.") if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and module.split(".")[0] == "compiler":
            yield from (_room(f"{module}.{alias.name}") for alias in node.names)


def _room(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _reached(arrows: Mapping[str, set[str]], start: set[str]) -> set[str]:
    """All that can be reached from some rooms, these included."""
    reached, waiting = set(start), list(start)
    while waiting:
        for room in arrows.get(waiting.pop(), set()) - reached:
            reached.add(room)
            waiting.append(room)
    return reached


def _matches(package: Path, pattern: re.Pattern[str]) -> int:
    return sum(len(pattern.findall(path.read_text())) for path in package.rglob("*.py"))


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _texts(root: Path) -> Iterator[Path]:
    """Every document, and every module for its docstrings."""
    for name in TEXTS:
        path = root / name
        yield from [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.md")])


def long_sentences(path: Path, most: int = MOST_WORDS) -> Iterator[str]:
    """The sentences of a document, or of a module's docstrings, that have more words than that."""
    for text in _prose(path):
        for sentence in _sentences(text):
            if len(WORD.findall(sentence)) > most:
                yield " ".join(sentence.split())


def _prose(path: Path) -> Iterator[str]:
    text = path.read_text()
    if path.suffix != ".py":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(said))):
                yield inspect.cleandoc(said)


def _sentences(text: str) -> Iterator[str]:
    """The sentences of prose, with each piece of code as one letter."""
    for block in BLOCK.split(re.sub(r"```.*?```", "\n\n", text, flags=re.S)):
        lines = [line for line in block.splitlines() if not NO_PROSE.match(line)]
        yield from SENTENCE.split(re.sub(r"\s+", " ", re.sub(r"`[^`]*`", "X", " ".join(lines))))


def worse(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """The names of the counts that have grown."""
    return [name for name in before if after.get(name, before[name]) > before[name]]


def commit_of(root: Path) -> str:
    """The short name of a checkout's commit, or nothing where git does not know one."""
    told = subprocess.run(["git", "-C", str(root), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return told.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Counts, and compares. Returns 1 where a count got worse."""
    parser = argparse.ArgumentParser(prog="python -m assay.suites.metrics", description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to count")
    parser.add_argument("--commit", help="what to call it; by default git is asked")
    parser.add_argument("--json", type=Path, help="write the counts here")
    parser.add_argument("--against", type=Path, help="earlier counts")
    given = parser.parse_args(arguments)
    found = counts_of(given.root)
    before = json.loads(given.against.read_text())["counts"] if given.against else {}
    for name, value in found.items():
        print(f"{f'{before[name]:g} -> ' if name in before else '':>10}{value:g}  {name}")
    if given.json:
        kept = {"commit": given.commit or commit_of(given.root), "date": str(datetime.date.today()), "counts": found}
        given.json.write_text(json.dumps(kept, indent=1) + "\n")
    return int(bool(worse(before, found)))


if __name__ == "__main__":
    sys.exit(main())
