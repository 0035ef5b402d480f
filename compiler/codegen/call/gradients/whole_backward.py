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

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from assay.compiler.codegen.call.source import LITERALS, Source
from assay.compiler.ir.graph.backward.engine_steps import (
    Accumulated,
    Backward,
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

CALLS: Mapping[str, Callable[..., Any]] = {
    "tensor_pre_hook": engine_calls.tensor_pre_hook,
    "retain_grad": engine_calls.retain_grad,
    "pre_hook": engine_calls.pre_hook,
    "post_hook": engine_calls.post_hook,
    "post_accumulate_hook": engine_calls.post_accumulate_hook,
    "unpack": engine_calls.unpack,
    "backward": engine_calls.backward,
}


def emit_backward(
    backward: Backward,
    parts: Sequence[Part],
    inputs: int,
    stretch: Callable[[Stretch], Callable[..., Any]],
    rest: Callable[[int, Mapping[str, Any]], list[Any]] | None,
) -> Source:
    """The text of the function, and what it names; `stretch` gives what runs a stretch, `rest` runs what is left where
    hooks have changed."""
    return _Emission(backward, parts, stretch, rest).run(inputs)


class _Emission:
    def __init__(
        self,
        backward: Backward,
        parts: Sequence[Part],
        stretch: Callable[[Stretch], Callable[..., Any]],
        rest: Callable[[int, Mapping[str, Any]], list[Any]] | None,
    ) -> None:
        self.backward, self.parts, self.stretch, self.rest = backward, parts, stretch, rest
        self.source = Source()
        self.last = self._last_readers()
        self.held = self._held_to_versions()

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
            self.source.line(1, f"{check}({name}, version_of_{name})")

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
        for number, part in enumerate(self.parts):
            if isinstance(part, Stretch):
                self._stretch(number, part)
            else:
                self._ordered(number, part)
        line(1, f"return [{', '.join(map(self._text, self.backward.outputs))}]")
        return self.source

    def _stretch(self, number: int, part: Stretch) -> None:
        line = self.source.line
        run = self.source.bind(f"stretch_{number}", self.stretch(part))
        self._check_versions(number)
        line(1, f"given = [{', '.join(map(self._text, part.takes))}]")
        self._drop(number, part)
        numbers = self._text(part.numbers)
        made = "".join(f"{self._text(value)}, " for value in part.gives)
        line(1, f"{'(' * bool(made)}{made}{') = ' * bool(made)}{run}(given, {numbers})")

    def _ordered(self, number: int, part: Ordered) -> None:
        step = self.backward.steps[part.step]
        self._check_versions(number)
        if step.kind == "accumulate":
            self._accumulate(number, part, step)
            return
        arguments = list(map(self._text, step.arguments))
        if step.kind == "tensor_pre_hook":
            arguments.pop()
        function = step.function if step.kind == "opaque" else CALLS[step.kind]
        call = f"{self.source.bind(step.kind, function)}({', '.join(arguments)})"
        is_missing = self._missing(part.step, step)
        if is_missing:
            call = f"{arguments[1] if step.count else None} if {is_missing} else {call}"
        self.source.line(1, f"{self._taken(part.step, step)}{call}  # {step.label} ({step.node})")
        self._drop(number, part)
        unread = [f"made_{part.step}_{item}" for item in range(step.count)]
        for name in unread:
            if name not in self.last:
                self.source.line(1, f"del {name}")
        if self.rest is not None and step.kind != "retain_grad":
            changes, rest = self.source.bind("changes", engine_calls.changes), self.source.bind("rest", self.rest)
            self.source.line(1, f"if {changes}: return {rest}({number + 1}, locals())")

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
        self.source.line(1, f"box = [{self._text(gradient)}]")
        if gradient in self.backward.behind_ours:
            self.source.line(1, f"reached_{part.step} = {self._text(gradient)} is not None")
        if self.last.get(self._text(gradient)) == number:
            self.source.line(1, f"del {self._text(gradient)}")
        run = self.source.bind("accumulate", engine_calls.accumulate)
        self.source.line(1, f"{run}({self._text(leaf)}, box)  # {step.label} ({step.node})")
        if self.last.get(self._text(leaf)) == number:
            self.source.line(1, f"del {self._text(leaf)}")

    def _drop(self, number: int, part: Part) -> None:
        names = [name for name in dict.fromkeys(self._variables(part)) if self.last[name] == number]
        if names:
            self.source.line(1, f"del {', '.join(names)}")

    def _text(self, value: Any) -> str:
        """A value as an expression."""
        match value:
            case Leaf(index) | Saved(index):
                return f"input_{index}"
            case Size(index):
                return f"sizes[{index}]"
            case Scalar(index):
                return f"scalars[{index}]"
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
