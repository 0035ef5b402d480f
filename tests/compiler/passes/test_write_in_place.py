"""Writes in place: as eager's in every result, input and version; and with no copy that nothing needs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call, fake_leaf
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.graph.roles import Mutation, UserInput
from assay.compiler.passes.write_in_place import write_in_place
from assay.reference.evaluate import evaluate

TARGETS = ("aten", "cpp")


@torch.library.custom_op("assay_in_place::increment", mutates_args=("x",))
def increment(x: Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("assay_in_place::double_and_sum", mutates_args=("x",))
def double_and_sum(x: Tensor) -> Tensor:
    x.mul_(2)
    return x.sum()


@double_and_sum.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(())


@torch.library.custom_op("assay_in_place::exchange", mutates_args=("x", "y"))
def exchange(x: Tensor, y: Tensor) -> None:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)


@torch.library.custom_op("assay_in_place::negate_all", mutates_args=("tensors",))
def negate_all(tensors: list[Tensor], scale: float) -> None:
    for tensor in tensors:
        tensor.mul_(-scale)


OPERATORS = {
    "increment": increment,
    "double_and_sum": double_and_sum,
    "exchange": exchange,
    "negate_all": negate_all,
}

ROWS, COLUMNS = 4, 6
VIEWS = ("[1]", "[:, 2]", "[1:3]", "[:, ::2]", "[2, 1:4]", "[0][2:5]", ".t()[1:3]", ".diagonal()", "", ".view(-1)[3:9]")
WRITES = (
    "{w}.add_({n})",
    "{w}.copy_({r}.sum())",
    "{w}.fill_({n})",
    "{w}.mul_({r}.amax())",
    "{t}[{i}] = {s}[{j}] + {n}",
    "{t}[1:] = {t}[:-1].clone()",
    "{t}[1:3, 2] = {s}[0, :2]",
    "{t}[idx] = {s}[:2] * {n}",
    "{t}.index_add_(0, idx, {s}[1:3])",
    "{t}.index_copy_(0, idx, {s}[2:])",
    "{t}.masked_fill_({s} > {n}, {n})",
    "{t}.scatter_(1, idx[None].expand(4, 2), {s}[:, :2])",
    "{t}[{i}].index_add_(0, idx, {s}[{j}, :2])",
    "{t}.diagonal()[1:3] = {s}[0, 1:3]",
)
MUTATIONS = (
    "increment({w})",
    "out.append(double_and_sum({w}))",
    "exchange({t}[0], {t}[1])",
    "negate_all([{t}, {t2}], 2.0)",
    "negate_all([{w}], 1.0)",
)
READS = ("out.append({r} * 2)", "out.append({r}.sum())", "out.append({t} + {s})", "y = {t} * 1", "z = {t} + {s}")


def statement(draw: random.Random) -> str:
    """One line that writes or reads the inputs `x` and `c` or the intermediates `y` and `z`."""
    names = draw.sample(("x", "c", "y", "z"), 3)
    other = {"x": "c", "c": "x", "y": "z", "z": "y"}[names[0]]
    kind = draw.choices((WRITES, MUTATIONS, READS), (6, 2, 3))[0]
    view, read = draw.choice(VIEWS), draw.choice(VIEWS)
    return draw.choice(kind).format(
        t=names[0], t2=other, s=names[1], w=names[0] + view, r=names[2] + read, n=draw.randint(1, 3),
        i=draw.randint(0, 3), j=draw.randint(0, 3),
    )  # fmt: skip


def program(seed: int) -> str:
    draw = random.Random(seed)
    lines = [statement(draw) for _ in range(draw.randint(2, 7))]
    ends = draw.choice(("out", "(out, y)", "(out, x)", "(out, x[1:], z)", "None"))
    body = "".join(f"    {line}\n" for line in ["out = []", "y = x + c", "z = c * 2", *lines, f"return {ends}"])
    return f"def f(x, c, idx):\n{body}"


def arguments(seed: int) -> tuple[Tensor, ...]:
    """Whole numbers, so that every sum is exact in any order; one input is a view with an offset."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-4, 5, (ROWS, COLUMNS), generator=generator).double()
    c = torch.randint(-4, 5, (ROWS + 1, COLUMNS), generator=generator).double()
    return x, c[1:], torch.tensor([2, 0])


