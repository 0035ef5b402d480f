"""The design's arrows, held by reading the sources: who may import whom, what is not borrowed, where a thing lives.

Each rule is a function from sources to violations, one sentence each, and is itself tested on small bad sources.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import pytest

from assay.compiler.options import Options
from assay.suites.signatures import GIVEN, MOST_PARAMETERS, parameters
from tests.mirrored_folders import UNMIRRORED, misplaced_tests, read_tests, unmirrored_folders
from tests.sources import PACKAGES, ROOT, Import, Source, functions, imports, is_under, parse, read_sources, uses

Sources = Mapping[str, Source]

ARROWS = {
    "compiler": ("compiler",),
    "reference": ("reference", "compiler.ir"),
    "harness": ("harness", "compiler", "reference"),
    "suites": ("suites", "harness", "compiler", "reference"),
}
"""What a module under a name may import of ours."""

HARNESS = (
    ("harness.case", "harness.outcome", "harness.measure", "harness.option_groups", "harness.timed_alone"),
    ("harness.captor", "harness.row_order"),
    ("harness.case_of_a_test",),
    ("harness.calls", "harness.discover"),
    ("harness.protocol",),
    ("harness.observe",),
    ("harness.judge", "harness.backends"),
    ("harness.run",),
    ("harness.processes", "harness.report"),
    ("harness.bench", "harness.search", "harness.held_by_pytest"),
    ("harness.batches", "harness.locate", "harness.cluster", "harness.pytest_plugin"),
    ("harness.remember", "harness.track"),
    ("harness.site",),
    ("harness.night",),
    ("harness.selftest",),
    ("harness.cli",),
    ("harness.__main__",),
)
"""The harness, floor by floor: a room imports its own modules, and those of the floors under it."""

FOUNDATION = ("compiler", "errors", "torch_compat", "torch_stubs", "options", "journal", "fallback", "machine")
"""Files of the compiler that every room but `ir` may import."""

COMPILER: dict[str, tuple[str, ...]] = {
    "ir": (),
    "capture": ("ir",),
    "schedule": ("ir",),
    "runtime": ("ir",),
    "codegen": ("ir", "schedule", "runtime"),
    "toolchain": ("ir", "schedule", "runtime", "codegen"),
    "kernels": ("ir", "toolchain"),
    "ops": ("ir", "runtime", "kernels"),
    "autograd": ("ir", "ops"),
    "passes": ("ir", "ops"),
}
"""The rooms of the compiler, and which others each of them imports. The stages meet in `ir` alone; the operators'
records call `kernels` and `runtime`. `assembly`, `pipeline.py` above it and the front doors in `entry` see all."""
BARE = ("compiler.ir", "compiler.errors", "compiler.torch_compat")
"""What `ir` may import."""

BORROWED = (
    "torch._inductor",
    "torch._functorch.aot_autograd",
    "torch._functorch._aot_autograd",
    "torch._functorch.partitioners",
    "torch._functorch.compilers",
    "functorch.compile",
    "torch._dynamo.compiled_autograd",
    "torch._dynamo.backends.common",
    "torch._dynamo.backends.inductor",
)
"""What the project exists to do itself; the last two hand the first ones out under other names."""

TOLD = {("compiler.torch_compat", "torch._dynamo.compiled_autograd")}
"""What is told of to torch's own compiler of backwards, as the engine tells it only one of the two: nothing is used."""

OTHER_PEOPLES = "suites.libraries"
"""Its rows import their packages when they are made: the suite is listed where none of them is installed."""

LAZY: dict[tuple[str, str], str] = {
    ("compiler.toolchain.load", "compiler.toolchain.gpu.triton_launch.load_triton"): "Triton need not be there",
    ("compiler.toolchain.load", "compiler.toolchain.gpu.triton_launch.Variants"): "Triton need not be there",
    ("compiler.toolchain.load", "compiler.toolchain.gpu.tune_products.choose"): "Triton need not be there",
    ("compiler.toolchain.gpu.triton_build", "triton"): "it need not be there",
    ("compiler.toolchain.gpu.triton_build", "triton.backends.compiler.GPUTarget"): "it need not be there",
    ("compiler.toolchain.gpu.triton_build", "triton.compiler.ASTSource"): "it need not be there",
    ("compiler.toolchain.gpu.triton_launch", "triton.runtime.driver.driver"): "it need not be there",
}
"""Imports inside functions that are right, as (module, imported name), each with its reason."""

