"""A backend with a bug that shows at one node of one graph, and a model that has it: what locating is tested on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._dynamo.utils import counters

from assay.compiler.entry.aot import aot_module_simplified, make_boxed_func
from assay.harness.case import Case, case
from assay.harness.locate.rungs import Rung, register_ladder


def traced(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """A right rung under the wrong one."""
    return lambda *args: gm.forward(*args)


def wrong(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Each gelu is computed by its approximation."""
    for node in gm.graph.find_nodes(op="call_function", target=torch.nn.functional.gelu):
        node.kwargs = {**node.kwargs, "approximate": "tanh"}
    gm.recompile()
    return lambda *args: gm.forward(*args)


def wrong_of_symbols(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """As `wrong` where a size is a symbol; else right."""
    is_symbolic = any(isinstance(each, torch.SymInt) for each in example_inputs)
    return wrong(gm, example_inputs) if is_symbolic else gm.forward


def wrong_with_gaps(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """As `wrong` where an input has gaps between its elements; else right."""
    given = [each for each in example_inputs if isinstance(each, Tensor)]
    return gm.forward if all(x.is_contiguous() for x in given) else wrong(gm, example_inputs)


def dies_of_few(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """As `wrong`; but a graph of one call ends the process."""
    if len(_calls(gm)) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return wrong(gm, example_inputs)


def hangs_of_few(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """As `wrong`; but a graph of one call is never done."""
    while len(_calls(gm)) == 1:
        time.sleep(1)
    return wrong(gm, example_inputs)


def wrong_of_steps(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Wrong of 64 numbers that each are one more than the last."""

    def run(*args: Any) -> Any:
        is_steps = args[0].numel() == 64 and bool((args[0].diff() == 1).all())
        return tuple(y + is_steps for y in gm.forward(*args))

    return run


def dies(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """A gelu ends the process."""
    if gm.graph.find_nodes(op="call_function", target=torch.nn.functional.gelu):
        os.kill(os.getpid(), signal.SIGKILL)
    return gm.forward


def _calls(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op in ("call_function", "call_method")]


def keyed(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """A graph is kept by its code alone, without dtypes: results have the dtype of the first one of that code. What is
    kept is forgotten where Dynamo's counters are."""
    (first, *_) = [each for each in example_inputs if isinstance(each, Tensor)]
    kept = counters["kept"].setdefault(gm.code, first.element_size())
    return lambda *args: tuple(y.to(torch.float64 if kept == 8 else torch.float32) for y in gm.forward(*args))


PROGRAMS: list[str] = []


def wrong_of_a_second(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Right for the first program that a process compiles, and wrong for all others."""
    PROGRAMS.append(gm.code)
    is_wrong = len(PROGRAMS) > 1
    return lambda *args: tuple(y + is_wrong for y in gm.forward(*args))


def unchecked(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """A label that is out of range is taken for the first one, where eager raises."""
    for node in gm.graph.find_nodes(op="call_function", target=torch.nn.functional.cross_entropy):
        scores, labels = node.args
        with gm.graph.inserting_before(node):
            node.args = (scores, gm.graph.call_method("mul", (labels, gm.graph.call_method("lt", (labels, 3)))))
    gm.recompile()
    return gm.forward


def forgets(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """The first input gets no gradient."""
    return lambda first, *args: gm.forward(first.detach(), *args)


def of_halves(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Inputs are rounded to bfloat16 first."""
    return lambda *args: gm.forward(*(arg.bfloat16().float() for arg in args))


def late(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Wrong from the third call on."""
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(1)
        return tuple(y + (len(calls) > 2) for y in gm.forward(*args))

    return run


def kept_without_mode(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """What the first process that fills the cache compiled is given to all later ones: without gradients, where that
    one recorded none."""
    kept = Path(os.environ["ASSAY_CACHE"]) / "kept"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(str(torch.is_grad_enabled()))
    records = kept.read_text() == "True"
    return lambda *args: tuple(y if records else y.detach() for y in gm.forward(*args))


def _by_halves(scales_forward: float, scales_backward: float) -> Callable[..., Any]:
    """A backend behind AOTAutograd's interface whose forward, or whose backward, is off by a factor."""

    def scaled(factor: float) -> Callable[..., Any]:
        def compiler(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
            return make_boxed_func(lambda *args: _first_scaled(gm.forward(*args), factor))

        return compiler

    def backend(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
        return aot_module_simplified(gm, example_inputs, scaled(scales_forward), scaled(scales_backward))  # type: ignore[arg-type]

    return backend


def _first_scaled(results: Sequence[Any], factor: float) -> list[Any]:
    return [y * factor if place == 0 and isinstance(y, Tensor) else y for place, y in enumerate(results)]


wrong_forward, wrong_backward = _by_halves(1.5, 1.0), _by_halves(1.0, 1.5)
NAME = "tests.harness.locate.wrong_gelu"
register_ladder(f"{NAME}:wrong", (Rung("traced", f"{NAME}:traced"),))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.relu() * 2).softmax(-1)
        torch._dynamo.graph_break()
        h = torch.nn.functional.gelu(h.tanh() + 1)
        return self.second(h).softmax(-1)


@case()
def model() -> Any:
    return Model(), (torch.randn(3, 4),), {}


@case()
def right() -> Any:
    return nn.Linear(2, 2), (torch.randn(1, 2),), {}


def in_two_dtypes(f: Callable[..., Any], x: Tensor) -> Any:
    """Two calls, of which the second is given another dtype."""
    return f(x), f(x.double())


@case(scenario=in_two_dtypes, modes=("infer",))
def called_twice() -> Any:
    scale = 3.0

    def program(x: Tensor) -> Tensor:
        return (x * scale).sin().cos() + bias(x)

    return program, (torch.randn(2, 2),), {}


def bias(x: Tensor) -> Tensor:
    """Nothing that matters."""
    return x.sum().tanh()


@case(modes=("infer",))
def only_gelu() -> Any:
    return torch.nn.functional.gelu, (torch.randn(2),), {}


@case(modes=("infer",))
def in_two_graphs() -> Any:
    def program(x: Tensor) -> Tensor:
        h = x.sin().cos()
        torch._dynamo.graph_break()
        return h.tanh() * 2

    return program, (torch.randn(2),), {}


@case(modes=("infer",))
def steps() -> Any:
    return (lambda x: x.sin().cos() * 2), (torch.arange(64.0),), {}


@case(modes=("infer",))
def label_out_of_range() -> Any:
    def program(x: Tensor, labels: Tensor) -> Tensor:
        h = (x * 2).tanh()
        return torch.nn.functional.cross_entropy(h + 1, labels).exp() * 2

    return program, (torch.randn(4, 3), torch.tensor([0, 1, 3, 2])), {}


def _of_a_number() -> Any:
    def program(x: Tensor, n: int) -> Tensor:
        return torch.nn.functional.gelu(x.sin() + 1) * 2 if n > 1 else x.cos()

    return program, (torch.randn(4),), {}


of_a_number = Case("of_a_number", _of_a_number, ("infer",), (), ("tiny",), numbers=((1,), (2,), (3,)))


def gradients_as_result(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    f(x, w).sum().backward()
    return x.grad, w.grad, 3


@case(scenario=gradients_as_result, modes=("train",))
def its_gradients() -> Any:
    return torch.mul, (torch.randn(2, requires_grad=True), torch.randn(2, requires_grad=True)), {}


def how_many(f: Callable[..., Any], x: Tensor) -> int:
    """A Python number that the result decides."""
    return int((f(x) * 2**20).sum())


@case(scenario=how_many, modes=("infer",))
def number_of_a_gelu() -> Any:
    return torch.nn.functional.gelu, (torch.full((2,), 1.5),), {}


@case(modes=("infer",))
def small_integers() -> Any:
    return torch.neg, (torch.arange(4.0),), {}


def goes_back(f: Callable[..., Any], x: Tensor) -> None:
    f(x).sum().backward()


@case(scenario=goes_back, modes=("train",))
def gone_back() -> Any:
    return (lambda x: x * x), (torch.arange(4.0).requires_grad_(),), {}


@case(modes=("infer",))
def many_calls() -> Any:
    def program(x: Tensor) -> Tensor:
        for _ in range(8):
            x = torch.nn.functional.gelu(x.sin() + 1)
        return x.sum()

    return program, (torch.randn(4),), {}


@case(modes=("infer",))
def of_columns_with_gaps() -> Any:
    return (lambda x: torch.nn.functional.gelu(x + 1) * 2), (torch.randn(4, 6)[:, ::2],), {}
