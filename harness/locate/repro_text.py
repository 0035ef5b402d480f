"""The text of a repro: a shrunk program, what is observed of it in eager and compiled, and the check of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from assay.harness.backends.registry import FLAGS, OWN, STRICT, WITHOUT_DYNAMO
from assay.harness.locate import repro_acts
from assay.harness.locate.repro_settings import GRADIENTS_ON, SETTING_TEXTS
from assay.harness.locate.runner import step_of
from assay.harness.locate.shrinking.shrink import Shrunk
from assay.harness.locate.source.text_of_case import FUTURE
from assay.harness.outcome import Result
from assay.harness.protocol.acts import DEFAULT, Protocol

PLAIN = "eager-none"
GRADIENTS = "[x.grad for x in inputs if x.grad is not None]"
PLACES: Mapping[str, str] = {"output": "outputs", "gradient": GRADIENTS, "state": "inputs"}
OF_ALL: Mapping[str, str] = {
    "values": "[y.detach().clone() for y in outputs]",
    "earlier": "outputs",
    "gradient": "[torch.empty(0) if x.grad is None else x.grad.clone() for x in inputs if x.requires_grad]",
    "mutation": "[x.detach().clone() for x in inputs]",
    "version": "[x._version for x in inputs]",
    "random": "torch.get_rng_state().tolist()",
    "structure": "(str(tree_structure(result)), [type(y) for y in tree_leaves(result)])",
    "ambient": "",
    "alias": "[[(y is z, y.untyped_storage().data_ptr() == z.untyped_storage().data_ptr()) for y in seen_now]"
    " for z in seen_now]",
    "view": "[[y._base is x for x in (None, *seen_now)] for y in outputs]",
    "error": "",
}
"""What a file looks at, by the field that differs."""
WITH_NUMBERS = (
    "[y.detach().clone() if isinstance(y, torch.Tensor) else y"
    " for y in tree_leaves(result) if isinstance(y, torch.Tensor | int | float | complex)]"
)
"""The values of a case's own result, which may hold Python numbers too."""


@dataclass(frozen=True, slots=True)
class Watch:
    """How a file observes what no tensor shows: lines before the call, a `with` around it, lines after it."""

    imports: str
    looks: str
    before: tuple[str, ...] = ()
    around: str = ""
    after: tuple[str, ...] = ()


WATCHED: Mapping[str, Watch] = {
    "held": Watch(
        "weakref", "[each() is None for each in known]",
        after=("known = [weakref.ref(y) for y in (*inputs, *outputs)]",
               "args = kwargs = inputs = outputs = result = roots = None"),
    ),
    "hooks": Watch(
        "", "sorted(arrived)",
        ("arrived = []", "leaves = [x for x in inputs if x.requires_grad]",
         "hooks = [x.register_hook(lambda _, n=n: arrived.append(n)) for n, x in enumerate(leaves)]"),
        after=("[each.remove() for each in hooks]",),
    ),
    "printed": Watch(
        "contextlib, io", "call and printed.getvalue()", ("printed = io.StringIO()",),
        "with contextlib.redirect_stdout(printed):",
    ),
    "warnings": Watch(
        "warnings", "call and sorted(each.category.__name__ for each in caught)",
        around='with warnings.catch_warnings(record=True, action="always") as caught:',
    ),
}  # fmt: skip
"""The first call is not watched where compiling itself may print or warn. Hooks are counted, as right backends call
them in other orders."""
OF_EACH: Mapping[str, str] = {
    "shape": "tuple(y.shape)", "dtype": "y.dtype", "stride": "y.stride()", "offset": "y.storage_offset()",
    "requires_grad": "y.requires_grad", "is_leaf": "y.is_leaf", "has_grad_fn": "y.grad_fn is not None",
    "is_inference": "y.is_inference()", "conj": "y.is_conj()", "neg": "y.is_neg()", "layout": "y.layout",
    "device": "y.device", "storage": "y.untyped_storage().nbytes()",
}  # fmt: skip
"""The same for fields of a tensor: of results, gradients, or inputs."""
CHAIN = "[names_of(y.grad_fn) for y in outputs if y._base is not None]"
NUMBERS = ("values", "gradient", "mutation", "earlier")
FILE = """\
# {title}
# torch {version}; fails {rate}
{imports}
{body}


def observed(compile):
    torch.manual_seed(0)
    function, args, kwargs = made()
    compiled, seen = compile(function), []
    for call in range({calls}):
        torch.manual_seed(call)
{run}
    return seen


eager = observed(lambda function: function)
compiled = observed({compile})
{check}
"""
NAMES_OF = """

def names_of(node):
    return [] if node is None else [node.name(), *names_of((node.next_functions or [(None, 0)])[0][0])]
"""
SAME, FRESH, MOVED, DRAWN = "same", "fresh", "moved", "drawn"
GIVEN: Mapping[str, str] = {
    SAME: "",
    FRESH: "args, kwargs = made()[1:] if call else (args, kwargs)",
    MOVED: "[x.data.mul_(0.75) for x in inputs if call and x.is_floating_point()]",
    DRAWN: "[x.data.normal_() for x in inputs if call and x.is_floating_point()]",
}
"""What a call after the first is given: the same tensors, others, or the same with other numbers in them: smaller
ones, or any."""