VAGUE = ("utils", "util", "helpers", "helper", "common", "misc")
REFERENCE_LINES = 900
OPTION_FIELDS = 20
LONGEST_FUNCTION = 60
NINETIETH_PERCENTILE = 25


def ours(target: str, sources: Sources) -> str:
    """The module of ours that a dotted name lives in, "" if it is not ours."""
    while target and target not in sources:
        target = target.rpartition(".")[0]
    return target


def edges(source: Source, sources: Sources) -> Iterator[tuple[str, Import]]:
    """The modules of ours that a source imports."""
    for each in imports(source):
        if module := ours(each.target, sources):
            yield module, each


def crossed_arrows(sources: Sources) -> Iterator[str]:
    for name, source in sources.items():
        allowed = ARROWS[name.partition(".")[0]]
        for module, each in edges(source, sources):
            if not any(is_under(module, prefix) for prefix in allowed):
                yield f"{name}:{each.line} imports {module}; it may import {', '.join(allowed)}"


def climbed_floors(sources: Sources) -> Iterator[str]:
    floors = {room: floor for floor, rooms in enumerate(HARNESS) for room in rooms}

    def room_of(module: str) -> str | None:
        return next((room for room in floors if is_under(module, room)), None)

    for name, source in sources.items():
        if not is_under(name, "harness") or name == "harness":
            continue
        room = room_of(name)
        if room is None:
            yield f"{name} has no floor"
            continue
        for module, each in edges(source, sources):
            other = room_of(module)
            if other not in (None, room) and floors[other] >= floors[room]:
                yield f"{name}:{each.line} imports {module}, which is not on a floor under {room}"


def room_of(module: str, package: str = "compiler") -> str:
    """The room of a module: the folder, or the file, directly under its package."""
    return module.removeprefix(f"{package}.").partition(".")[0]


def crossed_rooms(sources: Sources) -> Iterator[str]:
    for name, source in sources.items():
        room = room_of(name)
        if not is_under(name, "compiler") or room not in COMPILER:
            continue
        for module, each in edges(source, sources):
            if not _may_import(room, module):
                yield f"{name}:{each.line} imports {module}; it may import {', '.join((room, *COMPILER[room]))}"


def _may_import(room: str, module: str) -> bool:
    if room == "ir":
        return any(is_under(module, each) for each in BARE)
    return room_of(module) in (room, *COMPILER[room], *FOUNDATION)


def folder_cycles(sources: Sources) -> Iterator[str]:
    """Folders of one folder that import each other. What an `__init__` imports is the front of its folder."""
    folders = {name.rpartition(".")[0] for name in sources if name.count(".")}
    graph: dict[str, set[str]] = {folder: set() for folder in folders}
    for name, source in sources.items():
        for module, _ in edges(source, sources) if name not in folders else ():
            for one, other in _parting(name, module, folders):
                graph[one].add(other)
    yield from _closed_walks(graph, "folder cycle")


def _parting(name: str, module: str, folders: Container[str]) -> Iterator[tuple[str, str]]:
    """The two folders at which the ways to two modules part."""
    ways = zip(_ways(name), _ways(module), strict=False)
    for one, other in ways:
        if one != other:
            if one in folders and other in folders:
                yield one, other
            return


