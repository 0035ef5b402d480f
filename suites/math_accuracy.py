"""How far the inline math of generated kernels is from the truth, and how fast it is beside eager.

    python -m assay.suites.math_accuracy                       sampled: bit patterns of all numbers, and the middle
    python -m assay.suites.math_accuracy --every 1             every one of 2^32 float32 numbers for functions of one
    python -m assay.suites.math_accuracy --write docs/math.md  the same, as the table between the marks of a file

Float32 is measured against libm in float64, float64 against libm in 80 bits. Errors are in units of the last place of
the exact value (of the least normal number below it). Speed is of one thread on 32,768 numbers, in alternating rounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from assay.compiler.codegen.cpp.prelude import prelude
from assay.compiler.ir.loops.index import Int, Symbol
from assay.compiler.ir.loops.kernel import Buffer, Call, Kernel, Load, Loop, Store
from assay.compiler.options import Options
from assay.compiler.toolchain.build import FLAGS, find_compiler
from assay.compiler.toolchain.load import load_kernels

START, END = "<!-- measured -->", "<!-- /measured -->"

REFERENCES = {
    "exp": "std::exp(x)",
    "exp2": "std::exp2(x)",
    "expm1": "std::expm1(x)",
    "log": "std::log(x)",
    "log2": "std::log2(x)",
    "log10": "std::log10(x)",
    "log1p": "std::log1p(x)",
    "sin": "std::sin(x)",
    "cos": "std::cos(x)",
    "tan": "std::tan(x)",
    "asin": "std::asin(x)",
    "acos": "std::acos(x)",
    "atan": "std::atan(x)",
    "sinh": "std::sinh(x)",
    "cosh": "std::cosh(x)",
    "tanh": "std::tanh(x)",
    "asinh": "std::asinh(x)",
    "acosh": "std::acosh(x)",
    "atanh": "std::atanh(x)",
    "erf": "std::erf(x)",
    "erfc": "std::erfc(x)",
    "sigmoid": "(x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)))",
    "gelu": "x * (std::erfc(-x / std::sqrt((R)2)) / 2)",
    "sqrt": "std::sqrt(x)",
    "rsqrt": "1 / std::sqrt(x)",
    "pow": "std::pow(x, y)",
    "atan2": "std::atan2(x, y)",
    "hypot": "std::hypot(x, y)",
}
"""Each function as the libraries of the host have it, R being the wider type."""

OF_TWO = ("pow", "atan2", "hypot")
INLINE = {"rsqrt": "1 / m::sqrt(x)"}
RANGES: dict[str, tuple[float, float]] = {
    **{name: (0.01, 10.0) for name in ("log", "log2", "log10", "sqrt", "rsqrt")},
    **{name: (-0.9, 0.9) for name in ("log1p", "asin", "acos", "atanh")},
    "acosh": (1.0, 10.0),
    "pow": (0.1, 10.0),
}
"""The numbers that speed is measured on; elsewhere from -8 to 8."""

PROGRAM = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

typedef {number} T;
typedef {wide} R;
typedef {bits} U;
static const int size = 4096;
static T xs[size], ys[size], zs[size];

static R exact_value(R x, R y) {{ return {reference}; }}

static double error_of(T got, R exact) {{
  T rounded = (T)exact;
  if (exact != exact || got != got) return (exact != exact) == (got != got) ? 0 : INFINITY;
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : INFINITY;
  if (rounded == 0 && got == 0) return std::signbit(got) == std::signbit(rounded) ? 0 : INFINITY;
  int exponent;
  std::frexp(exact, &exponent);
  if (exponent < {least}) exponent = {least};
  return (double)(std::fabs((R)got - exact) / std::ldexp((R)1, exponent - {digits}));
}}

static double worst = 0;
static T worst_x = 0, worst_y = 0;
static unsigned long long count = 0;

static void take(int n) {{
#pragma omp simd
  for (int i = 0; i < n; i++) {{
    T x = xs[i], y = ys[i];
    (void)y;
    zs[i] = {inline};
  }}
  for (int i = 0; i < n; i++) {{
    double error = error_of(zs[i], exact_value(xs[i], ys[i]));
    if (error > worst) worst = error, worst_x = xs[i], worst_y = ys[i];
  }}
  count += n;
}}

static U state = 0x9e3779b9;
static U draw() {{
  static unsigned long long s = 88172645463325252ull;
  s ^= s << 13; s ^= s >> 7; s ^= s << 17;
  return (U)(sizeof(U) == 8 ? s * 0x2545F4914F6CDD1Dull : (s * 0x2545F4914F6CDD1Dull) >> 32);
}}
static T of_bits(U u) {{ T x; std::memcpy(&x, &u, sizeof x); return x; }}
static T uniform(double low, double high) {{
  return (T)(low + (high - low) * (draw() / (sizeof(U) == 8 ? 0x1p64 : 0x1p32)));
}}

int main(int argc, char** argv) {{
  if (std::strcmp(argv[1], "all") == 0) {{
    unsigned long long step = std::strtoull(argv[2], 0, 10);
    for (unsigned long long u = 0; u < 1ull << 32; u += size * step) {{
      for (int i = 0; i < size; i++) xs[i] = of_bits((U)(u + i * step));
      take(size);
    }}
  }} else {{
    long blocks = std::atol(argv[1]);
    for (long b = 0; b < blocks; b++) {{
      for (int i = 0; i < size; i++) {{
        double span = (i & 3) == 1 ? 1.5 : (i & 3) == 2 ? 30 : 750;
        xs[i] = i & 3 ? uniform(-span, span) : of_bits(draw());
        ys[i] = i & 1 ? uniform(-span, span) : of_bits(draw());
        if ({is_two} && i % 5 == 0) xs[i] = std::fabs(xs[i]), ys[i] = uniform(-20, 20);
      }}
      take(size);
    }}
  }}
  std::printf("{{\\"worst\\": %.4g, \\"count\\": %llu, \\"x\\": \\"%.17g\\", \\"y\\": \\"%.17g\\"}}\\n",
              std::isinf(worst) ? 1e300 : worst, count, (double)worst_x, (double)worst_y);
}}
"""

