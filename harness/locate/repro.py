"""A shrunk program as one file that needs torch alone, and asserts what was observed; and the text of an issue.

It is run in fresh processes before it is shown. What is said of it is how often it failed there, in the way that it
says.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from assay.harness.backends.registry import FLAGS, OWN
from assay.harness.locate.shrink import Shrunk
from assay.harness.outcome import Result
from assay.harness.processes.child import Child
from assay.harness.report.environment import environment

TIMES = 3
PLAIN = "eager-none"
TIMEOUT_S = 120.0
OBSERVED: Mapping[str, str] = {
    "values": "list(outputs)",
    "gradient": "[x.grad for x in inputs if x.requires_grad]",
    "mutation": "[x.detach() for x in inputs]",
    "shape": "[tuple(y.shape) for y in outputs]",
    "dtype": "[y.dtype for y in outputs]",
    "stride": "[y.stride() for y in outputs]",
    "version": "[x._version for x in inputs]",
    "requires_grad": "[y.requires_grad for y in outputs]",
    "alias": "[[y.untyped_storage().data_ptr() == z.untyped_storage().data_ptr() for y in (*inputs, *outputs)]"
    " for z in outputs]",
    "random": "torch.get_rng_state()",
    "view": "[y._base is not None for y in outputs]",
    "is_leaf": "[y.is_leaf for y in outputs]",
    "has_grad_fn": "[y.grad_fn is not None for y in outputs]",
    "is_inference": "[y.is_inference() for y in outputs]",
    "offset": "[y.storage_offset() for y in outputs]",
}
"""What a file looks at, by the field that differs."""
NUMBERS = ("values", "gradient", "mutation")
FILE = """\
# {title}
# torch {version}; fails {rate}
{imports}

{body}


def observed(function, seed):
    torch.manual_seed(seed)
    inputs = [{inputs}]
    outputs = function(*inputs)
{backward}    return {observed}


function = {function}
eager = [observed(program, seed) for seed in range({calls})]
compiled = [observed(function, seed) for seed in range({calls})]
{check}
"""
BACKWARD = """\
    roots = [y for y in outputs if y.requires_grad]{which}
    torch.autograd.backward(roots, [torch.randn_like(y) for y in roots])
"""
ISSUE = """\
### {title}

Eager and `torch.compile(..., {settings})` give different results: {field} at `{path}`.
{detail}

The program below asserts that they agree. It failed in {rate}.
The first stage that differs is `{rung}`; `{below}` is as eager.

```python
{source}```

### Versions

