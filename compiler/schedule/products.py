"""Products of matrices, each with the pointwise work around it as one kernel, beside the library's that it would be.

    a = kernel_0(x); p = mm(a, w); y = kernel_1(p, r)    ->    y = product_0(x, w, r)

`Region` is such a product: the steps of the library's way, and the launch of ours. The kernel that reads the product
first becomes its epilogue, if it does so element by element. A kernel whose only result is an operand that nothing
else reads becomes its prologue. Who else reads the product gets it stored as well. Ours is taken where it was measured
to be faster, region by region. That is decided before memory is shared. So the proof of what may be written over what
is about the kernels as they then are.

Cost: near-linear in the number of steps.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from assay.compiler.ir.loops.index import Index, Int
from assay.compiler.ir.loops.kernel import (
    Allocate,
    CallAten,
    Counts,
    Expect,
    Kernel,
    Launch,
    Ref,
    Reinterpret,
    Schedule,
    Step,
    Tiles,
    references,
)
from assay.compiler.ir.loops.live_memory import given_by, reads_of
from assay.compiler.ir.loops.lowered import Tensor
from assay.compiler.ir.loops.rewrite import NARROW
from assay.compiler.schedule.layout import Bound
from assay.compiler.schedule.memory import release
from assay.compiler.schedule.product_kernels import Operand, Parts, Writer, is_pointwise, numbers, walk_of, written_by

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default)


@dataclass(frozen=True, slots=True)
class Region:
    """A product by either way: the steps of the `library`'s, or the `allocations` and launch of ours. `layouts` are the
    tensors that it reads, `sizes` the batches, rows, columns and terms of the product."""

    name: str
    library: tuple[Step, ...]
    bound: Bound
    allocations: tuple[Allocate, ...]
    layouts: Mapping[str, Tensor]
    sizes: tuple[int, int, int, int]

    @property
    def kernel(self) -> Kernel:
        """Ours, by no tiles yet."""
        return self.bound.kernel

    def by_library(self) -> Schedule:
        return self._schedule(self.library)

    def by_tiles(self, tiles: Tiles) -> Schedule:
        return self._schedule((*self.allocations, self.launch(tiles, "product")))

    def launch(self, tiles: Tiles, name: str) -> Launch:
        bound = self.bound
        return Launch(replace(bound.kernel, name=name, tiles=tiles), bound.arguments, (), bound.origins, bound.offsets)

    def _schedule(self, steps: tuple[Step, ...]) -> Schedule:
        """A schedule of steps, which returns what the region gives."""
        inputs, outputs = tuple(self.layouts), self.bound.writes
        whole = release(steps, inputs, frozenset(outputs), frozenset())
        return Schedule(inputs, {}, whole, tuple(map(Ref, outputs)), {}, Counts(0, 0, {}))


Choose = Callable[[Sequence[Region]], Sequence[Tiles | None]]
"""By which tiles our kernel computes each region; None for those that the library computes."""


def with_products(
    steps: tuple[Step, ...],
    tensors: Mapping[str, Tensor],
    outputs: frozenset[str],
    choose: Choose,
    keep_rounding: bool,
) -> tuple[Step, ...]:
    """The steps with our kernels for the products that `choose` gives tiles for."""
    finder = _Finder(steps, tensors, outputs, keep_rounding)
    places = list(finder.places())
    chosen = choose([place.region for place in places]) if places else ()
    kernels: dict[Kernel, Kernel] = {}
    before, behind, gone = dict[int, list[Step]](), dict[int, list[Step]](), set[int]()
    for place, tiles in zip(places, chosen, strict=True):
        if tiles is None:
            continue
        launch = place.region.launch(tiles, "")
        key = replace(launch.kernel, origins=())
        kernel = kernels.setdefault(key, replace(launch.kernel, name=f"product_{len(kernels)}"))
        mine = before.setdefault(place.at, [])
        mine += [*place.region.allocations, replace(launch, kernel=kernel)]
        gone |= place.replaced
        for name in place.expected:
            behind[finder.giver[name]] = [Expect(name, tensors[name].shape, tensors[name].stride, tensors[name].dtype)]
    kept = ([] if n in gone else [step, *behind.get(n, ())] for n, step in enumerate(steps))
    parts = ([*before.get(n, ()), *own] for n, own in enumerate(kept))
    return _without_idle_views(tuple(itertools.chain.from_iterable(parts)), outputs) if kernels else steps


def _without_idle_views(steps: tuple[Step, ...], outputs: frozenset[str]) -> tuple[Step, ...]:
    """The steps without the views that nothing reads any more."""
    wanted, kept = set(outputs), list[Step]()
    for step in reversed(steps):
        if not isinstance(step, Reinterpret) or step.name in wanted:
            kept.append(step)
            wanted.update(reads_of(step))
    return tuple(reversed(kept))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a region's kernel is launched, the steps that it replaces, and the results of ATen whose strides it counts
    on, as no kernel did before."""

    region: Region
    at: int
    replaced: frozenset[int]
    expected: tuple[str, ...]


