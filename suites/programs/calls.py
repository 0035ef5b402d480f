"""What eager does with a program's printed text: whether it raises, and what it had done by then."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.harness.calls.tree import walk
from assay.harness.observe.observation import backward
from assay.suites.programs.program import Program

CALLS = 3
"""How often a program without numbers is called."""
State = list[tuple[object, ...]]


class UncleanError(Exception):
    """A call raised after it had written to an input or drawn a random number, or in its backward."""


def namespace_of(program: Program) -> dict[str, Any]:
    """The program's printed text, run: a module's namespace with `inputs` and `program`."""
    namespace: dict[str, Any] = {}
    exec(compile(program.source(), "<program>", "exec"), namespace)
    return namespace


def raised_by_eager(program: Program) -> BaseException | None:
    """What eager raises in the calls of a program, or in their backwards; None if nothing.

    The calls are those of its numbers, or three of the same. Without gradients all are on the same inputs. With
    gradients they are one after the other on fresh inputs.
    """
    try:
        errors = errors_of_calls(program)
    except Exception as error:
        return error
    return next((error for error in errors if error is not None), None)


def errors_of_calls(program: Program) -> list[BaseException | None]:
    """What each call raises in eager, with gradients or without; None for one that returns.

    Raises: UncleanError where what a compiler does earlier than eager would make a difference; whatever a program
    without numbers raises.
    """
    with quietly(), torch.random.fork_rng(devices=[]):
        namespace = namespace_of(program)
        calls: Sequence[tuple[object, ...]] = namespace.get("NUMBERS") or [()] * CALLS
        with torch.no_grad():
            inputs = namespace["inputs"]()
            errors = [_error(namespace["program"], _ignored, inputs, numbers) for numbers in calls]
        with torch.enable_grad():
            run = functools.partial(namespace.get("scenario", _once))
            calls = calls if namespace.get("NUMBERS") else calls[:1]
            later = [_error(namespace["program"], run, namespace["inputs"](), numbers) for numbers in calls]
    return [*errors, *later]


def _ignored(program: Callable[..., Any], *arguments: Any) -> None:
    program(*arguments)


def _once(program: Callable[..., Any], *arguments: Any) -> Any:
    return program(*arguments)


def _error(
    program: Callable[..., Any], run: Callable[..., Any], inputs: Sequence[Tensor], numbers: Sequence[object]
) -> BaseException | None:
    """What a call raises, and leaves everything as it was. Raises: UncleanError; whatever one without numbers does."""
    raised: list[BaseException] = []

    def watched(*arguments: Any) -> Any:
        try:
            return program(*arguments)
        except Exception as error:
            raised.append(error)
            raise

    before = _state(inputs) if numbers else []
    try:
        backward(walk(run(watched, *inputs, *numbers), "output"), 0)
    except Exception as error:
        if not numbers:
            raise
        if not raised or not _is_same(before, _state(inputs)):
            raise UncleanError from error
        return error
    return None


def _state(inputs: Sequence[Tensor]) -> State:
    """All that a program may have changed of its inputs, and the state of the random numbers."""
    return [(torch.get_rng_state(),), *map(_facts, inputs)]


def _facts(tensor: Tensor) -> tuple[object, ...]:
    plain = tensor.detach()
    memory = torch.empty(0, dtype=torch.uint8).set_(plain.untyped_storage())  # type: ignore[call-overload]
    layout = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.requires_grad, tensor._version)
    return (memory.clone(), *layout)


def _is_same(before: State, after: State) -> bool:
    return all(
        torch.equal(one[0], other[0]) and one[1:] == other[1:]  # type: ignore[arg-type]
        for one, other in zip(before, after, strict=True)
    )


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