def _ways(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def borrowed_modules(sources: Sources) -> Iterator[str]:
    for name, source in sources.items():
        if name.partition(".")[0] in ("compiler", "reference"):
            for use in uses(source):
                if any(is_under(use.name, module) for module in BORROWED) and (name, use.name) not in TOLD:
                    yield f"{name}:{use.line} uses {use.name}, which the project does itself"


def import_cycles(sources: Sources) -> Iterator[str]:
    yield from _closed_walks(
        {name: {module for module, _ in edges(source, sources)} - {name} for name, source in sources.items()},
        "import cycle",
    )


def _closed_walks(graph: Mapping[str, set[str]], kind: str) -> Iterator[str]:
    """One sentence for each cycle that a depth-first walk closes."""
    finished: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> Iterator[str]:
        if name in path:
            yield f"{kind}: " + " -> ".join((*path[path.index(name) :], name))
        elif name not in finished:
            for module in sorted(graph[name]):
                yield from walk(module, (*path, name))
            finished.add(name)

    for name in graph:
        yield from walk(name, ())


def buried_imports(sources: Sources) -> Iterator[str]:
    found = {
        (name, each.target): each.line
        for name, source in sources.items()
        if not is_under(name, OTHER_PEOPLES)
        for function in functions(source)
        for each in imports(source, function)
    }
    for (name, target), line in found.items():
        if (name, target) not in LAZY:
            yield f"{name}:{line} imports {target} inside a function; move it to the top, or list it with its reason"
    yield from (f"{name} no longer imports {target} inside a function" for name, target in LAZY.keys() - found)


def environment_readers(sources: Sources) -> Iterator[str]:
    for name, source in sources.items():
        if is_under(name, "compiler") and name != "compiler.options":
            for use in uses(source):
                if any(is_under(use.name, reader) for reader in ("os.environ", "os.environb", "os.getenv")):
                    yield f"{name}:{use.line} reads the environment; compiler.options is the only reader"


def crowded_functions(sources: Sources) -> Iterator[str]:
    found = {
        f"{name}.{function.name}": len(parameters(function))
        for name, source in sources.items()
        for function in functions(source)
    }
    for name, count in found.items():
        if count > MOST_PARAMETERS and name not in GIVEN:
            yield f"{name} takes {count} parameters; those that belong together are a dataclass"
    known = {name for name in GIVEN if name.rpartition(".")[0] in sources}
    yield from (f"{name} takes few parameters now" for name in known if found.get(name, 0) <= MOST_PARAMETERS)


def vague_names(sources: Sources) -> Iterator[str]:
    for name in sources:
        if name.rpartition(".")[2] in VAGUE:
            yield f"{name} has a name that says nothing"


RULES: tuple[Callable[[Sources], Iterable[str]], ...] = (
    crossed_arrows,
    climbed_floors,
    crossed_rooms,
    folder_cycles,
    borrowed_modules,
    import_cycles,
    buried_imports,
    crowded_functions,
    environment_readers,
    vague_names,
)


@pytest.fixture(scope="module")
def project() -> Sources:
    return read_sources()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_architecture_holds(rule: Callable[[Sources], Iterable[str]], project: Sources) -> None:
    assert sorted(set(rule(project))) == []


def test_architecture_sees_every_package(project: Sources) -> None:
    assert {name.partition(".")[0] for name in project} == set(PACKAGES)
    assert {"compiler.options", "compiler.ir.graph.roles", "harness.case", "suites.zoo.language"} <= project.keys()


def test_architecture_tests_mirror_the_packages(project: Sources) -> None:
    tests = read_tests()
    assert sorted({*unmirrored_folders(project, tests), *misplaced_tests(project, tests)}) == []
    assert UNMIRRORED.keys() <= {name for name, source in project.items() if source.is_package}


def test_architecture_reference_stays_short() -> None:
    lines = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "reference").rglob("*.py")}
    assert sum(lines.values()) < REFERENCE_LINES, lines


def test_architecture_options_stay_few() -> None:
    assert len(dataclasses.fields(Options)) <= OPTION_FIELDS


@pytest.mark.parametrize("package", PACKAGES)
def test_architecture_functions_stay_small(package: str, project: Sources) -> None:
    lengths = {
        f"{name}.{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for name, source in project.items()
        if is_under(name, package)
        for function in functions(source)
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}
    if len(lengths) > 1:
        assert statistics.quantiles(lengths.values(), n=10)[-1] < NINETIETH_PERCENTILE


def sources_of(**texts: str) -> Sources:
    """Sources from texts; `__` in a keyword is a dot in a module's name."""
    named = {name.replace("__", "."): text for name, text in texts.items()}
    return {name: parse(name, text) for name, text in named.items()}


