"""Backend `switched`: a part of a program on another backend, the rest in eager or by the reference.

    switched,of=inductor,graphs=2              the first two graphs that Dynamo gives are compiled
    switched,of=inductor,graphs=2,nodes=5      of the second one, only the first five nodes
    switched,of=assay;warm=False,kernels=3     the first three kernels are generated, the others run by the reference
    switched,of=inductor,graphs=2,half=backward,below=aot_eager
                                               of the second one, the backward; the forward is that of `below`

In `of` and `below`, settings of the backend stand behind semicolons. The smallest number with which a program differs
names the graph, the node or the kernel.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx
from torch.fx.passes.split_module import split_module

from assay.compiler.codegen.source import source_of
from assay.compiler.entry.dynamo import compile_graph
from assay.compiler.ir.loops.kernel import Kernel
from assay.compiler.options import Options
from assay.compiler.toolchain.load import load_kernels
from assay.harness.backends.halves import HALVES, chosen
from assay.harness.backends.registry import BackendError, graph_compiler
from assay.reference.loops import as_function

Compiled = Callable[..., Any]
HEAD = "submod_0"
TAKES = f"of, graphs, nodes, kernels, below, half ({', '.join(HALVES)})"
CALLS = ("call_function", "call_method", "call_module")


@dataclass(slots=True)
class Seen:
    """What the backend was given since `start`: how many graphs, the nodes of each, the kernels."""

    graphs: list[list[str]] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.graphs.clear()
        self.kernels.clear()


SEEN = Seen()
"""Of the run that goes on in this process."""


def switched(
    gm: fx.GraphModule, example_inputs: Sequence[object], *, options: Mapping[str, object] | None = None
) -> Compiled:
    """Raises: BackendError for a setting that means nothing here."""
    given = dict(options or {})
    of, below = (str(given.pop(name, "eager")).replace(";", ",") for name in ("of", "below"))
    half = str(given.pop("half", ""))
    graphs, nodes, kernels = (_count(given, name) for name in ("graphs", "nodes", "kernels"))
    if given or half not in ("", *HALVES):
        wrong = ", ".join(given) or f"half={half}"
        raise BackendError(f"backend 'switched': {wrong} means nothing; it takes {TAKES}")
    SEEN.graphs.append([described(node) for node in calls_of(gm)])
    if graphs is not None and len(SEEN.graphs) > graphs:
        return gm.forward
    compiler = graph_compiler(of)[0] if kernels is None else _by_kernels(of, kernels)
    is_last = graphs is None or len(SEEN.graphs) == graphs
    if half and is_last:
        other = fx.GraphModule(gm, copy.deepcopy(gm.graph))  # a backend may change the graph that it is given
        lower = graph_compiler(below)[0](other, example_inputs)
        return chosen(half, compiler(gm, example_inputs), lower)
    return compiler(gm, example_inputs) if nodes is None or not is_last else _head(compiler, gm, example_inputs, nodes)


switched.runs_in_eager = True  # type: ignore[attr-defined]


def _count(given: dict[str, object], name: str) -> int | None:
    value = given.pop(name, None)
    if value is not None and not isinstance(value, int):
        raise BackendError(f"backend 'switched': {name} is {value!r}, and must be a number")
    return value


def calls_of(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op in CALLS]


def described(node: fx.Node) -> str:
    """A node with the last line of the user's that made it."""
    lines = [line.strip() for line in (node.stack_trace or "").splitlines() if line.strip(" ^~")]
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return f"{node.name} = {target}" + (f"    # {lines[-1]}" if lines else "")


def _head(compiler: Compiled, gm: fx.GraphModule, example_inputs: Sequence[object], count: int) -> Compiled:
    """The graph with its first nodes compiled, and the others in eager."""
    first = set(calls_of(gm)[:count])
    if not first or len(first) == len(calls_of(gm)):
        return compiler(gm, example_inputs) if first else gm.forward
    parts = split_module(gm, gm, lambda node: 0 if node in first else 1, keep_original_order=True)
    head = getattr(parts, HEAD)
    placeholders = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    examples = dict(zip(placeholders, example_inputs, strict=True))
    names = [str(arg) for node in parts.graph.nodes if node.target == HEAD for arg in node.args]
    is_single = _returns_tuple(head)
    run = compiler(head, [examples[name] for name in names])
    parts.__dict__[HEAD] = parts._modules[HEAD] = _Part(run, is_single)
    return parts.forward


class _Part(fx.GraphModule):
    """A compiled part in the place of a submodule."""

    def __init__(self, run: Compiled, is_single: bool) -> None:
        super().__init__({}, _empty())
        self._run, self._is_single = run, is_single

    def __call__(self, *args: Any) -> Any:
        results = self._run(*args)
        return results[0] if self._is_single else tuple(results)


def _empty() -> fx.Graph:
    graph = fx.Graph()
    graph.output(())
    return graph


def _returns_tuple(head: fx.GraphModule) -> bool:
    """Makes a graph return a tuple, as a backend expects; whether it returned one value before."""
    output = head.graph.output_node()
    if isinstance(output.args[0], tuple | list):
        return False
    output.args = ((output.args[0],),)
    head.recompile()
    return True


def _by_kernels(of: str, count: int) -> Compiled:
    """Our compiler with its first kernels generated, and the others run by the reference."""
    bare, *settings = of.split(",")
    if bare != "assay":
        raise BackendError(f"backend 'switched': kernels are counted of assay, and not of {bare}")
    given = dict(setting.split("=", 1) for setting in settings if "=" in setting)
    fusions = {"fusions": int(given["fusions"])} if "fusions" in given else {}
    options = Options.of({"warm": False, "fallback": "limits", **fusions}, None)

    def load(kernels: Sequence[Kernel], options: Options) -> dict[str, Any]:
        left = max(0, count - len(SEEN.kernels))
        SEEN.kernels.extend(source_of(kernel) for kernel in kernels)
        made: dict[str, Any] = {kernel.name: as_function(kernel) for kernel in kernels[left:]}
        return {**made, **load_kernels(kernels[:left], options)}

    return lambda gm, inputs: compile_graph(gm, inputs, options, load)
