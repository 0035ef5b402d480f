"""Programs that are simpler than a given one by one change: what a failure is made smaller with.

Simpler is fewer lines first, then shorter text with plainer values. Whether a candidate still fails, or is a program
at all, is for the caller to find out by running it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from assay.suites.programs.definitions import SCENARIOS
from assay.suites.programs.pen import FORMS
from assay.suites.programs.program import KINDS, VALUES, Line, Number, Program, Storage

NUMBER = re.compile(r"(?<![\w.{-])\d+(?![\w.}])")
PLAIN_DTYPE = "float32"
SMALL = (1, 2, 3, 4, 6, 8, 12, 16)
FUNCTIONAL, WRITING = "{0} + 1", "{0}.add_(1)"
PLAIN_VALUES = ("2", "3", "1", "0", "-1", "0.5", "2.0", "False")
"""Values of a number, the plainest first."""


def simpler(program: Program) -> Iterator[Program]:
    """Programs with one change each, the boldest first."""
    size = weight(program)
    yield from (candidate for candidate in _candidates(program) if weight(candidate) < size)


def weight(program: Program) -> tuple[int, int]:
    """Lines, and characters with a surcharge for what is not plain."""
    parts = (program.storages, program.inputs, program.steps, program.outputs)
    odd = sum(storage.dtype != PLAIN_DTYPE for storage in program.storages)
    odd += sum(list(VALUES).index(storage.values) for storage in program.storages)
    drawn = sum(step.template not in (FUNCTIONAL, WRITING) for step in program.steps)
    plain = sum(map(_oddity, (value for call in program.calls for value in call)))
    lines = sum(map(len, parts)) + len(program.numbers) + len(program.calls)
    return lines, len(program.source()) + 20 * (odd + drawn) + plain + sum(s.numel for s in program.storages)


def _oddity(value: str) -> int:
    return PLAIN_VALUES.index(value) if value in PLAIN_VALUES else len(PLAIN_VALUES)


def _candidates(program: Program) -> Iterator[Program]:
    yield from _without_calls(program)
    yield from _without_steps(program)
    yield from _without_numbers(program)
    yield from _without_outputs(program)
    yield from _without_inputs(program)
    yield from _with_storages(program)
    yield from _with_lines(program)
    yield from _with_plainer_values(program)
    yield from (replace(program, scenario=name) for name in SCENARIOS if name != program.scenario)
    yield from (replace(program, form=form) for form in ("bare", "tuple") if form != program.form)


def _without_calls(program: Program) -> Iterator[Program]:
    """With fewer calls, of which at least one is left."""
    calls = program.calls
    for length in (len(calls) // 2, 1):
        for start in range(0, len(calls), max(1, length)):
            left = (*calls[:start], *calls[start + length :])
            if left and length:
                yield program.with_calls(left)


def _without_numbers(program: Program) -> Iterator[Program]:
    """With the value that a number has in some call in its place, or another number of its kind."""
    for number in program.numbers:
        kept = tuple(other for other in program.numbers if other is not number)
        alike = [other.slot for other in kept if KINDS[other.name] == KINDS[number.name]]
        for text in (*alike, *(f"({value})" for value in dict.fromkeys(number.values))):
            yield _with_text(replace(program, numbers=kept), number.slot, text)


def _with_text(program: Program, old: str, new: str) -> Program:
    def changed(lines: Sequence[Line]) -> tuple[Line, ...]:
        return tuple(replace(line, template=line.template.replace(old, new)) for line in lines)

    return replace(program, steps=changed(program.steps), outputs=changed(program.outputs))


def _with_plainer_values(program: Program) -> Iterator[Program]:
    for index, number in enumerate(program.numbers):
        for values in _plainer_values(number):
            numbers = (*program.numbers[:index], replace(number, values=values), *program.numbers[index + 1 :])
            yield replace(program, numbers=numbers)


def _plainer_values(number: Number) -> Iterator[tuple[str, ...]]:
    for place, value in enumerate(number.values):
        for plain in PLAIN_VALUES[: _oddity(value)]:
            yield (*number.values[:place], plain, *number.values[place + 1 :])


def _without_steps(program: Program) -> Iterator[Program]:
    count = len(program.steps)
    length = count
    while length:
        for start in range(0, count, length):
            yield _without(program, program.steps[start : start + length])
        length //= 2


def _without(program: Program, dropped: Sequence[Line]) -> Program:
    """The program without some steps: what they made is replaced by what they made it of."""
    names: dict[str, str] = {}
    for line in dropped:
        source = names.get(line.args[0], line.args[0]) if line.args else ""
        names.update({target: source for target in line.targets})
    kept = tuple(line.renamed(names) for line in program.steps if line not in dropped)
    return replace(program, steps=kept, outputs=tuple(line.renamed(names) for line in program.outputs))


def _without_outputs(program: Program) -> Iterator[Program]:
    outputs = program.outputs
    for index, line in enumerate(outputs):
        yield replace(program, outputs=(*outputs[:index], *outputs[index + 1 :]))
        for name in line.args:
            plain = replace(line, template="{0}", args=(name,))
            yield replace(program, outputs=(*outputs[:index], plain, *outputs[index + 1 :]))


def _without_inputs(program: Program) -> Iterator[Program]:
    """Without an input, whose uses become another's; without a storage that nothing uses."""
    for line in program.inputs:
        for other in (None, *program.inputs):
            if other is not line:
                yield _input_replaced(program, line, other)


