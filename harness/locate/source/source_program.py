"""A case as a program that prints itself, and knows simpler ones: its own text, compiled and run as it is printed."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from assay.harness.calls.tree import walk
from assay.harness.case import Case
from assay.harness.locate.source.simpler_text import simpler_texts, weight
from assay.harness.locate.source.text_of_case import MADE, NUMBERS, SCENARIO, text_of
from assay.harness.observe.observation import backward, grad_mode, seed_all

ROOTS = frozenset({MADE, SCENARIO, NUMBERS})


@dataclass(frozen=True, slots=True)
class SourceProgram:
    """The text of a case, and what the harness has to know of the case besides."""

    text: str
    name: str
    tags: tuple[str, ...]
    may_raise: bool = False
    """Whether a text that eager cannot run is a program too: where it is an error that differs."""
    place: int = 0
    """Which of the simpler texts is tried first: the one behind that which this text was, as those before it failed."""

    @staticmethod
    def of(case: Case, size: str, may_raise: bool) -> SourceProgram:
        """Raises: Unwritable for a case with a part that has no text."""
        return SourceProgram(text_of(case, size), case.name, case.tags, may_raise)

    @property
    def is_text_alone(self) -> bool:
        return True

    def source(self) -> str:
        return self.text

    def body(self) -> str:
        return self.text.rstrip()

    def inputs_text(self) -> str:
        """Nothing: the text makes its inputs itself."""
        return ""

    def case(self, name: str, mode: str) -> Case:
        """The text as a case. Its own name says which acts it goes through, so it keeps that."""
        namespace = self._run()
        made = namespace[MADE]
        numbers, scenario = tuple(namespace.get(NUMBERS, ())), namespace.get(SCENARIO)
        return Case(self.name, made, (mode,), self.tags, ("tiny",), scenario=scenario, numbers=numbers)

    def is_program(self, mode: str) -> bool:
        """Whether eager runs it."""
        try:
            self._step(mode, lambda function: function)
        except Exception:  # whatever a text that was cut anywhere may raise
            return self.may_raise
        return True

    def operators(self, mode: str) -> tuple[str, ...]:
        """What the callable calls of torch, the first time that it is called; nothing of one that eager cannot run."""
        calls = _Calls()
        try:
            self._step(mode, calls.around)
        except Exception:
            return tuple(calls.names)
        return tuple(calls.names)

    def numbers(self) -> int:
        """How many numbers its arguments have."""
        _, args, kwargs = self._run()[MADE]()
        return sum(each.numel() for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor))

    def simpler(self) -> Iterator[SourceProgram]:
        """Programs with one change each, the boldest first, from `place` on."""
        size = weight(self.text)
        texts = list(enumerate(simpler_texts(self.text, ROOTS)))
        for place, text in texts[self.place :] + texts[: self.place]:
            if MADE in text and weight(text) < size:
                yield replace(self, text=text, place=place)

    def _run(self) -> Mapping[str, Any]:
        """What the text defines."""
        file = f"<{self.name}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)
        namespace: dict[str, Any] = {"__name__": "shrunk"}
        exec(compile(self.text, file, "exec", dont_inherit=True), namespace)
        return namespace

    def _step(self, mode: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """One call in eager, and in training its backward."""
        seed_all(0)
        namespace = self._run()
        function, args, kwargs = namespace[MADE]()
        scenario, numbers = namespace.get(SCENARIO), namespace.get(NUMBERS) or [()]
        given = around(function)
        called = given if scenario is None else functools.partial(scenario, given)
        with grad_mode(mode):
            output = called(*args, *numbers[0], **kwargs)
            if mode == "train":
                backward(walk(output, "output"), 0)


class _Calls(TorchFunctionMode):
    """Notes the names of what is called of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self._is_first = True

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is watched the first time that it is called."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._is_first:
                return function(*args, **kwargs)
            self._is_first = False
            with self:
                return function(*args, **kwargs)

        return call

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        if name not in ("__get__", "__set__"):
            self.names.append(name.strip("_"))
        return func(*args, **(kwargs or {}))
