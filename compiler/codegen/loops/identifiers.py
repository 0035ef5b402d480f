"""Kernels under names that a language takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from assay.compiler.codegen.loops import affine
from assay.compiler.ir.loops.index import Index, Symbol
from assay.compiler.ir.loops.kernel import AsValue, Bind, Call, Cast, Check, Expr, Kernel, Load, Loop, Reduce, Scan


def with_identifiers(kernel: Kernel, identifier: Callable[[str], str]) -> Kernel:
    """The kernel with its loop variables, symbols and buffers under the names that `identifier` gives them."""
    known = (*(b.name for b in kernel.buffers), *kernel.symbols, *(loop.var for loop in kernel.loops))
    names = {name: identifier(name) for name in known}
    if all(old == new for old, new in names.items()):
        return kernel
    variables = {name: names[name] for name in (*kernel.symbols, *(loop.var for loop in kernel.loops))}
    environment: dict[str, Index] = {old: Symbol(new) for old, new in variables.items() if old != new}

    def index(value: Index) -> Index:
        return affine.substitute(value, environment)

    def loops(values: tuple[Loop, ...]) -> tuple[Loop, ...]:
        return tuple(Loop(variables.get(loop.var, loop.var), index(loop.extent)) for loop in values)

    def walk(expr: Expr) -> Expr:
        match expr:
            case Load():
                return replace(expr, buffer=names[expr.buffer], index=index(expr.index))
            case AsValue():
                return replace(expr, index=index(expr.index))
            case Call():
                return replace(expr, args=tuple(map(walk, expr.args)))
            case Cast():
                return replace(expr, expr=walk(expr.expr))
            case Reduce():
                return replace(expr, loops=loops(expr.loops), body=walk(expr.body))
            case Check():
                return replace(expr, expr=walk(expr.expr), condition=walk(expr.condition))
            case Bind():
                (loop,) = loops((expr.loop,))
                return replace(expr, loop=loop, position=walk(expr.position), body=walk(expr.body))
            case Scan():
                (loop,) = loops((expr.loop,))
                return replace(expr, loop=loop, last=index(expr.last), body=walk(expr.body))
        return expr

    stores = (replace(s, buffer=names[s.buffer], index=index(s.index), expr=walk(s.expr)) for s in kernel.stores)
    return replace(
        kernel,
        loops=loops(kernel.loops),
        stores=tuple(stores),
        buffers=tuple(replace(b, name=names[b.name], numel=index(b.numel)) for b in kernel.buffers),
        symbols=tuple(names[symbol] for symbol in kernel.symbols),
    )