{versions}
"""


@dataclass(frozen=True, slots=True)
class Repro:
    """A file, in how many of `runs` fresh processes it failed, and the text of an issue."""

    source: str
    failures: int
    runs: int
    issue: str = ""

    @property
    def is_verified(self) -> bool:
        return self.failures == self.runs

    @property
    def lines(self) -> int:
        return len(self.source.splitlines())


def first_difference(row: Result) -> tuple[str, str, str]:
    """The field, the path and the sentence of what differs first; the verdict where it raises."""
    if not row.differences:
        return row.verdict, "the call", row.detail.partition("\n")[0]
    known = [each for each in row.differences if each.field in OBSERVED]
    each = (known or list(row.differences))[0]
    return each.field, each.path.partition(": ")[2] or each.path, each.detail


def backend_of(backend: str) -> tuple[str, str]:
    """The lines that import a backend, and what `torch.compile` is given of it."""
    bare, *settings = backend.split(",")
    module, _, attribute = OWN.get(bare, bare).partition(":")
    imports = f"from {module} import {attribute}\n" if attribute else ""
    options = {name: _number(text) for name, text in (s.split("=", 1) for s in settings if "=" in s)}
    given = [f"backend={attribute or repr(bare)}", *(f"{flag}=True" for flag in settings if flag in FLAGS)]
    return imports, ", ".join(given + ([f"options={options!r}"] if options else []))


def _number(text: str) -> object:
    return {"True": True, "False": False}.get(text, int(text) if text.lstrip("-").isdigit() else text)


@dataclass(frozen=True, slots=True)
class Form:
    """What a file does: how many calls it makes, and from which outputs backward begins."""

    calls: int = 1
    which: str = ""


def forms(shrunk: Shrunk) -> Iterator[Form]:
    """The forms in which a failure may show, the plainest first."""
    yield Form()
    yield Form(calls=3)
    count = shrunk.body.rpartition("return ")[2].count(",")
    yield from (Form(which=f"[{place}:{place + 1}]") for place in range(count) if count > 1)


def text_of(shrunk: Shrunk, case: str, mode: str, backend: str, rate: str = "", form: Form | None = None) -> str:
    """The file's text. On the backend `PLAIN` nothing is compiled: such a file fails only by a fault of its own."""
    form = form or Form()
    field, path, _ = first_difference(shrunk.row)
    own, settings = ("", "") if backend == PLAIN else backend_of(backend)
    imports = ("import operator\n" if "operator." in shrunk.body else "") + "import torch\n" + own
    if field in NUMBERS:
        check = "torch.testing.assert_close(compiled, eager, equal_nan=True)"
    else:
        check = 'assert str(compiled) == str(eager), f"compiled: {compiled}, eager: {eager}"'
    has_backward = mode == "train" and "requires_grad_" in shrunk.inputs
    return FILE.format(
        title=f"{case}, {mode}, {backend}: {field} at {path}", version=torch.__version__, rate=rate, imports=imports,
        body=shrunk.body, inputs=shrunk.inputs, observed=OBSERVED.get(field, "list(outputs)"),
        function="program" if backend == PLAIN else f"torch.compile(program, {settings})",
        backward=BACKWARD.format(which=form.which) if has_backward else "", check=check, calls=form.calls,
    )  # fmt: skip


def verified(source: str, times: int = TIMES) -> int:
    """In how many of so many fresh processes the file fails, for whatever reason."""
    with tempfile.TemporaryDirectory(prefix="assay-repro-") as folder:
        path = Path(folder) / "repro_of_a_difference.py"
        path.write_text(source)
        return sum(_fails(path) for _ in range(times))


def _fails(path: Path) -> bool:
    paths = os.pathsep.join([str(path.parent), *(each or "." for each in sys.path)])
    child = Child(path.stem, environment={"PYTHONPATH": paths})
    try:
        status = child.wait(TIMEOUT_S)
    finally:
        child.end()
    return status != 0


@dataclass(frozen=True, slots=True)
class Failing:
    """A row that fails, the first rung on which it does, and the one `below`, where it does not; that one may be ""."""

    case: str
    mode: str
    backend: str
    rung: str
    below: str


def repro_of(shrunk: Shrunk, failing: Failing, times: int = TIMES) -> Repro:
    """The file with how often it failed, and the issue. A file that fails without a compiler shows nothing."""
    case, mode, backend = failing.case, failing.mode, failing.backend
    texts = {form: text_of(shrunk, case, mode, backend, form=form) for form in forms(shrunk)}
    shown = next((form for form, text in texts.items() if verified(text, 1)), Form())
    is_sound = verified(text_of(shrunk, case, mode, PLAIN, form=shown), 1) == 0
    failures = verified(texts[shown], times) if is_sound else 0
    rate = f"{failures} of {times} fresh processes"
    source = text_of(shrunk, case, mode, backend, f"in {rate}", shown)
    field, path, detail = first_difference(shrunk.row)
    versions = "\n".join(f"- {name}: {value}" for name, value in environment().items() if name != "commit")
    issue = ISSUE.format(
        title=f"{backend.partition(',')[0]}: {field} differs from eager in {'+'.join(shrunk.operators) or 'no call'}",
        settings=backend_of(backend)[1], field=field, path=path, detail=detail, rate=rate, rung=failing.rung,
        below=failing.below or "nothing", source=source, versions=versions,
    )  # fmt: skip
    return Repro(source, failures, times, issue)
