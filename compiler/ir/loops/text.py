"""Kernels as text, and back: what a reader sees, what diffs, and what a cache can key on.

    kernel <name>(<buffer>: <dtype>[<numel>], ...; <symbol>, ...)[ on <device>]  # <origin>, ...
      tiles <rows> <columns> <depth>, <number> warps, <number> stages       where it is a product by tiles
      for <var> in <extent>
      <buffer>[<index>] = <expr>          or += *= max= min=
    Expr := <buffer>[<index>]:<dtype> | <number>:<dtype> | <op>(<expr>, ...):<dtype> | cast(<expr>):<dtype>
          | @<op>{<var> in <extent>, ...}(<expr>):<dtype> | value(<index>):<dtype> | <tensor>{<index>, ...}:<dtype>
          | @bind{<var> in <extent>}(<position>, <body>):<dtype> | @check{<failure>}(<expr>, <condition>):<dtype>
          | @scan{<op>, <var> in <extent>, <last>}(<expr>):<dtype>

Indices are Python expressions over loop variables and sizes. `parse(show(kernel)) == kernel`. A value that is used
more than once is written once, as `%<number> = <expr>` before the stores.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from typing import cast

import torch

from assay.compiler.ir.loops.index import FloorDiv, Index, Int, Max, Min, Mod, Product, Sum, Symbol, operands
from assay.compiler.ir.loops.kernel import (
    CPU,
    AsValue,
    Bind,
    Buffer,
    Call,
    Cast,
    Check,
    Const,
    Element,
    Expr,
    Kernel,
    Load,
    Loop,
    Mode,
    Reduce,
    ReduceOp,
    Scan,
    ScanOp,
    Store,
    Tiles,
)
from assay.compiler.ir.loops.rewrite import children, nodes

SIGNS: dict[Mode, str] = {"write": "=", "accumulate": "+=", "multiply": "*=", "maximum": "max=", "minimum": "min="}


def show_index(index: Index) -> str:
    """An index as a Python expression whose structure is the index's."""
    if isinstance(index, Int):
        return str(index.value)
    if isinstance(index, Symbol):
        return index.name
    parts = [show_index(part) for part in operands(index)]
    if isinstance(index, Min | Max):
        return f"{'min' if isinstance(index, Min) else 'max'}({parts[0]}, {parts[1]})"
    sign = {Sum: " + ", Product: "*", FloorDiv: "//", Mod: "%"}[type(index)]
    wrapped = [t if isinstance(p, Int | Symbol) or _binds(index, p) else f"({t})" for p, t in _pairs(index, parts)]
    return sign.join(wrapped)


def _pairs(index: Index, parts: list[str]) -> Iterator[tuple[Index, str]]:
    return zip(operands(index), parts, strict=True)


def _binds(outer: Index, inner: Index) -> bool:
    """Whether `inner` needs no brackets inside `outer`."""
    return isinstance(inner, Min | Max) or (isinstance(outer, Sum) and isinstance(inner, Product))


def show_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class _Printer:
    """Prints expressions, naming those that are used more than once."""

    def __init__(self, roots: list[Expr]) -> None:
        uses: dict[Expr, int] = {}
        self.order = nodes(*roots)
        for node in self.order:
            for child in children(node):
                uses[child] = uses.get(child, 0) + 1
        for root in roots:
            uses[root] = uses.get(root, 0) + 1
        shared = [node for node in self.order if uses[node] > 1 and children(node)]
        self.names = {node: f"%{number}" for number, node in enumerate(shared)}

    def definitions(self) -> Iterator[str]:
        for node, name in self.names.items():
            yield f"{name} = {self.whole(node)}"

    def text(self, expr: Expr) -> str:
        return self.names.get(expr) or self.whole(expr)

    def whole(self, expr: Expr) -> str:
        return f"{self._head(expr)}:{show_dtype(expr.dtype)}"

    def _head(self, expr: Expr) -> str:
        if isinstance(expr, Load):
            return f"{expr.buffer}[{show_index(expr.index)}]"
        if isinstance(expr, Const):
            return repr(expr.value)
        if isinstance(expr, Call):
            return f"{expr.op}({', '.join(self.text(arg) for arg in expr.args)})"
        if isinstance(expr, Cast):
            return f"cast({self.text(expr.expr)})"
        if isinstance(expr, AsValue):
            return f"value({show_index(expr.index)})"
        if isinstance(expr, Element):
            return f"{expr.tensor}{{{', '.join(show_index(index) for index in expr.at)}}}"
        if isinstance(expr, Bind):
            return f"@bind{{{_show_loop(expr.loop)}}}({self.text(expr.position)}, {self.text(expr.body)})"
        if isinstance(expr, Check):
            return f"@check{{{expr.failure}}}({self.text(expr.expr)}, {self.text(expr.condition)})"
        if isinstance(expr, Scan):
            inside = f"{expr.op}, {_show_loop(expr.loop)}, {show_index(expr.last)}"
            return f"@scan{{{inside}}}({self.text(expr.body)})"
        return f"@{expr.op}{{{', '.join(map(_show_loop, expr.loops))}}}({self.text(expr.body)})"


