"""`fuse`: which values are computed together, and which are never stored.

Three decisions, made once a node in the order of the graph:

    inline   a value that is cheap, or used once without being evaluated more often, becomes part of its users
    join     a value whose elements line up with those of a group (the same loops, or the outer ones of them) becomes
             one more member of it: softmax, layer norm with its statistics, a value that is both saved and used
    start    else it starts a group of its own

Every group becomes one kernel, which stores those members that something outside it reads. No cycle can come of it.
Each group has a level above the levels of all that it reads, and a member joins only if that stays so. A call with an
effect has a level above that of the call with an effect before it.

A group that nothing outside it has read yet may rise to the level of a value that reads it. What backward computes
again does so, because it needs nothing but what forward kept.

Cost: near-linear in nodes; expressions are bounded in size and depth, and what exceeds the bound is stored.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Symbol, substitute, symbols
from assay.compiler.ir.loops.kernel import Call, Cast, Check, Element, Expr, Reduce, Ref, Scan, references
from assay.compiler.ir.loops.lowered import (
    Called,
    Generated,
    Lowered,
    Scattered,
    Tensor,
    Viewed,
    coordinates,
    numbers_of,
    ranges_of,
)
from assay.compiler.ir.loops.rewrite import (
    NARROW,
    ROUNDED_FIRST,
    Expansion,
    Substitution,
    call,
    children,
    loops_bound_by,
    nodes,
    on_lane,
)
from assay.compiler.machine import number, number_on
from assay.compiler.schedule.cost import Cost, weight

MOST_INLINED = {"cpu": 48, "cuda": 64}
"""Nodes in an expression that is still inlined. Bilinear interpolation on a GPU has 61."""
MOST_MEMBERS_NODES = 320
"""Nodes in all the expressions of a group."""
DEEPEST = 56
"""Depth of an expression: every later walk over it is recursive."""
FEW_NODES = 4
"""Nodes that a value adds to a group that computes all but these already, whatever its size: the positions of elements
beside these."""
EXACT = ("max", "min", "any", "all", "argmax", "argmin")
"""Reductions that give the same number in any order."""
LANE = Symbol("lane")
"""The lane of a complex member, which is no loop: each of the two is stored by itself."""
WORK_OF_STORING = 4
"""What storing a value and loading it again costs, in weights of operators."""
SPREAD = 4
"""How many times larger than what it reads a value is that is computed again rather than stored."""
LESS = 0.8
"""The share of the bytes, at most, that moving less is."""
WORK_OF_INPUTS = 24
"""The most work of such an element."""


@dataclass(slots=True)
class Group:
    """Values computed in one kernel, over `domain`: loops i0, i1, ... of which a member may use only the outer ones."""

    level: int
    domain: tuple[Index, ...]
    expansions: dict[str, Expr] = field(default_factory=dict)
    """Each member over i0, i1, ..., in terms of what other groups or ATen compute."""
    seen: set[Expr] = field(default_factory=set)
    position: int = 0
    is_read: bool = False
    """Whether something outside of it has read what it computes."""

    @property
    def ranges(self) -> dict[str, Index]:
        return {f"i{k}": extent for k, extent in enumerate(self.domain)}


@dataclass(frozen=True, slots=True)
class Scattering:
    """Updates that are a kernel of their own, over the coordinates of their space, what they read inlined."""

    definition: Scattered
    update: Expr
    position: int


@dataclass(frozen=True, slots=True)
class Fused:
    """A lowered graph and the groups that compute its stored values, which are `needed`; `axes` are the dimensions of
    each of them in the order of its group's loops. `keep_rounding`: values are rounded as eager rounds them."""

    lowered: Lowered
    groups: tuple[Group, ...]
    scatterings: tuple[Scattering, ...]
    needed: frozenset[str]
    axes: Mapping[str, tuple[int, ...]]
    keep_rounding: bool


def axes_of(tensor: Tensor, outer: frozenset[str], cost: Cost) -> tuple[int, ...]:
    """The dimensions of more than one element in the order of loops: those that a reduction depends on (`outer`)
    first, then the slowest in memory first."""
    dims = [dim for dim, extent in enumerate(tensor.shape) if extent is not ONE]
    return tuple(sorted(dims, key=lambda dim: (f"d{dim}" not in outer, -cost.number(tensor.stride[dim]))))