def check_as_eager(f: Callable[..., Any], target: str, make: Callable[[int], tuple[Tensor, ...]], text: str) -> None:
    """Runs `f` three times, eager and compiled, and compares results, inputs and versions."""
    torch._dynamo.reset()
    compiled = torch.compile(f, backend=assay, options={"target": target, "fallback": "error"}, fullgraph=True)
    for seed in range(3):
        theirs, ours = make(seed), make(seed)
        for (what, expected), (_, actual) in zip(seen(f, theirs), seen(compiled, ours), strict=True):
            assert torch.equal(actual, expected) if isinstance(expected, Tensor) else actual == expected, (
                f"{what} differs on {target}, call {seed}: {actual} is not {expected}\n{text}"
            )


def seen(f: Callable[..., Any], inputs: tuple[Tensor, ...]) -> list[tuple[str, Any]]:
    flat, _ = pytree.tree_flatten(f(*inputs))
    found = [(f"result {i}", value) for i, value in enumerate(flat)]
    found += [(f"result {i} stride", value.stride()) for i, value in enumerate(flat) if isinstance(value, Tensor)]
    found += [(f"input {i}", value) for i, value in enumerate(inputs)]
    return found + [(f"version of input {i}", value._version) for i, value in enumerate(inputs)]


@pytest.mark.parametrize(("target", "seed"), [("aten", s) for s in range(60)] + [("cpp", s) for s in range(60, 72)])
def test_in_place_programs_are_as_eager(target: str, seed: int) -> None:
    text = program(seed)
    namespace: dict[str, Any] = {"torch": torch, **OPERATORS}
    exec(text, namespace)
    check_as_eager(namespace["f"], target, arguments, f"seed {seed}\n{text}")


@pytest.mark.parametrize("seed", range(80, 100))
def test_in_place_program_runs_under_the_reference(seed: int) -> None:
    """The state after the pass, evaluated node by node, gives what eager gives, in results and in written inputs."""
    namespace: dict[str, Any] = {"torch": torch, **OPERATORS}
    exec(program(seed), namespace)
    function = namespace["f"]
    theirs, ours = arguments(seed), arguments(seed)
    mode = FakeTensorMode()
    leaves = tuple(fake_leaf(UserInput(i), value, mode) for i, value in enumerate(ours))
    captured = capture(Call(lambda args: pytree.tree_leaves(function(*args)), leaves, mode), {})
    made = write_in_place(captured.finish(), generate=False)
    returned = evaluate(made.module, ours)
    for role, value in zip(made.signature.outputs, returned, strict=True):
        if isinstance(role, Mutation):
            ours[role.of.index].copy_(value)
    function(*theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)), program(seed)


# ---- what is copied --------------------------------------------------------------------------------------------------