def _show_loop(loop: Loop) -> str:
    return f"{loop.var} in {show_index(loop.extent)}"


def show_expr(expr: Expr) -> str:
    """An expression on one line, shared values written out each time."""
    printer = _Printer([])
    return printer.text(expr)


def show(kernel: Kernel) -> str:
    """A kernel as text."""
    buffers = ", ".join(f"{b.name}: {show_dtype(b.dtype)}[{show_index(b.numel)}]" for b in kernel.buffers)
    place = "" if kernel.device == CPU else f" on {kernel.device}"
    lines = [f"kernel {kernel.name}({buffers}; {', '.join(kernel.symbols)}){place}  # {', '.join(kernel.origins)}"]
    if (tiles := kernel.tiles) is not None:
        sizes = f"{tiles.rows} {tiles.columns} {tiles.depth}"
        lines.append(f"  tiles {sizes}, {tiles.warps} warps, {tiles.stages} stages")
    lines += [f"  for {loop.var} in {show_index(loop.extent)}" for loop in kernel.loops]
    printer = _Printer([store.expr for store in kernel.stores])
    lines += [f"  {definition}" for definition in printer.definitions()]
    for store in kernel.stores:
        lines.append(f"  {store.buffer}[{show_index(store.index)}] {SIGNS[store.mode]} {printer.text(store.expr)}")
    return "\n".join(lines) + "\n"


# ---- parsing -----------------------------------------------------------------------------------------------------


def parse_index(text: str) -> Index:
    """The index that a text of `show_index` stands for, of exactly its structure."""
    return _index(ast.parse(text, mode="eval").body)


