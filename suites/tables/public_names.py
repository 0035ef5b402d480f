"""The names that users call, and the page that lists them with their docstrings.

    python -m assay.suites.tables.public_names            prints the page, which the build of the documents includes

The names are imported here, so that a move of a module cannot leave the page behind.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence

from assay.compiler import errors, journal
from assay.compiler.entry import aot, dynamo, export
from assay.compiler.entry.inner_keywords import InnerKeywords
from assay.compiler.options import Options
from assay.harness import case, outcome, run
from assay.harness.backends import registry

ERRORS = [each for each in vars(errors).values() if inspect.isclass(each) and each.__module__ == errors.__name__]
SECTIONS: Mapping[str, Sequence[object]] = {
    "The backend of torch.compile": (dynamo.assay, Options, journal.totals, journal.reset),
    "FX graphs and modules": (dynamo.compile_fx, dynamo.compile_fx_inner, InnerKeywords),
    "Functions and modules ahead of time": (
        aot.aot_function,
        aot.aot_module,
        aot.aot_module_simplified,
        aot.memory_efficient_fusion,
    ),
    "Partition functions": (aot.default_partition, aot.min_cut_rematerialization_partition),
    "Graph compilers": (
        aot.make_boxed_func,
        aot.make_boxed_compiler,
        aot.nop,
        aot.print_compile,
        aot.ts_compile,
        aot.get_aot_compilation_context,
        aot.get_aot_graph_name,
    ),
    "Export": (
        export.aot_export_module,
        export.aot_export_joint_simple,
        export.GraphSignature,
        export.BackwardSignature,
    ),
    "Errors": ERRORS,
    "Cases": (case.case, case.Case),
    "One row of a report": (run.run_case, run.RunRequest, outcome.Result, outcome.Difference),
    "Backends that are judged": (registry.Backend, registry.resolve),
}
"""The sections of the page, each with the classes and functions that it lists."""


def page() -> str:
    """Every public name, as directives that Sphinx fills with signatures and docstrings."""
    return "\n".join(f"## {title}\n\n{_directives(things)}" for title, things in SECTIONS.items())


def _directives(things: Sequence[object]) -> str:
    return "```{eval-rst}\n" + "\n".join(map(_directive, things)) + "```\n"


def _directive(thing: object) -> str:
    kind = "autoclass" if inspect.isclass(thing) else "autofunction"
    return f".. {kind}:: {thing.__module__}.{thing.__qualname__}\n\n"  # type: ignore[attr-defined]


def main() -> int:
    sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
