"""How `tests/` mirrors the packages: rules from sources to violations, one sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile

from tests.sources import PACKAGES, ROOT, Source, imports, is_under, parse

Sources = Mapping[str, Source]

UNMIRRORED = {
    "compiler.ir.graph.backward": "steps of a whole backward: `tests/compiler/autograd/whole` records and runs them",
    "compiler.ops.calls": "each is a kernel or a pass that calls it: `tests/compiler/kernels` and `passes`",
    "compiler.ops.losses": "one graph holds them and the activations: `tests/compiler/ops/pointwise`",
    "reference": "the test of a stage holds both of its files together: `tests/compiler`",
    "harness.remember.migrations": "`tests/harness/remember` migrates the tables of a store",
    "harness.remember.migrations.versions": "`tests/harness/remember` migrates the tables of a store",
    "harness.selftest.wrong_backends": "`tests/harness/selftest` tries the bank whole",
    "suites.kernels": "its benchmarks are tests themselves",
    "suites.programs.operations": "`tests/suites/programs` draws programs of every operation",
    "suites.tables": "`tests/test_documents.py` compares what each of them writes",
}
"""Folders with no folder of tests, each with the place where its modules are tested."""


def read_tests() -> dict[str, Source]:
    """Every module of tests that lies under the mirror of a package, by its dotted name without `tests.`."""
    files = (path for package in PACKAGES for path in sorted((ROOT / "tests" / package).rglob("test_*.py")))
    names = {".".join(path.relative_to(ROOT / "tests").with_suffix("").parts): path for path in files}
    return {name: parse(name, path.read_text()) for name, path in names.items()}


def unmirrored_folders(sources: Sources, tests: Iterable[str]) -> Iterator[str]:
    """Folders with modules and no tests, folders of tests of no folder, and entries of `UNMIRRORED` that are stale."""
    folders = {name.rpartition(".")[0] for name, source in sources.items() if not source.is_package} - {""}
    known = folders | {name for name, source in sources.items() if source.is_package}
    mirrors = {name.rpartition(".")[0] for name in tests}
    for folder in sorted(folders):
        is_tested = any(is_under(mirror, folder) for mirror in mirrors)
        if not is_tested and folder not in UNMIRRORED:
            yield f"{folder} has no folder of tests: tests/{folder.replace('.', '/')}"
        if is_tested and folder in UNMIRRORED:
            yield f"{folder} has a folder of tests now"
    yield from (f"tests/{each.replace('.', '/')} mirrors no folder" for each in sorted(mirrors - known))


def misplaced_tests(sources: Sources, tests: Sources) -> Iterator[str]:
    """Tests of one folder's modules that lie in a folder above it. Only imports from their own room count."""
    for name, test in tests.items():
        folder = name.rpartition(".")[0]
        read = {module for each in imports(test) if (module := _module(each.target, sources))}
        own = [module for module in read if is_under(module, folder)]
        beside = [module for module in read if is_under(module, _room(folder)) and not is_under(module, folder)]
        shared = _shared_folder(own)
        if own and not beside and shared != folder and is_under(shared, folder) and shared not in UNMIRRORED:
            yield f"tests/{name.replace('.', '/')}.py reads {shared} alone: move it to tests/{shared.replace('.', '/')}"


def _module(target: str, sources: Sources) -> str:
    """The module that a dotted name lives in, "" if it is none of these."""
    while target and target not in sources:
        target = target.rpartition(".")[0]
    return target


def _room(folder: str) -> str:
    return ".".join(folder.split(".")[:2])


def _shared_folder(modules: Iterable[str]) -> str:
    """The deepest folder that holds all of the modules."""
    levels = zip(*(module.split(".")[:-1] for module in modules), strict=False)
    return ".".join(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, levels))
