"""One small program through every stage of the compiler, with the real text of each state.

    python -m assay.suites.tables.followed_program            prints the page, which the build of the documents includes

The texts are the files of `ASSAY_DUMP`, and what `ASSAY_DEBUG=2` prints. They are made by compiling the program, so
that they cannot be stale.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.compiler.entry.dynamo import assay
from assay.compiler.passes import CHOICES, FUNCTIONAL, PASSES
from assay.suites.tables.compiler_facts import first_line

PLACE = re.compile(r"(?<=# File: )\S*/(?=\w+\.py)")
NUMBERED = re.compile(r"(\d+)_(\w+)\.py")
SAID: Mapping[str, str] = {
    "joint": "After `capture` and `differentiate`: the functional ATen graph of the call, and then the formulas of "
    "its gradients. `input_0` and `input_1` are the arguments. `tangents_1` is the gradient that arrives from outside.",
    "captured": "After `capture`: the functional ATen graph of the call.",
    "write_in_place forward": "After `partition`: the forward. Behind the result it returns the values that backward "
    "reads. Writes are made in place where nothing can see it.",
    "write_in_place backward": "After `partition`: the backward. It takes these values, then the tangent. What costs "
    "less to compute than to keep is computed again.",
    "schedule": "After `lower`, `fuse` and `plan`: the loops of each kernel. `#` begins the names of its nodes.",
    "source_graph": "After `emit`: the host function. It allocates, launches, and frees each value after its last use.",
    "source_kernels": "The kernels in the language of the device. A CPU gets C++, a GPU gets Triton.",
    "source_call": "After `link`: the calling convention around both graphs, which autograd sees as one node.",
}
TWICE = ("write_in_place", "schedule", "source_graph", "source_kernels")
"""The states that forward and backward both have, in this order."""


def scaled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The program that is followed."""
    return torch.relu(x * weight + 1).sum(dim=1)


@dataclass(frozen=True, slots=True)
class State:
    """One intermediate state: its name, which half of the call it is of, and its text."""

    name: str
    half: str
    text: str

    @property
    def title(self) -> str:
        return f"`{self.name}`" + (f", {self.half}" if self.half else "")

    @property
    def language(self) -> str:
        return {"source_kernels": "cpp", "schedule": "text"}.get(self.name, "python")


def followed() -> tuple[list[State], str]:
    """The states of the program in their order, and the lines that `ASSAY_DEBUG=2` prints.

    Raises: RuntimeError where the compiler gave the program back to eager, so that there are none.
    """
    torch._dynamo.reset()
    torch.manual_seed(0)
    given = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    with tempfile.TemporaryDirectory(prefix="assay-followed-") as folder, _heard() as printed:
        options: dict[str, Any] = {"dump": folder, "warm": False, "debug": 2}
        torch.compile(scaled, backend=assay, options=options)(*given).sum().backward()
        states = list(_states(Path(folder)))
    torch._dynamo.reset()
    if not states:
        raise RuntimeError("the program that the documents follow was not compiled")
    return states, printed.getvalue()


@contextlib.contextmanager
def _heard() -> Iterator[io.StringIO]:
    """What is printed meanwhile."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        yield printed


def _states(folder: Path) -> Iterator[State]:
    seen: dict[str, int] = {}
    for path in sorted(folder.rglob("*.py")):
        found = NUMBERED.fullmatch(path.name)
        assert found is not None, path
        name = found[2]
        half = ("forward", "backward")[seen.get(name, 0)] if name in TWICE else ""
        seen[name] = seen.get(name, 0) + 1
        yield State(name, half, PLACE.sub("", path.read_text()).strip())


def page() -> str:
    """The program, each of its states with a sentence about it, and what the debug option prints."""
    states, printed = followed()
    steps = (*PASSES, FUNCTIONAL, *CHOICES)
    said = {step.name: f"After the pass `{step.name}`. {first_line(step)}" for step in steps} | dict(SAID)
    sections = (_section(state, said) for state in states)
    program = _code("python", inspect.getsource(scaled).replace('    """The program that is followed."""\n', ""))
    debug = f"### What `ASSAY_DEBUG=2` prints\n\n{_code('text', printed.strip())}"
    return "\n\n".join([program, *sections, debug]) + "\n"


def _section(state: State, said: Mapping[str, str]) -> str:
    """A state under its title, with the sentence about it."""
    sentence = said.get(f"{state.name} {state.half}") or said[state.name]
    return f"### {state.title}\n\n{sentence}\n\n{_code(state.language, state.text)}"


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


def main() -> int:
    sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