def _input_replaced(program: Program, line: Line, other: Line | None) -> Program:
    names = {line.targets[0]: other.targets[0]} if other is not None else {}
    rest = (each.renamed(names) for each in program.inputs if each is not line)
    changed = replace(
        program,
        inputs=tuple(rest),
        steps=_renamed(program.steps, names),
        outputs=_renamed(program.outputs, names),
    )
    used = {name for each in changed.inputs for name in each.args}
    return replace(changed, storages=tuple(storage for storage in program.storages if storage.name in used))


def _renamed(lines: Sequence[Line], names: Mapping[str, str]) -> tuple[Line, ...]:
    return tuple(line.renamed(names) for line in lines)


def _with_storages(program: Program) -> Iterator[Program]:
    for index, storage in enumerate(program.storages):
        for plainer in _plainer(storage):
            storages = (*program.storages[:index], plainer, *program.storages[index + 1 :])
            yield replace(program, storages=storages)


def _plainer(storage: Storage) -> Iterator[Storage]:
    yield from (replace(storage, gradient=gradient) for gradient in ("none", "leaf"))
    yield from (replace(storage, numel=numel) for numel in SMALL if numel < storage.numel)
    yield replace(storage, dtype=PLAIN_DTYPE)
    yield from (replace(storage, values=values) for values in list(VALUES)[: list(VALUES).index(storage.values)])


def _with_lines(program: Program) -> Iterator[Program]:
    for part in ("inputs", "steps", "outputs"):
        lines: tuple[Line, ...] = getattr(program, part)
        for index, line in enumerate(lines):
            for plainer in _plainer_lines(line, part):
                changed: dict[str, tuple[Line, ...]] = {part: (*lines[:index], plainer, *lines[index + 1 :])}
                yield replace(program, **changed)  # type: ignore[arg-type]


def _plainer_lines(line: Line, part: str) -> Iterator[Line]:
    if line.args and part == "inputs":
        yield replace(line, template="{0}")
        yield replace(line, template=line.template.replace(".detach().requires_grad_()", ""))
        yield replace(line, template="{0}." + line.template.rpartition(".")[2] if "." in line.template else "{0}")
    if line.args and part == "steps" and len(line.targets) < 2:
        template, operation = (FUNCTIONAL, "add") if line.targets else (WRITING, "add_")
        yield replace(line, template=template, args=line.args[:1], operation=operation)
    if line.guard:
        yield replace(line, guard="")
    yield from (replace(line, template=template) for template in _plainer_forms(line.template))
    yield from (replace(line, template=template) for template in _plainer_numbers(line.template))


def _plainer_forms(template: str) -> Iterator[str]:
    """The text with the bare number in the place of arithmetic with it."""
    for name, kind in KINDS.items():
        slot = f"{{{name}}}"
        for form in FORMS[kind] if slot in template else ():
            text = form.replace("NUMBER", slot)
            if text in template:
                yield template.replace(text, slot)


def _plainer_numbers(template: str) -> Iterator[str]:
    """The text with one of its numbers made smaller."""
    for found in NUMBER.finditer(template):
        number = int(found.group())
        for smaller in sorted({0, 1, number // 2, number - 1}):
            if smaller < number:
                yield f"{template[: found.start()]}{smaller}{template[found.end() :]}"