TYPES = {
    "float32": {"number": "f32", "wide": "double", "bits": "u32", "least": "-125", "digits": "24"},
    "float64": {"number": "f64", "wide": "long double", "bits": "u64", "least": "-1021", "digits": "53"},
}


@dataclass(frozen=True, slots=True)
class Error:
    """The worst error over `count` inputs, in ulps, and where it is; 1e300 for a wrong special value."""

    worst: float
    count: int
    x: str
    y: str


@dataclass(frozen=True, slots=True)
class Speed:
    """Nanoseconds a number, the best of the rounds."""

    ours_ns: float
    eager_ns: float


def program(name: str, dtype: str) -> str:
    call = f"m::{name}(x, y)" if name in OF_TWO else f"m::{name}(x)"
    text = PROGRAM.format(
        **TYPES[dtype],
        reference=REFERENCES[name],
        inline=INLINE.get(name, call),
        is_two="true" if name in OF_TWO else "false",
    )
    includes, rest = text.split("\ntypedef", 1)
    return f"{includes}\n{prelude()}\ntypedef{rest}"


def measure_error(name: str, dtype: str, amount: Sequence[str]) -> Error:
    """Builds the program of one function and runs it. `amount`: `all` and a step, or a number of blocks of inputs."""
    compiler = find_compiler("")
    assert compiler is not None, "no C++ compiler runs here"
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "measure.cpp", Path(folder) / "measure"
        source.write_text(program(name, dtype))
        subprocess.run([compiler.path, *FLAGS, "-w", str(source), "-o", str(binary)], check=True)
        done = subprocess.run([str(binary), *amount], capture_output=True, text=True, check=True)
    return Error(**json.loads(done.stdout))


