"""Draws programs that are valid because eager ran every step, on real small tensors, while it was drawn.

A step that eager refuses is dropped. In about three programs of a hundred the refused step is kept and ends the
program, since the class of an error counts too. No input has been written before it, so it makes no difference what a
compiler does earlier than eager. A program that as a whole raises in eager (most often in its backward) is drawn anew.

A program may take Python numbers, which change from call to call (`numbers.py`). It is drawn with those of its first
call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from assay.suites.programs.calls import errors_of_calls, quietly, raised_by_eager
from assay.suites.programs.choices import Choices
from assay.suites.programs.definitions import DEFINITIONS
from assay.suites.programs.numbers import CALLS, REFUSED, TRIES, draw_call, draw_numbers
from assay.suites.programs.operations import FAMILIES, NUMBERED
from assay.suites.programs.pen import Drawn, NoOperand, Pen, has_fractions
from assay.suites.programs.program import Line, Number, Program, Storage

NUMELS = ((1, 0), (2, 1), (2, 7), (3, 8), (2, 9), (2, 12), (2, 15), (3, 16), (2, 17), (3, 24), (2, 35), (1, 48))
DTYPES = (
    (10, "float32"), (6, "float64"), (2, "float16"), (2, "bfloat16"), (2, "complex64"),
    (3, "int64"), (1, "int32"), (1, "int8"), (1, "bool"),
)  # fmt: skip
VALUES = ((3, "ordered"), (4, "mixed"), (3, "normal"), (2, "special"))
DIFFERENTIABLE = ("float32", "float64", "float16", "bfloat16", "complex64")
FORMS = ((5, "tuple"), (2, "bare"), (2, "list"), (1, "dict"))
ENDS = ((10, "once"), (2, "twice"), (3, "alone"), (3, "rest"), (3, "again"), (3, "watched"))
CONSTANTS = ("None", "3", "2.5", "'text'", "True", "()")
RAISING_PERCENT = 3
LARGEST = 2048
ATTEMPTS = 12
NUMBERED_PERCENT = 60
"""Of the steps of a program that takes numbers, those that use one."""
PARAMETERS = "abcdefg"


def draw_program(choices: Choices, has_numbers: bool = False) -> Program:
    """A program. Eager runs it, but for about three of a hundred, and for some of the later calls of one that has
    numbers."""
    return _draw_numbered(choices) if has_numbers else _draw_plain(choices)


def _draw_plain(choices: Choices) -> Program:
    raises = choices.chance(RAISING_PERCENT)
    program = _attempt(choices, raises)
    for _ in range(ATTEMPTS):
        if raises or raised_by_eager(program) is None:
            return program
        program = _attempt(choices, raises)
    return program


def _draw_numbered(choices: Choices) -> Program:
    """A program with numbers that it uses, and with their values in several calls."""
    for _ in range(ATTEMPTS):
        program = _without_unused(_attempt(choices, False, draw_numbers(choices)))
        if program.numbers and raised_by_eager(program) is None:
            return _with_calls(choices, program)
    return _draw_plain(choices)


def _without_unused(program: Program) -> Program:
    """The program without the numbers that no line uses; without any where no step uses one."""
    steps = [line.template for line in program.steps]
    texts = [*steps, *(line.template for line in program.outputs)]
    used = tuple(number for number in program.numbers if any(number.slot in text for text in texts))
    is_numbered = any(number.slot in text for text in steps for number in used)
    return replace(program, numbers=used if is_numbered else ())


def _with_calls(choices: Choices, program: Program) -> Program:
    """The program with further calls, in which eager returns or raises before anything has been written."""
    for _ in range(TRIES):
        call = draw_call(choices, program.numbers)
        longer = program.with_calls([*program.calls, call])
        if call not in program.calls and _refused_calls(longer) <= REFUSED and is_defined(longer):
            program = longer
        if len(program.calls) == CALLS:
            break
    return program


def _refused_calls(program: Program) -> float:
    """How many calls eager refuses; infinitely many where one of them had begun to write."""
    try:
        errors = errors_of_calls(program)
    except Exception:
        return float("inf")
    return sum(error is not None for error in errors) / 2


def is_defined(program: Program) -> bool:
    """Whether eager can run every line of every call, and none writes to memory that overlaps itself.

    A program that raises is defined, unless a call with numbers raises after it has written.
    """
    if not program.numbers:
        return _is_call_defined(program, ())
    if _refused_calls(program) == float("inf"):
        return False
    return all(_is_call_defined(program, call) for call in program.calls)


def _is_call_defined(program: Program, call: tuple[str, ...]) -> bool:
    draft = _Draft(Choices.seeded(""), dict(_defined()))
    with quietly(), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        try:
            draft.take(program.numbers, call)
            for storage in program.storages:
                exec(storage.text, draft.namespace)
            for line in program.inputs:
                draft.run(line)
            return all(_is_run_defined(draft, line) for line in program.steps)
        except Exception:
            return True


def _is_run_defined(draft: _Draft, line: Line) -> bool:
    versions = _versions(draft, line)
    draft.run(line)
    is_small = not draft.numbers or _keeps(draft, line)
    return is_small and not _is_undefined(draft, line, versions)


@dataclass(slots=True)
class _Draft:
    """A program while it is drawn: what has been drawn, and the namespace in which eager has run it."""

    choices: Choices
    namespace: dict[str, Any]
    storages: list[Storage] = field(default_factory=list)
    inputs: list[Line] = field(default_factory=list)
    steps: list[Line] = field(default_factory=list)
    live: dict[str, Tensor] = field(default_factory=dict)
    count: int = 0
    numbers: tuple[str, ...] = ()

    @property
    def pen(self) -> Pen:
        return Pen(self.choices, self.live, tuple(line.targets[0] for line in self.inputs), self.numbers)

    def take(self, numbers: Iterable[Number], values: Iterable[str]) -> None:
        """Binds the numbers to values, which are text."""
        for number, value in zip(numbers, values, strict=True):
            exec(f"{number.name} = {value}", self.namespace)
            self.numbers += (number.name,)

    def run(self, line: Line) -> None:
        """Runs a line; whatever it binds is live from now on. Raises: whatever eager raises."""
        with contextlib.nullcontext() if not line.guard else torch.no_grad():
            exec(line.text, self.namespace)
        for name in line.targets:
            self.live[name] = self.namespace[name]

    def names(self, count: int) -> tuple[str, ...]:
        self.count += count
        return tuple(f"v{number}" for number in range(self.count - count, self.count))


def _attempt(choices: Choices, raises: bool, numbers: tuple[Number, ...] = ()) -> Program:
    draft = _Draft(choices, dict(_defined()))
    draft.take(numbers, [number.values[0] for number in numbers])
    with quietly(), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        _draw_inputs(draft)
        for _ in range(choices.between(1, 8)):
            if raises and (line := _refused(draft)) is not None:
                draft.steps.append(line)
                break
            _draw_step(draft)
        outputs, form = _draw_outputs(draft)
    needs = any(tensor.requires_grad for tensor in draft.live.values())
    scenario = choices.weighted(ENDS) if needs and not raises else "once"
    lines = (tuple(draft.storages), tuple(draft.inputs), tuple(draft.steps), outputs)
    return Program(*lines, form, scenario, numbers)


_DEFINED: dict[str, Any] = {}


def _defined() -> dict[str, Any]:
    """Every definition, run once in a process: a custom operator is registered by its name."""
    if not _DEFINED:
        exec("import torch\nfrom torch import inf, nan\n" + "\n".join(DEFINITIONS.values()), _DEFINED)
    return _DEFINED


def _draw_inputs(draft: _Draft) -> None:
    main = draft.choices.weighted(DTYPES)
    for number in range(draft.choices.weighted(((5, 1), (4, 2), (2, 3), (1, 4)))):
        _draw_storage(draft, f"s{number}", main)
    for name in PARAMETERS[: max(len(draft.storages), draft.choices.between(1, 4))]:
        for _ in range(ATTEMPTS):
            line = _input_line(draft, name)
            try:
                draft.run(line)
            except Exception:  # a view that this storage does not allow
                continue
            draft.inputs.append(_on(line, draft.live[name]))
            break


def _draw_storage(draft: _Draft, name: str, main: str) -> None:
    choices = draft.choices
    dtype = main if choices.chance(70) else choices.weighted(DTYPES)
    kinds = ((6, "none"), (2, "leaf"), (4, "inner")) if dtype in DIFFERENTIABLE else ((1, "none"),)
    numel, values = choices.weighted(NUMELS), choices.weighted(VALUES)
    if dtype not in DIFFERENTIABLE and values == "special":
        values = "mixed"
    storage = Storage(name, numel, dtype, values, choices.weighted(kinds), choices.below(100))
    draft.storages.append(storage)
    exec(storage.text, draft.namespace)


def _input_line(draft: _Draft, name: str) -> Line:
    """An input: most often a view of a storage, now and then of another input, or that input itself."""
    choices = draft.choices
    if draft.inputs and choices.chance(30):
        other = choices.pick(draft.inputs).targets[0]
        return Line("input", choices.pick(OF_INPUT), (other,), (name,))
    storage = draft.storages[len(draft.inputs)] if len(draft.inputs) < len(draft.storages) else None
    storage = storage or choices.pick(draft.storages)
    text = choices.weighted(LAYOUTS)(choices, storage.numel)
    if storage.gradient == "none" and storage.dtype in DIFFERENTIABLE and choices.chance(15):
        text += ".detach().requires_grad_()"
    elif storage.gradient != "none" and choices.chance(15):
        text = text.replace("{0}", "{0}.detach()")
    return Line("input", text, (storage.name,), (name,))


OF_INPUT = (
    "{0}",
    "{0}",
    "{0}.t()",
    "{0}.detach()",
    "{0}.view(-1)",
    "{0}[1:]",
    "{0}[:-1]",
    "{0}[0]",
    "{0}.mT",
    "{0}[::2]",
)


def _whole(choices: Choices, numel: int) -> str:
    return "{0}"


def _part(choices: Choices, numel: int) -> str:
    start = choices.between(0, numel // 2)
    return f"{{0}}[{start}:{choices.between(start, numel)}]"


def _stepped(choices: Choices, numel: int) -> str:
    return f"{{0}}[{choices.below(3)}::{choices.between(2, 3)}]"


def _matrix(choices: Choices, numel: int) -> str:
    columns = choices.between(1, max(1, numel // 2))
    rows = numel // columns
    start = choices.between(0, numel - rows * columns)
    return f"{{0}}[{start}:{start + rows * columns}].view({rows}, {columns})"


def _transposed(choices: Choices, numel: int) -> str:
    return _matrix(choices, numel) + ".t()"


def _columns(choices: Choices, numel: int) -> str:
    return _matrix(choices, numel) + "[:, 1:]"


def _channels_last(choices: Choices, numel: int) -> str:
    if numel < 8:
        return "{0}[:0].view(1, 2, 0, 2)"
    batch, channels = (1, 2) if numel < 16 else (2, 2)
    return f"{{0}}[:{batch * channels * 4}].view({batch}, 2, 2, {channels}).permute(0, 3, 1, 2)"


def _cube(choices: Choices, numel: int) -> str:
    return f"{{0}}[:{numel // 4 * 4}].view(2, -1, 2)" if numel >= 4 else "{0}.view(1, 1, -1)"


def _expanded(choices: Choices, numel: int) -> str:
    return f"{{0}}[:{choices.between(0, min(4, numel))}].expand({choices.between(1, 3)}, -1)"


def _overlapping(choices: Choices, numel: int) -> str:
    rows = min(3, max(1, numel - 2))
    return f"{{0}}.as_strided(({rows}, {max(0, min(3, numel - rows + 1))}), (1, 1))"


def _strided(choices: Choices, numel: int) -> str:
    rows, step = choices.between(1, 3), choices.between(1, 4)
    offset = choices.below(3)
    columns = max(0, (numel - offset - 2 * (rows - 1) - 1) // step + 1)
    return f"{{0}}.as_strided(({rows}, {min(columns, 4)}), (2, {step}), {offset})"


def _scalar(choices: Choices, numel: int) -> str:
    return f"{{0}}[{choices.below(max(1, numel))}]"


def _single(choices: Choices, numel: int) -> str:
    start = choices.below(max(1, numel))
    return f"{{0}}[{start}:{start + 1}].view(1, -1)"


LAYOUTS = (
    (6, _whole), (4, _part), (2, _stepped), (4, _matrix), (2, _transposed), (2, _columns), (1, _channels_last),
    (2, _cube), (2, _expanded), (1, _overlapping), (2, _strided), (1, _scalar), (1, _single),
)  # fmt: skip


def _draw_step(draft: _Draft) -> None:
    """One more step that eager runs, if one is found in a few attempts."""
    for _ in range(ATTEMPTS):
        line = _step_line(draft)
        if line is None:
            continue
        first = draft.live[line.args[0]]
        told, versions = _on(line, first), _versions(draft, line)
        try:
            draft.run(line)
        except Exception:  # eager refuses it: another one
            _forget(draft, line)
            continue
        if _keeps(draft, line) and not _is_undefined(draft, line, versions):
            draft.steps.append(told)
            return
        _forget(draft, line)


def _refused(draft: _Draft) -> Line | None:
    """A step that eager refuses now, if one turns up in a few attempts; nothing has been written by them."""
    if any(tensor._version for tensor in draft.live.values()):
        return None
    line = _step_line(draft)
    if line is None or not draft.steps:
        return None
    try:
        draft.run(line)
    except Exception:
        return _on(line, draft.live[line.args[0]])
    if _keeps(draft, line):
        draft.steps.append(_on(line, draft.live[line.args[0]]))
    return None


def _step_line(draft: _Draft) -> Line | None:
    is_numbered = bool(draft.numbers) and draft.choices.chance(NUMBERED_PERCENT)
    operation = draft.choices.pick(draft.choices.weighted(NUMBERED if is_numbered else FAMILIES))
    try:
        drawn: Drawn = operation.draw(draft.pen)
    except NoOperand:
        return None
    guard = "torch.no_grad()" if draft.choices.chance(12) else ""
    return Line(operation.name, drawn.template, drawn.args, draft.names(drawn.count), guard)


def _keeps(draft: _Draft, line: Line) -> bool:
    """Whether what a line has bound can stay: tensors, and small."""
    made = [draft.live[name] for name in line.targets]
    return all(isinstance(tensor, Tensor) and tensor.numel() <= LARGEST and tensor.dim() <= 5 for tensor in made)


def _versions(draft: _Draft, line: Line) -> list[int]:
    return [draft.live[name]._version for name in line.args]


def _is_undefined(draft: _Draft, line: Line, versions: list[int]) -> bool:
    """Whether a line may have written to elements that share memory with each other, or numbers that are read as bits.

    Eager allows the first where it does not see it. The result then depends on the order of its loops. Of a computed
    number the last bit depends on who computes it.
    """
    written = [
        draft.live[name]
        for name, before, after in zip(line.args, versions, _versions(draft, line), strict=True)
        if after > before
    ]
    return any(layout_of(tensor) == "overlapping" or _is_read_as_bits(draft, tensor) for tensor in written)


def _is_read_as_bits(draft: _Draft, tensor: Tensor) -> bool:
    """Whether a live tensor of whole numbers shows the memory of one with fractions."""
    others = (other for other in draft.live.values() if not has_fractions(other))
    return has_fractions(tensor) and any(_storage(other) == _storage(tensor) for other in others)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _forget(draft: _Draft, line: Line) -> None:
    for name in line.targets:
        draft.live.pop(name, None)


def _draw_outputs(draft: _Draft) -> tuple[tuple[Line, ...], str]:
    choices = draft.choices
    names = [line.targets[0] for line in draft.inputs]
    made = [name for name in draft.live if name not in names]
    items = [_output(choices, name) for name in made if choices.chance(60)] or [_output(choices, n) for n in made[-1:]]
    items += [_output(choices, name) for name in names if choices.chance(20)]
    if items and choices.chance(15):
        items.append(choices.pick(items))
    if choices.chance(10):
        items.append(Line("constant", choices.pick(CONSTANTS)))
    if draft.numbers and choices.chance(25):
        items.append(Line("number", draft.pen.number("factor")))
    if len(items) > 1 and choices.chance(15):
        items = [*items[:-2], _nested(choices, items[-2], items[-1])]
    return tuple(items), choices.weighted(FORMS)


def _output(choices: Choices, name: str) -> Line:
    templates = ((12, "{0}"), (1, "{0}.detach()"), (1, "{0}[:]"), (1, "{0}.view_as({0})"))
    template = choices.weighted(templates)
    return Line("output", "{0}" if template == "{0}[:]" and choices.chance(50) else template, (name,))


def _nested(choices: Choices, one: Line, other: Line) -> Line:
    shape = choices.pick(("[ONE, OTHER]", "(ONE, OTHER)", "{{{{'x': ONE, 'y': OTHER}}}}", "[ONE, (OTHER, None)]"))
    shifted = other.template.replace("{0}", f"{{{len(one.args)}}}")
    shape = shape.replace("{{{{", "{{").replace("}}}}", "}}")
    return Line("output", shape.replace("ONE", one.template).replace("OTHER", shifted), (*one.args, *other.args))


def _on(line: Line, tensor: Tensor) -> Line:
    """The line with the layout and dtype of the tensor that it works on."""
    return Line(
        line.operation,
        line.template,
        line.args,
        line.targets,
        line.guard,
        layout_of(tensor),
        str(tensor.dtype).removeprefix("torch."),
    )


def layout_of(tensor: Tensor) -> str:
    """How a tensor lies in memory, in a word."""
    tensor = tensor.detach()
    if tensor.dim() == 0:
        return "0-d"
    if tensor.numel() == 0:
        return "empty"
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return "expanded"
    if tensor.is_contiguous():
        return "offset" if tensor.storage_offset() else "contiguous"
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return "channels_last"
    if _reaches_itself(tensor):
        return "overlapping"
    return "transposed" if tensor.dim() > 1 and tensor.mT.is_contiguous() else "strided"


def _reaches_itself(tensor: Tensor) -> bool:
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return True
        reach += stride * (size - 1)
    return False
