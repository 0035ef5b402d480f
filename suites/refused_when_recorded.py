"""Refused dtypes held against recordings alone: `python -m assay.suites.refused_when_recorded --mode train`.

The samples of `suites/ops/refused.py`, without Dynamo and with every operator in ATen: 8,623 batches take ten minutes
where `assay run ops --filter refused` takes hours. It prints what a recording accepts and eager refuses, what eager
takes and a compiled call refuses, and other classes of errors. What the compiler gives back to eager is right.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.harness.backends.direct import without_dynamo
from assay.harness.batches.sample import Batch, Sample
from assay.harness.calls.errors import is_refusal, is_same_error
from assay.harness.observe.observation import seed_all
from assay.suites.ops import refused

BACKEND = "assay,target=aten,fallback=error"
RIGHT = ("both run", "both raise", "given back")


def outcome(sample: Sample, is_trained: bool) -> str:
    """How a recording of the sample compares with eager."""
    eager = _raised(sample.function, sample, is_trained)
    ours = _raised(without_dynamo(BACKEND).wrap(sample.function), sample, is_trained)
    if ours is None:
        return "both run" if eager is None else f"accepted, where eager raises {eager!r}"
    if is_refusal(ours):
        return "given back"
    if eager is None:
        return f"ours alone raises {ours!r}"
    return "both raise" if is_same_error(eager, ours) else f"ours raises {ours!r}, eager {eager!r}"


def _raised(function: Callable[..., Any], sample: Sample, is_trained: bool) -> Exception | None:
    seed_all(0)
    args, kwargs = _copied((sample.args, sample.kwargs))
    try:
        result = function(*args, **kwargs)
        if is_trained:
            _backward(result)
    except Exception as error:
        return error
    return None


def _backward(result: Any) -> None:
    leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if leaves:
        torch.autograd.backward(leaves, [torch.ones_like(leaf) for leaf in leaves])


def _copied(values: Any) -> Any:
    """The values with a copy of each strided tensor, one for each however often it is given."""
    copies: dict[int, Tensor] = {}

    def copy(tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided:
            return tensor
        made = copies.setdefault(id(tensor), tensor.detach().clone())
        return made.requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(Tensor, copy, values)


def outcomes(batches: list[Batch]) -> Iterator[tuple[str, str]]:
    """Each sample's name with its outcome."""
    for batch in batches:
        for sample in batch.make(0):
            yield f"{batch.name}[{sample.name}]", outcome(sample, batch.mode == "train")


def main() -> int:
    """Runs one part and prints what is not right. Returns 1 where there is any."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--mode", choices=("infer", "train"), default="infer")
    parser.add_argument("--every", type=int, default=1, help="run one batch in so many")
    parser.add_argument("--which", type=int, default=0, help="which of them")
    parser.add_argument("--filter", default="", help="only batches whose name has this in it")
    asked = parser.parse_args()
    chosen = [one for one in refused.batches() if one.mode == asked.mode and asked.filter in one.name]
    counts: Counter[str] = Counter()
    for name, found in outcomes(chosen[asked.which :: asked.every]):
        counts[found if found in RIGHT else "not right"] += 1
        if found not in RIGHT:
            print(f"{name}: {found}", flush=True)
    print(dict(counts))
    return int(counts["not right"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