OTHER: Mapping[str, str] = {"infer": "train", "train": "infer"}
IN_DOUBLE = (
    "args = tree_map_only(torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, args)"
    "; function.double() if isinstance(function, torch.nn.Module) else None"
)


@dataclass(frozen=True, slots=True)
class Form:
    """What a file does: how many calls it makes, what they are given, and from which outputs backward begins.

    It may run in the other mode, or with its floats in double precision. Numbers may have to be the same bit for bit.
    `acts`: each call is made as an act says, with arguments of its own.
    """

    calls: int = 1
    given: str = SAME
    which: str = ""
    in_other_mode: bool = False
    in_double: bool = False
    is_exact: bool = False
    acts: Protocol = ()


def forms(shrunk: Shrunk, mode: str) -> Iterator[Form]:
    """The forms in which a failure may show, the likeliest first: by the step in which it was seen."""
    if shrunk.acts and repro_acts.can_be_said(shrunk.acts):
        yield Form(len(shrunk.acts), FRESH, acts=shrunk.acts)
    several = [Form(3, given) for given in (FRESH, SAME, MOVED, DRAWN)]
    further = [Form(in_other_mode=True), Form(3, FRESH, in_other_mode=True), Form(in_double=True)]
    count = shrunk.body.rpartition("return ")[2].count(",")
    parts = [Form(which=f"[{place}:{place + 1}]") for place in range(count) if not shrunk.is_case and count > 1]
    step = step_of(shrunk.row) or 1
    later = [*further, *several] if step > len(DEFAULT[mode]) else [*several, *parts, *further]
    yield from [Form(), *later] if step == 1 else [*later, Form()]
    if first_difference(shrunk.row)[0] in NUMBERS:
        yield from (dataclasses.replace(form, is_exact=True) for form in (Form(), *several))


def first_difference(row: Result) -> tuple[str, str, str]:
    """The field, the path and the sentence of what differs first; the verdict where the backend raises or dies."""
    if not row.differences or row.verdict == "crash":
        return row.verdict, "the call", row.detail.partition("\n")[0]
    known = [each for each in row.differences if any(each.field in table for table in (OF_ALL, OF_EACH, WATCHED))]
    each = (known or list(row.differences))[0]
    return each.field, each.path.partition(": ")[2] or each.path, each.detail


def backend_of(backend: str, is_strict: bool = False) -> tuple[str, str]:
    """The lines that import a backend, and what `torch.compile` is given of it. `is_strict`: one that gives back what
    it cannot compile raises instead."""
    bare, *settings = backend.split(",")
    module, _, attribute = OWN.get(bare, bare).partition(":")
    imports = f"from {module} import {attribute}\n" if attribute else ""
    options = {name: _number(text) for name, text in (s.split("=", 1) for s in settings if "=" in s)}
    options = {"fallback": "limits"} | options if is_strict and bare in STRICT else options
    given = [f"backend={attribute or repr(bare)}", *(f"{flag}=True" for flag in settings if flag in FLAGS)]
    return imports, ", ".join(given + ([f"options={options!r}"] if options else []))


