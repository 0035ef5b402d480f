"""Which functions of functions g++ makes no vector code of: `python -m assay.suites.vectorised [OUTER ...]`.

    for each pair of one-operand functions and dtype:  y[i] = outer(inner(x[i]))  ->  does g++ report a vectorised loop?

What holds for one function alone says nothing of two. An optimisation that sees both makes branches, or conditions of
conditions, which have no vector form. A loop that stays scalar takes 5 to 15 times as long.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from assay.compiler.codegen.cpp.expressions import FLOAT
from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.codegen.cpp.prelude import prelude_of
from assay.compiler.codegen.loops.operators import COSTLY
from assay.compiler.ir.loops.index import Int, Symbol
from assay.compiler.ir.loops.kernel import Buffer, Call, Cast, Expr, Kernel, Load, Loop, Store
from assay.compiler.toolchain.build import FLAGS, find_compiler

SIZE = 1 << 17
CHEAP = ("abs", "neg", "sqrt", "rsqrt", "floor", "round", "sign", "reciprocal")
LOOPS = ("zeta", "digamma", "trigamma")
"""Functions that are loops themselves."""
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
TOGETHER = 24
"""Pairs in one unit."""

Pair = tuple[str, str]


def functions() -> tuple[str, ...]:
    """The functions of one operand that become vector code by themselves."""
    of_one = [op for op in (*sorted(COSTLY), *CHEAP) if "{1}" not in FLOAT[op]]
    return tuple(op for op in of_one if op not in LOOPS)


def kernel_of(name: str, pair: Pair, dtype: torch.dtype) -> Kernel:
    """y[i] = outer(inner(x[i])), halves computed in float32."""
    value: Expr = Load("x", Symbol("i"), dtype)
    inside = torch.float32 if dtype is torch.bfloat16 else dtype
    value = Cast(value, inside) if inside is not dtype else value
    for op in reversed(pair):
        value = Call(op, (value,), inside)
    value = Cast(value, dtype) if inside is not dtype else value
    buffers = (Buffer("y", dtype, Int(SIZE)), Buffer("x", dtype, Int(SIZE)))
    return Kernel(name, (Loop("i", Int(SIZE)),), (Store("y", Symbol("i"), value, "write"),), buffers, (), (name,))


def scalar_pairs(pairs: Sequence[Pair], dtype: torch.dtype) -> Iterator[Pair]:
    """Those of the pairs whose loop stays scalar."""
    for some in _batched(pairs):
        texts = [emit_kernel(kernel_of(f"k{n}", pair, dtype)) for n, pair in enumerate(some)]
        report = _report(texts)
        yield from (pair for n, pair in enumerate(some) if not report[n])


def _batched(pairs: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
    for first in range(0, len(pairs), TOGETHER):
        yield pairs[first : first + TOGETHER]


def _report(texts: Sequence[str]) -> list[bool]:
    """Whether g++ says of each kernel that a loop of it is vectorised."""
    compiler = find_compiler("")
    assert compiler is not None, "no C++ compiler runs here"
    before = prelude_of("\n".join(texts))
    ends = list(itertools.accumulate((text.count("\n") + 1 for text in texts), initial=before.count("\n")))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "unit.cpp"
        source.write_text(before + "\n".join(texts))
        command = [compiler.path, *FLAGS, "-fopt-info-vec-optimized", "-c", str(source), "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = {int(found) for found in re.findall(r"unit\.cpp:(\d+):\d+: optimized: loop vectorized", said)}
    return [any(first < line <= last for line in lines) for first, last in itertools.pairwise(ends)]


def search(outers: Iterable[str], dtype: torch.dtype) -> list[Pair]:
    """The pairs with these outer functions whose loop stays scalar."""
    names = functions()
    pairs = [(outer, inner) for outer in outers if outer in names for inner in names]
    return list(scalar_pairs(pairs, dtype))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outer", nargs="*", help="the outer functions; all by default")
    chosen = parser.parse_args().outer
    count = 0
    for dtype in DTYPES:
        for outer, inner in search(chosen or functions(), dtype):
            count += 1
            print(f"{dtype}: {outer}({inner}(x)) stays scalar", flush=True)
    print(f"{count} pairs stay scalar")
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
