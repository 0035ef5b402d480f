"""A failing sequence of steps as a file of plain torch code, and the shortest one that fails in the same way.

`reduced` drops steps, then lines' trimmings, while the first difference stays the same field of the same kind of
path; Hypothesis has no part in it, so it serves steps from anywhere. `rendered` prints the file: the subject's own
source, the steps inside one function that takes `compile`, and a comparison of what the two runs leave.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.harness.backends.registry import Backend
from assay.harness.outcome import Difference
from assay.harness.search.twin import Diverged, Step, Subject, Twin

ATTEMPTS = 120
TRIMMINGS = (".requires_grad_()", "retain_graph=True", ".clone()", ", dtype=torch.float64", "[:, ::2]", "[1:]", ".t()")
Signature = tuple[str, str, str]

HEAD = '''"""{title}

{said}
"""

import contextlib
import copy
import importlib
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

BACKEND = {backend}
SETTINGS = {settings!r}
IS_WHOLE = SETTINGS.pop("own_backward", False)

'''
TAIL = '''

def shown(tensor):
    """What a program can see of a tensor; a gradient that autograd forbids to look at is an error."""
    try:
        facts = [tensor.requires_grad, tensor.is_leaf, tensor._is_view(), tensor.is_inference()]
    except RuntimeError as error:
        facts = [type(error).__name__]
    plain = tensor.detach().clone()
    return [list(tensor.shape), tensor.dtype, tensor.stride(), tensor.storage_offset(), facts, plain.tolist()]


def tensors_in(value, name):
    if isinstance(value, Tensor):
        yield name, value
        if shown(value)[4][0] is True and (value.is_leaf or value.retains_grad):
            yield f"{name}.grad", value.grad
    elif isinstance(value, nn.Module):
        for key, tensor in [*value.named_parameters(), *value.named_buffers()]:
            yield from tensors_in(tensor, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors_in(item, f"{name}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_in(item, f"{name}[{key!r}]")
    else:
        yield name, value


def left_by(compile):
    """What the program leaves: every value by its name, and which tensors share memory."""
    values = program(compile)
    random, grad = torch.get_rng_state().sum().item(), torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    found = [pair for name, value in values.items() if name not in HIDDEN for pair in tensors_in(value, name)]
    memory = {}
    for name, value in found:
        if isinstance(value, Tensor) and value.numel():
            memory.setdefault(value.untyped_storage().data_ptr(), []).append(name)
    seen = {name: shown(value) if isinstance(value, Tensor) else value for name, value in found}
    return seen | {"shared memory": sorted(memory.values()), "random": random, "grad mode": grad}


HIDDEN = ("compile", "f", "optimizer")


def whole_backward():
    return importlib.import_module("assay").compiled_autograd() if IS_WHOLE else contextlib.nullcontext()


def main():
    eager = left_by(lambda function: function)
    with whole_backward():
        ours = left_by(lambda function: torch.compile(function, backend=BACKEND, **SETTINGS))
    differing = [name for name in {**eager, **ours} if repr(eager.get(name)) != repr(ours.get(name))]
    print(f"torch {torch.__version__}, backend {BACKEND}: {len(differing)} differ")
    for name in differing:
        print(f"{name}\\n  eager {eager.get(name)}\\n  ours  {ours.get(name)}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
'''


@dataclass(frozen=True, slots=True)
class Failure:
    """Steps that fail, their differences, and which of them raise on a side."""

    subject: Subject
    steps: tuple[Step, ...]
    differences: tuple[Difference, ...]
    raising: frozenset[int]

    @property
    def signature(self) -> Signature:
        return signature_of(self.subject, self.differences)


def failure_from(twin: Twin, diverged: Diverged) -> Failure:
    """A failure as the twins report it; which earlier steps raised shows when it is attempted again."""
    raising = {len(diverged.steps) - 1} if twin.eager.error or twin.ours.error else set()
    return Failure(twin.subject, diverged.steps, diverged.differences, frozenset(raising))


def signature_of(subject: Subject, differences: Sequence[Difference]) -> Signature:
    """What makes two failures one: subject, field, and the path without its numbers (with the classes, of errors)."""
    first = differences[0]
    path = re.sub(r"\d+", "", first.path)
    classes = re.findall(r"\b(?:no error|\w+Error)\b", first.detail) if first.field == "error" else []
    return subject.name, first.field, " ".join([path, *classes[:1], *classes[-1:]])


def attempt(subject: Subject, steps: Sequence[Step], backend: Backend) -> Failure | None:
    """The steps once more on fresh twins: how they fail; None if they do not, or name what does not exist."""
    twin, raising = Twin(subject, backend), set()
    for index, step in enumerate(steps):
        try:
            twin.do(step)
        except Diverged as diverged:
            raising |= {index} if twin.eager.error or twin.ours.error else set()
            return Failure(subject, diverged.steps, diverged.differences, frozenset(raising))
        except (NameError, AttributeError, IndexError):
            return None
        if isinstance(twin.eager.error, NameError | AttributeError | IndexError):
            return None
        raising |= {index} if twin.eager.error else set()
    return None


def reduced(failure: Failure, backend: Backend, attempts: int = ATTEMPTS) -> Failure:
    """The shortest failure with the same signature that removing steps, then trimmings, finds in so many attempts."""
    left = iter(range(attempts))

    def still_fails(steps: tuple[Step, ...]) -> bool:
        nonlocal failure
        found = attempt(failure.subject, steps, backend) if next(left, None) is not None else None
        if found is None or found.signature != failure.signature:
            return False
        failure = found
        return True

    length = max(1, len(failure.steps) // 2)
    while length:
        _drop_runs(failure.steps, length, still_fails)
        length //= 2
    _drop_runs(failure.steps, 1, still_fails)
    _trim(failure.steps, still_fails)
    return failure


def _drop_runs(steps: tuple[Step, ...], length: int, still_fails: Callable[[tuple[Step, ...]], bool]) -> None:
    """Drops runs of `length` steps, from the end on; the first step, which makes the callable, stays."""
    start = len(steps) - 1 - length
    while start > 0:
        shorter = (*steps[:start], *steps[start + length :])
        steps = shorter if still_fails(shorter) else steps
        start = min(start - length, len(steps) - 1 - length)


def _trim(steps: tuple[Step, ...], still_fails: Callable[[tuple[Step, ...]], bool]) -> None:
    for index in range(len(steps)):
        for simpler in _simpler(steps[index]):
            trimmed = (*steps[:index], simpler, *steps[index + 1 :])
            steps = trimmed if still_fails(trimmed) else steps


def _simpler(step: Step) -> Iterator[Step]:
    lines = step.source.split("\n")
    if lines[0].startswith("with "):
        yield replace(step, source=textwrap.dedent("\n".join(lines[1:])))
    for text in TRIMMINGS:
        if text in step.source:
            yield replace(step, source=step.source.replace(text, ""))


def rendered(failure: Failure, backend: str) -> str:
    """The file's text."""
    bare, settings = _settings(backend)
    said = "\n".join(f"{each.field} at {each.path}: {each.detail}" for each in failure.differences[:6])
    head = HEAD.format(
        title=f"{failure.subject.name}: {failure.differences[0].field} is not eager's.",
        said=said.replace("\\", "/").replace('"""', "'''"),
        backend=_expression_of(bare),
        settings=settings,
    )
    sources = "\n\n".join(_source_of(each) for each in (*failure.subject.needs, failure.subject.made_of))
    return f"{head}\n{sources}\n\n{_program(failure)}{TAIL}"