class Copies(TorchDispatchMode):
    """The operators called, and the bytes of the new tensors that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append(func._schema.name.split("::")[1])
        if isinstance(result, Tensor) and not func.is_view and not func._schema.is_mutable:
            self.bytes += result.numel() * result.element_size()
        return result


def counted(f: Callable[..., Any], *inputs: Tensor) -> Copies:
    """A call of `f`, compiled to calls of ATen. Below Dynamo, which compiles nothing under a dispatch mode."""
    seen: list[Copies] = []

    def backend(gm: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        run = assay(gm, examples, options={"target": "aten", "fallback": "error"})

        def counting(*args: Any) -> Any:
            with Copies() as copies:
                result = run(*args)
            seen.append(copies)
            return result

        return counting

    torch._dynamo.reset()
    torch.compile(f, backend=backend, fullgraph=True)(*inputs)
    return seen[0]


CACHE = (4, 256, 64)


def slice_update(cache: Tensor, k: Tensor, at: Tensor) -> None:
    cache[:, 7:9] = k


def part_of_part_update(cache: Tensor, k: Tensor, at: Tensor) -> None:
    cache[1][7:9, :] = k[0]


def index_update(cache: Tensor, k: Tensor, at: Tensor) -> None:
    cache[:, at] = k


def paged_update(cache: Tensor, k: Tensor, at: Tensor) -> None:
    cache.view(-1, 64)[at] = k[0]


def index_copy_update(cache: Tensor, k: Tensor, at: Tensor) -> None:
    cache.index_copy_(1, at, k)


def step_of_one_row(cache: Tensor, k: Tensor, at: Tensor) -> None:
    cache[:, 7].add_(k[:, 0])


UPDATES = (slice_update, part_of_part_update, index_update, paged_update, index_copy_update, step_of_one_row)


@pytest.mark.parametrize("update", UPDATES, ids=lambda f: f.__name__)
def test_in_place_update_of_a_cache_copies_no_cache(update: Callable[..., None]) -> None:
    cache, k = torch.zeros(CACHE), torch.ones(4, 2, 64)
    copies = counted(update, cache, k, torch.tensor([7, 8]))
    assert [name for name in copies.calls if name.endswith("_")] in (["copy_"], ["index_put_"], ["index_copy_"])
    assert copies.bytes <= k.numel() * k.element_size(), f"{copies.bytes} bytes made by {copies.calls}"


def test_in_place_operator_copies_nothing() -> None:
    """On an input: no clone and no copy back; on an intermediate: no clone; where it is read later: one clone."""
    x = torch.zeros(8, 8)

    def of_an_input(x: Tensor) -> None:
        increment(x[1:])

    def of_an_intermediate(x: Tensor) -> Tensor:
        y = x + 1
        increment(y)
        return y * 2

    def of_what_is_read_later(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 1
        kept = y.clone()
        increment(y)
        return kept, y * 2

    assert not {"clone", "copy_"} & set(counted(of_an_input, x).calls)
    assert not {"clone", "copy_"} & set(counted(of_an_intermediate, x).calls)
    assert counted(of_what_is_read_later, x).calls.count("clone") == 1


def test_in_place_read_before_the_write_keeps_its_value() -> None:
    """A reader that no dependence orders before the write is ordered before it, and the cache is still not copied."""

    def f(cache: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        before = cache.sum()
        cache[0] = k
        return before, cache.sum()

    for target in TARGETS:
        check_as_eager(f, target, lambda seed: (torch.ones(4, 4), torch.full((4,), 2.0 + seed)), "read before")
    assert "clone" not in counted(f, torch.ones(4, 4), torch.ones(4)).calls


def test_in_place_of_an_input_without_gradients_beside_one_with() -> None:
    """Autograd records nothing of the cache, so the forward graph writes it."""

    def f(cache: Tensor, w: Tensor) -> Tensor:
        cache[0] = 3
        increment(cache)
        return w * 2

    torch._dynamo.reset()
    compiled = torch.compile(f, backend=assay, options={"target": "aten", "fallback": "error"})
    ours, theirs = [(torch.zeros(3, 3), torch.ones(3, requires_grad=True)) for _ in range(2)]
    for call, inputs in ((compiled, ours), (f, theirs)):
        call(*inputs).sum().backward()
    assert torch.equal(ours[0], theirs[0]) and ours[0]._version == theirs[0]._version
    assert ours[1].grad is not None and torch.equal(ours[1].grad, theirs[1].grad)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_in_place_operator_counts_as_eagers_however_its_argument_lies(is_dynamic: bool) -> None:
    """With strides that are symbols it is not known whether there are gaps, and the operator writes a copy."""

    def f(x: Tensor, y: Tensor) -> Tensor:
        increment(x)
        z = x + y
        increment(x)
        return x * z

    torch._dynamo.reset()
    compiled = torch.compile(f, backend=assay, dynamic=is_dynamic, options={"target": "aten", "fallback": "error"})
    layouts: tuple[Callable[[], Tensor], ...] = (
        *(lambda: torch.zeros(4, 3), lambda: torch.zeros(3, 4).t(), lambda: torch.zeros(5, 4).t()),
        lambda: torch.zeros(4, 6)[:, ::2].detach(),
    )
    for made in layouts:
        ours, theirs = made(), made()
        assert torch.equal(compiled(ours, torch.ones(ours.shape)), f(theirs, torch.ones(ours.shape)))
        assert torch.equal(ours, theirs) and ours._version == theirs._version


def test_in_place_reads_of_what_an_operator_writes_run_in_eager() -> None:
    """An operator that is given one tensor twice would read the copy's original: that is refused, not guessed."""

    @torch.library.custom_op("assay_in_place::write_and_read", mutates_args=("x",))
    def write_and_read(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 2

    @write_and_read.register_fake
    def _(x: Tensor, y: Tensor) -> Tensor:
        return torch.empty_like(y)

    compiled = torch.compile(lambda x: write_and_read(x, x), backend=assay, options={"target": "aten"})
    assert compiled(torch.zeros(3)).tolist() == [2.0] * 3


def test_in_place_versions_of_written_lists() -> None:
    def f(x: Tensor, y: Tensor) -> None:
        torch._foreach_add_([x, y], 1.0)
        torch._foreach_mul_([x], 2.0)

    check_as_eager(f, "aten", lambda seed: (torch.zeros(3) + seed, torch.zeros(4)), "foreach")
