"""Score and mask functions of attention as kernels over a tile of scores.

    scores[i, j] = score(scores[i, j], batch, head, first + i, from + j)
                   or -inf, where not mask(batch, head, first + i, from + j)

The functions are text (`ir/graph/scalar_functions.py`) and are lowered by the same rules as any graph. What they are
given, such as a table of biases, are buffers of the kernel, whose sizes and strides are symbols: one kernel serves
tensors of all sizes. So do the derivatives, which take the gradients of changed scores to those of scores, and add to
the gradients of what the score function reads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from assay.compiler.ir.graph.roles import Program, Signature, UserInput, UserOutput
from assay.compiler.ir.graph.scalar_functions import (
    GIVEN,
    GRADIENT,
    POSITIONS,
    SCORE,
    Form,
    Given,
    NoText,
    function_of,
    recorded,
)
from assay.compiler.ir.loops.index import ONE, ZERO, Index, Symbol, product, total
from assay.compiler.ir.loops.kernel import AsValue, Bind, Buffer, Element, Expr, Kernel, Load, Loop, Ref, Store
from assay.compiler.ir.loops.lowered import Generated, Lowered, Tensor, Viewed
from assay.compiler.ir.loops.rewrite import Expansion, Substitution, convert
from assay.compiler.kernels.flex_attention.score_code import KEYS, PLACE, ScoreFunction, ScoreKernel
from assay.compiler.ops.indexing.lookup import checked
from assay.compiler.ops.lower import lower
from assay.compiler.ops.registry import Declined

ROW, COLUMN = Symbol("i"), Symbol("j")
PLACES: Mapping[str, Index] = {
    "b": Symbol("batch"), "h": Symbol("head"), "q": Symbol("first") + ROW, "k": Symbol("from") + COLUMN,
}  # fmt: skip
OF_A_TILE = {SCORE: "scores", GRADIENT: "gradients"}
"""The buffers of a tile, by the parameters that are read of them."""
SCATTER = torch.ops.flex_lib.zeros_and_scatter.default
"""What gives the gradient of a tensor of which one element is read: zeros but for that."""


@dataclass(frozen=True, slots=True)
class Functions:
    """The texts of a score and of a mask function, and what each of them is given. `derivative` is that of the score
    function, or empty; it also gives the gradients of the `wanted` among what the score function is given."""

    score: str
    mask: str
    of_score: tuple[Given, ...]
    of_mask: tuple[Given, ...]
    derivative: str = ""
    wanted: tuple[int, ...] = ()

    @property
    def given(self) -> tuple[Given, ...]:
        return (*self.of_score, *self.of_mask)

    def hide(self, arguments: Sequence[Any], value: torch.Tensor, hidden: float) -> torch.Tensor:
        """The value where the mask shows the position, else a number."""
        positions, given = arguments[1 : 1 + len(POSITIONS)], self._given(arguments)[len(self.of_score) :]
        return torch.where(function_of(self.mask)(*positions, *given), value, torch.full_like(arguments[0], hidden))

    def change(self, arguments: Sequence[Any]) -> torch.Tensor:
        """The score as the program changes it."""
        given = self._given(arguments)[: len(self.of_score)]
        changed: torch.Tensor = function_of(self.score)(*arguments[: 1 + len(POSITIONS)], *given)
        return changed

    def derive(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """The gradient of the score, and of what is wanted."""
        given = self._given(arguments)[: len(self.of_score)]
        found: list[torch.Tensor] = function_of(self.derivative)(
            *arguments[: 1 + len(POSITIONS)], *given, arguments[-1]
        )
        return found

    def _given(self, arguments: Sequence[Any]) -> Sequence[Any]:
        return arguments[1 + len(POSITIONS) :][: len(self.given)]


@functools.lru_cache(maxsize=256)
def change_of(functions: Functions) -> ScoreFunction:
    """What becomes of the scores of a tile. Raises: Declined for functions that no kernel is made of."""

    def masked(*arguments: Any) -> torch.Tensor:
        return functions.hide(arguments, functions.change(arguments), -math.inf)

    part = _kernel("changed_and_masked", functions, masked, Form.score)
    full = _kernel("changed", functions, lambda *arguments: functions.change(arguments), Form.score)
    return ScoreFunction("change", ("f32* scores",), part, full)


@functools.lru_cache(maxsize=256)
def derivative_of(functions: Functions) -> ScoreFunction:
    """What becomes of the gradients of a tile's changed scores. Raises: as `change_of`."""

    def masked(*arguments: Any) -> torch.Tensor:
        return functions.hide(arguments, functions.derive(arguments)[0], 0.0)

    part = _kernel("derived_and_masked", functions, masked, Form.derivative)
    full = _kernel("derived", functions, lambda *arguments: functions.derive(arguments)[0], Form.derivative)
    return ScoreFunction("derive", ("const f32* scores", "f32* gradients"), part, full)