def kernel_of(name: str, dtype: torch.dtype, count: int) -> Kernel:
    operands = tuple(Load(buffer, Symbol("i"), dtype) for buffer in ("xy" if name in OF_TWO else "x"))
    store = Store("z", Symbol("i"), Call(name, operands, dtype), "write")
    buffers = tuple(Buffer(buffer, dtype, Int(count)) for buffer in "zxy")
    return Kernel(f"{name}_{str(dtype)[-2:]}", (Loop("i", Int(count)),), (store,), buffers, (), (name,))


def eager_of(name: str) -> Callable[..., torch.Tensor]:
    return getattr(torch, name, None) or getattr(torch._C._nn, name)


def measure_speed(name: str, dtype: torch.dtype, count: int = 1 << 15, rounds: int = 40) -> Speed:
    """The kernel of one function beside eager, on one thread, in alternating rounds."""
    low, high = RANGES.get(name, (-8.0, 8.0))
    x = torch.linspace(low, high, count, dtype=dtype)[torch.randperm(count)].contiguous()
    y, z = torch.linspace(-2, 2, count, dtype=dtype)[torch.randperm(count)].contiguous(), torch.empty_like(x)
    kernel = kernel_of(name, dtype, count)
    run = load_kernels([kernel], Options.of(None, None))[kernel.name]
    addresses = [tensor.data_ptr() for tensor in (z, x, y)]
    function, operands = eager_of(name), (x, y) if name in OF_TWO else (x,)
    sides: list[Callable[[], object]] = [lambda: run(*addresses), lambda: function(*operands, out=z)]
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for side, call in enumerate(sides):
            start = time.perf_counter()
            call()
            best[side] = min(best[side], time.perf_counter() - start)
    return Speed(*(seconds / count * 1e9 for seconds in best))


def table(names: Sequence[str], every: int, blocks: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name in names:
        row: dict[str, object] = {"name": name}
        for dtype in TYPES:
            is_whole = every and dtype == "float32" and name not in OF_TWO
            row[dtype] = asdict(measure_error(name, dtype, ["all", str(every)] if is_whole else [str(blocks)]))
            row[f"{dtype}_speed"] = asdict(measure_speed(name, getattr(torch, dtype)))
        rows.append(row)
        print(line(row), flush=True)
    return rows


def line(row: dict[str, object]) -> str:
    """One row of the table."""
    cells = [str(row["name"])]
    for dtype in TYPES:
        error, speed = row[dtype], row[f"{dtype}_speed"]
        assert isinstance(error, dict) and isinstance(speed, dict)
        inputs = "all" if error["count"] >= 1 << 32 else f"{error['count'] / 1e6:.0f}M"
        ratio = speed["eager_ns"] / speed["ours_ns"]
        cells += [
            f"{error['worst']:.2f}",
            inputs,
            f"{speed['ours_ns']:.2f}",
            f"{speed['eager_ns']:.2f}",
            f"{ratio:.2f}",
        ]
    return "| " + " | ".join(cells) + " |"


HEAD = """
| function | f32 ulp | inputs | ns | eager ns | ratio | f64 ulp | inputs | ns | eager ns | ratio |
|---|---|---|---|---|---|---|---|---|---|---|
""".strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(REFERENCES))
    parser.add_argument("--every", type=int, default=0, help="step through all float32 numbers; 1 is every one")
    parser.add_argument("--blocks", type=int, default=1000, help="of 4096 inputs, where not all are measured")
    parser.add_argument("--write", type=Path, help="the file whose marked table is replaced")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = table(arguments.names or list(REFERENCES), arguments.every, arguments.blocks)
    if arguments.write:
        text = arguments.write.read_text()
        before, rest = text.split(START)
        after = rest.split(END)[1]
        made = "\n".join([HEAD, *map(line, rows)])
        arguments.write.write_text(f"{before}{START}\n{made}\n{END}{after}")


if __name__ == "__main__":
    main()
