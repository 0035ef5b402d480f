"""A graph that Dynamo made of a case, as a program that prints itself with torch alone, and knows simpler ones.

    program := given* line* outputs
    given   := name = a tensor: recorded, or drawn as its text says
    line    := name = target(args) | name = value.target(args)

Simpler is fewer lines first, then fewer numbers, then plainer inputs.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.graph import _get_qualified_name
from torch.fx.node import map_aggregate

from assay.harness.calls.memory import is_without_overlap
from assay.harness.case import Case

RECORDED, DRAWN, MARKED, WRITTEN = "recorded", "drawn", "marked", "written"
MOST_WRITTEN = 48
"""Numbers of a tensor that is written out."""
MOST_MARKED = 16
"""Numbers of a drawn tensor that are NaN, or infinite, at places that are written out one by one."""
LARGE = 12
PIECES, MOST_PIECES = (1, 4), 32
"""Of a graph with so many calls, parts of these sizes are tried by themselves first, at most so many kinds of them."""
SPECIAL = ("nan", "inf", "-inf")
SMALLER = (1, 2, 3, 4, 8)
NAMESPACES: Mapping[str, Any] = {"torch": torch, "operator": operator}
"""Where the targets of lines are found by their names."""


class Unprintable(ValueError):
    """A graph with a part that has no text in torch alone; the message names the node."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A value by its name."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Line:
    """One call. The target of a method is its name."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, which finds a target by its name."""
        target = self.target if isinstance(self.target, str) else (qualified(self.target),)
        return _read_line, (self.name, target, self.args, self.kwargs)

    @property
    def reads(self) -> tuple[str, ...]:
        found: list[str] = []

        def note(leaf: Any) -> Any:
            if is_ref(leaf):
                found.append(leaf.name)

        self.mapped(note)
        return tuple(found)

    def mapped(self, change: Callable[[Any], Any]) -> Line:
        args = map_aggregate(self.args, change)
        return replace(self, args=args, kwargs=tuple((name, map_aggregate(v, change)) for name, v in self.kwargs))

    def text(self) -> str:
        words = [literal(arg) for arg in self.args] + [f"{name}={literal(value)}" for name, value in self.kwargs]
        if isinstance(self.target, str):
            return f"{self.name} = {words[0]}.{self.target}({', '.join(words[1:])})"
        return f"{self.name} = {qualified(self.target)}({', '.join(words)})"

    def run(self, values: Mapping[str, Any]) -> Any:
        filled = self.mapped(lambda leaf: values[leaf.name] if is_ref(leaf) else leaf)
        if isinstance(self.target, str):
            return getattr(filled.args[0], self.target)(*filled.args[1:], **dict(filled.kwargs))
        return self.target(*filled.args, **dict(filled.kwargs))


def _read_line(name: str, target: str | tuple[str], args: Any, kwargs: Any) -> Line:
    """A line that another process wrote. A tuple holds the name of a target that is no method."""
    if isinstance(target, str):
        return Line(name, target, args, kwargs)
    return Line(name, functools.reduce(getattr, target[0].split(".")[1:], NAMESPACES[target[0].partition(".")[0]]),
                args, kwargs)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """An input: the tensor that was recorded, and how its values are made."""

    name: str
    tensor: Tensor
    values: str = RECORDED

    def text(self) -> str:
        """The expression that makes it."""
        tensor = unexpanded(self.tensor)
        made, shape = self._values_text(tensor), tuple(self.tensor.shape)
        if not tensor.is_contiguous():
            laid = f"{tuple(tensor.shape)}, {tensor.stride()}, dtype={tensor.dtype}"
            made = f"torch.empty_strided({laid}).copy_({made})"
        made += f".expand({shape})" if tensor.shape != self.tensor.shape else ""
        return made + (".requires_grad_()" if self.tensor.requires_grad else "")

    def _values_text(self, tensor: Tensor) -> str:
        if self.values == RECORDED:
            return f"RECORDED[{self.name!r}].clone()"
        if self.values == WRITTEN:
            return f"torch.tensor({literal(plain(tensor))}, dtype={tensor.dtype})"
        return drawn_text(tensor) if self.values == DRAWN else marked_text(tensor)


