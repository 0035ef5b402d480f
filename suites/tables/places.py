"""Where each kind of thing is added. The places are looked up in the sources, so that a move takes them along."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import assay.compiler.ops
import assay.compiler.passes
import assay.suites.benchmarks
import assay.suites.semantics
import assay.suites.upstream_bugs
import assay.suites.zoo
from assay.compiler.assembly.targets import targets_of
from assay.compiler.codegen.cpp import expressions as cpp_expressions
from assay.compiler.codegen.source import source_of
from assay.compiler.codegen.triton import expressions as triton_expressions
from assay.compiler.errors import AssayError
from assay.compiler.options import Options
from assay.compiler.toolchain.load import load_kernels
from assay.compiler.torch_compat import holders_of
from assay.compiler.torch_stubs import tensor_guards
from assay.harness.case import case
from assay.harness.judge.ledger import PATH
from assay.suites.tables.markdown import literal, table

ROOT = Path(__file__).resolve().parents[2]


def place_of(thing: object) -> str:
    """The file that defines a thing, or the folder of a package, from the root of the repository."""
    path = Path(inspect.getsourcefile(thing) or "").resolve()  # type: ignore[arg-type]
    is_package = isinstance(thing, ModuleType) and path.name == "__init__.py"
    return literal(f"{(path.parent if is_package else path).relative_to(ROOT)}{'/' if is_package else ''}")


def places() -> str:
    """Each kind of thing, the one place to add it to, and what finds it there."""
    return table(("to add", "touch", "what enrols it"), _rows())


def _rows() -> tuple[tuple[str, str, str], ...]:
    return (
        (
            "an operator",
            f"one record in the table of its kind, in {place_of(assay.compiler.ops)}",
            "the operator tests run over the tables; an operator without a record is a call to ATen",
        ),
        (
            "a new scalar function of an operator",
            f"its text in {place_of(cpp_expressions)}, and in {place_of(triton_expressions)} for a GPU",
            "a lowering that makes a call of that name",
        ),
        (
            "a pass",
            f"one file in {place_of(assay.compiler.passes)}, and one line in its `__init__.py`",
            "the list itself: pipeline, property tests and the table of passes read it",
        ),
        (
            "a target",
            f"`targets_of` in {place_of(targets_of)}, `source_of` in {place_of(source_of)}, "
            f"and `load_kernels` in {place_of(load_kernels)}",
            "the lowering asks `targets_of` for each device",
        ),
        ("an error", f"one class in {place_of(AssayError)}", "the tree at the top of that file"),
        (
            "an option",
            f"one field of `Options` in {place_of(Options)}",
            "an unknown option is an error that lists the fields",
        ),
        ("a difference of torch versions", place_of(holders_of), "the architecture test allows it there alone"),
        ("a name that torch's stubs leave out", place_of(tensor_guards), "mypy holds each use to the type there"),
        (
            "a case",
            f"a function under `@case` ({place_of(case)}), for example in {place_of(assay.suites.semantics)}",
            "every module-level `Case` of a suite's modules runs",
        ),
        ("a model", f"one row in {place_of(assay.suites.zoo)}", "the zoo's tests run over the rows"),
        (
            "a benchmark",
            f"one class in {place_of(assay.suites.benchmarks)}, whose `setup` calls `require_same`",
            "asv finds it",
        ),
        (
            "a known failure",
            f"one entry in {literal(str(PATH.resolve().relative_to(ROOT)))}",
            "`assay run` says that it is known, until its day",
        ),
        (
            "a bug of torch",
            f"one program under 40 lines in {place_of(assay.suites.upstream_bugs)}",
            "a test runs each, and the page of upstream bugs lists it",
        ),
    )
