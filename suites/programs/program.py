"""A program over storages, as data that prints as plain torch code; the printed text is what runs.

    program   ::= storage* input* step* "return" output* [scenario]
    storage   ::= name "=" values "." dtype [gradient]         one allocation
    input     ::= name "=" expression over storages and inputs  a view, or the same tensor again
    step      ::= [names "="] expression | statement            under autograd or under no_grad
    output    ::= expression over live tensors
    scenario  ::= what the caller does with the gradients, by name

Every line holds its text with a slot for each tensor that it reads or writes, so that a name can be exchanged for
another (which is how programs are made smaller) without the text being parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from suites.programs.definitions import DEFINITIONS, SCENARIOS

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
        return self.template.format(*self.args)

    @property
    def text(self) -> str:
        return f"{', '.join(self.targets)} = {self.expression}" if self.targets else self.expression

    def renamed(self, names: Mapping[str, str]) -> Line:
        """The line with other tensors in its slots."""
        return replace(self, args=tuple(names.get(name, name) for name in self.args))


@dataclass(frozen=True, slots=True)
class Program:
    """Storages, inputs over them, steps, outputs. `form` is how the outputs are returned, `scenario` what the caller
    does with the gradients."""

    storages: tuple[Storage, ...]
    inputs: tuple[Line, ...]
    steps: tuple[Line, ...]
    outputs: tuple[Line, ...]
    form: str = "tuple"
    scenario: str = "once"

    def source(self) -> str:
        """The program as a module's text: definitions that it needs, `inputs()`, `program(...)` and `scenario(...)`."""
        parts = [*self._head(), "\n".join(self._inputs()), "\n".join(self._program()), SCENARIOS[self.scenario]]
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

    def _head(self) -> Iterator[str]:
        needs = "\nfrom torch import inf, nan" if any(storage.values == "special" for storage in self.storages) else ""
        yield f"import torch{needs}"
        used = " ".join(step.template for step in self.steps)
        yield from (text for name, text in DEFINITIONS.items() if name in used)

    def _inputs(self) -> Iterator[str]:
        yield "def inputs():"
        yield from (f"    {storage.text}" for storage in self.storages)
        yield from (f"    {line.text}" for line in self.inputs)
        yield f"    return {_tuple([line.targets[0] for line in self.inputs])}"

    def _program(self) -> Iterator[str]:
        yield f"def program({', '.join(line.targets[0] for line in self.inputs)}):"
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