def fuse(lowered: Lowered, keep_rounding: bool = False, most_decisions: int = -1) -> Fused:
    """Groups the generated values of a graph. With `keep_rounding` every value is rounded to its tensor's dtype
    wherever it is used, as eager does, even inside a kernel. After `most_decisions` to inline or to join a value, each
    further one is a kernel of its own; -1: there is no such limit."""
    return _Fusion(lowered, keep_rounding, most_decisions).run()


def _deciding(expr: Expr) -> list[Element]:
    """The elements whose last bit decides what an operator gives, as it does of comparisons, of sines and of integers.

    An operand that is rounded in eager has to be rounded, or `x + 1 < stack([x + 1])` would be true of some.
    """
    return elements(*filter(_is_decided, nodes(expr)))


def _is_decided(node: Expr) -> bool:
    if isinstance(node, Cast):
        return node.expr.dtype.is_floating_point and not node.dtype.is_floating_point
    return isinstance(node, Call | Reduce) and node.op in ROUNDED_FIRST


def _is_half(element: Element) -> bool:
    return element.dtype in NARROW


def _is_widened_half(expr: Expr) -> bool:
    return isinstance(expr, Cast) and isinstance(expr.expr, Element) and _is_half(expr.expr)


def elements(*exprs: Expr) -> list[Element]:
    """The elements that expressions read."""
    return [node for node in nodes(*exprs) if isinstance(node, Element)]


@dataclass(slots=True)
class _Use:
    """How the generated values of the graph use one value: by how many, and evaluated how often in all."""

    users: int = 0
    evaluations: float = 0