class _Finder:
    def __init__(
        self, steps: tuple[Step, ...], tensors: Mapping[str, Tensor], outputs: frozenset[str], keep_rounding: bool
    ) -> None:
        self.steps, self.tensors, self.outputs, self.keep_rounding = steps, tensors, outputs, keep_rounding
        self.giver: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.taken: set[int] = set()
        self.writes = [0]
        """How many steps before each may write what was there already."""
        for number, step in enumerate(steps):
            if (name := given_by(step)) is not None:
                self.giver[name] = number
            for name in dict.fromkeys(reads_of(step)):
                self.readers.setdefault(name, []).append(number)
            self.writes.append(self.writes[-1] + self._may_write(step))

    def places(self) -> Iterator[_Place]:
        """The products that ours may compute. Of two that one kernel reads it is the later one's, as it runs after
        both."""
        products = [n for n, step in enumerate(self.steps) if isinstance(step, CallAten) and self._is_product(step)]
        epilogues: dict[int, tuple[int, int]] = {}
        for number in reversed(products):
            found = self._epilogue(number)
            if found is not None:
                epilogues[number] = found
                self.taken.add(found[0])
        for number in products:
            place = self._place(number, *epilogues.get(number, (None, number)))
            if place is not None:
                yield place

    def _given(self, name: str) -> Step | None:
        return self.steps[self.giver[name]] if name in self.giver else None

    def _may_write(self, step: Step) -> bool:
        if isinstance(step, Launch):
            return any(not isinstance(self._given(name), Allocate) for name in written_by(step))
        if isinstance(step, CallAten):
            is_pure = isinstance(step.target, torch._ops.OpOverload) and not step.target._schema.is_mutable
            return step.target is not operator.getitem and not is_pure
        return not isinstance(step, Allocate | Reinterpret | Expect)

    # ---- products

    def _is_product(self, step: CallAten) -> bool:
        """Whether a call multiplies matrices of half precision on one device, whose sizes are numbers."""
        if step.target not in PRODUCTS or not all(isinstance(argument, Ref) for argument in step.args):
            return False
        values = [self.tensors.get(name) for name in (step.name, *references(step.args))]
        known = [value for value in values if value is not None]
        scales = [step.kwargs.get(name, 1) for name in ("alpha", "beta")]
        is_plain = all(isinstance(scale, int | float) for scale in scales) and step.kwargs.keys() <= {"alpha", "beta"}
        is_half = len(known) == len(values) and all(map(_is_static, known)) and known[0].dtype in NARROW
        return is_half and is_plain and len({(v.dtype, v.device) for v in known}) == 1 and _lies_by_rows(known[0])

    def _epilogue(self, number: int) -> tuple[int, int] | None:
        """The kernel that is computed of a product, if there is one that may be part of it, and where the product is
        first needed."""
        step = self.steps[number]
        assert isinstance(step, CallAten)
        readers = [n for n in self.readers.get(step.name, ()) if not isinstance(self.steps[n], Expect)]
        launches = [n for n in readers if isinstance(self.steps[n], Launch)]
        if not launches or launches[0] in self.taken:
            return None
        launch, at = self.steps[launches[0]], readers[0]
        assert isinstance(launch, Launch)
        is_settled = self.writes[launches[0]] == self.writes[number + 1]
        if not is_settled or not is_pointwise(launch) or not self._is_fresh(launch):
            return None
        written = set(written_by(launch))
        is_early = at == launches[0] or all(
            self.giver.get(name, -1) < at and not self._may_move(name)
            for name in launch.arguments
            if name not in written and name != step.name
        )
        walk = walk_of(launch, step.name, math.prod(numbers(self.tensors[step.name].shape)))
        return (launches[0], at) if walk is not None and is_early else None

    def _may_move(self, name: str) -> bool:
        """Whether a value is a product, which may be there only where it is first needed."""
        return isinstance(step := self._given(name), CallAten) and step.target in PRODUCTS

    def _is_fresh(self, launch: Launch) -> bool:
        """Whether what a launch writes is memory that is taken for it, of known sizes."""
        names = written_by(launch)
        return all(isinstance(self._given(n), Allocate) and _is_static(self.tensors[n]) for n in names)

    def _place(self, number: int, epilogue: int | None, at: int) -> _Place | None:
        product = self.steps[number]
        assert isinstance(product, CallAten)
        operands = tuple(o for name in references(product.args) if (o := self._operand(name)) is not None)
        if len(operands) != len(product.args):
            return None
        factors = {operand.root for operand in operands[-2:]} - {operand.root for operand in operands[:-2]}
        before = {root: n for root in sorted(factors) if (n := self._prologue(root, number, at)) is not None}
        if epilogue is None and not before:
            return None
        self.taken.update(before.values())
        readers = {n for n in self.readers.get(product.name, ()) if n != epilogue}
        expects = {n for n in readers if isinstance(self.steps[n], Expect)}
        is_stored = epilogue is None or bool(readers - expects) or product.name in self.outputs
        launches = {root: self._launch(n) for root, n in before.items()}
        after = self._launch(epilogue) if epilogue is not None else None
        bound = Writer(Parts(product, operands, launches, after, is_stored), self.tensors, self.keep_rounding).bound()
        made = {self.giver[name] for name in (*before, *bound.writes)}
        replaced = frozenset({number, *expects, *before.values(), *made, *({epilogue} if epilogue is not None else ())})
        region = self._region(product, replaced, bound)
        if region is None:
            return None
        expected = tuple(o.root for o in operands if o.root in region.layouts and not self._is_sure(o.root))
        return _Place(region, at, replaced, expected)

    def _launch(self, number: int) -> Launch:
        launch = self.steps[number]
        assert isinstance(launch, Launch)
        return launch

    def _region(self, product: CallAten, replaced: frozenset[int], bound: Bound) -> Region | None:
        """None where it reads what is no tensor of known strides."""
        steps = self._with_views(replaced)
        given = {given_by(step) for step in steps}
        names = dict.fromkeys(name for step in steps for name in reads_of(step) if name not in given)
        layouts = {name: self.tensors[name] for name in names if name in self.tensors}
        if len(layouts) < len(names) or not all(map(_is_static, layouts.values())):
            return None
        left, right = (self.tensors[name] for name in tuple(references(product.args))[-2:])
        batches = math.prod(numbers(left.shape[:-2]))
        rows, columns, terms = numbers((left.shape[-2], right.shape[-1], left.shape[-1]))
        made = (self.tensors[name] for name in bound.writes)
        allocations = tuple(Allocate(t.name, t.shape, t.stride, t.dtype, t.device) for t in made)
        return Region(product.name, steps, bound, allocations, layouts, (batches, rows, columns, terms))

    def _with_views(self, chosen: frozenset[int]) -> tuple[Step, ...]:
        """The steps of these numbers, and those that make views for them."""
        wanted, pending = set(chosen), list(chosen)
        while pending:
            for name in reads_of(self.steps[pending.pop()]):
                if isinstance(self._given(name), Reinterpret) and self.giver[name] not in wanted:
                    wanted.add(self.giver[name])
                    pending.append(self.giver[name])
        return tuple(self.steps[number] for number in sorted(wanted))

    # ---- operands

    def _operand(self, name: str) -> Operand | None:
        """How an operand lies in memory; None where that is not for sure."""
        tensor = self.tensors[name]
        offset: Index = Int(0)
        while isinstance(step := self._given(name), Reinterpret):
            name, offset = step.base, offset + step.offset
        is_sure = self._is_sure(name) or self._is_result(step)
        if name not in self.tensors or not is_sure or not isinstance(offset, Int):
            return None
        return Operand(name, tensor.shape, tensor.stride, offset, tensor.dtype)

    def _is_sure(self, name: str) -> bool:
        """Whether a value surely lies as it was traced.

        An input does, and what a kernel stores, and a result of ATen's that is looked at. A view of such a value does
        if the graph returns it, so that nothing is written over what it shows.
        """
        step = self._given(name)
        if step is None or isinstance(step, Allocate):
            return True
        if isinstance(step, Reinterpret):
            return self._is_sure(step.base)
        if not isinstance(step, CallAten):
            return False
        if any(isinstance(self.steps[number], Expect) for number in self.readers.get(name, ())):
            return self._is_result(step)
        base = next(references(step.args), None)
        return name in self.outputs and _is_view(step) and base is not None and self._is_sure(base)

    def _is_result(self, step: Step | None) -> bool:
        """Whether a step is a call that takes memory for its result, or gives one of the results of such."""
        if not isinstance(step, CallAten):
            return False
        if step.target is operator.getitem:
            return self._is_result(self._given(next(references(step.args))))
        is_operator = isinstance(step.target, torch._ops.OpOverload)
        return is_operator and all(result.alias_info is None for result in step.target._schema.returns)

    def _prologue(self, root: str, number: int, at: int) -> int | None:
        """The kernel whose one result an operand is, where nothing but the product reads it."""
        if not isinstance(self._given(root), Allocate) or root in self.outputs:
            return None
        touching = self._touching(root)
        launches = [n for n in touching if isinstance(self.steps[n], Launch)]
        if len(launches) != 1 or touching - {launches[0], number} or launches[0] in self.taken:
            return None
        first = launches[0]
        launch, count = self._launch(first), math.prod(numbers(self.tensors[root].shape))
        is_settled = self.writes[at] == self.writes[first + 1]
        if written_by(launch) != [root] or not is_settled or not is_pointwise(launch) or not self._is_fresh(launch):
            return None
        return first if walk_of(launch, root, count, is_stored=True) is not None else None

    def _touching(self, root: str) -> set[int]:
        """The steps that read or write a value, through whatever views."""
        found, names = set[int](), [root]
        while names:
            for number in self.readers.get(names.pop(), ()):
                step = self.steps[number]
                if isinstance(step, Reinterpret) and step.name not in self.outputs:
                    names.append(step.name)
                else:
                    found.add(number)
        return found


def _is_view(step: CallAten) -> bool:
    """Whether a call gives its first argument by other strides, and does nothing to it."""
    if not isinstance(step.target, torch._ops.OpOverload) or step.target._schema.is_mutable:
        return False
    return len(step.target._schema.returns) == 1 and step.target._schema.returns[0].alias_info is not None


def _is_static(tensor: Tensor) -> bool:
    return all(isinstance(size, Int) for size in (*tensor.shape, *tensor.stride))


def _lies_by_rows(tensor: Tensor) -> bool:
    """Whether a tensor has elements, and they lie row by row."""
    below = 1
    for extent, stride in reversed(list(zip(numbers(tensor.shape), numbers(tensor.stride), strict=True))):
        if extent == 0 or (extent > 1 and stride != below):
            return False
        below *= extent
    return True
