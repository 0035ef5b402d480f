"""Kernels of two stages: columns, or images by channels, less their means over their deviations."""

from __future__ import annotations

from dataclasses import replace

import torch

from compiler.ir.text import parse
from tests import kernel_ir as ir

BY_ROWS = """kernel rows(x: float32[{n}], y: bfloat16[{n}], w: float32[{c}], m: float32[{c}], s: float32[{c}]; )  # norm
  for i0 in {r}
  for i1 in {c}
  %0 = div(@sum{{r0 in {r}}}(x[{c}*r0 + i1]:float32):float32, {r}.0:float32):float32
  %1 = sub(x[{c}*r1 + i1]:float32, %0):float32
  %2 = div(@sum{{r1 in {r}}}(mul(%1, %1):float32):float32, {r}.0:float32):float32
  before m[i1] = %0
  before s[i1] = rsqrt(add(%2, 1e-05:float32):float32):float32
  %3 = mul(sub(x[{c}*i0 + i1]:float32, m[i1]:float32):float32, s[i1]:float32):float32
  y[{c}*i0 + i1] = cast(mul(%3, w[i1]:float32):float32):bfloat16
"""
BY_CHANNELS = """kernel planes(x: float32[{numel}], y: float32[{numel}], t: float32[{c}]; )  # peak
  for i0 in {n}
  for i1 in {c}
  for i2 in {r}
  %0 = @max{{r0 in {n}, r1 in {r}}}(x[{plane}*r0 + {r}*i1 + r1]:float32):float32
  before t[i1] = %0
  y[{plane}*i0 + {r}*i1 + i2] = sub(x[{plane}*i0 + {r}*i1 + i2]:float32, t[i1]:float32):float32
"""


def norm_of_columns(rows: int, columns: int, generator: torch.Generator) -> ir.Run:
    """x[rows, columns] less the mean of its column, over its deviation, times a weight; with both of these."""
    x = torch.randn(rows, columns, generator=generator) * 3 + 100
    w = torch.randn(columns, generator=generator)
    exact = x.double()
    mean, scale = exact.mean(0), (exact.var(0, correction=0) + 1e-5).rsqrt()
    y = ((exact - mean) * scale * w).to(torch.bfloat16)
    text = BY_ROWS.format(n=rows * columns, r=rows, c=columns)
    return _run(text, {"x": x, "w": w}, {"y": y, "m": mean.float(), "s": scale.float()})


def peaks_of_channels(images: int, channels: int, pixels: int, generator: torch.Generator) -> ir.Run:
    """x[images, channels, pixels] less the greatest of its channel; with that."""
    x = torch.randn(images, channels, pixels, generator=generator)
    peak = x.amax((0, 2))
    numel = images * channels * pixels
    text = BY_CHANNELS.format(numel=numel, n=images, c=channels, r=pixels, plane=channels * pixels)
    return _run(text, {"x": x}, {"y": x - peak[:, None], "t": peak})


def _run(text: str, given: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> ir.Run:
    kernel = parse(text)
    tensors = {**given, **{name: torch.full_like(value, 77) for name, value in expected.items()}}
    buffers = {buffer.name: buffer for buffer in kernel.buffers}
    kernel = replace(kernel, buffers=tuple(buffers[name] for name in tensors))
    return ir.Run(kernel, tensors, expected, ())