def unexpanded(tensor: Tensor) -> Tensor:
    """With one of all elements that an expanded dimension repeats."""
    found = tensor.detach()
    for dim, stride in enumerate(tensor.stride()):
        found = found.narrow(dim, 0, 1) if stride == 0 and tensor.shape[dim] > 1 else found
    return found


def copied(tensor: Tensor) -> Tensor:
    """A leaf of the same numbers at the same strides; in rows where elements share memory and are not expanded."""
    found = unexpanded(tensor)
    strides = found.stride() if is_without_overlap(found) else found.clone().stride()
    made = torch.empty_strided(found.shape, strides, dtype=found.dtype).copy_(found)
    return made.expand(tensor.shape).requires_grad_(tensor.requires_grad)


def plain(tensor: Tensor) -> Any:
    return tensor.detach().tolist()


def drawn_text(tensor: Tensor) -> str:
    shape = ", ".join(map(str, tensor.shape)) or "()"
    if tensor.is_floating_point() or tensor.is_complex():
        dtype = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
        return f"torch.randn({shape}{dtype})"
    most = max(1, int(tensor.max())) + 1 if tensor.numel() and tensor.dtype != torch.bool else 2
    return f"torch.randint({most}, ({shape},)).to({tensor.dtype})"


def marked_text(tensor: Tensor) -> str:
    """As drawn, but NaN or infinite where the tensor is."""
    flat = tensor.detach().contiguous().reshape(-1)
    made = drawn_text(flat)
    for special in SPECIAL:
        if places := _places_of(special, flat):
            made += f".index_fill(0, {_places_text(places)}, float({special!r}))"
    return f"{made}.reshape({tuple(tensor.shape)})"


def _places_of(special: str, flat: Tensor) -> list[int]:
    number = float(special)
    found = flat.isnan() if number != number else flat == number
    return [int(place) for place in found.nonzero().flatten()]


def _places_text(places: list[int]) -> str:
    """Places in a row; or each of a few."""
    if _is_row(places):
        return f"torch.arange({places[0]}, {places[-1] + 1})"
    return f"torch.tensor({places})"


def _is_row(places: list[int]) -> bool:
    return len(places) > 1 and places[-1] - places[0] + 1 == len(places)


def _is_markable(tensor: Tensor) -> bool:
    """Whether some numbers are NaN or infinite, and their places are few, or in a row, so that they can be written."""
    if not tensor.is_floating_point():
        return False
    found = [_places_of(special, tensor.detach().contiguous().reshape(-1)) for special in SPECIAL]
    return any(found) and all(len(places) <= MOST_MARKED or _is_row(places) for places in found)


