"""Finds cases by what a user types: a suite, a dotted name, or the path of a Python file.

    zoo                      every case of the package `assay.suites.zoo`, its modules included
    zoo.text, my_package.cases      the same for any importable package or module
    zoo.bert                 one case
    path/to/cases.py         every case of a file; path/to/cases.py::name for one of them
    tests/test_mine.py::test_layer             what a test of the plugin for pytest hands to its fixture
    ops.add.float32.forward[0 transposed]      one sample of a suite of batches, as a report names it

A found case is named after its suite (`zoo.bert`) or its file (`cases.name`). A case is an attribute of its module
that is a `Case`, or an element of a list, tuple or dict that is an attribute.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from assay.harness.case import MODES, Case, Made

SUITES = "assay.suites"
SEED_OF_SAMPLES = 0
TESTS = ("test", "Test")
"""How the names begin that pytest takes for tests'."""
NOT_CASES = ("test_", "bench_", "_")
"""Modules of a suite whose names begin so hold tests or measurements, and are not imported to look for cases."""


class DiscoverError(ValueError):
    """A name or file that gives no cases; the message says what is wrong, where, and what exists instead."""


def discover(names: Sequence[str]) -> tuple[Case, ...]:
    """The cases that `names` ask for, in that order, each once.

    Raises: DiscoverError for a name that does not exist, and for a file or module that cannot be imported.
    """
    found: dict[str, Case] = {}
    for name in names:
        for case in _cases_of(name):
            other = found.setdefault(case.name, case)
            if other.origin != case.origin or other.function is not case.function:
                raise DiscoverError(f"two cases are named {case.name!r}: one in {other.origin}, one in {case.origin}")
    return tuple(found.values())


def discover_generator(name: str) -> str | None:
    """The dotted name of the module, if it is one that generates its programs: it has a function `draw`.

    Raises: DiscoverError if it exists and its import fails.
    """
    return _module_with("draw", name)


def discover_batches(name: str) -> str | None:
    """The dotted name of the module, if its cases are batches of samples: it has a function `batches`.

    Raises: DiscoverError if it exists and its import fails.
    """
    return _module_with("batches", name)


def _module_with(attribute: str, name: str) -> str | None:
    """The dotted name of the module, if it has a function of that name."""
    if name.endswith(".py") or "/" in name:
        return None
    module = _module_named(name)
    return module.__name__ if module is not None and callable(getattr(module, attribute, None)) else None


def suite_names() -> tuple[str, ...]:
    """The packages and modules under `suites`."""
    suites = importlib.util.find_spec(SUITES)
    places = suites.submodule_search_locations if suites is not None else None
    return tuple(sorted(found.name for found in pkgutil.iter_modules(places or ())))


def _cases_of(name: str) -> tuple[Case, ...]:
    path, _, wanted = name.partition("::")
    if path.endswith(".py") and wanted.startswith(TESTS) and Path(path).is_file():
        return (_case_of_test(Path(path), wanted),)
    if name.endswith("]") and not path.endswith(".py"):
        return (_sample_of_a_batch(name),)
    if path.endswith(".py") or "/" in path:
        return _pick(_cases_of_file(Path(path)), wanted, name)
    if (module := _module_named(name)) is not None:
        return _some(_cases_of_module(module), name)
    parent, _, last = name.rpartition(".")
    if parent and (module := _module_named(parent)) is not None:
        return _pick(_cases_of_module(module), last, name)
    raise DiscoverError(_unknown(name))


def _unknown(name: str) -> str:
    known = suite_names()
    near = difflib.get_close_matches(name.removeprefix(f"{SUITES}.").split(".")[0], known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"{name!r} is not a suite, not an importable module and not a Python file{hint}. "
        f"The suites are {', '.join(known) or '(none)'}; a path of a file of cases ends in .py"
    )


def _case_of_test(path: Path, name: str) -> Case:
    """The case of that name where the file has one; or else what a test of that name hands over."""
    if not path.name.startswith("test"):
        found = [case for case in _cases_of_file(path) if case.name.rpartition(".")[2] == name]
        if found:
            return found[0]
    try:
        of_tests = importlib.import_module("assay.harness.case_of_a_test")
    except ImportError as error:
        raise DiscoverError(f"{path}::{name} is a test, which needs pytest: {error}") from error
    try:
        found_case: Case = of_tests.case_of_test(path.resolve(), name)
    except of_tests.NotATest as error:
        raise DiscoverError(str(error)) from error
    return found_case


