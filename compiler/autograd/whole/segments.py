"""`cut`: a backward as stretches of pure steps between the ordered ones.

    formula formula accumulate formula tensor_pre_hook formula accumulate
    [formula formula formula] accumulate  tensor_pre_hook  [formula] accumulate

A stretch is traced and compiled as one graph. Steps of the user's, and those that only another compiler can run, stay
calls. A gradient is accumulated once its stretch has run: nothing of the user's can see between the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay.compiler.ir.graph.backward.engine_steps import (
    Accumulated,
    Backward,
    Made,
    Ordered,
    Part,
    Step,
    Stretch,
    Value,
    is_number,
    values_in,
)


def cut(backward: Backward) -> tuple[Part, ...]:
    """The parts of a backward in the order in which they run, without what nobody reads."""
    live = _live(backward)
    grouped = list(_grouped(backward, live))
    read = [set(_read(backward, group)) for group in grouped]
    after: set[Value] = set(values_in(backward.outputs))
    parts: list[Part] = []
    for group, reads in zip(reversed(grouped), reversed(read), strict=True):
        if backward.steps[group[0]].is_pure:
            gives = tuple(made for made in _made(backward, group) if made in after)
            ordered = sorted(reads, key=_name)
            takes = tuple(value for value in ordered if not is_number(value))
            parts.append(Stretch(tuple(group), takes, gives, tuple(filter(is_number, ordered))))
        else:
            parts.append(Ordered(group[0]))
        after |= reads
    return tuple(reversed(parts))


def leaves_behind(backward: Backward, parts: Sequence[Part]) -> dict[int, list[list[int]]]:
    """For each stretch, by its number, the leaves of one compiled call right behind it, if they have hooks."""
    numbers = (number for number, part in enumerate(parts) if isinstance(part, Stretch))
    found = {number: _leaves_behind(backward, parts, number) for number in numbers}
    return {number: groups for number, groups in found.items() if groups}


def _leaves_behind(backward: Backward, parts: Sequence[Part], number: int) -> list[list[int]]:
    """The parts right behind a stretch that are of leaves of one compiled call, leaf by leaf; [] without hooks there.

    The engine knows the leaves of such a call in no order but that of its inputs.
    """
    stretch = parts[number]
    own = set(stretch.steps) if isinstance(stretch, Stretch) else set()
    groups: dict[int, list[int]] = {}
    calls: set[int] = set()
    hooks = 0
    for position in range(number + 1, len(parts)):
        part = parts[position]
        step = backward.steps[part.step] if isinstance(part, Ordered) else None
        if step is None or step.kind not in OF_LEAVES:
            break
        if step.node not in groups:
            call = _call_behind(backward, own, step)
            if call is None or not calls <= {call}:
                break
            calls.add(call)
        hooks += step.kind != "accumulate"
        groups.setdefault(step.node, []).append(position)
    return list(groups.values()) if hooks and len(groups) > 1 else []


OF_LEAVES = ("tensor_pre_hook", "pre_hook", "accumulate", "post_accumulate_hook", "post_hook")


def _call_behind(backward: Backward, stretch: set[int], step: Step) -> int | None:
    """The node of the compiled call that alone gives a leaf's gradient, in a stretch; None where there is none."""
    sources = [value for value in values_in(step.gradients) if isinstance(value, Made)]
    if len(sources) != 1 or sources[0].step not in stretch or step.node not in backward.leaves:
        return None
    last = backward.last_read[sources[0]]
    if last == len(backward.steps) or backward.steps[last].node != step.node:
        return None
    node = backward.steps[sources[0].step].node
    return node if node in backward.calls else None


def _live(backward: Backward) -> set[int]:
    """The steps that are ordered, and the pure ones that lead to one of these or to an output."""
    live = {position for position, step in enumerate(backward.steps) if not step.is_pure}
    wanted = {value.step for value in values_in(backward.outputs) if isinstance(value, Made)}
    for position in reversed(range(len(backward.steps))):
        if position in wanted or position in live:
            live.add(position)
            wanted.update(value.step for value in backward.reads[position] if type(value) is Made)
    return live


def _grouped(backward: Backward, live: set[int]) -> Iterator[list[int]]:
    """Groups of steps: the pure ones up to the next that is a call, that call, and accumulations behind the pure ones
    before them."""
    pure: list[int] = []
    waiting: list[int] = []

    def flush() -> Iterator[list[int]]:
        if pure:
            yield list(pure)
        yield from ([each] for each in waiting)
        pure.clear()
        waiting.clear()

    for position in sorted(live):
        step = backward.steps[position]
        if step.is_pure:
            if any(type(value) is Accumulated for value in backward.reads[position]):
                yield from flush()
            pure.append(position)
        elif step.kind == "accumulate":
            waiting.append(position)
        else:
            yield from flush()
            yield [position]
    yield from flush()


def _read(backward: Backward, group: Sequence[int]) -> Iterator[Value]:
    """What a group takes that it does not make itself."""
    own = set(group)
    for position in group:
        for value in backward.reads[position]:
            if type(value) is not Made or value.step not in own:
                yield value


def _made(backward: Backward, group: Sequence[int]) -> Iterator[Made]:
    for position in group:
        for item in range(backward.steps[position].count):
            yield Made(position, item)


def _name(value: Value) -> tuple[object, ...]:
    """What values are sorted by."""
    return type(value).__name__, *(getattr(value, name) for name in value.__slots__)