class _Fusion:
    def __init__(self, lowered: Lowered, keep_rounding: bool, most_decisions: int = -1) -> None:
        self.lowered = lowered
        self.decisions_left = most_decisions
        self.keep_rounding = keep_rounding
        self.cost = Cost(lowered.hints)
        self.views = {d.tensor.name: d for d in lowered.definitions if isinstance(d, Viewed)}
        self.generated = {d.tensor.name: d for d in lowered.definitions if isinstance(d, Generated)}
        self.roots: dict[str, str] = {}
        self.uses: dict[str, _Use] = {}
        self.axes: dict[str, tuple[int, ...]] = {}
        self.demanded: set[str] = set()
        self.live: set[str] = set()
        self.rounded: set[str] = set()
        self.deciding: set[str] = set()
        self.inlined: dict[str, Expr] = {}
        self.levels: dict[str, int] = {}
        self.group_of: dict[str, Group] = {}
        self.readers: dict[str, Group] = {}
        self.groups: dict[int, Group] = {}
        self.directions: dict[Reduce, frozenset[str]] = {}
        self.scatterings: list[Scattering] = []
        self.inputs = frozenset(lowered.inputs)

    def run(self) -> Fused:
        self._find_uses()
        last = 0
        for position, definition in enumerate(self.lowered.definitions):
            if isinstance(definition, Called):
                level = 1 + self._level_of_call(definition)
                self._note_reading(
                    self._root(name) for name in references((definition.call.args, definition.call.kwargs))
                )
                if definition.has_effect:  # it runs behind the one before
                    level = last = max(level, last + 1)
                self.levels[definition.name] = level
            elif isinstance(definition, Generated) and definition.tensor.name in self.live:
                self._place(definition, position)
            elif isinstance(definition, Scattered) and definition.tensor.name in self.live:
                self._scatter(definition, position)
        return self._finish()

    # ---- who uses what

    def _root(self, name: str) -> str:
        """The value that a view is a view of, through all views."""
        found = self.roots.get(name)
        if found is None:
            chain = [name]
            while chain[-1] in self.views and chain[-1] not in self.roots:
                chain.append(self.views[chain[-1]].base)
            found = self.roots.get(chain[-1], chain[-1])
            self.roots.update(dict.fromkeys(chain, found))
        return found

    def _find_uses(self) -> None:
        """Fills `demanded` (needed in memory, by ATen or as an output), `live`, `uses` and `rounded`, users before
        producers. Rounded are halves whose last bit decides a result, and those of which they are computed. What
        decides may be computed of them in float32, as by `half.float().argmax()`, up to sums. What is stored in
        float32 is what eager stores, for whoever sorts it."""
        self._demand(self.lowered.outputs)
        for definition in reversed(self.lowered.definitions):
            if isinstance(definition, Called) and (definition.has_effect or definition.name in self.live):
                self._demand((definition.call.args, definition.call.kwargs))
            elif isinstance(definition, Generated) and definition.tensor.name in self.live:
                self._use(definition)
            elif isinstance(definition, Scattered) and definition.tensor.name in self.live:
                self._demand(Ref(definition.base))
                found = nodes(definition.update)
                self._know(found)
                self._count_uses(found, ranges_of(definition.over))

    def _demand(self, arguments: object) -> None:
        for name in references(arguments):
            self.live.update((name, self._root(name)))
            self.demanded.add(self._root(name))

    def _use(self, definition: Generated) -> None:
        tensor, found = definition.tensor, nodes(definition.expr)
        reductions = [node for node in found if isinstance(node, Reduce)]
        self._know(found)
        passes_on = tensor.name in self.deciding and not any(isinstance(node, Reduce | Scan) for node in found)
        deciding = elements(definition.expr) if passes_on else _deciding(definition.expr)
        self.deciding.update(self._root(read.tensor) for read in deciding if read.dtype.is_floating_point)
        is_stored = tensor.name in self.demanded and _is_widened_half(definition.expr)
        if tensor.name in self.rounded or is_stored or any(map(_is_half, deciding)):
            self.rounded.update(self._root(read.tensor) for read in elements(definition.expr) if _is_half(read))
        outer = frozenset().union(*(self.cost.loops_of(reduction) for reduction in reductions))
        axes = self.axes[tensor.name] = axes_of(tensor, outer, self.cost)
        self._count_uses(found, {f"d{dim}": numbers_of(tensor)[dim] for dim in (*axes, *_lane_of(tensor))})

    def _know(self, found: list[Expr]) -> None:
        """Learns of the variables that expressions bind."""
        for node in found:
            self.cost.ranges.update({loop.var: loop.extent for loop in loops_bound_by(node)})
        self.cost.note(found)

    def _count_uses(self, found: list[Expr], ranges: dict[str, Index]) -> None:
        """Counts what the expressions of one user, run over `ranges`, read."""
        counts: dict[str, int] = {}
        for node in found:
            if isinstance(node, Element):
                root = self._root(node.tensor)
                counts[root] = counts.get(root, 0) + self.cost.work(node, ranges) // weight(node)
        for root, evaluations in counts.items():
            use = self.uses.setdefault(root, _Use())
            use.users += 1
            use.evaluations += evaluations
            self.live.add(root)

    def _level_of_call(self, definition: Called) -> int:
        names = references((definition.call.args, definition.call.kwargs))
        return max((self.levels.get(self._root(name), 0) for name in names), default=0)

    # ---- one value

    def _place(self, definition: Generated, position: int) -> None:
        tensor = definition.tensor
        expr = self._resolve(definition)
        if tensor.name not in self.demanded and self._is_inlined(tensor, expr) and self._may_decide():
            self.inlined[tensor.name] = expr
            return
        self._join(tensor, expr, position)

    def _may_decide(self) -> bool:
        """Whether one more decision may be carried out, which is counted."""
        if self.decisions_left:
            self.decisions_left -= 1
            return True
        return False

    def _scatter(self, definition: Scattered, position: int) -> None:
        """Updates are never part of another kernel: what reads the tensor must see all of them."""
        update = self._expanded(definition.update, definition.over)
        read = [self._root(definition.base), *(element.tensor for element in elements(update))]
        self._note_reading(read)
        self.levels[definition.tensor.name] = 1 + max(self.levels.get(name, 0) for name in read)
        self.scatterings.append(Scattering(definition, update, position))

    def _resolve(self, definition: Generated) -> Expr:
        """The expression with views and inlined values replaced."""
        return self._expanded(definition.expr, numbers_of(definition.tensor))

    def _expanded(self, expr: Expr, shape: tuple[Index, ...]) -> Expr:
        ranges = ChainMap(ranges_of(shape), self.cost.ranges)
        return Expansion(lambda element: self._resolved(element, ranges))(expr)

    def _resolved(self, element: Element, ranges: ChainMap[str, Index]) -> tuple[Expr, bool] | None:
        name, at, is_conjugate = element.tensor, element.at, False
        while name in self.views:
            view = self.views[name]
            is_conjugate ^= view.is_conjugate
            values = {f"d{k}": index for k, index in enumerate(at)}
            name, at = view.base, tuple(substitute(index, values, ranges) for index in view.at)
        if name not in self.inlined:
            found: Expr = Element(name, at, element.dtype)
            return (_conjugate(found, at[-1]) if is_conjugate else found, True) if name != element.tensor else None
        keeps = self._keeps_rounding(name)
        found = self.inlined[name]
        if at != coordinates(len(at)):
            found = Substitution({f"d{k}": index for k, index in enumerate(at)}, ranges)(found)
        return _conjugate(found, at[-1]) if is_conjugate else found, keeps

    def _keeps_rounding(self, name: str) -> bool:
        return self.keep_rounding or name in self.rounded or self.generated[name].is_rounding

    def _is_inlined(self, tensor: Tensor, expr: Expr) -> bool:
        found = nodes(expr)
        if any(isinstance(node, Reduce | Scan) for node in found):
            return False
        most = MOST_INLINED.get(tensor.device.type, MOST_INLINED["cpu"])
        if len(found) > most or self.cost.depth(expr) > DEEPEST // 2:
            return False
        effort, reads = sum(weight(node) for node in found), sum(isinstance(node, Element) for node in found)
        if reads == 0 or (effort <= 3 and reads == 1):
            return True
        use = self.uses[tensor.name]
        times = use.evaluations / max(self.cost.count(numbers_of(tensor)), 1)
        if times < 1 and any(isinstance(node, Check) for node in found):
            return False  # what nobody reads is checked too
        if (times - 1) * effort <= WORK_OF_STORING:
            return True
        if times <= 3 and effort <= 4 and reads <= 2:
            return True
        if effort <= WORK_OF_INPUTS and use.users <= 2 and self._is_small_of_inputs(tensor, found):
            return True
        if times > 3:
            return False
        if effort <= number_on(tensor.device.type, "again_work") and self._moves_less(tensor, found, times):
            return True
        return effort <= number_on(tensor.device.type, "spread_work") and self._is_spread(tensor, found)

    def _moves_less(self, tensor: Tensor, found: list[Expr], times: float) -> bool:
        """Whether reading again what a value is computed from takes fewer bytes than storing it and reading that."""
        count, read = self.cost.count(numbers_of(tensor)), 0
        for element in elements(*found):
            source = self.lowered.tensors[element.tensor]
            read += min(count, self.cost.count(numbers_of(source))) * source.dtype.itemsize
        return times * read <= LESS * (read + (1 + times) * count * tensor.dtype.itemsize)

    def _is_small_of_inputs(self, tensor: Tensor, found: list[Expr]) -> bool:
        """Whether a value would be a kernel of its own that takes next to no time but for its launch."""
        if self.cost.count(numbers_of(tensor)) > number_on(tensor.device.type, "input_elements"):
            return False
        return all(element.tensor in self.inputs for element in found if isinstance(element, Element))

    def _is_spread(self, tensor: Tensor, found: list[Expr]) -> bool:
        """Whether a value is much larger than all that it is computed from, as an outer product is."""
        sources = {element.tensor for element in found if isinstance(element, Element)}
        read = sum(self.cost.count(numbers_of(self.lowered.tensors[name])) for name in sources)
        return SPREAD * read <= self.cost.count(numbers_of(tensor))

    # ---- groups

    def _join(self, tensor: Tensor, expr: Expr, position: int) -> None:
        """Makes a value a member of the first group that takes it."""
        axes = self.axes[tensor.name]
        read = elements(expr)
        if self.decisions_left and self._is_joined(tensor, expr, axes, read, position):
            self.decisions_left -= 1
            return
        level = 1 + max((self.levels.get(element.tensor, 0) for element in read), default=0)
        group = Group(level, tuple(tensor.shape[dim] for dim in axes))
        self.groups[id(group)] = group
        group.expansions[tensor.name] = _over_loops(group, tensor, expr, axes, self.cost.ranges)
        group.seen.update(nodes(group.expansions[tensor.name]))
        self._added(group, tensor, read, position)

    def _is_joined(self, tensor: Tensor, expr: Expr, axes: tuple[int, ...], read: list[Element], position: int) -> bool:
        """Whether some group takes the value, which is then a member of it."""
        for group in self._candidates(read):
            if self._try(group, tensor, expr, axes, read):
                self._added(group, tensor, read, position)
                return True
        joined = self._joined_producers(read)
        if joined is not None and self._try(joined[0], tensor, expr, axes, read):
            self._replace(*joined)
            self._added(joined[0], tensor, read, position)
            return True
        for group in self._risable(read):
            if self._try(group, tensor, expr, axes, read, may_rise=True):
                self._added(group, tensor, read, position)
                return True
        return False

    def _note_reading(self, names: Iterable[str], by: Group | None = None) -> None:
        """Values are read outside of the groups that compute them, which stay where they are then."""
        for group in map(self.group_of.get, names):
            if group is not None and group is not by:
                group.is_read = True

    def _added(self, group: Group, tensor: Tensor, read: list[Element], position: int) -> None:
        self._note_reading((element.tensor for element in read), group)
        group.position = position
        self.group_of[tensor.name] = group
        self.levels[tensor.name] = group.level
        for element in read:
            if element.tensor not in group.expansions:
                self.readers[element.tensor] = group

    def _candidates(self, read: list[Element]) -> Iterator[Group]:
        """The groups that computed what a value reads, then those that read the same, each once."""
        producers = {id(g): g for e in read if (g := self.group_of.get(e.tensor)) is not None}
        yield from sorted(producers.values(), key=lambda group: -group.level)
        readers = {id(g): g for e in read if (g := self.readers.get(e.tensor)) is not None}
        yield from (group for key, group in readers.items() if key not in producers)

    def _joined_producers(self, read: list[Element]) -> tuple[Group, list[Group]] | None:
        """The groups of the highest level that computed what a value reads as one, and they; None where they are not
        over the same loops. Of one level none can need another."""
        producers = list({id(g): g for e in read if (g := self.group_of.get(e.tensor)) is not None}.values())
        level = max((group.level for group in producers), default=0)
        producers = [group for group in producers if group.level == level]
        domain = max((group.domain for group in producers), key=len, default=())
        if len(producers) < 2 or any(group.domain != domain[: len(group.domain)] for group in producers):
            return None
        joined = Group(level, domain)
        for group in producers:
            if self._is_crossed(joined, group.seen):
                return None
            joined.expansions.update(group.expansions)
            joined.seen.update(group.seen)
        return (joined, producers) if self._scans_fit(joined, joined.seen) else None

    def _replace(self, joined: Group, parts: list[Group]) -> None:
        """Lets one group stand where several did."""
        gone = {id(group) for group in parts}
        joined.is_read = any(group.is_read for group in parts)
        for group in parts:
            del self.groups[id(group)]
        self.groups[id(joined)] = joined
        for group in parts:
            self.group_of.update(dict.fromkeys((n for n in group.expansions if self.group_of[n] is group), joined))
            for element in elements(*group.expansions.values()):
                if id(self.readers.get(element.tensor)) in gone:
                    self.readers[element.tensor] = joined

    def _try(
        self,
        group: Group,
        tensor: Tensor,
        expr: Expr,
        axes: tuple[int, ...],
        read: list[Element],
        may_rise: bool = False,
    ) -> bool:
        """Adds a value to a group, if it may and if it pays; with `may_rise` also one that reads what comes later."""
        outside = [element.tensor for element in read if element.tensor not in group.expansions]
        level = max(group.level, 1 + max((self.levels.get(name, 0) for name in outside), default=0))
        if level > group.level and not may_rise:
            return False
        domain = merged_domain(group.domain, tuple(tensor.shape[dim] for dim in axes))
        if domain is None or not self._is_parallel(group, domain, expr, tensor):
            return False
        wider = Group(level, domain)
        placed = _over_loops(wider, tensor, expr, axes, self.cost.ranges)
        if not self._lines_up(group, wider, placed):
            return False
        expansion = self._expand(group, wider, placed)
        fresh = self._fresh(group, expansion)
        if not self._scans_fit(wider, (*group.seen, *fresh)) or self._is_crossed(group, fresh):
            return False
        if not self._pays(group, wider, placed, expansion, fresh):
            return False
        group.domain = domain
        group.expansions[tensor.name] = expansion
        group.seen.update(fresh)
        group.level = level
        self.levels.update(dict.fromkeys(group.expansions, level))
        return True

    def _risable(self, read: list[Element]) -> list[Group]:
        """The groups that computed what a value reads and may do so later.

        Nothing else has read them yet, and what they read takes no more memory meanwhile than they do themselves.
        """
        producers = {id(g): g for e in read if (g := self.group_of.get(e.tensor)) is not None}
        return [group for group in producers.values() if not group.is_read and self._grows(group)]

    def _grows(self, group: Group) -> bool:
        """Whether a group takes no less memory than what it reads."""
        sources = {element.tensor for element in elements(*group.expansions.values())} - group.expansions.keys()
        return self._bytes(sources) <= self._bytes(group.expansions)

    def _bytes(self, names: Iterable[str]) -> int:
        tensors = (self.lowered.tensors[name] for name in names)
        return sum(self.cost.count(tensor.shape) * tensor.dtype.itemsize for tensor in tensors)

    def _is_crossed(self, group: Group, fresh: Iterable[Expr]) -> bool:
        """Whether some reductions would run along the memory that they read and others across it.

        One loop over both would read the one or the other an element to a cache line.
        """
        added = self._directions(fresh)
        return bool(added) and len(added | self._directions(group.seen)) > 1

    def _directions(self, found: Iterable[Expr]) -> set[str]:
        reductions = [node for node in found if isinstance(node, Reduce)]
        return {direction for node in reductions for direction in self._direction(node)}

    def _direction(self, reduction: Reduce) -> frozenset[str]:
        known = self.directions.get(reduction)
        if known is None:
            own = {loop.var for loop in reduction.loops}
            moving = [element for element in elements(reduction.body) if _moves(element, own)]
            wide = [element for element in moving if _moves_beyond(element, own)]  # others are read again and again
            steps = map(self._contiguous_loops, wide or moving)
            known = self.directions[reduction] = frozenset(
                "along" if step & own else "across" for step in steps if step
            )
        return known

    def _contiguous_loops(self, element: Element) -> frozenset[str]:
        """The loops that step through neighbours in memory."""
        tensor = self.lowered.tensors[element.tensor]
        dims = zip(element.at[: len(tensor.shape)], tensor.stride, tensor.shape, strict=True)
        return frozenset().union(*(symbols(at) for at, stride, extent in dims if stride is ONE and extent is not ONE))

    def _is_parallel(self, group: Group, domain: tuple[Index, ...], expr: Expr, tensor: Tensor) -> bool:
        """Whether outer loops that hold a reduction leave enough iterations to run at once."""
        own = self.cost.count(tensor.shape)
        shortest = min(own, self.cost.count(group.domain))
        whole = self.cost.count(domain)
        has_reduce = any(isinstance(node, Reduce) for node in (*group.seen, *nodes(expr)))
        if not has_reduce or shortest == whole or whole <= number("launch_work"):
            return True
        return shortest >= number("parallel_iterations")

    def _lines_up(self, group: Group, wider: Group, placed: Expr) -> bool:
        """Whether every member is read at the group's own loops, or at those with inner ones reduced over."""
        for element in elements(placed):
            if element.tensor not in group.expansions:
                continue
            at = self._at_axes(element)
            fitting = merged_domain(wider.domain, tuple(extent for _, extent in at))
            if fitting is None:
                return False
            own = _linear(wider.domain, tuple(extent for _, extent in at))
            for (index, _), expected in zip(at, own, strict=True):
                if index is not expected and (not self._is_reduced(index) or self._is_other(element, group)):
                    return False
        return True

    def _is_other(self, element: Element, group: Group) -> bool:
        """Whether a member, computed once more within a reduction over it, may be another number there.

        A sum is added up in an order of its own, and what is equal to the largest of some sums must be one of them.
        """
        name = element.tensor
        if name not in self.demanded and self.uses[name].users == 1:
            return False
        moved = {loop for loop, place in self._loop_values(element, group).items() if place is not Symbol(loop)}
        sums = [n for n in nodes(group.expansions[name]) if isinstance(n, Reduce | Scan) and n.op not in EXACT]
        return any(self.cost.loops_of(node) & moved for node in sums)

    def _scans_fit(self, group: Group, found: Iterable[Expr]) -> bool:
        """Whether the scans among some expressions all run along one loop of a group, and vary with all loops within
        that.

        No reduction may be beside them. What reads them along a row of its own would be walked across its rows.
        """
        found = list(found)
        scans = [node for node in found if isinstance(node, Scan)]
        if not scans:
            return True
        inner = {Symbol(node.loop.var) for node in scans}
        outer = [node for node in scans if node.last not in inner]
        if len({node.last for node in outer}) != 1 or any(isinstance(node, Reduce) for node in found):
            return False
        names = list(group.ranges)
        along = next((name for name in names if Symbol(name) is outer[0].last), None)
        if along is None:
            return False
        within = frozenset(names[names.index(along) :])
        return all(group.ranges[along] is node.loop.extent and within <= self.cost.loops_of(node) for node in outer)

    def _is_reduced(self, index: Index) -> bool:
        """Whether an index is the variable of a reduction's loop."""
        return bool(symbols(index)) and symbols(index) <= self.cost.ranges.keys()

    def _at_axes(self, element: Element) -> list[tuple[Index, Index]]:
        """The index and extent of each axis of a member that is read."""
        tensor = self.lowered.tensors[element.tensor]
        return [(element.at[dim], tensor.shape[dim]) for dim in self.axes[element.tensor]]

    def _expand(self, group: Group, wider: Group, placed: Expr) -> Expr:
        """The value with the members that it reads replaced by what they are computed from."""
        ranges = ChainMap(wider.ranges, self.cost.ranges)

        def lookup(element: Element) -> tuple[Expr, bool] | None:
            if element.tensor not in group.expansions:
                return None
            values = self._loop_values(element, group)
            expansion = group.expansions[element.tensor]
            if any(values[name] is not Symbol(name) for name in values):
                expansion = Substitution(values, ranges)(expansion)
            return expansion, self._keeps_rounding(element.tensor)

        return Expansion(lookup)(placed)

    def _loop_values(self, element: Element, group: Group) -> dict[str, Index]:
        """What each loop variable of a member's expansion stands for where it is read."""
        values: dict[str, Index] = {}
        loop = 0
        for index, extent in self._at_axes(element):
            parts, loop = _consumed(group.domain, loop, extent)
            for part in parts:
                weight_after: Index = ONE
                for later in parts:
                    weight_after = weight_after * group.domain[later] if later > part else weight_after
                whole = len(parts) == 1
                ranges = ChainMap(group.ranges, self.cost.ranges)
                place = index if whole else substitute(_digit(index, weight_after, group.domain[part]), {}, ranges)
                values[f"i{part}"] = place
        if self.lowered.tensors[element.tensor].dtype.is_complex:
            values[LANE.name] = element.at[-1]
        return values

    def _fresh(self, group: Group, expansion: Expr) -> list[Expr]:
        """The nodes of an expansion that the group does not compute yet."""
        fresh: dict[Expr, None] = {}

        def visit(expr: Expr) -> None:
            if expr not in group.seen and expr not in fresh:
                fresh[expr] = None
                for child in children(expr):
                    visit(child)

        visit(expansion)
        return list(fresh)

    def _pays(self, group: Group, wider: Group, placed: Expr, expansion: Expr, fresh: list[Expr]) -> bool:
        """Whether computing a value here costs no more than reading its operands in a kernel of its own."""
        depth = self.cost.depth(expansion)
        is_there = len(fresh) <= FEW_NODES and depth <= max(map(self.cost.depth, group.expansions.values()))
        if not is_there and (len(group.seen) + len(fresh) > MOST_MEMBERS_NODES or depth > DEEPEST):
            return False
        ranges, own = wider.ranges, nodes(placed)
        self.cost.note((*own, *fresh))
        here = sum(self.cost.work(node, ranges) for node in fresh)
        alone = sum(self.cost.work(node, ranges) for node in own)
        return here <= 3 * alone + number("launch_work") + self._replaced_work(group, ranges, elements(placed))

    def _replaced_work(self, group: Group, ranges: dict[str, Index], read: list[Element]) -> int:
        """What computing the members costs that nothing but the value reads: they become part of it."""
        names = {element.tensor for element in read} & group.expansions.keys() - self.demanded
        expansions = [group.expansions[name] for name in names if self.uses[name].users == 1]
        return sum(self.cost.work(node, ranges) for node in nodes(*expansions))

    # ---- the result

    def _finish(self) -> Fused:
        needed = set(self.demanded)
        needed.update(element.tensor for each in self.scatterings for element in elements(each.update))
        kept = []
        for group in reversed(sorted(self.groups.values(), key=lambda group: (group.level, group.position))):
            stored = {name: expr for name, expr in group.expansions.items() if name in needed}
            if stored:
                group.expansions = stored
                needed.update(element.tensor for element in elements(*stored.values()))
                kept.append(group)
        scatterings = tuple(self.scatterings)
        return Fused(self.lowered, tuple(reversed(kept)), scatterings, frozenset(needed), self.axes, self.keep_rounding)


