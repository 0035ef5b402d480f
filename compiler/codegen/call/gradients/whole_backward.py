"""`emit_backward`: a backward's parts as one straight-line function, which the engine calls.

    def whole_backward(inputs, sizes, scalars, hooks, packed):
        input_0, input_1, input_2 = inputs
        inputs.clear()
        given = [input_0, input_1]
        del input_1
        made_4_0, made_6_0 = stretch_0(given, (sizes[0], sizes[3]))
        made_7_0 = tensor_pre_hook(hooks[0], made_6_0)  # MulBackward0 (3)
        box = [made_7_0]
        del made_7_0
        accumulate(input_2, box)  # torch::autograd::AccumulateGrad (4)
        return [made_4_0]

Each value is dropped behind its last reader, so that memory is free again and a gradient that nobody else holds can be
taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from assay.compiler.codegen.call.source import LITERALS, Source
from assay.compiler.ir.graph.backward.engine_steps import (
    Accumulated,
    Backward,
    CallSize,
    Computed,
    Hook,
    Leaf,
    Made,
    Ordered,
    Packed,
    Part,
    Saved,
    Scalar,
    Size,
    Step,
    Stretch,
    Value,
    values_in,
)
from assay.compiler.runtime import engine_calls

Leaves = Mapping[int, Sequence[Sequence[int]]]
RunRest = Callable[..., list[Any]]
MakeStretch = Callable[[Stretch, tuple[tuple[int, ...], ...]], Callable[..., Any]]
"""What runs a stretch, given the leaves that it gives gradients to one by one, by the places of these."""


def emit_backward(
    backward: Backward, parts: Sequence[Part], leaves: Leaves, inputs: int, stretch: MakeStretch, rest: RunRest | None
) -> Source:
    """The text of the function, and what it names; `stretch` gives what runs a stretch, `rest` runs what is left where
    hooks have changed. `leaves` are, for a stretch by its number, the parts behind it, leaf by leaf."""
    return _Emission(backward, parts, leaves, stretch, rest).run(inputs)


class _Emission:
    def __init__(
        self, backward: Backward, parts: Sequence[Part], leaves: Leaves, stretch: MakeStretch, rest: RunRest | None
    ) -> None:
        self.backward, self.parts, self.leaves = backward, parts, leaves
        self.stretch, self.rest = stretch, rest
        self.source = Source()
        self.last = self._last_readers()
        self.held = self._held_to_versions()
        self.begun: set[object] = set()
        self.depth = 1
        self.own: set[str] | None = None

    def _last_readers(self) -> dict[str, int]:
        """For each variable the number of the part that reads it last."""
        last: dict[str, int] = {}
        for number, part in enumerate(self.parts):
            for name in self._variables(part):
                last[name] = number
        for value in values_in(self.backward.outputs):
            last[self._text(value)] = len(self.parts)
        return last

    def _held_to_versions(self) -> dict[int, list[Value]]:
        """For each part behind a call of the user's, by its number, the saved tensors that such a call may have written
        before it."""
        held: dict[int, list[Value]] = {}
        is_behind = False
        for number, part in enumerate(self.parts):
            steps = [self.backward.steps[n] for n in (part.steps if isinstance(part, Stretch) else (part.step,))]
            if is_behind:
                read = values_in([step.saved for step in steps])
                held[number] = [value for value in dict.fromkeys(read) if isinstance(value, (Leaf, Saved))]
            is_behind |= not all(step.is_pure or step.kind == "accumulate" for step in steps)
        return held

    def _check_versions(self, number: int) -> None:
        for value in self.held.get(number, ()):
            check, name = self.source.bind("check_version", engine_calls.check_version), self._text(value)
            self._line(f"{check}({name}, version_of_{name})")

    def _variables(self, part: Part) -> Iterator[str]:
        values: Any = part.takes if isinstance(part, Stretch) else self.backward.steps[part.step].arguments
        for value in values_in(values):
            if isinstance(value, (Leaf, Saved, Made)):
                yield self._text(value)
            elif isinstance(value, Accumulated):
                yield self._text(self._leaf_of(value))

    def _leaf_of(self, value: Accumulated) -> Value:
        leaf: Value = self.backward.steps[value.step].arguments[0]
        return leaf

    def run(self, inputs: int) -> Source:
        line = self.source.line
        line(0, "def whole_backward(inputs, sizes, scalars, hooks, packed):")
        if self.backward.guards:
            tests = (f"{self._text(number)} != {answer!r}" for number, answer in self.backward.guards)
            line(1, f"if {' or '.join(tests)}: raise {self.source.bind('Outdated', engine_calls.Outdated)}")
        names = [f"input_{index}" if f"input_{index}" in self.last else "_" for index in range(inputs)]
        if names:
            line(1, f"({', '.join(names)},) = inputs")
            line(1, "inputs.clear()")
        for name in dict.fromkeys(self._text(value) for values in self.held.values() for value in values):
            line(1, f"version_of_{name} = {name}._version")
        behind = 0
        for number, part in enumerate(self.parts):
            if number < behind:
                continue
            if not isinstance(part, Stretch):
                behind = self._accumulations_from(number)
                if behind > number + 1:
                    self._accumulate_each(range(number, behind))
                else:
                    self._ordered(number, part)
            elif groups := self.leaves.get(number):
                self._by_leaves(number, part, groups)
                behind = groups[-1][-1] + 1
            else:
                self._stretch(number, part)
        line(1, f"return [{', '.join(map(self._text, self.backward.outputs))}]")
        return self.source

    def _stretch(self, number: int, part: Stretch) -> None:
        line = self.source.line
        run = self.source.bind(f"stretch_{number}", self.stretch(part, ()))
        self._check_versions(number)
        line(1, f"given = [{', '.join(map(self._text, part.takes))}]")
        self._drop(number, part)
        numbers = self._text(part.numbers)
        made = "".join(f"{self._text(value)}, " for value in part.gives)
        line(1, f"{'(' * bool(made)}{made}{') = ' * bool(made)}{run}(given, {numbers})")

    def _by_leaves(self, number: int, part: Stretch, groups: Sequence[Sequence[int]]) -> None:
        """A stretch that gives the gradients of leaves one by one, to a function for each leaf with its hooks.

        def leaf_0(made_4_0): ...
        def leaf_1(made_4_1): ...
        for leaf, values in stretch_0(given, numbers, (input_1, input_2), left):
            (leaf_0, leaf_1)[leaf](values)
        (made_4_2,) = left
        """
        places = {value: place for place, value in enumerate(part.gives)}
        taken = [self._gradient_of(group[0]) for group in groups]
        for group, value in zip(groups, taken, strict=True):
            self._leaf(group, value)
        run = self.source.bind(f"stretch_{number}", self.stretch(part, tuple((places[value],) for value in taken)))
        self._check_versions(number)
        self._line(f"given = [{', '.join(map(self._text, part.takes))}]")
        self._drop(number, part)
        self._line("left = []")
        leaves = "".join(f"{self._text(self._leaf_in(group))}, " for group in groups)
        self._line(f"leaves = {run}(given, {self._text(part.numbers)}, ({leaves}), left)")
        self._line("done = []")
        self._line("for leaf, values in leaves:")
        self._line(f"    ({', '.join(f'leaf_{group[0]}' for group in groups)},)[leaf](values)")
        self._line("    done.append(leaf)")
        self._resumed(number, groups, taken, [self._text(value) for value in part.gives if value not in taken])
        behind = [position for group in groups for position in group]
        inner = {self._text(value) for value in taken}.union(*map(self.made_by, behind))
        for position in behind:
            self._drop(position, self.parts[position], inner)

    def _resumed(
        self, number: int, groups: Sequence[Sequence[int]], taken: Sequence[Value], left: Sequence[str]
    ) -> None:
        """What follows where hooks have changed behind one of the leaves, and what the stretch gives to nobody else."""
        names = "".join(f"{name}, " for name in left)
        if self.rest is not None:
            changes, rest = self.source.bind("changes", engine_calls.changes), self.source.bind("rest", self.rest)
            values = "".join(f"{self._text(value)!r}, " for value in taken)
            self._line(f"    if {changes}:")
            self._line(f"        more = {{({values})[leaf]: values[0] for leaf, values in leaves}}")
            self._line(f"        more |= zip({tuple(left)!r}, left)")
            behind = [[self.parts[each].step for each in group] for group in groups]  # type: ignore[union-attr]
            self._line(f"        return {rest}({number + 1}, locals() | more, {behind!r}, done)")
        if left:
            self._line(f"({names}) = left")

    def _leaf(self, group: Sequence[int], gradient: Value) -> None:
        """The function of a leaf: its hooks and its accumulation."""
        self._line(f"def leaf_{group[0]}(values):")
        self.depth, self.own = 2, {self._text(gradient)}
        self._line(f"{self._text(gradient)} = values.pop()")
        for position in group:
            part = self.parts[position]
            assert isinstance(part, Ordered)
            self.own |= self.made_by(position)
            self._ordered(position, part)
        self.depth, self.own = 1, None

    def made_by(self, number: int) -> set[str]:
        """The variables that a part makes."""
        part = self.parts[number]
        if isinstance(part, Stretch):
            return set(map(self._text, part.gives))
        return {f"made_{part.step}_{item}" for item in range(self.backward.steps[part.step].count)}

    def _leaf_in(self, group: Sequence[int]) -> Value:
        """The leaf that one of these parts accumulates into."""
        steps = (
            self.backward.steps[part.step] for part in map(self.parts.__getitem__, group) if isinstance(part, Ordered)
        )
        leaf: Value = next(step.arguments[0] for step in steps if step.kind == "accumulate")
        return leaf

    def _gradient_of(self, number: int) -> Made:
        """The gradient that comes to a leaf, at the first of its parts."""
        part = self.parts[number]
        assert isinstance(part, Ordered)
        return next(value for value in values_in(self.backward.steps[part.step].gradients) if isinstance(value, Made))

    def _line(self, text: str) -> None:
        self.source.line(self.depth, text)

    def _is_droppable(self, name: str) -> bool:
        """Whether a variable may be deleted here: in the function of a leaf, its own alone."""
        return self.own is None or name in self.own

    def _ordered(self, number: int, part: Ordered) -> None:
        step = self.backward.steps[part.step]
        self._check_versions(number)
        if step.kind == "accumulate":
            self._accumulate(number, part, step)
            return
        arguments = list(map(self._text, step.arguments))
        if step.kind == "tensor_pre_hook":
            arguments.pop()
        arguments += self._gone(step)
        function = step.function if step.kind == "opaque" else engine_calls.CALLS[step.kind]
        call = f"{self.source.bind(step.kind, function)}({', '.join(arguments)})"
        is_missing = self._missing(part.step, step)
        if is_missing:
            call = f"{arguments[1] if step.count else None} if {is_missing} else {call}"
        self._line(f"{self._taken(part.step, step)}{call}  # {step.label} ({step.node})")
        self._drop(number, part)
        unread = [f"made_{part.step}_{item}" for item in range(step.count)]
        for name in unread:
            if name not in self.last:
                self._line(f"del {name}")
        if self.rest is not None and step.kind != "retain_grad" and self.own is None:
            changes, rest = self.source.bind("changes", engine_calls.changes), self.source.bind("rest", self.rest)
            self._line(f"if {changes}: return {rest}({number + 1}, locals())")

    def _gone(self, step: Step) -> list[str]:
        """The variable with the hooks that were taken away before the first of a tensor's or a node's was called; []
        where there is one alone. In front of the first it is made."""
        owner = step.hooks
        if owner is None or self.backward.hooks[owner] == 1:
            return []
        if owner not in self.begun:
            self.begun.add(owner)
            self._line(f"gone = {self.source.bind('removed', engine_calls.removed)}.copy()")
        return ["gone"]

    def _missing(self, position: int, step: Step) -> str:
        """The test that eager would not come to a hook, as its gradients are missing; "" where eager always does."""
        if step.kind == "post_accumulate_hook":
            before = self._accumulation(position, step)
            return "" if before is None else f"not reached_{before}"
        if step.kind not in ("tensor_pre_hook", "pre_hook", "post_hook"):
            return ""
        given = [value for value in values_in(step.gradients) if not isinstance(value, Hook)]
        if not given or not all(value in self.backward.behind_ours for value in given):
            return ""
        return " and ".join(f"{self._text(value)} is None" for value in given)

    def _accumulation(self, position: int, step: Step) -> int | None:
        """The accumulation before a hook of a leaf, if its gradient may be missing."""
        for before in range(position - 1, -1, -1):
            other = self.backward.steps[before]
            if other.kind == "accumulate" and other.arguments[0] == step.arguments[1]:
                return before if other.arguments[1] in self.backward.behind_ours else None
        return None

    def _taken(self, position: int, step: Step) -> str:
        names = [f"made_{position}_{item}" for item in range(step.count)]
        if step.kind in ("tensor_pre_hook", "retain_grad", "unpack"):
            return f"{names[0]} = "
        return f"({', '.join(names)},) = " if names else ""

    def _accumulate(self, number: int, part: Ordered, step: Step) -> None:
        leaf, gradient = step.arguments
        self._line(f"box = [{self._text(gradient)}]")
        if gradient in self.backward.behind_ours:
            self._line(f"reached_{part.step} = {self._text(gradient)} is not None")
        if self.last.get(self._text(gradient)) == number and self._is_droppable(self._text(gradient)):
            self._line(f"del {self._text(gradient)}")
        run = self.source.bind("accumulate", engine_calls.accumulate)
        shown = ", True" * self._is_shown(step)
        self._line(f"{run}({self._text(leaf)}, box{shown})  # {step.label} ({step.node})")
        if self.last.get(self._text(leaf)) == number and self._is_droppable(self._text(leaf)):
            self._line(f"del {self._text(leaf)}")

    def _is_shown(self, step: Step) -> bool:
        """Whether the gradient of an accumulation is given to hooks behind the leaf's node too."""
        return (step.node, "post_hook") in self.backward.hooks

    def _accumulations_from(self, number: int) -> int:
        """The number behind the last of the accumulations that follow each other from this part on."""
        first = number
        while number < len(self.parts):
            part = self.parts[number]
            step = None if isinstance(part, Stretch) else self.backward.steps[part.step]
            if step is None or step.kind != "accumulate" or (number > first and self._is_shown(step)):
                break
            number += 1
            if self._is_shown(step):
                break
        return number

    def _accumulate_each(self, numbers: Sequence[int]) -> None:
        """Accumulations that follow each other, as one call.

        gradients = [made_4_0, made_4_1]
        del made_4_0, made_4_1
        accumulate_each((input_1, input_2), gradients)
        """
        steps = [(number, self.backward.steps[self.parts[number].step]) for number in numbers]  # type: ignore[union-attr]
        pairs = [(number, self._text(step.arguments[0]), self._text(step.arguments[1])) for number, step in steps]
        for (number, step), (_, _, gradient) in zip(steps, pairs, strict=True):
            if step.arguments[1] in self.backward.behind_ours:
                self._line(f"reached_{self.parts[number].step} = {gradient} is not None")  # type: ignore[union-attr]
        self._line(f"gradients = [{', '.join(gradient for _, _, gradient in pairs)}]")
        self._forget(gradient for number, _, gradient in pairs if self.last.get(gradient, -1) in numbers)
        run = self.source.bind("accumulate_each", engine_calls.accumulate_each)
        self._line(f"{run}(({''.join(f'{leaf}, ' for _, leaf, _ in pairs)}), gradients)")
        self._forget(leaf for number, leaf, _ in pairs if self.last.get(leaf, -1) in numbers)

    def _forget(self, names: Iterable[str]) -> None:
        if found := list(dict.fromkeys(names)):
            self._line(f"del {', '.join(found)}")

    def _drop(self, number: int, part: Part, gone: Set[str] = frozenset()) -> None:
        """Deletes what nobody reads behind a part, but for the variables that are `gone`."""
        read = (name for name in dict.fromkeys(self._variables(part)) if name not in gone)
        names = [name for name in read if self.last[name] == number]
        if names := list(filter(self._is_droppable, names)):
            self._line(f"del {', '.join(names)}")

    def _text(self, value: Any) -> str:
        """A value as an expression."""
        match value:
            case Leaf(index) | Saved(index):
                return f"input_{index}"
            case Size(index):
                return f"sizes[{index}]"
            case Scalar(index):
                return f"scalars[{index}]"
            case CallSize(context, index):
                return f"hooks[{context}].sizes[{index}]"
            case Hook(index):
                return f"hooks[{index}]"
            case Packed(index):
                return f"packed[{index}]"
            case Made(step, item):
                return f"made_{step}_{item}"
            case Accumulated():
                return f"{self._text(self._leaf_of(value))}.grad"
        return self._structure(value)

    def _structure(self, value: Any) -> str:
        if isinstance(value, Computed):
            function = self.source.bind(value.function.__name__, value.function)
            return f"{function}({', '.join(map(self._text, value.numbers))})"
        if type(value) is tuple:
            return f"({''.join(f'{self._text(each)}, ' for each in value)})"
        if type(value) is list:
            return f"[{', '.join(map(self._text, value))}]"
        return repr(value) if type(value) in LITERALS else self.source.bind("constant", value)
