"""A program over storages, as data that prints as plain torch code; the printed text is what runs.

    program   ::= number* storage* input* step* "return" output* [scenario]
    number    ::= name values                                   a Python number, with its value in each call
    storage   ::= name "=" values "." dtype [gradient]         one allocation
    input     ::= name "=" expression over storages and inputs  a view, or the same tensor again
    step      ::= [names "="] expression | statement            under autograd or under no_grad
    output    ::= expression over live tensors
    scenario  ::= what the caller does with the gradients, by name

Every line holds its text with a slot for each tensor that it reads or writes. So a name can be exchanged for another
without parsing the text, which is how programs are made smaller. A number stands in a text as a slot with its name,
`{0}[{n}:]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from assay.suites.programs.definitions import DEFINITIONS, SCENARIOS

SPECIAL = "[0.0, -0.0, inf, -inf, nan, 1e-40, 1.5, -2.0]"
VALUES = {
    "ordered": "torch.arange({numel})",
    "mixed": "((torch.arange({numel}) * 7 % 11 - 5) / 4)",
    "normal": "torch.randn({numel}, generator=torch.Generator().manual_seed({seed}))",
    "special": f"torch.tensor({SPECIAL}).repeat({{numel}} // 8 + 1)[:{{numel}}].clone()",
}
"""What a storage holds, by name, the plainest first."""
GRADIENTS = {"none": "", "leaf": ".requires_grad_()", "inner": ".requires_grad_().clone()"}
"""What autograd knows of a storage's tensor: nothing, a leaf, or the result of an operation."""
GUARDS = ("", "torch.no_grad()")
KINDS = {"n": "position", "m": "position", "k": "size", "w": "whole", "x": "factor", "y": "factor", "flag": "flag"}
"""The names of numbers, each with what its number is for."""
OWN_NAMES = {name: name for name in KINDS}


@dataclass(frozen=True, slots=True)
class Number:
    """A Python number that the program takes after its tensors: its value in each call, as text."""

    name: str
    values: tuple[str, ...]

    @property
    def slot(self) -> str:
        """As it stands in a template."""
        return f"{{{self.name}}}"


@dataclass(frozen=True, slots=True)
class Storage:
    """One allocation: `numel` values of a dtype."""

    name: str
    numel: int
    dtype: str
    values: str = "ordered"
    gradient: str = "none"
    seed: int = 0

    @property
    def text(self) -> str:
        values = VALUES[self.values].format(numel=self.numel, seed=self.seed)
        return f"{self.name} = {values}.to(torch.{self.dtype}){GRADIENTS[self.gradient]}"


@dataclass(frozen=True, slots=True)
class Line:
    """`targets = text` with the names of `args` in its slots; a bare statement where there are no targets.

    `operation`, `layout` and `dtype` say what was drawn and on what, for the table of coverage.
    """

    operation: str
    template: str
    args: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    guard: str = ""
    layout: str = ""
    dtype: str = ""

    @property
    def expression(self) -> str:
        return self.template.format(*self.args, **OWN_NAMES)

    @property
    def text(self) -> str:
        return f"{', '.join(self.targets)} = {self.expression}" if self.targets else self.expression

    def renamed(self, names: Mapping[str, str]) -> Line:
        """The line with other tensors in its slots."""
        return replace(self, args=tuple(names.get(name, name) for name in self.args))


@dataclass(frozen=True, slots=True)
class Program:
    """Storages, inputs over them, steps, outputs. `form` is how the outputs are returned, `scenario` what the caller
    does with the gradients. `numbers` change from call to call."""

    storages: tuple[Storage, ...]
    inputs: tuple[Line, ...]
    steps: tuple[Line, ...]
    outputs: tuple[Line, ...]
    form: str = "tuple"
    scenario: str = "once"
    numbers: tuple[Number, ...] = ()

    def source(self) -> str:
        """The program as a module's text: definitions that it needs, `NUMBERS` with those of each call, `inputs()`,
        `program(...)` and `scenario(...)`."""
        texts = ("\n".join(self._inputs()), "\n".join(self._program()), SCENARIOS[self.scenario])
        parts = [*self._head(), self._numbers(), *texts]
        parts = [part for part in parts if part]
        return "\n\n\n".join(parts) + "\n"

    @property
    def coverage(self) -> tuple[tuple[str, str, str], ...]:
        """Operation, layout and dtype of each step."""
        return tuple((step.operation, step.layout, step.dtype) for step in self.steps)

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations of the steps, each once, sorted."""
        return tuple(sorted({step.operation for step in self.steps}))

    @property
    def calls(self) -> tuple[tuple[str, ...], ...]:
        """The numbers of each call, as text; none where the program takes no numbers."""
        return tuple(zip(*(number.values for number in self.numbers), strict=True))

    def with_calls(self, calls: Sequence[tuple[str, ...]]) -> Program:
        """The program with other values of its numbers."""
        values = zip(*calls, strict=True)
        numbers = [replace(number, values=given) for number, given in zip(self.numbers, values, strict=True)]
        return replace(self, numbers=tuple(numbers))

    def _head(self) -> Iterator[str]:
        words = {value.strip("-") for number in self.numbers for value in number.values}
        is_needed = bool(words & {"inf", "nan"}) or any(storage.values == "special" for storage in self.storages)
        yield "import torch" + "\nfrom torch import inf, nan" * is_needed
        used = " ".join(step.template for step in self.steps)
        yield from (text for name, text in DEFINITIONS.items() if name in used)

    def _numbers(self) -> str:
        """`NUMBERS = [...]`: a tuple a call; no text where there are none."""
        calls = [f"({', '.join(call)}{',' * (len(call) == 1)})" for call in self.calls]
        return f"NUMBERS = [{', '.join(calls)}]" if calls else ""

    def _inputs(self) -> Iterator[str]:
        yield "def inputs():"
        yield from (f"    {storage.text}" for storage in self.storages)
        yield from (f"    {line.text}" for line in self.inputs)
        yield f"    return {_tuple([line.targets[0] for line in self.inputs])}"

    def _program(self) -> Iterator[str]:
        names = [*(line.targets[0] for line in self.inputs), *(number.name for number in self.numbers)]
        yield f"def program({', '.join(names)}):"
        guard = ""
        for step in self.steps:
            if step.guard and step.guard != guard:
                yield f"    with {step.guard}:"
            guard = step.guard
            yield f"    {'    ' if guard else ''}{step.text}"
        yield f"    return {self.returned}"

    @property
    def returned(self) -> str:
        """The expression that the program returns."""
        items = [line.expression for line in self.outputs]
        match self.form:
            case "bare" if len(items) == 1:
                return items[0]
            case "list":
                return f"[{', '.join(items)}]"
            case "dict":
                return "{" + ", ".join(f"'k{index}': {item}" for index, item in enumerate(items)) + "}"
        return _tuple(items)


def _tuple(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else ", ".join(items) or "()"