def _lane_of(tensor: Tensor) -> tuple[int, ...]:
    """The number of the coordinate that is the lane of a complex tensor."""
    return (len(tensor.shape),) if tensor.dtype.is_complex else ()


def _conjugate(expr: Expr, lane: Index) -> Expr:
    """A number of a complex one's conjugate."""
    if lane is ZERO:
        return expr
    negated = call("neg", expr)
    return negated if lane is ONE else on_lane(lane, expr, negated)


def _moves(element: Element, loops: set[str]) -> bool:
    """Whether an element is another one as a loop of `loops` goes on."""
    return any(symbols(at) & loops for at in element.at)


def _moves_beyond(element: Element, loops: set[str]) -> bool:
    """Whether an element is another one as loops that are not in `loops` go on."""
    return any(symbols(at) - loops for at in element.at)


def _digit(index: Index, weight_after: Index, extent: Index) -> Index:
    return (index // weight_after) % extent


def _consumed(domain: tuple[Index, ...], loop: int, extent: Index) -> tuple[list[int], int]:
    """The loops from `loop` on whose sizes multiply to `extent`, and the loop after them."""
    parts, size = [loop], domain[loop]
    while size is not extent:
        parts.append(parts[-1] + 1)
        size = size * domain[parts[-1]]
    return parts, parts[-1] + 1


def merged_domain(domain: tuple[Index, ...], extents: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """The loops for a group over `domain` and a value of `extents`: one is the other, or its outer loops; an extent
    may be the product of several loops. None where they differ."""
    loop = 0
    for position, extent in enumerate(extents):
        if loop == len(domain):
            return (*domain, *extents[position:])
        size, loop = domain[loop], loop + 1
        while size is not extent:
            if loop == len(domain):
                return None
            size, loop = size * domain[loop], loop + 1
    return domain


def _linear(domain: tuple[Index, ...], extents: tuple[Index, ...]) -> list[Index]:
    """The index of each extent in terms of the loops of a domain that `merged_domain` gave for it."""
    found: list[Index] = []
    loop = 0
    for extent in extents:
        parts, loop = _consumed(domain, loop, extent)
        index: Index = ZERO
        for part in parts:
            index = index * domain[part] + Symbol(f"i{part}")
        found.append(index)
    return found


def _over_loops(group: Group, tensor: Tensor, expr: Expr, axes: tuple[int, ...], bound: dict[str, Index]) -> Expr:
    """A value over the coordinates of its tensor as a value over the loops of a group."""
    values: dict[str, Index] = {f"d{dim}": ZERO for dim in range(len(tensor.shape))}
    places = _linear(group.domain, tuple(tensor.shape[dim] for dim in axes))
    values.update({f"d{dim}": place for dim, place in zip(axes, places, strict=True)})
    values.update({f"d{dim}": LANE for dim in _lane_of(tensor)})
    return Substitution(values, ChainMap(group.ranges, bound))(expr)


def place_of(tensor: Tensor, axes: tuple[int, ...], domain: tuple[Index, ...]) -> tuple[Index, ...]:
    """The coordinates of a member's tensor in terms of the loops of its group."""
    at: list[Index] = [ZERO] * len(tensor.shape)
    for dim, index in zip(axes, _linear(domain, tuple(tensor.shape[dim] for dim in axes)), strict=True):
        at[dim] = index
    return tuple(at)