def _index(node: ast.expr) -> Index:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Int(node.value)
    if isinstance(node, ast.UnaryOp):
        inner = _index(node.operand)
        assert isinstance(inner, Int)
        return Int(-inner.value)
    if isinstance(node, ast.Name):
        return Symbol(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        build: Callable[[Index, Index], Index] = Min if node.func.id == "min" else Max
        return build(_index(node.args[0]), _index(node.args[1]))
    if isinstance(node, ast.BinOp):
        return _binary(node)
    raise ValueError(f"not an index: {ast.unparse(node)}")


def _binary(node: ast.BinOp) -> Index:
    if isinstance(node.op, ast.Add):
        return Sum(tuple(_index(part) for part in _chain(node, ast.Add)))
    if isinstance(node.op, ast.Mult):
        return Product(tuple(_index(part) for part in _chain(node, ast.Mult)))
    build: Callable[[Index, Index], Index] = FloorDiv if isinstance(node.op, ast.FloorDiv) else Mod
    return build(_index(node.left), _index(node.right))


def _chain(node: ast.expr, op: type[ast.operator]) -> list[ast.expr]:
    """`a + b + c -> [a, b, c]`; the left side only, as Python parses it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, op):
        return [*_chain(node.left, op), node.right]
    return [node]


_TOKEN = re.compile(r"\s*(%\d+|-?inf|nan|-?[\d.]+(?:e[+-]?\d+)?|@?\w+|[\[\](){}:,])")


class _Parser:
    """Reads expressions from one line."""

    def __init__(self, text: str, names: dict[str, Expr]) -> None:
        self.text, self.at, self.names = text, 0, names

    def token(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise ValueError(f"cannot read {self.text[self.at :]!r}")
        self.at = match.end()
        return match[1]

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        return match[1] if match else ""

    def until(self, close: str) -> str:
        """The text up to the bracket that closes the one just read."""
        opening = {"]": "[", "}": "{", ")": "("}[close]
        depth, start = 1, self.at
        while depth:
            character = self.text[self.at]
            depth += (character == opening) - (character == close)
            self.at += 1
        return self.text[start : self.at - 1]

    def dtype(self) -> torch.dtype:
        assert self.token() == ":"
        found: torch.dtype = getattr(torch, self.token())
        return found

    def expr(self) -> Expr:
        head = self.token()
        if head.startswith("%"):
            return self.names[head]
        if head.startswith("@"):
            return self.marked(head[1:])
        bracket = self.peek()
        if bracket == "[":
            self.token()
            index = parse_index(self.until("]"))
            return Load(head, index, self.dtype())
        if bracket == "{":
            self.token()
            at = tuple(parse_index(part) for part in split(self.until("}")))
            return Element(head, at, self.dtype())
        return self.call(head) if bracket == "(" else Const(_number(head), self.dtype())

    def call(self, op: str) -> Expr:
        self.token()
        if op == "value":
            index = parse_index(self.until(")"))
            return AsValue(index, self.dtype())
        args = self.arguments()
        return Cast(args[0], self.dtype()) if op == "cast" else Call(op, args, self.dtype())

    def arguments(self) -> tuple[Expr, ...]:
        """Expressions up to the closing bracket."""
        args = []
        while self.peek() != ")":
            args.append(self.expr())
            if self.peek() == ",":
                self.token()
        self.token()
        return tuple(args)

    def marked(self, op: str) -> Expr:
        """What is written `@op{...}(...)`."""
        self.token()
        inside = self.until("}")
        self.token()
        first, *rest = self.arguments()
        if op == "check":
            return Check(first, rest[0], inside, self.dtype())
        if op == "scan":
            name, loop, last = split(inside)
            return Scan(cast(ScanOp, name), _parse_loop(loop), parse_index(last), first, self.dtype())
        loops = tuple(_parse_loop(part) for part in split(inside))
        if op == "bind":
            return Bind(loops[0], first, rest[0], self.dtype())
        return Reduce(cast(ReduceOp, op), loops, first, self.dtype())


def _parse_loop(text: str) -> Loop:
    var, extent = text.split(" in ", 1)
    return Loop(var.strip(), parse_index(extent.strip()))


def split(text: str) -> list[str]:
    """The parts of a list between its outermost commas."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [part for part in (*parts, text[start:].strip()) if part]


def _number(text: str) -> bool | int | float:
    if text in ("True", "False"):
        return text == "True"
    if text.lstrip("-") in ("inf", "nan"):
        return math.nan if text == "nan" else float(text)
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


_HEAD = re.compile(r"kernel (\w*)\((.*); (.*?)\)(?: on (\S+))?  # (.*)")


def parse(text: str) -> Kernel:
    """The kernel that a text of `show` stands for. Raises: ValueError for any other text."""
    first, *lines = text.rstrip("\n").split("\n")
    match = _HEAD.fullmatch(first)
    if match is None:
        raise ValueError(f"not a kernel: {first!r}")
    buffers = tuple(_buffer(part) for part in split(match[2]))
    loops, stores = [], []
    names: dict[str, Expr] = {}
    tiles = None
    for line in (line.strip() for line in lines):
        if line.startswith("tiles "):
            tiles = Tiles(*map(int, re.findall(r"\d+", line)))
        elif line.startswith("for "):
            loops.append(_parse_loop(line.removeprefix("for ")))
        elif line.startswith("%"):
            name, expr = line.split(" = ", 1)
            names[name] = _Parser(expr, names).expr()
        else:
            stores.append(_store(line, names))
    symbols, device, origins = tuple(split(match[3])), torch.device(match[4] or "cpu"), tuple(split(match[5]))
    return Kernel(match[1], tuple(loops), tuple(stores), buffers, symbols, origins, device, tiles)


def _buffer(text: str) -> Buffer:
    name, rest = text.split(": ", 1)
    dtype, numel = rest.removesuffix("]").split("[", 1)
    return Buffer(name, getattr(torch, dtype), parse_index(numel))


def _store(line: str, names: dict[str, Expr]) -> Store:
    parser = _Parser(line, names)
    buffer = parser.token()
    parser.token()
    index = parse_index(parser.until("]"))
    sign, expr = line[parser.at :].strip().split(" ", 1)
    mode = next(mode for mode, text in SIGNS.items() if text == sign)
    return Store(buffer, index, _Parser(expr, names).expr(), mode)
