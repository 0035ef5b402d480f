"""`trace_stretch`: the pure steps of a backward on given tensors, as one functional graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.backward.engine_steps import Backward, Made, Stretch, Value, filled
from assay.compiler.ir.graph.roles import Program, Signature, UserInput, UserOutput
from assay.compiler.ir.graph.trace import Trace, gives_memory_on
from assay.compiler.ir.tensors.changing_sizes import Assumed, Examples, Moving
from assay.compiler.ir.tensors.layout.fresh_memory import Fresh
from assay.compiler.torch_compat import Decompositions, refused_gradient

PLAIN = (torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True, slots=True)
class Traced:
    """A stretch as a program over those of its tensors that are there, then its `symbols`, by their places among the
    stretch's numbers: integers, and floats as tensors. `places` are, for each value that the stretch gives, the
    program's output, or None where it gives None. `assumed` is what it assumes of symbolic sizes."""

    program: Program
    places: tuple[int | None, ...]
    symbols: tuple[int, ...]
    assumed: Assumed | None


def run_steps(backward: Backward, stretch: Stretch, known: dict[Value, Any]) -> list[Any]:
    """What a stretch gives, its steps run one by one on what `known` holds. Raises: eager's errors, in its words."""
    for position in stretch.steps:
        step = backward.steps[position]
        arguments = filled(step.arguments, known.__getitem__)
        try:
            made = [_sum(*arguments)] if step.kind == "add" else step.function(*arguments)  # type: ignore[misc]
        except RuntimeError as error:
            if (refusal := refused_gradient(error)) is None:
                raise
            raise RuntimeError(f"Function {step.label} returned an {refusal}") from error
        known.update({Made(position, item): value for item, value in enumerate(made)})
    return [known[made] for made in stretch.gives]


def _sum(old: torch.Tensor | None, new: torch.Tensor | None) -> torch.Tensor | None:
    """Two gradients that meet; one that is missing adds nothing."""
    if old is None or new is None:
        return new if old is None else old
    is_sparse_first = old.layout is not torch.strided and new.layout is torch.strided
    return new + old if is_sparse_first else old + new  # no layout but the strided one takes the other


def trace_stretch(
    backward: Backward,
    stretch: Stretch,
    tensors: Sequence[torch.Tensor | None],
    known: dict[Value, Any],
    decompositions: Decompositions,
    moving: Moving | None = None,
) -> Traced:
    """The stretch for tensors like these; `known` are the sizes and numbers, `moving` what of all becomes symbols.

    Raises: Unsupported for tensors that the compiler does not take, and for formulas that read their data.
    """
    try:
        return _Tracing(backward, stretch, decompositions, moving).run(tensors, known)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise Unsupported(f"a formula reads its data, which only a run would tell: {error}") from error


class _Tracing:
    def __init__(
        self, backward: Backward, stretch: Stretch, decompositions: Decompositions, moving: Moving | None
    ) -> None:
        self.backward, self.stretch = backward, stretch
        self.examples = Examples.of(moving)
        self.trace = Trace(self.examples.mode, decompositions)

    def run(self, tensors: Sequence[torch.Tensor | None], known: dict[Value, Any]) -> Traced:
        trace, stretch = self.trace, self.stretch
        fakes = list(self._fakes(tensors))
        symbols = self._symbols(known)
        with trace.recording(), torch.no_grad(), fx.traceback.preserve_node_meta():
            for place, (value, fake) in enumerate(zip(stretch.takes, fakes, strict=True)):
                known[value] = None if fake is None else trace.wrap(trace.add_input(f"input_{place}", fake), False)
            for place, symbol in symbols.items():
                trace.add_input(f"number_{place}", symbol)
                if isinstance(symbol, torch.Tensor):
                    known[stretch.numbers[place]] = trace.wrap(symbol, False).item()
            results = run_steps(self.backward, stretch, known)
            latest = _latest_reads(self.backward, known)
            pairs = zip(stretch.gives, results, strict=True)
            results = [_own(trace, value, self.backward.accumulated.get(made), latest) for made, value in pairs]
            nodes = [None if value is None else trace.node_of(value) for value in results]
        given = [node for node in nodes if node is not None]
        count = sum(fake is not None for fake in fakes) + len(symbols)
        roles = tuple(UserInput(index) for index in range(count))
        program = Program(trace.finish(given), Signature(roles, tuple(map(UserOutput, range(len(given))))))
        places = iter(range(len(given)))
        return Traced(
            program, tuple(None if n is None else next(places) for n in nodes), tuple(symbols), self.examples.assumed
        )

    def _fakes(self, tensors: Sequence[torch.Tensor | None]) -> Iterator[torch.Tensor | None]:
        """Fake tensors like real ones, as memory without a history.

        Raises: Unsupported for what is no plain strided tensor.
        """
        for value in tensors:
            if value is not None and not _is_plain(value):
                raise Unsupported(f"a {type(value).__name__} of layout {value.layout} in a backward")
        times = Counter(value.untyped_storage()._cdata for value in tensors if value is not None)
        for place, value in enumerate(tensors):
            is_alone = value is not None and times[value.untyped_storage()._cdata] == 1
            yield None if value is None else self._fake(place, value, is_alone)

    def _fake(self, place: int, value: torch.Tensor, is_alone: bool) -> torch.Tensor:
        """A fake tensor like a real one; `is_alone`: no other one is of its memory."""
        fresh = Fresh.of(value) if is_alone and self.examples.moving is None and not value.is_meta else None
        if fresh is not None:
            return fresh.fake(self.examples.mode)
        with torch.no_grad():
            value = value.detach()
        return self.examples.tensor(place, value)

    def _symbols(self, known: dict[Value, Any]) -> dict[int, torch.SymInt | torch.Tensor]:
        """The integers that become symbols and the floats that are read from tensors, by their places among the
        stretch's numbers."""
        for place, value in enumerate(self.stretch.numbers):
            known[value] = self.examples.number(place, known[value])
        numbers = enumerate(known[value] for value in self.stretch.numbers)
        return {place: number for place, number in numbers if isinstance(number, torch.SymInt | torch.Tensor)}


def _is_plain(value: torch.Tensor) -> bool:
    """Whether a value is a strided tensor of torch's own classes, with elements in memory."""
    return type(value) in PLAIN and value.layout is torch.strided and not value._is_zerotensor()


def _latest_reads(backward: Backward, known: dict[Value, Any]) -> dict[int, int]:
    """For each tensor by identity the position of the step that reads it last, under whatever name."""
    latest: dict[int, int] = {}
    for value, found in known.items():
        latest[id(found)] = max(latest.get(id(found), -1), backward.last_read.get(value, -1))
    return latest


def _own(trace: Trace, value: Any, place: int | None, latest: dict[int, int]) -> Any:
    """What a stretch gives for a value that the step at `place` accumulates: a copy, of a view that others receive.

    Eager's accumulation takes over only what nobody else holds. Of a stretch all others have run before it.
    """
    if value is None or place is None or not gives_memory_on(trace.node_of(value)):
        return value
    return value.clone() if latest[id(value)] > place else value
