"""Branches and loops as programs combine them: structures, modules, layouts, closures, one within another.

Eager compiles each loop anew, and gives results of loops with gradients as parts of a stack or not. So what takes long,
and what eager gives in two ways, is run without gradients here; `tests/compiler/entry/pieces` has their gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch.utils import _pytree as pytree

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, numbers, program

flow = "control-flow"
INFER = ("infer",)
map_rows: Any = mapped


def copies(results: Any) -> Any:
    """The results, none of which is a view: eager gives some as parts of a stack, in one call and not in another."""
    return pytree.tree_map(torch.clone, results)


@program(flow, modes=INFER)
def branch_of_structures() -> Made:
    def f(x: dict[str, Any]) -> Any:
        def sums(x: dict[str, Any]) -> Any:
            return {"a": x["a"][0] + x["b"], "c": [x["b"] * 2]}

        def differences(x: dict[str, Any]) -> Any:
            return {"a": x["a"][0] - x["b"], "c": [x["b"].cos()]}

        return torch.cond(x["b"].sum() > 0, sums, differences, (x,))

    return f, ({"a": (leaf(3, 2), numbers(3, 2)), "b": leaf(3, 2)},), {}


@program(flow)
def branch_of_complex_numbers() -> Made:
    def f(x: Tensor) -> Any:
        return torch.cond(x.abs().sum() > 3, lambda x: (x * x.conj()).real, lambda x: x.imag * 2, (x,)).sin()

    return f, (torch.randn(4, dtype=torch.complex64, requires_grad=True),), {}


@program(flow, modes=INFER)
def branch_of_operands_some_of_which_require_grad() -> Made:
    def f(x: Tensor, y: Tensor, z: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x, y, z: x * y * z, lambda x, y, z: x + y + z, (x, y, z))

    return f, (leaf(4), numbers(4), leaf(4)), {}


@program(flow, modes=INFER)
def branches_three_deep() -> Made:
    def f(a: Tensor, b: Tensor, c: Tensor) -> Any:
        def deepest(a: Tensor, b: Tensor, c: Tensor) -> Any:
            return torch.cond(c.sum() > 0, lambda a, b, c: a.sin() * b, lambda a, b, c: a.cos() * c, (a, b, c))

        def deeper(a: Tensor, b: Tensor, c: Tensor) -> Any:
            return torch.cond(b.sum() > 0, deepest, lambda a, b, c: a * b * c, (a, b, c))

        return torch.cond(a.sum() > 0, deeper, lambda a, b, c: a + b + c, (a, b, c))

    return f, (leaf(3, 3), leaf(3, 3), leaf(3, 3)), {}


@program(flow)
def branch_that_transposes_and_one_that_copies() -> Made:
    def f(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.t() * 2, lambda x: (x * 2).t().contiguous(), (x,)) + x

    return f, (leaf(3, 3),), {}


@program(flow)
def branch_over_a_captured_value_that_is_read_after_it() -> Made:
    def f(x: Tensor, w: Tensor) -> Any:
        y = x * 2
        return torch.cond(x.sum() > 0, lambda x: x @ w + y, lambda x: x - y, (x,)) + y

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(flow)
def branch_that_detaches_its_operand() -> Made:
    def f(x: Tensor, y: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x, y: x.detach() * 2, lambda x, y: y * 1, (x, y)) * x

    return f, (leaf(3), leaf(3)), {}


@program(flow)
def branch_whose_predicate_is_another_branch_s_result() -> Made:
    def f(x: Tensor) -> Any:
        a = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        return a + torch.cond(a.sum() > 1, lambda x, a: x * a, lambda x, a: x + a, (x, a))

    return f, (leaf(5),), {}


@program(flow)
def branch_by_a_size() -> Made:
    def f(x: Tensor) -> Any:
        return torch.cond(x.shape[0] > 4, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))

    return f, (leaf(5, 3),), {}


@program(flow)
def branch_between_modules_with_a_buffer() -> Made:
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.deep = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
            self.flat = nn.Linear(3, 2)
            self.register_buffer("scale", torch.full((2,), 1.5))

        def forward(self, x: Tensor) -> Any:
            return torch.cond(
                x.sum() > 0, lambda x: self.deep(x) + self.scale, lambda x: self.flat(x) * self.scale, (x,)
            )

    return Either(), (leaf(4, 3),), {}


@program(flow, modes=INFER)
def loop_of_two_values() -> Made:
    def f(x: Tensor) -> Any:
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin() * 2), (torch.tensor(0), x))

    return f, (leaf(3, 2),), {}


@program(flow, modes=INFER)
def loop_that_carries_structures() -> Made:
    def f(x: Tensor, y: Tensor) -> Any:
        def step(i: Tensor, d: Any) -> Any:
            return i + 1, {"a": d["a"] * 0.5, "b": [d["b"][0] + d["a"]]}

        return copies(while_loop(lambda i, d: i < 4, step, (torch.tensor(1), {"a": x, "b": [y]})))

    return f, (leaf(3), leaf(3)), {}


@program(flow, modes=INFER)
def loop_over_a_captured_weight() -> Made:
    def f(x: Tensor, w: Tensor) -> Any:
        c = w.sin()
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x @ c + w.sum()), (torch.tensor(0), x))[1]

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(flow, modes=INFER)
def loop_that_ends_by_a_maximum() -> Made:
    def f(x: Tensor, w: Tensor) -> Any:
        return while_loop(lambda x: x.abs().max() < 10, lambda x: (x * (1.5 + w.sigmoid()),), (x,))[0]

    return f, (leaf(3), leaf(3)), {}


@program(flow, modes=INFER)
def loop_within_a_loop() -> Made:
    def f(x: Tensor, y: Tensor) -> Any:
        def step(i: Tensor, x: Tensor, y: Tensor) -> Any:
            _, y = while_loop(lambda j, y: j < 3, lambda j, y: (j + 1, y * x), (torch.tensor(0), y))
            return i + 1, x * 0.9, y.sin()

        return while_loop(lambda i, x, y: i < 2, step, (torch.tensor(0), x, y))

    return f, (leaf(3), leaf(3)), {}


@program(flow, modes=INFER)
def branch_within_a_loop() -> Made:
    def f(x: Tensor) -> Any:
        def step(i: Tensor, x: Tensor) -> Any:
            return i + 1, torch.cond(x.sum() > 0, lambda x: x * 0.5, lambda x: x.sin() - 1, (x,))

        return copies(while_loop(lambda i, x: i < 3, step, (torch.tensor(0), x)))

    return f, (leaf(3),), {}


@program(flow, modes=INFER)
def loop_within_a_branch() -> Made:
    def f(x: Tensor) -> Any:
        def loop(x: Tensor) -> Any:
            return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 0.7), (torch.tensor(0), x))[1]

        return torch.cond(x.sum() > 0, loop, lambda x: x.cos(), (x,))

    return f, (leaf(3),), {}


@program(flow, modes=INFER)
def scan_of_a_long_short_term_memory() -> Made:
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.Linear(8, 20)

        def forward(self, h: Tensor, c: Tensor, xs: Tensor) -> Any:
            def step(carried: tuple[Tensor, Tensor], x: Tensor) -> Any:
                h, c = carried
                i, f, g, o = self.gates(torch.cat([x, h], -1)).chunk(4, -1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
                return (h, c), h.clone()

            return scan(step, (h, c), xs)

    return Cells(), (leaf(2, 5), leaf(2, 5), leaf(4, 2, 3)), {}


@program(flow, modes=INFER)
def scan_within_a_scan() -> Made:
    def f(c: Tensor, xs: Tensor, w: Tensor) -> Any:
        def outer(c: Tensor, x: Tensor) -> Any:
            last, rows = scan(lambda a, b: (a * w + b, a.sin()), c, x)
            return last, rows.sum(0)

        return scan(outer, c, xs)

    return f, (leaf(4), leaf(3, 5, 4), leaf(4)), {}


@program(flow, modes=INFER)
def map_within_a_scan() -> Made:
    def f(c: Tensor, xs: Tensor) -> Any:
        def step(c: Tensor, x: Tensor) -> Any:
            y = map_rows(lambda row: row.sin() * 2, c)
            return y * x, y.sum()

        return scan(step, c, xs)

    return f, (leaf(4, 2), leaf(3, 4, 2)), {}


@program(flow, modes=INFER)
def scan_of_integers() -> Made:
    def f(xs: Tensor) -> Any:
        return scan(lambda c, x: (c + x, c * x), torch.zeros(3, dtype=torch.int64), xs)

    return f, (torch.randint(0, 5, (4, 3)),), {}


@program(flow, modes=INFER)
def scan_that_gives_what_has_no_gradient() -> Made:
    def f(c: Tensor, xs: Tensor) -> Any:
        last, (detached, flags) = scan(lambda c, x: (c * x, (c.detach() * 2, x > 0)), c, xs)
        return last + detached.sum(0), flags

    return f, (leaf(3), leaf(4, 3)), {}


@program(flow)
def scan_of_one_step() -> Made:
    def f(c: Tensor, xs: Tensor) -> Any:
        return scan(lambda c, x: (c * x, c + x), c, xs)

    return f, (leaf(3), leaf(1, 3)), {}


@program(flow, modes=INFER)
def scan_of_what_another_scan_gave() -> Made:
    def f(c: Tensor, xs: Tensor) -> Any:
        last, rows = scan(lambda c, x: (c * x, c + x), c, xs)
        return scan(lambda c, x: (c - x, c * x), last, rows)

    return f, (leaf(3), leaf(4, 3)), {}


@program(flow, modes=INFER)
def map_of_structures() -> Made:
    def f(xs: dict[str, Tensor], w: Tensor) -> Any:
        return copies(map_rows(lambda x, w: {"p": x[0] @ w, "q": [x[1].cos()]}, (xs["a"], xs["b"]), w))

    return f, ({"a": leaf(3, 2, 2), "b": leaf(3, 4)}, leaf(2, 2)), {}


@program(flow, modes=INFER)
def map_within_a_map() -> Made:
    def f(xs: Tensor, y: Tensor) -> Any:
        return copies(map_rows(lambda row, y: map_rows(lambda each, y: each * y, row, y), xs, y))

    return f, (leaf(3, 4, 2), leaf(2)), {}


@program(flow, modes=INFER)
def branch_within_a_map() -> Made:
    def f(xs: Tensor, y: Tensor) -> Any:
        def either(row: Tensor, y: Tensor) -> Any:
            return torch.cond(row.sum() > 0, lambda r, y: r + y, lambda r, y: r * y, (row, y))

        return copies(map_rows(either, xs, y))

    return f, (leaf(5, 4), leaf(4)), {}


@program(flow)
def associative_scan_of_products() -> Made:
    def f(x: Tensor) -> Any:
        return associative_scan(lambda a, b: a @ b, x, dim=0, combine_mode="generic")

    return f, (leaf(5, 3, 3),), {}


@program(flow, modes=INFER)
def associative_scan_of_structures_from_the_end() -> Made:
    def f(x: dict[str, Any]) -> Any:
        def combined(a: dict[str, Any], b: dict[str, Any]) -> Any:
            return {"i": a["i"] + b["i"], "j": [a["j"][0] * b["j"][0]]}

        return associative_scan(combined, x, dim=1, combine_mode="generic", reverse=True)

    return f, ({"i": leaf(2, 5), "j": [leaf(2, 5)]},), {}


@program(flow, modes=INFER)
def rows_vectorized_over_an_associative_scan() -> Made:
    def f(x: Tensor) -> Any:
        return torch.vmap(lambda x: associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic"))(x)

    return f, (numbers(2, 4, 3),), {}


@program(flow, modes=INFER)
def rows_vectorized_over_a_scan() -> Made:
    """In what a scan gives, the dimension of vmap lies innermost."""

    def f(c: Tensor, xs: Tensor) -> Any:
        def scanned(c: Tensor, xs: Tensor) -> Any:
            return scan(lambda c, x: (c * x, (c + x).sin()), c, xs)

        return torch.vmap(scanned)(c, xs), torch.vmap(scanned, in_dims=(1, 0), out_dims=1)(c, xs[:, :3, :2].mT)

    return f, (numbers(3, 3), numbers(3, 4, 3)), {}


@program(flow, modes=INFER)
def gradient_inside_a_scan() -> Made:
    def f(c: Tensor, xs: Tensor) -> Any:
        def step(c: Tensor, x: Tensor) -> Any:
            g = torch.func.grad(lambda a: (a * x).sin().sum())(c)
            return c - 0.1 * g, g.sum()

        return scan(step, c, xs)

    return f, (numbers(3), numbers(4, 3)), {}
