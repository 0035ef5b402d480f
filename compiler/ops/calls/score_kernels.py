"""Score and mask functions of attention as kernels over a tile of scores.

    scores[i, j] = score(scores[i, j], batch, head, first + i, from + j)
                   or -inf, where not mask(batch, head, first + i, from + j)

The functions are text (`ir/graph/scalar_functions.py`) and are lowered by the same rules as any graph. What they are
given, such as a table of biases, are buffers of the kernel, whose sizes and strides are symbols: one kernel serves
tensors of all sizes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.roles import Program, Signature, UserInput, UserOutput
from assay.compiler.ir.graph.scalar_functions import GIVEN, POSITIONS, SCORE, Given, function_of, recorded
from assay.compiler.ir.loops.index import Index, Symbol, product, total
from assay.compiler.ir.loops.kernel import AsValue, Buffer, Element, Expr, Kernel, Load, Loop, Ref, Source, Store
from assay.compiler.ir.loops.lowered import Generated, Lowered, Viewed
from assay.compiler.ir.loops.rewrite import Expansion, Substitution, nodes
from assay.compiler.kernels.flex_attention import KEYS, ScoreKernel
from assay.compiler.ops.lower import lower
from assay.compiler.ops.registry import Declined

TILE = ("batch", "head", "first", "from", "rows", "keys")
"""The first symbols of a kernel: the place of the tile, and its size."""
ROW, COLUMN = Symbol("i"), Symbol("j")
PLACES: Mapping[str, Index] = {
    "b": Symbol("batch"), "h": Symbol("head"), "q": Symbol("first") + ROW, "k": Symbol("from") + COLUMN,
}  # fmt: skip

@dataclass(frozen=True, slots=True)
class Functions:
    """The texts of a score and of a mask function, and what each of them is given."""

    score: str
    mask: str
    of_score: tuple[Given, ...]
    of_mask: tuple[Given, ...]

    def apply(self, has_mask: bool, score: Any, positions: Sequence[Any], given: Sequence[Any]) -> torch.Tensor:
        """The score as the functions change it, or -inf where the mask hides it."""
        cut = len(self.of_score)
        changed = function_of(self.score)(score, *positions, *given[:cut])
        if not has_mask:
            return changed
        hidden = torch.full_like(score, -math.inf)
        return torch.where(function_of(self.mask)(*positions, *given[cut:]), changed, hidden)


@functools.lru_cache(maxsize=256)
def score_kernel(functions: Functions, has_mask: bool) -> ScoreKernel | None:
    """The kernel of the score function, with the mask or without it; None where scores stay as they are.

    Raises: Declined for functions that no kernel is made of.
    """
    given = (*functions.of_score, *functions.of_mask)
    lowered = _lowered(functions, has_mask, given)
    held = _Held(lowered)
    changed = held.value(_result(lowered))
    if changed is held.score:
        return None
    if changed.dtype is not torch.float32:
        raise Declined(f"scores of {changed.dtype}")
    names = [f"{GIVEN}{place}" for place in range(len(given))]
    tensors = tuple(place for place, name in enumerate(names) if name in held.read)
    sources = {name: source for name, source in lowered.symbols.items() if source.input in names}
    loops = (Loop(ROW.name, Symbol("rows")), Loop(COLUMN.name, Symbol("keys")))
    store = Store("scores", held.place, changed, "write")
    buffers = [Buffer("scores", torch.float32, Symbol("rows") * KEYS)]
    for place in tensors:
        tensor = lowered.tensors[names[place]]
        buffers.append(Buffer(tensor.name, tensor.dtype, product(tensor.shape)))
    kernel = Kernel("masked" if has_mask else "changed", loops, (store,), tuple(buffers), (*TILE, *sources), ())
    places = (names.index(source.input) for source in sources.values())
    return ScoreKernel(kernel, tensors, tuple(zip(places, sources.values(), strict=True)))


def _lowered(functions: Functions, has_mask: bool, given: Sequence[Given]) -> Lowered:
    """Raises: Declined where the functions are others for other sizes."""

    def run(score: Any, *others: Any) -> torch.Tensor:
        return functions.apply(has_mask, score, others[: len(POSITIONS)], others[len(POSITIONS) :])

    try:
        module = recorded(run, given)
    except Unsupported as error:
        raise Declined(str(error)) from error
    inputs = tuple(map(UserInput, range(1 + len(POSITIONS) + len(given))))
    return lower(Program(module, Signature(inputs, (UserOutput(0),))))


def _result(lowered: Lowered) -> str:
    (result,) = lowered.outputs
    if not isinstance(result, Ref):
        raise Declined("a score that is a number")
    return result.name


class _Held:
    """The values of lowered functions as expressions over the kernel's buffers; `read` are those that are read."""

    def __init__(self, lowered: Lowered) -> None:
        self.place = ROW * KEYS + COLUMN
        self.score = Load("scores", self.place, torch.float32)
        self.read: set[str] = set()
        self._lowered = lowered
        self._made = {
            each.tensor.name: each for each in lowered.definitions if isinstance(each, Generated | Viewed)
        }
        self._expand = Expansion(lambda element: (self._value(element), True))

    def value(self, name: str) -> Expr:
        """A result. Raises: Declined where an operator has no rule."""
        return self._value(Element(name, (), self._lowered.tensors[name].dtype))

    def _value(self, element: Element) -> Expr:
        made = self._made.get(element.tensor)
        if isinstance(made, Generated):
            return self._expand(Substitution(_coordinates(element), {})(made.expr))
        if isinstance(made, Viewed):
            inner = Element(made.base, made.at, element.dtype)
            return self._expand(Substitution(_coordinates(element), {})(inner))
        return self._input(element)

    def _input(self, element: Element) -> Expr:
        if element.tensor == SCORE:
            return self.score
        if element.tensor in PLACES:
            return AsValue(PLACES[element.tensor], torch.int64)
        if element.tensor not in self._lowered.inputs:
            raise Declined(f"{element.tensor} is computed by ATen")
        tensor = self._lowered.tensors[element.tensor]
        self.read.add(tensor.name)
        steps = [at * stride for at, stride in zip(element.at, tensor.stride, strict=True)]
        return Load(tensor.name, total(steps), tensor.dtype)


def _coordinates(element: Element) -> dict[str, Index]:
    return {f"d{dim}": at for dim, at in enumerate(element.at)}