@pytest.mark.parametrize(
    "name, text",
    [
        ("compiler__fx", "import harness.case"),
        ("compiler__fx", "from suites import zoo"),
        ("compiler__fx", "from reference.eager import run"),
        ("reference__eager", "from assay.compiler.options import Options"),
        ("reference__eager", "from compiler import options"),
        ("reference__eager", "import harness"),
        ("harness__run", "def f():\n    import suites.zoo"),
    ],
)
def test_architecture_sees_a_crossed_arrow(name: str, text: str) -> None:
    rest = {"compiler__options": "", "compiler__ir__roles": "", "harness": "", "harness__case": "", "suites": ""}
    good = {"suites__zoo": "import harness.case", "reference": "from compiler.ir import roles", "reference__eager": ""}
    assert list(crossed_arrows(sources_of(**rest, **good))) == []
    assert len(list(crossed_arrows(sources_of(**{**rest, **good, name: text})))) == 1


def test_floors_are_climbed_by_no_room_of_the_harness() -> None:
    rest = {"harness": "", "harness__case": "", "harness__run": "", "harness__observe__leaks": "", "harness__judge": ""}
    good = {"harness__judge__compare": "from harness.observe import leaks", "harness__observe__tree": ""}
    assert list(climbed_floors(sources_of(**rest, **good))) == []
    up = {"harness__observe__tree": "from harness.judge import compare"}
    assert len(list(climbed_floors(sources_of(**{**rest, **good, **up})))) == 1
    beside = {"harness__judge__oracle": "import harness.backends.registry", "harness__backends__registry": ""}
    assert len(list(climbed_floors(sources_of(**{**rest, **good, **beside})))) == 1
    assert list(climbed_floors(sources_of(harness__misplaced=""))) == ["harness.misplaced has no floor"]


def test_architecture_sees_a_room_that_imports_another() -> None:
    files = {
        "compiler": "",
        "compiler__errors": "",
        "compiler__ir__roles": "from compiler import errors",
        "compiler__ops": "",
        "compiler__options": "",
        "compiler__pipeline": "from compiler.passes.fold import fold",
        "compiler__passes__fold": "from compiler.ir import roles\nfrom compiler import ops, options",
        "compiler__passes__drop": "from compiler.passes.fold import fold\nfrom . import fold",
        "compiler__schedule__fuse": "",
    }
    assert list(crossed_rooms(sources_of(**files))) == []
    for text in ("from compiler.passes import drop", "from ..passes import drop", "import compiler.pipeline"):
        assert len(list(crossed_rooms(sources_of(**{**files, "compiler__schedule__fuse": text})))) == 1, text
    assert len(list(crossed_rooms(sources_of(**{**files, "compiler__ir__roles": "import compiler.options"})))) == 1


def test_architecture_sees_folders_that_import_each_other() -> None:
    files = {
        "compiler__ops": "from compiler.ops.complex import numbers",
        "compiler__ops__registry": "",
        "compiler__ops__complex": "",
        "compiler__ops__complex__numbers": "from compiler.ops.pointwise import table",
        "compiler__ops__pointwise": "",
        "compiler__ops__pointwise__table": "from compiler.ops import registry",
    }
    assert list(folder_cycles(sources_of(**files))) == []
    back = {"compiler__ops__pointwise__table": "from compiler.ops.complex import numbers"}
    assert len(list(folder_cycles(sources_of(**{**files, **back})))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import torch._inductor",
        "import torch._inductor.config as settings",
        "from torch import _inductor",
        "from torch._inductor import config",
        "from torch._functorch import aot_autograd as front",
        "from torch._functorch.aot_autograd import aot_function",
        "import torch\nx = torch._inductor.config",
        "import torch as t\nx = t._functorch.partitioners.min_cut",
        "from torch import _dynamo\nx = _dynamo.compiled_autograd",
        "import torch\nx = getattr(torch, '_inductor').config",
        "from importlib import import_module\nx = import_module('torch._inductor.ir')",
        "from importlib import import_module\nx = import_module('._inductor', 'torch')",
        "import functorch.compile",
        "from functorch.compile import make_boxed_func",
        "from functorch import compile",
        "from torch._dynamo.backends.common import aot_autograd",
        "def f():\n    import torch._functorch.compilers",
    ],
)
def test_architecture_sees_a_borrowed_module(text: str) -> None:
    assert list(borrowed_modules(sources_of(compiler__fx=text)))
    assert list(borrowed_modules(sources_of(reference__pipeline=text)))
    assert not list(borrowed_modules(sources_of(harness__backends=text)))


