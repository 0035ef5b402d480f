"""`Compilers`: who builds the graphs of one compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from assay.compiler.autograd.partition import Split, default_split
from assay.compiler.capture.decompositions.table import DECOMPOSITIONS
from assay.compiler.ir.graph.roles import GraphCall, Program
from assay.compiler.passes import PASSES, Pass
from assay.compiler.toolchain.serialized_call import Linked
from assay.compiler.torch_compat import Decompositions


@dataclass(frozen=True, slots=True)
class Compilers:
    """Who builds the graphs of one compile. `assay` builds all three itself; `aot_function` lets its caller do so.

    `write` makes writes in place; programs for a caller's own compilers stay functional. `keep` is told of a call's
    text, with the programs of its graphs by the names that the text gives them. `between_hooks` builds the parts of a
    whole backward behind which leaves have hooks, as an optimizer's step; None where `inference` does.
    """

    forward: Callable[[Program], GraphCall]
    backward: Callable[[Program], GraphCall]
    inference: Callable[[Program], GraphCall]
    partition: Callable[[Program], Split] = default_split
    decompositions: Decompositions = field(default_factory=lambda: DECOMPOSITIONS)
    write: Callable[[Program], Program] | None = None
    keep: Callable[[Linked, Mapping[str, Program]], None] | None = None
    passes: tuple[Pass, ...] = PASSES
    between_hooks: Callable[[Program], GraphCall] | None = None
