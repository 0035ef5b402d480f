"""How much of torch's operator database is generated: a working list, and a quick check of values and gradients.

    python -m assay.suites.generated_share                       counts over float32 samples, most frequent calls first
    python -m assay.suites.generated_share --check --dtypes float32,bfloat16 --only 'nn.functional.*loss'

All samples of an operator and dtype are one program, so an operator costs one compile. A sample that cannot be
recorded with the others is dropped and named.
"""

from __future__ import annotations

import argparse
import copy
import functools
import re
import sys
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.autograd.partition import Split, default_split
from assay.compiler.capture.inputs import Call, fake_leaf
from assay.compiler.ir.graph.roles import GraphCall, Program, UserInput
from assay.compiler.ir.loops.kernel import Counts
from assay.compiler.journal import Journal
from assay.compiler.ops import lower
from assay.compiler.options import Options
from assay.compiler.passes.write_in_place import write_in_place
from assay.compiler.pipeline import build, compile

if "expecttest" not in sys.modules:  # torch's test modules take a base class from it that nothing here runs
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase  # type: ignore[attr-defined]
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

MOST_SAMPLES = 24
"""Samples of one operator and dtype that are measured."""

Function = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Case:
    """Samples of one operator as one function of the tensors in them."""

    name: str
    function: Function
    tensors: tuple[torch.Tensor, ...]


@dataclass(slots=True)
class Share:
    """Counts so far: over all nodes, and calls by name with the operators that made them."""

    compute: int = 0
    generated: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    callers: dict[str, set[str]] = field(default_factory=dict)

    def add(self, counts: Counts, caller: str) -> None:
        self.compute += counts.compute
        self.generated += counts.generated
        self.calls.update(counts.fallbacks)
        for name in counts.fallbacks:
            self.callers.setdefault(name, set()).add(caller)


def cases(only: str, dtypes: Sequence[torch.dtype]) -> Iterator[tuple[OpInfo, torch.dtype]]:
    for operator in op_db:
        full = f"{operator.name}.{operator.variant_test_name}".rstrip(".")
        if re.fullmatch(only, full):
            yield from ((operator, dtype) for dtype in dtypes if dtype in operator.supported_dtypes("cpu"))


def case_of(operator: OpInfo, samples: Sequence[SampleInput], name: str) -> Case:
    """The samples as one function of all their tensors."""
    leaves, structures = [], []
    for sample in samples:
        flat, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        leaves.append(flat)
        structures.append(structure)
    tensors = tuple(leaf for flat in leaves for leaf in flat if isinstance(leaf, torch.Tensor))

    def run(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        left = iter(given)
        results = []
        for flat, structure in zip(leaves, structures, strict=True):
            filled = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in flat]
            first, args, kwargs = pytree.tree_unflatten(filled, structure)
            result = operator.op(first, *args, **kwargs)
            results += [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        return results

    return Case(name, run, tensors)


def call_of(case: Case) -> Call:
    mode = FakeTensorMode()
    leaves = tuple(fake_leaf(UserInput(position), tensor, mode) for position, tensor in enumerate(case.tensors))
    return Call(case.function, leaves, mode)  # type: ignore[arg-type]


def compiled(case: Case, share: Share, is_checked: bool) -> GraphCall:
    """The case compiled, forward and backward counted; its kernels are built only where they are to run."""
    options = Options.of(None, None)
    journal = Journal.open(options)

    def count(program: Program) -> GraphCall:
        if is_checked:
            return build(program, options, journal).load()
        return lambda args: []

    def split(joint: Program) -> Split:
        made = default_split(joint)
        for program in (made.forward, made.backward):
            share.add(lower(write_in_place(copied(program), True)).counts, case.name)
        return made

    def inference(program: Program) -> GraphCall:
        share.add(lower(copied(program)).counts, case.name)
        return count(program)

    write = functools.partial(write_in_place, generate=True)
    return compile(call_of(case), Compilers(count, count, inference, partition=split, write=write), journal)


def copied(program: Program) -> Program:
    return Program(copy.deepcopy(program.module), program.signature)


def observed(function: Callable[[list[Any]], Sequence[Any]], case: Case) -> list[torch.Tensor]:
    """Outputs, then gradients under tangents that are the same every time."""
    tensors = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in case.tensors]
    torch.manual_seed(0)
    outputs = list(function(list(tensors)))
    differentiable = [output for output in outputs if output.requires_grad]
    inputs = [tensor for tensor in tensors if tensor.requires_grad]
    if not differentiable or not inputs:
        return outputs
    generator = torch.Generator().manual_seed(1)
    tangents = [torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o.dtype) for o in differentiable]
    gradients = torch.autograd.grad(differentiable, inputs, tangents, allow_unused=True)
    return [o.detach() for o in outputs] + [g for g in gradients if g is not None]


