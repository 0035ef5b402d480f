"""Run in a process of its own with TRITON_INTERPRET=1: attention by Triton programs, interpreted beside the C++ kernel.

python -m tests.compiler.kernels.flex_attention.interpreted <cache directory> <case>...

It prints a line for each case, with its name and two things of each result. One is whether it is NaN or infinite in
the same places as that of C++, the other how far it is from that, as a share of the greatest.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from assay.compiler.ir.graph.scalar_functions import Form, derivative_of, recorded, text_of
from assay.compiler.kernels.flex_attention.cpu import AttentionKernel
from assay.compiler.kernels.flex_attention.cpu_backward import BackwardKernel, Heads
from assay.compiler.kernels.flex_attention.gpu import AttentionPrograms, BackwardPrograms
from assay.compiler.kernels.flex_attention.score_code import BlockMask
from assay.compiler.ops.calls import score_kernels
from assay.compiler.ops.calls.score_kernels import Functions, change_of, collection_of
from assay.compiler.toolchain.gpu.triton_build import module_at
from assay.compiler.toolchain.gpu.triton_launch import path_of
from assay.compiler.toolchain.gpu.written_programs import Run, Written, module_text
from tests.compiler.kernels.flex_attention.test_flex_attention import Program, causal, learned

GIVEN = (torch.randn(6), torch.randn(6, 140), torch.tensor(0.7))
CASES: dict[str, tuple[Program, torch.dtype, Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "one row, one key": (Program("", (1, 1, 1, 1, 1, 16)), torch.float32, lambda s, b, h, q, k: s, ()),
    "causal": (
        Program("", (1, 2, 2, 40, 48, 16), mask=causal, block=(16, 32)), torch.float16, lambda s, b, h, q, k: s, (),
    ),
    "hidden rows, odd depths": (
        Program("", (2, 1, 1, 20, 21, 7), mask=lambda b, h, q, k: (q >= k) & (q < 18), depth=21, block=(8, 8)),
        torch.float32, lambda s, b, h, q, k: torch.where((q + b) % 3 == h % 3, s, s - 1.5), (),
    ),
    "learned": (Program("", (1, 2, 3, 24, 24, 16), mask=causal), torch.float32, learned, GIVEN),
}  # fmt: skip


def loader(cache: str) -> Callable[[Sequence[Written], torch.device], Sequence[Run]]:
    def load(programs: Sequence[Written], _: torch.device) -> Sequence[Run]:
        return [_run(getattr(module_at(path_of(module_text(each.text), cache)), each.function)) for each in programs]

    return load


def _run(function: object) -> Run:
    def run(grid: int, tensors: Sequence[Tensor], numbers: Sequence[int]) -> None:
        function[(grid,)](*tensors, *numbers)  # type: ignore[index]

    return run


def results_of(name: str, cache: str) -> tuple[list[Tensor], list[Tensor]]:
    """The results and gradients by programs, and by C++."""
    program, dtype, score, given = CASES[name]
    q, k, v = program.heads(dtype)
    kinds, wanted = tuple((each.dtype, each.dim()) for each in given), tuple(range(len(given)))
    mask = program.mask or (lambda b, h, q, k: q >= 0)
    texts = [text_of(recorded(score, kinds)), text_of(recorded(mask, (), Form.mask))]
    derivative = text_of(recorded(derivative_of(score, wanted), kinds, Form.derivative))
    functions = Functions(*texts, kinds, (), derivative, wanted)
    shown, turned = _lists(program, mask)
    depth, out_depth, scale = q.shape[3], v.shape[3], 1 / math.sqrt(q.shape[3])
    load, change = loader(cache), change_of(functions)
    three = change, collection_of(functions), score_kernels.derivative_of(functions)
    outs = [v.new_empty((*q.shape[:3], out_depth)) for _ in range(2)]
    ours = AttentionPrograms(change, dtype, depth, out_depth, load)((q, k, v), outs[0], shown, given, scale)
    theirs = AttentionKernel(change, dtype, depth, out_depth)((q, k, v), outs[1], shown, given, scale)
    heads = Heads(q, k, v, outs[1], theirs[0], torch.randn(outs[1].shape).to(dtype), torch.randn(theirs[0].shape))
    found = [tuple(map(torch.empty_like, (q, k, v))) for _ in range(2)]
    depths = (depth, out_depth)
    collected = BackwardPrograms(three, wanted, dtype, depths, load)(heads, found[0], shown, turned, given, scale)
    expected = BackwardKernel(three, wanted, dtype, depths)(heads, found[1], shown, given, scale)
    return [outs[0], *ours, *found[0], collected], [outs[1], *theirs, *found[1], expected]


def _lists(program: Program, mask: Callable[..., Tensor]) -> tuple[BlockMask, BlockMask]:
    """The blocks of keys that rows read, and the blocks of rows that read keys."""
    _, _, _, rows, keys, _ = program.sizes
    made = create_block_mask(mask, None, None, rows, keys, device="cpu", BLOCK_SIZE=program.block)
    lists, (row_block, key_block) = made.as_tuple(), made.BLOCK_SIZE
    part, full, turned, turned_full = (tuple(lists[at : at + 2]) for at in (2, 4, 6, 8))
    return BlockMask(part, full, row_block, key_block), BlockMask(turned, turned_full, key_block, row_block)


def main(cache: str, *names: str) -> None:
    torch.manual_seed(5)
    for name in names:
        compared = []
        for one, other in zip(*results_of(name, cache), strict=True):
            wide, same = other.double(), torch.equal(one.isnan(), other.isnan())
            same &= torch.equal(one.isinf(), other.isinf())
            far = (one.double() - wide).nan_to_num(0, 0, 0).abs().amax() if one.numel() else torch.tensor(0.0)
            most = wide.nan_to_num(0, 0, 0).abs().amax() if one.numel() else torch.tensor(1.0)
            compared.append((same, float(far / most.clamp(min=1e-3))))
        print(json.dumps([name, compared]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