def _expression_of(backend: str) -> str:
    """A name that torch.compile knows, or the callable that `module:attribute` stands for."""
    module, _, attribute = backend.partition(":")
    return f"importlib.import_module({module!r}).{attribute}" if attribute else repr(backend)


def _program(failure: Failure) -> str:
    lines = ["def program(compile):", "    torch.manual_seed(0)", "    raised = []"]
    for index, step in enumerate(failure.steps):
        text = textwrap.indent(step.source, "    ")
        if index in failure.raising:
            text = "    try:\n" + textwrap.indent(text, "    ")
            text += "\n    except Exception as error:\n        raised.append(type(error).__name__)"
        lines.append(text)
    return "\n".join([*lines, "    return locals()", ""])


def _source_of(definition: Callable[..., Any]) -> str:
    """The definition as it stands in its file."""
    source = textwrap.dedent(inspect.getsource(definition))
    ast.parse(source)  # a lambda, or a fragment of a line, is no definition
    return source


def _settings(backend: str) -> tuple[str, dict[str, Any]]:
    """A backend's name and what `torch.compile` is given beside it."""
    bare, *settings = backend.split(",")
    flags: dict[str, Any] = {setting: True for setting in settings if "=" not in setting}
    options = dict(setting.split("=", 1) for setting in settings if "=" in setting)
    return bare, flags | ({"options": options} if options else {})
