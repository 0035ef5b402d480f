"""The program's functions in the Triton of attention: functions over a tile of scores, and what they are given.

    change(is_full, scores, batch, head, row, column, is_in, given...)   ->   changed(scores, ..., a1, n2)

What the functions read comes as addresses `a0, a1, ...` and sizes and strides `n0, n1, ...`, of all functions in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from assay.compiler.kernels.flex_attention.score_code import PLACE, ScoreFunction, ScoreKernel
from assay.compiler.toolchain.gpu.written_programs import Tile, element_kind, inner_function, is_written

NUMBERS, ROWS, COLUMNS, SIZES = PLACE[:2], (PLACE[2], "i"), (PLACE[3], "j"), PLACE[4:]
OF_A_TILE = {"change": ("scores",), "derive": ("scores", "gradients"), "collect": ("scores", "gradients")}
"""The tile's own buffers that each function is given."""
AT = ", ".join((*NUMBERS, "row", "column", "is_in"))


def takes_functions(functions: Sequence[ScoreFunction]) -> bool:
    """Whether Triton has text for all that the functions compute."""
    return all(is_written(each.kernel) for function in functions for each in function.kernels)


@dataclass(frozen=True, slots=True)
class GivenText:
    """The functions as text, with the names of what they are given, and the types of these as Triton names them."""

    text: str
    addresses: tuple[str, ...]
    numbers: tuple[str, ...]
    kinds: tuple[str, ...]
    has_checks: bool

    def into(self, text: str) -> str:
        """A program's text with what the functions are given in the places for it."""
        given = ", ".join((*self.addresses, *self.numbers))
        addresses, numbers = ("".join(f"{name}, " for name in names) for names in (self.addresses, self.numbers))
        text = text.replace("GIVEN", given).replace(" A N\n", f" {given}\n")
        return text.replace(" A\n", f" {addresses}\n").replace(" N\n", f" {numbers}\n")


def given_text(functions: Sequence[ScoreFunction], is_wide: bool) -> GivenText:
    """Raises: Unexpected where `takes_functions` does not hold."""
    texts, addresses, numbers = dict[str, None](), list[str](), list[str]()
    kinds, has_checks, calls = list[str](), False, dict[str, list[str]]()
    for function in functions:
        tile = Tile(OF_A_TILE[function.name], ROWS, COLUMNS, NUMBERS, SIZES)
        for each in (function.full, function.part):
            call = ""
            if each is not None:
                made = inner_function(each.kernel, tile, is_wide)
                texts[made.text], has_checks = None, has_checks or made.has_checks
                own = [f"a{len(addresses) + n}" for n in range(len(each.tensors))]
                read = [f"n{len(numbers) + n}" for n in range(len(each.sources))]
                kinds += [element_kind(buffer.dtype) for buffer in each.kernel.buffers[-len(own) :] if own]
                addresses, numbers = [*addresses, *own], [*numbers, *read]
                call = _call(function.name, each, [*own, *read])
            calls.setdefault(function.name, []).append(call)
    names = ", ".join((*addresses, *numbers))
    for name, (full, part) in calls.items():
        texts[_wrapper(name, full, part, names)] = None
    return GivenText("\n\n".join(texts), tuple(addresses), tuple(numbers), tuple(kinds), has_checks)


def tensors_of(functions: Sequence[ScoreFunction], given: Sequence[Tensor | int]) -> list[Tensor]:
    """The tensors that functions read, in the order of their addresses."""
    return [given[place] for each in _kernels(functions) for place in each.tensors]  # type: ignore[misc]


def numbers_of(functions: Sequence[ScoreFunction], given: Sequence[Tensor | int]) -> list[int]:
    """The sizes and strides that functions read, in the order of their names."""
    return [number for each in _kernels(functions) for number in each.numbers(given)[len(each.tensors) :]]


def _kernels(functions: Sequence[ScoreFunction]) -> list[ScoreKernel]:
    both = [each for function in functions for each in (function.full, function.part)]
    return [each for each in both if each is not None]


def _call(name: str, kernel: ScoreKernel, given: Sequence[str]) -> str:
    more = ["collected"] if name == "collect" else []
    return f"{kernel.kernel.name}({', '.join([*OF_A_TILE[name], AT, *more, *given])})"


def _wrapper(name: str, full: str, part: str, given: str) -> str:
    """The function that calls the kernel for a whole block, or that for one which the mask shows partly."""
    more = ", collected" if name == "collect" else ""
    head = f"def {name}(is_full: tl.constexpr, {', '.join(OF_A_TILE[name])}, {AT}{more}, {given}):"
    if name == "collect":
        return f"@triton.jit\n{head}\n    {full or 'pass'}\n"
    unchanged = OF_A_TILE[name][-1]
    return (
        f"@triton.jit\n{head}\n    if is_full:\n        return {full or unchanged}\n    else:\n"
        f"        return {part or unchanged}\n"
    )
