"""Functions of scalar tensors as text: what a user's score function computes, as an argument of one operator.

    lambda score, b, h, q, k: score + bias[h]    ->    def function(score, b, h, q, k, given_0):
                                                           index = torch.ops.aten.index.Tensor(given_0, [h])
                                                           add = torch.ops.aten.add.Tensor(score, index)
                                                           return add

The text is a constant of the graph: it is printed, compared and kept in the cache like any number, and it runs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.ir.graph.trace import eliminate_dead_nodes, is_effectful

NAME = "function"
SCORE, GIVEN, GRADIENT = "score", "given_", "gradient"
POSITIONS = ("b", "h", "q", "k")
"""The parameters of the functions before what they are given: the score, and where it is."""
HINT = 7
"""Stands for sizes and strides while a function is recorded."""

Given: TypeAlias = tuple[torch.dtype, int] | None
"""The dtype and the number of dimensions of a tensor that a function is given, or None for an integer."""
LIFTED = torch.ops.aten.lift_fresh_copy.default
"""What a recording makes of a tensor that the function itself makes of a number."""


class NoText(Exception):
    """This function is none that a kernel can hold."""


class Form(Enum):
    """What a function takes, beside a position and what it is given: a score, nothing, or a score and the gradient of
    what the function makes of it."""

    score = ((SCORE,), ())
    mask = ((), ())
    derivative = ((SCORE,), (GRADIENT,))

    def parameters(self, count: int) -> list[str]:
        """The names of its parameters where it is given so much."""
        before, after = self.value
        return [*before, *POSITIONS, *(f"{GIVEN}{place}" for place in range(count)), *after]


def recorded(function: Callable[..., Any], given: Sequence[Given], form: Form = Form.score) -> fx.GraphModule:
    """The ATen calls of a function of scalars and what it is given, for all sizes and strides of this. A tensor that is
    indexed by scalar tensors gives a tensor, as in eager's attention.

    Raises: NoText for a function that computes something else for some sizes; what the function itself raises.
    """
    environment = ShapeEnv(specialize_zero_one=False, duck_shape=False)
    mode, numbers = FakeTensorMode(shape_env=environment), _Numbers(environment)
    with _disable_current_modes(), torch.no_grad(), torch._C._DisableAutocast(), mode, TransformGetItemToIndex():
        before, after = ([torch.empty((), dtype=torch.float32, device="cpu") for _ in names] for names in form.value)
        positions = [torch.empty((), dtype=torch.int64, device="cpu") for _ in POSITIONS]
        module = make_fx(function, tracing_mode="real")(*before, *positions, *map(numbers.example, given), *after)
    if environment.replacements:  # other guards are about what lies without gaps, on which no value depends
        raise NoText("a score function computes something else for some sizes")
    inputs = module.graph.find_nodes(op="placeholder")
    for node, name in zip(inputs, form.parameters(len(given)), strict=True):
        node.name = name
    eliminate_dead_nodes(module.graph)
    return module


def derivative_of(function: Callable[..., torch.Tensor], wanted: Sequence[int]) -> Callable[..., list[torch.Tensor]]:
    """A function of a score, its position, what `function` is given and the gradient of its result: the gradients of
    the score, and of what is `wanted` among what is given.

    Raises: NoText where the result depends on none of something that is wanted.
    """

    def run(*arguments: Any) -> list[torch.Tensor]:
        *inputs, gradient = arguments
        first = 1 + len(POSITIONS)
        with torch.enable_grad():
            taken = {place: inputs[place].detach().requires_grad_() for place in (0, *(first + at for at in wanted))}
            result = function(*(taken.get(place, value) for place, value in enumerate(inputs)))
            found: Sequence[Any] = [None] * len(taken)
            if result.requires_grad:
                given = gradient.to(result.dtype)
                found = torch.autograd.grad(result, list(taken.values()), given, allow_unused=True)
        if any(each is None for each in found[1:]):
            raise NoText("a score function does not read a tensor that its caller wants a gradient of")
        return [torch.zeros_like(inputs[0]) if found[0] is None else found[0], *found[1:]]

    return run


class _Numbers:
    """Makes integers of which nothing is known, and tensors of such sizes and strides."""

    def __init__(self, environment: ShapeEnv) -> None:
        self._environment, self._count = environment, 0

    def example(self, given: Given) -> torch.Tensor | torch.SymInt:
        if given is None:
            return self._number(None)
        dtype, dims = given
        sizes, strides = ([self._number(True) for _ in range(dims)] for _ in range(2))
        return torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")

    def _number(self, is_positive: bool | None) -> torch.SymInt:
        self._count += 1
        hint, source = HINT + self._count, ConstantSource(f"number_{self._count}")
        dynamic = DimDynamic.DYNAMIC
        symbol = self._environment.create_symbol(hint, source, dynamic_dim=dynamic, positive=is_positive)
        made = self._environment.create_symintnode(symbol, hint=hint, source=source)
        assert isinstance(made, torch.SymInt)
        return made


def text_of(module: fx.GraphModule) -> str:
    """A recorded function as text.

    Raises: NoText for a graph that does more than to compute one tensor by ATen operators.
    """
    names = [node.name for node in module.graph.find_nodes(op="placeholder")]
    lines, renamed = [f"def {NAME}({', '.join(names)}):"], dict[fx.Node, str]()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            renamed[node] = node.name
        elif node.op == "output":
            lines.append(f"    return {_text(node.args[0], renamed)}")
        elif node.op != "get_attr":
            renamed[node] = f"{node.name}_" if node.name in names else node.name
            lines.append(f"    {renamed[node]} = {_call(module, node, renamed)}")
    return "\n".join(lines)


def _call(module: fx.GraphModule, node: fx.Node, names: dict[fx.Node, str]) -> str:
    if node.target is LIFTED:
        return _number(module, node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload) or is_effectful(node.target):
        raise NoText(f"a score function calls {node.target}")
    given = [_text(argument, names) for argument in node.args]
    given += [f"{name}={_text(argument, names)}" for name, argument in node.kwargs.items()]
    return f"torch.ops.{node.target}({', '.join(given)})"


def _number(module: fx.GraphModule, node: Any) -> str:
    """The call that makes a tensor which the graph holds. Raises: NoText for one that is no scalar."""
    value = getattr(module, node.target)
    if isinstance(value, FakeTensor):
        value = value.constant
    if value is None or value.dim():
        raise NoText("a score function makes a tensor of several numbers")
    return f"torch.ops.aten.scalar_tensor.default({_text(value.item(), {})}, dtype={value.dtype})"


def _text(argument: object, names: dict[fx.Node, str]) -> str:
    if isinstance(argument, fx.Node):
        if argument not in names:
            raise NoText("a score function reads a tensor that it holds itself")
        return names[argument]
    if isinstance(argument, list | tuple):
        return f"[{', '.join(_text(each, names) for each in argument)}]"
    if isinstance(argument, float) and not math.isfinite(argument):
        return f'float("{argument}")'
    if isinstance(argument, torch.device):
        return 'torch.device("cpu")'  # a scalar has no place of its own: whoever calls a function says where it runs
    if argument is None or isinstance(argument, bool | int | float | torch.dtype | torch.layout):
        return repr(argument)
    raise NoText(f"a score function gives an operator a {type(argument).__name__}")


@functools.lru_cache(maxsize=256)
def function_of(text: str) -> Callable[..., Any]:
    """The function that a text is of."""
    scope: dict[str, Any] = {"torch": torch}
    exec(text, scope)
    made: Callable[..., Any] = scope[NAME]
    return made