def _number(text: str) -> object:
    return {"True": True, "False": False}.get(text, int(text) if text.lstrip("-").isdigit() else text)


def _compiled(backend: str, is_strict: bool) -> tuple[str, str]:
    """The lines that import a backend, and the text of what compiles with it."""
    if backend == PLAIN:
        return "", "lambda function: function"
    bare, *settings = backend.split(",")
    if bare != WITHOUT_DYNAMO:
        imports, given = backend_of(backend, is_strict)
        return imports, f"lambda function: torch.compile(function, {given})"
    imports = "from assay.compiler.entry.aot import aot_function, make_boxed_func\n"
    given = ", ".join(f"{flag}=True" for flag in settings)
    as_recorded = "lambda graph, _: make_boxed_func(graph.forward)"
    return imports, f"lambda function: aot_function(function, {', '.join(filter(None, [as_recorded, given]))})"


def text_of(shrunk: Shrunk, case: str, mode: str, backend: str, rate: str = "", form: Form | None = None) -> str:
    """The file's text. On the backend `PLAIN` nothing is compiled: such a file fails only by a fault of its own."""
    form = form or Form()
    field, path, detail = first_difference(shrunk.row)
    own, compiled = _compiled(backend, is_strict=field in ("crash", "error"))
    is_chain = field == "view" and "was made by" in detail
    body = [line for line in shrunk.body.splitlines() if line not in (FUTURE, "import torch")]
    imports = "\n".join(_imports(shrunk, form))
    ran_in = OTHER[mode] if form.in_other_mode else mode
    off = f"\n{GRADIENTS_ON.format(False)}\n" * (ran_in == "infer")
    return FILE.format(
        title=f"{case}, {mode}, {backend}: {field} at {path}", version=torch.__version__, rate=rate,
        imports=f"{imports}\n{own}{off}", body="\n".join(body) + _made(shrunk) + NAMES_OF.rstrip() * is_chain,
        calls=form.calls, compile=compiled, run=_run(shrunk, ran_in, form, field, path, is_chain),
        check=_check(field, form),
    )  # fmt: skip


def _imports(shrunk: Shrunk, form: Form) -> Iterator[str]:
    if FUTURE in shrunk.body:
        yield FUTURE
    if "operator." in shrunk.body and not shrunk.is_case:
        yield "import operator"
    yield "import torch"
    field, path, _ = first_difference(shrunk.row)
    watch = SETTING_TEXTS[path] if field == "ambient" else WATCHED.get(field)
    if watch is not None and watch.imports:
        yield f"import {watch.imports}"
    needed = ["tree_leaves", *["tree_map_only"] * (form.in_double or bool(form.acts))]
    needed += ["tree_structure"] * (field == "structure")
    yield f"from torch.utils._pytree import {', '.join(sorted(needed))}"


def _made(shrunk: Shrunk) -> str:
    """What makes the call of a graph; a case's own text has it."""
    return (
        ""
        if shrunk.is_case
        else f"\n\n\ndef made():\n    return program, ({shrunk.inputs},), {{}}".replace("(,)", "()")
    )


def _check(field: str, form: Form) -> str:
    if field in NUMBERS:
        return f"torch.testing.assert_close(compiled, eager, equal_nan=True{', rtol=0, atol=0' * form.is_exact})"
    return 'assert str(compiled) == str(eager), f"compiled: {compiled}, eager: {eager}"'