def differences(case: Case, run: GraphCall) -> list[str]:
    """How the compiled case differs from eager."""
    found, expected = observed(run, case), observed(case.function, case)  # type: ignore[arg-type]
    exact = truth(case)
    if len(found) != len(expected):
        return [f"{len(found)} results, eager {len(expected)}"]
    wrong = []
    for position, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype or ours.stride() != theirs.stride():
            wrong.append(f"{position}: {describe(ours)}, eager {describe(theirs)}")
            continue
        try:
            torch.testing.assert_close(ours, theirs, equal_nan=True)
        except AssertionError as error:
            if exact is not None and is_as_exact(ours, theirs, exact[position]):
                continue
            wrong.append(f"{position} {describe(theirs)}: " + " ".join(str(error).split("\n")[1:6]))
    return wrong


def truth(case: Case) -> list[torch.Tensor] | None:
    """What float64 gives, where the case is one of floating point numbers and does not ask for another dtype."""
    wide = tuple(
        t.detach().double().requires_grad_(t.requires_grad) if t.dtype.is_floating_point else t for t in case.tensors
    )
    try:
        return observed(case.function, Case(case.name, case.function, wide))  # type: ignore[arg-type]
    except RuntimeError:
        return None


def is_as_exact(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether the worst error is at most twice eager's and an ulp of the largest value."""
    if not ours.dtype.is_floating_point or ours.shape != exact.shape:
        return False
    a, b, c = (torch.where(exact.isfinite(), t.double(), 0.0) for t in (ours, theirs, exact))
    special = torch.equal(
        torch.where(exact.isfinite(), 0.0, ours.double()).nan_to_num(7.0, 8.0, 9.0),
        torch.where(exact.isfinite(), 0.0, theirs.double()).nan_to_num(7.0, 8.0, 9.0),
    )
    allowed = 2 * (b - c).abs().max() + torch.finfo(ours.dtype).eps * c.abs().max()
    return special and bool((a - c).abs().max() <= allowed)


def describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def measure(operator: OpInfo, dtype: torch.dtype, share: Share, is_checked: bool) -> list[str]:
    """Counts one operator; what is wrong with it."""
    differentiable = operator.supports_autograd and dtype in operator.supported_backward_dtypes("cpu")
    name = f"{operator.name}.{operator.variant_test_name}".rstrip(".")
    try:
        samples = list(operator.sample_inputs("cpu", dtype, requires_grad=differentiable))[:MOST_SAMPLES]
    except Exception as error:
        return [f"no samples: {type(error).__name__}"]
    return attempt(operator, samples, name, share, is_checked)


def attempt(operator: OpInfo, samples: Sequence[SampleInput], name: str, share: Share, is_checked: bool) -> list[str]:
    """The samples together; in halves where they cannot be recorded, down to the one that cannot."""
    if not samples:
        return []
    case, before = case_of(operator, samples, name), copy.deepcopy(share)
    try:
        run = compiled(case, share, is_checked)
        return differences(case, run) if is_checked else []
    except Exception as error:
        share.compute, share.generated, share.calls, share.callers = (
            before.compute, before.generated, before.calls, before.callers,
        )  # fmt: skip
        if len(samples) == 1:
            return [f"dropped: {type(error).__name__}: {str(error).splitlines()[:1]}"]
    half = len(samples) // 2
    first = attempt(operator, samples[:half], name, share, is_checked)
    return [*first, *attempt(operator, samples[half:], name, share, is_checked)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=".*", help="a pattern that an operator's whole name matches")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--check", action="store_true", help="build, run and compare with eager")
    parser.add_argument("--each", action="store_true", help="show the share of each operator")
    parser.add_argument("--rows", type=int, default=100)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    share = Share()
    for operator, dtype in cases(arguments.only, [getattr(torch, name) for name in arguments.dtypes.split(",")]):
        label = f"{operator.name}.{operator.variant_test_name}".rstrip(".")
        own = Share()
        wrong = measure(operator, dtype, own, arguments.check)
        merge(share, own)
        if arguments.each:
            print(f"{label} {dtype}: {own.generated} of {own.compute}  {dict(own.calls)}", flush=True)
        if wrong:
            print(f"{label} {dtype}: " + "\n    ".join(wrong[:4]), flush=True)
    print(f"{share.generated} of {share.compute} generated: {share.generated / max(share.compute, 1):.1%}")
    for called, count in share.calls.most_common(arguments.rows):
        print(f"{count:6d} {called:50s} {', '.join(sorted(share.callers[called])[:5])}")


def merge(share: Share, other: Share) -> None:
    share.compute += other.compute
    share.generated += other.generated
    share.calls.update(other.calls)
    for name, callers in other.callers.items():
        share.callers.setdefault(name, set()).update(callers)


if __name__ == "__main__":
    main()