@functools.lru_cache(maxsize=256)
def collection_of(functions: Functions) -> ScoreFunction:
    """What a tile adds to the gradients of what is wanted, one after the other in one buffer. Raises: as `change_of`;
    Declined for gradients of more than elements that are looked up."""
    tile = ("const f32* scores", "const f32* gradients", "f64* collected")
    if not functions.wanted:
        return ScoreFunction("collect", tile, None, None)
    module = _recorded(lambda *arguments: functions.derive(arguments)[1:], functions.given, Form.derivative)
    leaves = [(place, leaf) for place, gradient in enumerate(_results(module)) for leaf in _added(gradient)]
    flat = [value for _, leaf in leaves for value in (leaf.value, *leaf.positions)]
    held = _Held(_lowered(module, flat, functions.given, Form.derivative))
    values, stores = iter(held.results()), list[Store]()
    for number, (place, leaf) in enumerate(leaves):
        value, positions = next(values), [next(values) for _ in leaf.positions]
        stores.append(_addition(held, functions.wanted, place, value, positions, number))
    kernel = held.kernel("added", stores, ["scores", "gradients", "collected"])
    return ScoreFunction("collect", tile, kernel, kernel)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A part of a gradient: the value that is added at the positions."""

    value: fx.Node
    positions: tuple[fx.Node, ...]


def _added(gradient: fx.Node) -> Iterator[_Leaf]:
    """The parts that a gradient is the sum of. Raises: Declined for one of whole rows."""
    if gradient.target is torch.ops.aten.add.Tensor and gradient.meta["val"].dim():
        for argument in gradient.args:
            assert isinstance(argument, fx.Node)
            yield from _added(argument)
    elif gradient.target is SCATTER:
        _, positions, value = gradient.args
        yield _Leaf(value, tuple(positions))  # type: ignore[arg-type]
    else:
        yield _Leaf(gradient, ())


def _addition(
    held: _Held, wanted: Sequence[int], place: int, value: Expr, positions: Sequence[Expr], number: int
) -> Store:
    """The store that adds a value to the gradient of one of what is wanted, at positions."""
    tensors = [held.lowered.tensors[f"{GIVEN}{each}"] for each in wanted]
    tensor, start = tensors[place], total([product(each.shape) for each in tensors[:place]])
    if len(positions) != len(tensor.shape):
        raise Declined("a gradient of whole rows")
    loops = [Loop(f"at_{number}_{dim}", extent) for dim, extent in enumerate(tensor.shape)]
    terms = [Symbol(loop.var) * product(tensor.shape[dim + 1 :]) for dim, loop in enumerate(loops)]
    body: Expr = convert(value, torch.float64)
    for loop, position in zip(reversed(loops), reversed(positions), strict=True):
        body = Bind(loop, checked(convert(position, torch.int64), loop.extent, "index", wraps=True), body, body.dtype)
    return Store("collected", total([start, *terms]), body, "accumulate")


def _kernel(name: str, functions: Functions, function: Callable[..., Any], form: Form) -> ScoreKernel | None:
    """The kernel of what a function makes of each score of a tile, or of each gradient; None where that stays as it is.

    Raises: Declined for one that no kernel is made of, or that makes something else than float32.
    """
    module = _recorded(function, functions.given, form)
    held = _Held(_lowered(module, _results(module), functions.given, form))
    (value,) = held.results()
    buffers = ["scores"] if form is Form.score else ["scores", "gradients"]
    if value == Load(buffers[-1], held.place, torch.float32):
        return None
    if value.dtype is not torch.float32:
        raise Declined(f"scores of {value.dtype}")
    return held.kernel(name, [Store(buffers[-1], held.place, value, "write")], buffers)


def _recorded(function: Callable[..., Any], given: Sequence[Given], form: Form) -> fx.GraphModule:
    """Raises: Declined where the function is another for other sizes."""
    try:
        return recorded(function, given, form)
    except NoText as error:
        raise Declined(str(error)) from error


def _results(module: fx.GraphModule) -> list[fx.Node]:
    (output,) = module.graph.find_nodes(op="output")
    results = output.args[0] if isinstance(output.args[0], list | tuple) else [output.args[0]]
    if not all(isinstance(each, fx.Node) for each in results):
        raise Declined("a score that is no tensor")
    return list(results)


def _lowered(module: fx.GraphModule, results: Sequence[fx.Node], given: Sequence[Given], form: Form) -> Lowered:
    (output,) = module.graph.find_nodes(op="output")
    output.args = (list(results),)
    inputs = tuple(map(UserInput, range(len(form.parameters(len(given))))))
    outputs = tuple(map(UserOutput, range(len(results))))
    return lower(Program(module, Signature(inputs, outputs)))


class _Held:
    """The values of lowered functions as expressions over a kernel's buffers."""

    def __init__(self, lowered: Lowered) -> None:
        self.place = ROW * KEYS + COLUMN
        self.lowered = lowered
        self._read: set[str] = set()
        self._made = {each.tensor.name: each for each in lowered.definitions if isinstance(each, Generated | Viewed)}
        self._expand = Expansion(lambda element: (self._value(element), True))

    def results(self) -> list[Expr]:
        """What the functions give. Raises: Declined where an operator has no rule."""
        return [self._result(each) for each in self.lowered.outputs]

    def kernel(self, name: str, stores: Sequence[Store], buffers: Sequence[str]) -> ScoreKernel:
        """A kernel over all scores of a tile, of these results. `buffers` are those of the tile."""
        names = [name for name in self.lowered.inputs if name.startswith(GIVEN)]
        tensors = tuple(place for place, name in enumerate(names) if name in self._read)
        sources = {name: source for name, source in self.lowered.symbols.items() if source.input in names}
        loops = (Loop(ROW.name, Symbol("rows")), Loop(COLUMN.name, Symbol("keys")))
        held = [Buffer(each, _dtype_in_tile(each), Symbol("rows") * KEYS) for each in buffers]
        held += [_buffer(self.lowered.tensors[names[place]]) for place in tensors]
        kernel = Kernel(name, loops, tuple(stores), tuple(held), (*PLACE, *sources), ())
        places = (names.index(source.input) for source in sources.values())
        return ScoreKernel(kernel, tensors, tuple(zip(places, sources.values(), strict=True)))

    def _result(self, result: object) -> Expr:
        if not isinstance(result, Ref) or result.name not in self.lowered.tensors:
            raise Declined("a result that is no tensor")
        tensor = self.lowered.tensors[result.name]
        if tensor.shape:
            raise Declined("a result that is no scalar")
        return self._value(Element(result.name, (), tensor.dtype))

    def _value(self, element: Element) -> Expr:
        made = self._made.get(element.tensor)
        if isinstance(made, Generated):
            return self._expand(Substitution(_coordinates(element), {})(made.expr))
        if isinstance(made, Viewed):
            inner = Element(made.base, made.at, element.dtype)
            return self._expand(Substitution(_coordinates(element), {})(inner))
        return self._input(element)

    def _input(self, element: Element) -> Expr:
        if element.tensor in OF_A_TILE:
            return Load(OF_A_TILE[element.tensor], self.place, torch.float32)
        if element.tensor in PLACES:
            return AsValue(PLACES[element.tensor], torch.int64)
        if element.tensor not in self.lowered.inputs:
            raise Declined(f"{element.tensor} is computed by ATen")
        tensor = self.lowered.tensors[element.tensor]
        self._read.add(tensor.name)
        steps = [at * stride for at, stride in zip(element.at, tensor.stride, strict=True)]
        return Load(tensor.name, total(steps) if steps else ZERO, tensor.dtype)


def _dtype_in_tile(name: str) -> torch.dtype:
    return torch.float64 if name == "collected" else torch.float32


def _buffer(tensor: Tensor) -> Buffer:
    return Buffer(tensor.name, tensor.dtype, product(tensor.shape) if tensor.shape else ONE)


def _coordinates(element: Element) -> dict[str, Index]:
    return {f"d{dim}": at for dim, at in enumerate(element.at)}