def _sample_of_a_batch(name: str) -> Case:
    """The case of one sample. It is drawn from the seed that a run of its suite has where nobody says another."""
    called, _, wanted = name.removesuffix("]").partition("[")
    suite, _, batch_name = called.partition(".")
    if (module := discover_batches(suite)) is None:
        raise DiscoverError(f"{name!r}: {suite!r} is no suite of batches, which alone have samples in brackets")
    batches = [batch for batch in importlib.import_module(module).batches() if batch.name == batch_name]
    if not batches or batches[0].judge is not None:
        raise DiscoverError(f"{name!r}: {suite} has no batch {batch_name!r} that is held against eager")
    batch = max(batches, key=lambda each: MODES.index(each.mode))  # its inputs do for inference as well

    def make() -> Made:
        (sample,) = (each for each in batch.make(SEED_OF_SAMPLES) if each.name == wanted)
        return sample.function, sample.args, sample.kwargs

    known = [sample.name for sample in batch.make(SEED_OF_SAMPLES)]
    if wanted not in known:
        raise DiscoverError(f"{name!r}: the batch has no sample {wanted!r}. Its samples are {', '.join(known)}")
    modes = tuple(mode for mode in MODES if any(each.mode == mode for each in batches))
    return Case(name, make, modes, batch.tags, ("tiny",), origin=name)


def _some(cases: tuple[Case, ...], name: str) -> tuple[Case, ...]:
    if not cases:
        raise DiscoverError(f"{name!r} holds no cases; a case is a function under the decorator assay.case")
    return cases


def _pick(cases: tuple[Case, ...], wanted: str, name: str) -> tuple[Case, ...]:
    if not wanted:
        return _some(cases, name)
    picked = tuple(case for case in cases if case.name.rpartition(".")[2] == wanted)
    if picked:
        return picked
    known = [case.name.rpartition(".")[2] for case in cases]
    near = difflib.get_close_matches(wanted, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise DiscoverError(f"{name!r}: there is no case {wanted!r}{hint}. The cases are {', '.join(known) or '(none)'}")


def _module_named(name: str) -> ModuleType | None:
    """The module of that name, under `suites` first; None if there is none.

    Raises: DiscoverError if it exists and its import fails.
    """
    for dotted in (f"{SUITES}.{name}", name):
        if _exists(dotted):
            return _imported(dotted)
    return None


def _exists(dotted: str) -> bool:
    """Whether a module has that name, looking through packages from the outside in without importing the last one."""
    parent, _, _ = dotted.rpartition(".")
    if not all(part.isidentifier() for part in dotted.split(".")) or (parent and not _exists(parent)):
        return False
    if parent and not hasattr(_imported(parent), "__path__"):
        return False
    return importlib.util.find_spec(dotted) is not None


def _imported(dotted: str) -> ModuleType:
    try:
        return importlib.import_module(dotted)
    except Exception as error:
        raise DiscoverError(f"importing {dotted} failed at {_place(error)}: {_said(error)}") from error


def _cases_of_module(module: ModuleType) -> tuple[Case, ...]:
    suite = module.__name__.removeprefix(f"{SUITES}.").split(".")[0]
    cases: dict[int, Case] = {}
    for part in _with_submodules(module):
        for case in _declared_in(part):
            cases.setdefault(id(case), dataclasses.replace(case, name=f"{suite}.{case.name}", origin=part.__name__))
    return _distinct(cases.values())


def _with_submodules(module: ModuleType) -> Iterator[ModuleType]:
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if not found.name.startswith(NOT_CASES):
            yield from _with_submodules(_imported(f"{module.__name__}.{found.name}"))


def _declared_in(module: ModuleType) -> Iterator[Case]:
    for value in vars(module).copy().values():
        if isinstance(value, Case):
            yield value
        elif isinstance(value, list | tuple | dict):
            elements = value.values() if isinstance(value, dict) else value
            yield from (element for element in elements if isinstance(element, Case))


def _distinct(cases: Iterable[Case]) -> tuple[Case, ...]:
    by_name: dict[str, Case] = {}
    for case in cases:
        if case.name in by_name:
            raise DiscoverError(f"two cases are named {case.name!r}: in {by_name[case.name].origin} and {case.origin}")
        by_name[case.name] = case
    return tuple(by_name.values())


def _cases_of_file(path: Path) -> tuple[Case, ...]:
    if not path.is_file():
        raise DiscoverError(f"{path}: there is no such file of cases")
    path = path.resolve()
    module = _loaded(path)
    seen = {id(case): case for case in _declared_in(module)}
    return _distinct(
        dataclasses.replace(case, name=f"{path.stem}.{case.name}", origin=str(path)) for case in seen.values()
    )


def _loaded(path: Path) -> ModuleType:
    """The file as a module, run once a process; its folder is importable from it, as for a script."""
    name = f"assay_cases_{path.stem}_{hashlib.sha1(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DiscoverError(f"{path}: not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise DiscoverError(f"{path}: failed at {_place(error, path)}: {_said(error)}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _place(error: BaseException, within: Path | None = None) -> str:
    """`file:line` where the error was raised; the last line within the file `within` if it passed through it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if within is not None and frame.filename == str(within)]
    frame = (inside or list(frames))[-1]
    return f"{frame.filename}:{frame.lineno}"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