@pytest.mark.parametrize(
    "text",
    [
        '"""What torch._inductor does, without it."""\nimport torch',
        "import torch\nx = torch._C._dynamo.compiled_autograd",
        "from torch._dynamo.backends import registry",
        "from torch._functorch import config",
        "from torch import _inductor_free",
    ],
)
def test_architecture_lets_torch_itself_be_used(text: str) -> None:
    assert not list(borrowed_modules(sources_of(compiler__fx=text)))


def test_architecture_sees_a_cycle() -> None:
    line = {"compiler__a": "import compiler.b", "compiler__b": "from compiler import c", "compiler__c": ""}
    assert list(import_cycles(sources_of(**line))) == []
    closed = list(import_cycles(sources_of(**{**line, "compiler__c": "from compiler.a import x"})))
    assert closed == ["import cycle: compiler.a -> compiler.b -> compiler.c -> compiler.a"]


def test_architecture_sees_an_import_inside_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    buried = sources_of(harness__run="class A:\n    def f(self):\n        from json import dumps")
    monkeypatch.setattr(f"{__name__}.LAZY", {})
    assert len(list(buried_imports(buried))) == 1
    monkeypatch.setattr(f"{__name__}.LAZY", {("harness.run", "json.dumps"): "a reason"})
    assert list(buried_imports(buried)) == []
    assert len(list(buried_imports(sources_of(harness__run="import json")))) == 1, "a stale entry"


@pytest.mark.parametrize(
    "text", ["import os\nx = os.environ['A']", "from os import getenv", "import os as o\nx = o.environ.get('A')"]
)
def test_architecture_sees_a_reader_of_the_environment(text: str) -> None:
    assert list(environment_readers(sources_of(compiler__runtime__build=text)))
    assert not list(environment_readers(sources_of(compiler__options=text)))
    assert not list(environment_readers(sources_of(harness__cli=text)))


def test_architecture_sees_a_function_of_many_parameters() -> None:
    assert list(crowded_functions(sources_of(harness__run="def f(a, b, c, d, e, *, f): pass"))) == []
    method = "class A:\n    def f(self, a, b, c, d, e, f): pass"
    assert list(crowded_functions(sources_of(harness__run=method))) == []
    assert len(list(crowded_functions(sources_of(harness__run="def f(a, b, c, d, e, *, f, g): pass")))) == 1
    assert len(list(crowded_functions(sources_of(compiler__kernels__attend="def attend(q): pass")))) == 2, "stale"


def test_architecture_sees_a_vague_name() -> None:
    assert list(vague_names(sources_of(compiler__utils=""))) and not list(vague_names(sources_of(compiler__ir="")))


def test_architecture_sees_a_folder_without_tests() -> None:
    files = sources_of(compiler__ops__registry="", compiler__ops__views__lower="", compiler__ir__roles="")
    tests = ["compiler.ops.test_registry", "compiler.ops.views.test_lower", "compiler.ir.test_roles"]
    assert list(unmirrored_folders(files, tests)) == []
    assert len(list(unmirrored_folders(files, tests[:1]))) == 2
    assert len(list(unmirrored_folders(files, [*tests, "compiler.no_room.test_roles"]))) == 1
    stale = sources_of(compiler__ops__calls__products="")
    assert list(unmirrored_folders(stale, ["compiler.ops.calls.test_products"])) == [
        "compiler.ops.calls has a folder of tests now"
    ]


def test_architecture_sees_a_test_above_its_folder() -> None:
    files = sources_of(compiler__ops__registry="", compiler__ops__views__lower="", compiler__ir__roles="")
    below, beside = "from assay.compiler.ops.views import lower", "from assay.compiler.ops.registry import record"
    good = sources_of(
        compiler__ops__test_both=f"{below}\n{beside}",
        compiler__ops__views__test_lower=below,
        compiler__ir__test_roles=below,
    )
    assert list(misplaced_tests(files, good)) == []
    assert len(list(misplaced_tests(files, sources_of(compiler__ops__test_lower=below)))) == 1
