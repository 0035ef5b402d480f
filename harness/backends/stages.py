"""The compiler's stages run by the reference, as backends: what one of them makes of a program is held against eager.

assay-aot       the graphs as they are recorded, differentiated and split, each node by its ATen operator
assay-loops     the loops that they are lowered and fused to, element by element
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from assay.compiler.entry.dynamo import compile_graph
from assay.compiler.ir.loops.kernel import Kernel
from assay.compiler.options import Options
from assay.reference.evaluate import evaluate
from assay.reference.loops import as_function


def assay_loops(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """As the backend `assay`, with every kernel run by the reference: slow, for small sizes."""
    return compile_graph(gm, example_inputs, Options.of(options, mode), _by_reference)


def _by_reference(kernels: Sequence[Kernel], options: Options) -> dict[str, Callable[..., None]]:
    return {kernel.name: as_function(kernel) for kernel in kernels}


def as_recorded(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """A graph compiler that compiles nothing."""
    return lambda *args: evaluate(graph, args)
