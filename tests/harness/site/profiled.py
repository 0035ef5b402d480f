"""A step that was taken apart, as the worker tells it: small, made by hand."""

from __future__ import annotations

from typing import Any

JOINT = """\
class Program(torch.nn.Module):
    def forward(self, x: "f32[8, 16]", w: "f32[16, 32]"):
        # File: /home/user/model.py:9 in forward, code: h = gelu(x @ w)
        mm: "f32[8, 32]" = torch.ops.aten.mm.default(x, w);  x = w = None
        gelu: "f32[8, 32]" = torch.ops.aten.gelu.default(mm);  mm = None

        # File: /home/user/model.py:10 in forward, code: return h.softmax(-1) < 1
        _softmax: "f32[8, 32]" = torch.ops.aten._softmax.default(gelu, -1, False);  gelu = None
        lt: "b8[8, 32]" = torch.ops.aten.lt.Scalar(_softmax, 1);  _softmax = None
        return (lt,)
"""
FOLDED = JOINT.replace("gelu.default(mm)", "gelu.default(mm, approximate = 'none')")
SOURCE = """\
// gelu
// _softmax
// lt
extern "C" void kernel_0(const f32* in0, u8* out0) {
  #pragma omp simd
  for (i64 i0 = 0; i0 < 256; i0++) out0[i0] = m::gelu(in0[i0]) < 1;
}

// made_by_a_pass
extern "C" void kernel_1(f32* out0) {
  out0[0] = 1;
}
"""
STATES = [
    {"graph": "graph_001", "state": "joint", "text": JOINT},
    {"graph": "graph_001", "state": "fold", "text": FOLDED},
    {"graph": "graph_001", "state": "source_graph", "text": "import math\n\n\ndef graph(args):\n    return args\n"},
    {"graph": "graph_001", "state": "source_kernels", "text": SOURCE},
]


def profile(mode: str = "train") -> dict[str, Any]:
    """Stages, three kernels of which one has symbolic sizes, a roof, memory, states."""
    kernels = [
        {
            "graph": 1,
            "name": "kernel_0",
            "origins": ["gelu", "_softmax", "lt"],
            "launches": 1,
            "bytes": 4096,
            "us": 2.0,
        },
        {"graph": 1, "name": "kernel_1", "origins": ["sum_1"], "launches": 3, "bytes": 1 << 20, "us": 50.0},
        {"graph": 2, "name": "kernel_0", "origins": ["mul"], "launches": 1, "bytes": None, "us": 4.0},
    ]
    measured = {"points": [[0.0, 0], [0.5, 4_000_000], [1.0, 2_000_000], [2.0, 0]], "forward_ms": 1.0}
    return {
        "mode": mode, "stages": {"python": 0.6, "capture": 0.2, "fuse": 0.1, "fold_constants": 0.03, "attend": 0.02},
        "kernels": kernels, "roof": [[1 << 12, 4.0], [1 << 20, 40.0], [1 << 26, 10.0]],
        "memory": {"measured": measured, "planned": {**measured, "points": [[0.0, 0], [1.0, 3_000_000]]}},
        "states": STATES,
    }  # fmt: skip