def _run(shrunk: Shrunk, mode: str, form: Form, field: str, path: str, is_chain: bool) -> str:
    """The lines of one call, its backward, and what is seen of it."""
    looks = CHAIN if is_chain else _looked_at(field, path)
    looks = WITH_NUMBERS if shrunk.is_case and looks == OF_ALL["values"] else looks
    lines = [*_settings(shrunk, mode, field, path), *_inputs(shrunk, mode, form), *_watched(shrunk, mode, form, field)]
    if field == "gradient":
        lines.insert(-1, "[x.retain_grad() for x in inputs if x.requires_grad]")
    if "seen_now" in looks:
        lines.append(f"seen_now = [*inputs, *outputs, *{GRADIENTS}]")
    lines.append('seen.append("no error")' if field == "error" else f"seen.append({looks})")
    if field == "error" or repro_acts.may_raise(form.acts):
        raised = "None" if field in NUMBERS else "type(error).__name__"
        lines = ["try:", *(f"    {line}" for line in lines), "except Exception as error:", f"    seen.append({raised})"]
    return "\n".join(f"        {line}" for line in lines)


def _settings(shrunk: Shrunk, mode: str, field: str, path: str) -> Iterator[str]:
    """The lines that put back what a call before may have left changed."""
    own = SETTING_TEXTS[path].put if field == "ambient" else ""
    grad = GRADIENTS_ON if "set_grad_enabled" in shrunk.body else ""
    yield from (line.format(mode == "train") for line in dict.fromkeys((grad, own)) if line)


def _inputs(shrunk: Shrunk, mode: str, form: Form) -> Iterator[str]:
    """The lines that make the tensors of a call."""
    if form.given == FRESH:
        yield GIVEN[FRESH]
    if form.in_double:
        yield IN_DOUBLE
    yield from repro_acts.changed_arguments(form.acts)
    yield "inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]"
    if "Module" in shrunk.body or ("nn." in shrunk.body and shrunk.is_case):
        yield "is_module = isinstance(function, torch.nn.Module)"
        yield "inputs += list(function.state_dict(keep_vars=True).values()) if is_module else []"
        yield from ["function.train(False) if is_module else None"] * (mode == "infer")
    if form.given in (MOVED, DRAWN):
        yield GIVEN[form.given]


def _called(shrunk: Shrunk, mode: str, form: Form) -> Iterator[str]:
    """The lines of the call, and in training of its backward."""
    numbers = ", *NUMBERS[call % len(NUMBERS)]" if shrunk.is_case and "\nNUMBERS = " in shrunk.body else ""
    by = "scenario(compiled, " if shrunk.is_case and _has_scenario(shrunk.body) else "compiled("
    if mode == "train" and form.calls > 1:
        yield "[setattr(x, 'grad', None) for x in inputs if x.is_leaf]"
    yield f"result = {by}*args{numbers}, **kwargs)"
    yield "outputs = [y for y in tree_leaves(result) if isinstance(y, torch.Tensor)]"
    if mode == "train":
        yield f"roots = [y for y in outputs if y.requires_grad]{form.which}"
        yield "torch.autograd.backward(roots, [torch.randn_like(y) for y in roots]) if roots else None"


def _watched(shrunk: Shrunk, mode: str, form: Form, field: str) -> Iterator[str]:
    """The lines of the call, and those that observe it."""
    called, watch = _called(shrunk, mode, form), WATCHED.get(field, Watch("", ""))
    yield from watch.before
    around = [*repro_acts.contexts(form.acts), *[watch.around] * bool(watch.around)]
    yield from (f"{'    ' * depth}{line}" for depth, line in enumerate(around))
    yield from (f"{'    ' * len(around)}{line}" for line in called)
    yield from watch.after


def _has_scenario(body: str) -> bool:
    return "\ndef scenario(" in body or "\nscenario = " in body or "import scenario" in body or " as scenario" in body


def _looked_at(field: str, path: str) -> str:
    """The expression of what is observed."""
    if field in OF_EACH:
        place = "gradient" if path.endswith(".grad") else "output" if path.startswith("output") else "state"
        return f"[{OF_EACH[field]} for y in {PLACES[place]}]"
    if field in WATCHED:
        return WATCHED[field].looks
    if field == "ambient":
        return SETTING_TEXTS[path].looks
    return OF_ALL.get(field, OF_ALL["values"])