@dataclass(frozen=True, slots=True)
class GraphProgram:
    """What the text of a shrunk program is made of."""

    givens: tuple[Given, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    may_raise: bool = False
    """Whether what eager cannot run is a program too: where it is an error that differs."""

    @staticmethod
    def of(gm: fx.GraphModule, inputs: Sequence[Any], may_raise: bool = False) -> GraphProgram:
        """A graph of Dynamo's with what it was called with. Raises: Unprintable."""
        names: dict[fx.Node, Any] = {}
        givens: list[Given] = []
        lines: list[Line] = []
        left = list(inputs)
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                value = left.pop(0)
                names[node] = Ref(f"x{len(givens)}") if isinstance(value, Tensor) else value
                givens += [Given(f"x{len(givens)}", value)] if isinstance(value, Tensor) else []
            elif node.op in ("call_function", "call_method"):
                names[node] = Ref(node.name)
                lines.append(_line(node, names))
            elif node.op != "output":
                raise Unprintable(f"{node.name} is a {node.op}")
        results = fx.node.map_arg(gm.graph.output_node().args[0], lambda node: names[node])
        outputs = tuple(each.name for each in _flat(results) if is_ref(each))
        made = GraphProgram(tuple(givens), tuple(lines), tuple(dict.fromkeys(outputs)), may_raise)
        return made.without_dead()

    def weight(self) -> tuple[int, int, int]:
        numbers = sum(given.tensor.numel() for given in self.givens)
        odd = sum(_oddity(given) for given in self.givens) + len(self.outputs)
        return len(self.lines), numbers, odd

    def body(self) -> str:
        """The function's text."""
        arguments = ", ".join(given.name for given in self.givens)
        lines = [*(line.text() for line in self.lines), f"return {', '.join(self.outputs)},"]
        return "\n".join([f"def program({arguments}):", *(f"    {line}" for line in lines)])

    def inputs_text(self) -> str:
        return ", ".join(given.text() for given in self.givens)

    def source(self) -> str:
        imports = "import operator\n" if "operator." in self.body() else ""
        made = f"def inputs():\n    torch.manual_seed(0)\n    return ({self.inputs_text()},)"
        return f"{imports}import torch\n\n\n{self.body()}\n\n\n{made}\n"

    @property
    def is_text_alone(self) -> bool:
        """Whether the text needs no recorded tensor."""
        return all(given.values != RECORDED for given in self.givens)

    def operators(self, mode: str) -> tuple[str, ...]:
        """What each line calls."""
        return tuple(line.text().partition(" = ")[2].partition("(")[0].rpartition(".")[2] for line in self.lines)

    def numbers(self) -> int:
        """How many numbers its inputs have."""
        return self.weight()[1]

    def is_program(self, mode: str) -> bool:
        """Whether eager runs it."""
        try:
            self.case("shrunk", mode)
            self.values()
        except Exception:  # whatever a graph that was cut anywhere may raise
            return False
        return True

    def case(self, name: str, mode: str) -> Case:
        """The text as a case: it is compiled and run as it is printed."""
        namespace: dict[str, Any] = {"RECORDED": {given.name: unexpanded(given.tensor) for given in self.givens}}
        exec(compile(self.source(), f"<{name}>", "exec"), namespace)
        function, inputs = namespace["program"], namespace["inputs"]
        return Case(name, lambda: (function, inputs(), {}), (mode,), ("fresh",), ("tiny",))

    def values(self) -> dict[str, Any]:
        """Every value of an eager run by its name; those before the first error, where the program may raise."""
        found: dict[str, Any] = {given.name: copied(given.tensor.detach()) for given in self.givens}
        with torch.no_grad():
            for line in self.lines:
                try:
                    found[line.name] = line.run(found)
                except Exception:  # whatever eager raises
                    if not self.may_raise:
                        raise
                    break
        return found

    def without_dead(self) -> GraphProgram:
        """Without lines and inputs that no output needs; what writes in place is kept, as views may see it."""
        needed, kept = set(self.outputs), []
        for line in reversed(self.lines):
            if line.name in needed or _writes(line):
                needed.update(line.reads)
                kept.append(line)
        givens = tuple(given for given in self.givens if given.name in needed)
        return replace(self, givens=givens, lines=tuple(reversed(kept)))

    # ---- simpler programs

    @property
    def is_large(self) -> bool:
        """Whether parts of it are tried first."""
        return len(self.lines) >= LARGE

    def exposed(self) -> GraphProgram:
        """With every tensor that it computes as an output, in order: the first that differs is of the wrong call."""
        values = self.values()
        names = tuple(line.name for line in self.lines if isinstance(values.get(line.name), Tensor))
        return replace(self, outputs=names)

    def pieces_before(self, name: str) -> Iterator[GraphProgram]:
        """One call by itself, then with those that stand before it, with the operands that they have there."""
        values, place = self.values(), [line.name for line in self.lines].index(name)
        for size in PIECES:
            piece = self._piece(self.lines[max(0, place - size + 1) : place + 1], values)
            yield piece if size == 1 else replace(piece, outputs=(name,)).without_dead()

    def pieces(self) -> Iterator[GraphProgram]:
        """Of a large graph, a few calls by themselves with the operands that they have there, each kind of them once.

        What one operator does wrong shows in them, and they take much less time than the whole.
        """
        if not self.is_large:
            return
        values, seen = self.values(), set[tuple[str, ...]]()
        for size in PIECES:
            for start in range(0, len(self.lines) - size + 1, (size + 1) // 2):
                piece = self._piece(self.lines[start : start + size], values)
                kind = tuple(line.text().partition("(")[0].partition(" = ")[2] for line in piece.lines)
                if len(piece.lines) == size and kind not in seen and len(seen) < MOST_PIECES:
                    seen.add(kind)
                    yield piece

    def _piece(self, lines: Sequence[Line], values: Mapping[str, Any]) -> GraphProgram:
        """These lines alone; its outputs are what no line of them reads. The whole, where that cannot be."""
        read = {name for line in lines for name in line.reads}
        results = [line.name for line in lines if isinstance(values.get(line.name), Tensor)]
        outputs = tuple(name for name in results if name not in read)
        others = [line for line in self.lines if line not in lines]
        return replace(self, outputs=outputs)._cut(others, values) if outputs else self

    def simpler(self) -> Iterator[GraphProgram]:
        """Programs with one change each, the boldest first."""
        size = self.weight()
        for candidate in self._candidates():
            if candidate.weight() < size:
                yield candidate

    def _candidates(self) -> Iterator[GraphProgram]:
        yield self.drawn()  # the sooner nothing recorded is needed, the sooner there is a file to show
        if len(self.outputs) > 1:
            yield from (replace(self, outputs=(name,)).without_dead() for name in self.outputs)
        values = self.values()
        yield from self._beginnings(values)
        yield from self._endings(values)
        yield from self._without_lines(values)
        yield from (self._with(given, other) for given in self.givens for other in plainer(given))
        yield from self._with_sizes()

    def drawn(self) -> GraphProgram:
        """With every input drawn that was recorded."""
        drawn = (replace(given, values=DRAWN) if given.values == RECORDED else given for given in self.givens)
        return replace(self, givens=tuple(drawn))

    def _beginnings(self, values: Mapping[str, Any]) -> Iterator[GraphProgram]:
        """Up to some line, which is then the output. It may be one that raises."""
        for index in _halvings(len(self.lines)):
            name = self.lines[index].name
            if (name not in values or isinstance(values[name], Tensor)) and (name,) != self.outputs:
                yield replace(self, outputs=(name,)).without_dead()

    def _endings(self, values: Mapping[str, Any]) -> Iterator[GraphProgram]:
        """From some line on, with what was computed before as inputs."""
        for index in reversed(_halvings(len(self.lines))):
            yield self._cut(self.lines[: index + 1], values)

    def _without_lines(self, values: Mapping[str, Any]) -> Iterator[GraphProgram]:
        for line in self.lines:
            yield self._cut((line,), values)
            for name in dict.fromkeys(line.reads):
                if _alike(values.get(name), values.get(line.name)):
                    yield self._bypassed(line, name)

    def _cut(self, dropped: Sequence[Line], values: Mapping[str, Any]) -> GraphProgram:
        """With the values of some lines as inputs; numbers stand in their place. A line that raises has no value."""
        gone = {line.name for line in dropped if line.name not in self.outputs and line.name in values}
        kept = tuple(line for line in self.lines if line.name not in gone)
        read = {name for line in kept for name in line.reads} & gone
        constants = {name: values[name] for name in read if not isinstance(values[name], Tensor)}
        if any(not isinstance(value, int | float | bool) for value in constants.values()):
            return self  # a tuple of tensors: its parts are what could be inputs
        grows = any(given.tensor.requires_grad for given in self.givens)
        made = tuple(
            Given(name, copied(value.detach()).requires_grad_(grows and value.is_floating_point()))
            for name in sorted(read - constants.keys()) if isinstance(value := values[name], Tensor)
        )  # fmt: skip
        filled = tuple(
            line.mapped(lambda leaf: constants.get(leaf.name, leaf) if is_ref(leaf) else leaf) for line in kept
        )
        return replace(self, givens=(*self.givens, *made), lines=filled).without_dead()

    def _bypassed(self, line: Line, name: str) -> GraphProgram:
        """With an operand in the place of a line's result."""
        others = tuple(other for other in self.lines if other is not line)
        moved = tuple(
            other.mapped(lambda leaf: Ref(name) if is_ref(leaf) and leaf.name == line.name else leaf)
            for other in others
        )
        outputs = tuple(dict.fromkeys(name if output == line.name else output for output in self.outputs))
        return replace(self, lines=moved, outputs=outputs).without_dead()

    def _with(self, given: Given, other: Given) -> GraphProgram:
        return replace(self, givens=tuple(other if each is given else each for each in self.givens))

    def _with_sizes(self) -> Iterator[GraphProgram]:
        """With one size smaller wherever it stands, in inputs and in arguments."""
        sizes = sorted({size for given in self.givens for size in given.tensor.shape if size > 1}, reverse=True)
        for size in sizes:
            for smaller in (*SMALLER, size // 2):
                if smaller < size:
                    yield self._resized(size, smaller)

    def _resized(self, size: int, smaller: int) -> GraphProgram:
        def narrowed(tensor: Tensor) -> Tensor:
            found = tensor.detach()
            for dim, extent in enumerate(tensor.shape):
                found = found.narrow(dim, 0, smaller) if extent == size else found
            return found.clone().requires_grad_(tensor.requires_grad)

        givens = tuple(replace(given, tensor=narrowed(given.tensor)) for given in self.givens)
        lines = tuple(line.mapped(lambda leaf: smaller if _is_size(leaf, size) else leaf) for line in self.lines)
        return replace(self, givens=givens, lines=lines)


def is_ref(leaf: object) -> bool:
    return isinstance(leaf, Ref)


def _is_size(leaf: object, size: int) -> bool:
    return isinstance(leaf, int) and not isinstance(leaf, bool) and leaf == size


def _line(node: fx.Node, names: Mapping[fx.Node, Any]) -> Line:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: names[each])
    made = Line(node.name, node.target, tuple(args), tuple(kwargs.items()))
    try:
        compile(made.text(), "<line>", "exec")
    except SyntaxError as error:
        raise Unprintable(f"{node.name} is {made.text()}") from error
    return made


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _flat(each)
    else:
        yield value


def _writes(line: Line) -> bool:
    name = line.target if isinstance(line.target, str) else getattr(line.target, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name in ("setitem", "iadd", "imul", "isub", "itruediv")


def _alike(one: object, other: object) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return False
    return one.shape == other.shape and one.dtype == other.dtype


def _halvings(count: int) -> list[int]:
    """Places in a list: the middle, the quarters, ..., each once, at most twelve."""
    places = [count * odd // (1 << level) for level in (1, 2, 3) for odd in range(1, 1 << level, 2)]
    return list(dict.fromkeys(place for place in (*places, 0, 1, count - 2) if 0 <= place < count - 1))


def plainer(given: Given) -> Iterator[Given]:
    """An input with plainer values, then with a plainer layout and dtype."""
    tensor = given.tensor
    if given.values == RECORDED:
        yield replace(given, values=DRAWN)
        if _is_markable(tensor):
            yield replace(given, values=MARKED)
        if tensor.numel() <= MOST_WRITTEN:
            yield replace(given, values=WRITTEN)
    if not tensor.is_contiguous():
        yield replace(given, tensor=tensor.detach().contiguous().requires_grad_(tensor.requires_grad))
    if tensor.requires_grad:
        yield replace(given, tensor=tensor.detach())
    if tensor.is_floating_point() and tensor.dtype != torch.float32:
        yield replace(given, tensor=tensor.detach().float().requires_grad_(tensor.requires_grad))


def _oddity(given: Given) -> int:
    tensor = given.tensor
    values = {DRAWN: 0, MARKED: 1, WRITTEN: 2, RECORDED: 8}[given.values]
    is_odd = tensor.is_floating_point() and tensor.dtype != torch.float32
    return 1 + values + (not tensor.is_contiguous()) + tensor.requires_grad + is_odd


def literal(value: Any) -> str:
    """A value as Python that needs torch alone."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list | torch.Size):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {literal(each)}" for name, each in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({', '.join(map(literal, (value.start, value.stop, value.step)))})"
    return f"torch.device({str(value)!r})" if isinstance(value, torch.device) else repr(value)


def qualified(target: Any) -> str:
    """Where a function is found from torch. Raises: Unprintable for one that is a user's."""
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"torch.ops.{target}"
    name = str(_get_qualified_name(target)).replace("_operator.", "operator.")
    if name.partition(".")[0] not in ("torch", "operator", "math"):
        name = f"operator.{target.__name__}" if target.__module__ in ("builtins", "_operator") else name
    if name.partition(".")[0] not in ("torch", "operator"):
        raise Unprintable(f"{name} is no part of torch")
    return name
