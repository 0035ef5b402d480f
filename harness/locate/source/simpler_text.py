"""Simpler texts of a program, one change each: fewer statements, fewer values, smaller expressions, smaller numbers.

statement   ->  nothing | its body
f(x, y)     ->  x | y          x.f(y) -> x          x + y -> x | y          (x, y) -> (x,) | (y,)
8           ->  2 | 4          wherever the number stands
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

from assay.harness.locate.source.written_values import bound_by

Edit = Callable[[ast.AST], None]
LISTS = ("body", "orelse", "finalbody")
PARTS = ("elts", "args", "keywords", "decorator_list")
SMALLER = (1, 2, 3, 4)


def simpler_texts(text: str, roots: frozenset[str]) -> Iterator[str]:
    """Texts with one change each, the boldest first. Without what `roots` do not need."""
    tree = ast.parse(text)
    for index, edit in (*_removals(tree), *_expressions(tree)):
        yield needed(_edited(tree, index, edit), roots)
    for old, new in _numbers(tree):
        yield needed(_Number(old, new).visit(copy.deepcopy(tree)), roots)


def weight(text: str) -> tuple[int, int]:
    """How much a text holds: pieces of source, then the sum of its numbers."""
    nodes = list(ast.walk(ast.parse(text)))
    return len(nodes), sum(abs(node.value) for node in nodes if _is_number(node))  # type: ignore[attr-defined]


def needed(tree: ast.Module, roots: frozenset[str]) -> str:
    """The text without definitions and imports that nothing reads. Calls and functions called `_` are kept."""
    left = tree.body
    while True:
        read = {node.id for each in left for node in ast.walk(each) if isinstance(node, ast.Name) and not _is_own(node)}
        kept = [each for each in left if not bound_by(each) or bound_by(each) & (read | roots | {"_", "annotations"})]
        if len(kept) == len(left):
            return ast.unparse(ast.Module(kept, []))
        left = kept


def _is_own(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _edited(tree: ast.Module, index: int, edit: Edit) -> ast.Module:
    """A copy in which the node of that place in a walk is changed."""
    other = copy.deepcopy(tree)
    edit(list(ast.walk(other))[index])
    return ast.fix_missing_locations(other)


def _removals(tree: ast.Module) -> list[tuple[int, Edit]]:
    """Without some statements, elements or pairs, or with the body in the place of a block; the largest part first."""
    found: list[tuple[int, int, Edit]] = []
    for index, node in enumerate(ast.walk(tree)):
        found += [(-size, index, edit) for size, edit in (*_of_body(node), *_of_parts(node), *_of_pairs(node))]
    return [(index, edit) for _, index, edit in sorted(found, key=lambda each: each[:2])]


def _of_body(node: ast.AST) -> Iterator[tuple[int, Edit]]:
    """Edits of lists of statements, each with the size of what it takes away."""
    for name in LISTS:
        held = getattr(node, name, None)
        if isinstance(held, list):
            yield from ((_size(*held[begin:end]), _without(name, begin, end)) for begin, end in _ranges(len(held)))
            for place, each in enumerate(held):
                if isinstance(each, ast.With | ast.If | ast.For | ast.Try):
                    yield _size(each) - _size(*each.body), _opened(name, place)


def _of_parts(node: ast.AST) -> Iterator[tuple[int, Edit]]:
    """Edits of tuples, lists, calls, and of a definition's decorators."""
    for name in PARTS:
        held = getattr(node, name, None)
        least = 0 if name in ("keywords", "decorator_list") else 1
        if isinstance(held, list) and len(held) > least:
            yield from ((_size(*held[begin:end]), _without(name, begin, end)) for begin, end in _ranges(len(held)))


def _of_pairs(node: ast.AST) -> Iterator[tuple[int, Edit]]:
    """Edits of dicts."""
    if isinstance(node, ast.Dict) and len(node.keys) > 1:
        for begin, end in _ranges(len(node.keys)):
            yield _size(*node.values[begin:end]), _without_pairs(begin, end)


def _expressions(tree: ast.Module) -> Iterator[tuple[int, Edit]]:
    """With a part of an expression in its place."""
    for index, node in enumerate(ast.walk(tree)):
        for name, value in ast.iter_fields(node):
            for place, each in enumerate(value if isinstance(value, list) else [value]):
                at = place if isinstance(value, list) else None
                yield from ((index, _replaced(name, at, which)) for which in range(len(_within(each))))


def _within(node: object) -> list[ast.expr]:
    """The expressions that may stand in the place of one."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        return [node.operand]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Call):
        on = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*on, *(arg for arg in node.args if not isinstance(arg, ast.Constant | ast.Starred))]
    return [node.value] if isinstance(node, ast.Subscript) else []


def _numbers(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Pairs of a number of the text and a smaller one, the largest first."""
    numbers = {node.value for node in ast.walk(tree) if _is_number(node)}  # type: ignore[attr-defined]
    for number in sorted(numbers, reverse=True):
        yield from ((number, less) for less in (*SMALLER, number // 2) if 0 < less < number)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


class _Number(ast.NodeTransformer):
    """One number in the place of another, wherever that stands."""

    def __init__(self, old: int, new: int) -> None:
        self.old, self.new = old, new

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(self.new) if type(node.value) is int and node.value == self.old else node


def _ranges(count: int) -> Iterator[tuple[int, int]]:
    if count > 3:
        yield from ((0, count // 2), (count // 2, count))
    yield from ((place, place + 1) for place in range(count))


def _size(*nodes: ast.AST) -> int:
    return sum(1 for node in nodes for _ in ast.walk(node))


def _without(name: str, begin: int, end: int) -> Edit:
    def edit(node: ast.AST) -> None:
        held = getattr(node, name)
        del held[begin:end]
        if not held and name == "body" and not isinstance(node, ast.Module):
            held.append(ast.Pass())

    return edit


def _without_pairs(begin: int, end: int) -> Edit:
    def edit(node: ast.AST) -> None:
        del node.keys[begin:end], node.values[begin:end]  # type: ignore[attr-defined]

    return edit


def _opened(name: str, place: int) -> Edit:
    def edit(node: ast.AST) -> None:
        held = getattr(node, name)
        held[place : place + 1] = held[place].body

    return edit


def _replaced(name: str, place: int | None, which: int) -> Edit:
    def edit(node: ast.AST) -> None:
        value = getattr(node, name)
        if place is None:
            setattr(node, name, _within(value)[which])
        else:
            value[place] = _within(value[place])[which]

    return edit
