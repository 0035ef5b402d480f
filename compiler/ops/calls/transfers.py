"""Copies between a GPU and the host's pinned memory: `assay::offload` and `assay::reload`.

What they do is said in `compiler/runtime/transfers.py`.
"""

from __future__ import annotations

import torch

from assay.compiler.ops.registry import Kind, record
from assay.compiler.runtime import transfers

_LIBRARY = torch.library.Library("assay", "FRAGMENT")
_LIBRARY.define("offload(Tensor value) -> Tensor")
_LIBRARY.define("reload(Tensor host, Device device) -> Tensor")
_LIBRARY.impl("offload", transfers.offload, "CompositeExplicitAutograd")
_LIBRARY.impl("reload", transfers.reload, "CompositeExplicitAutograd")

offload = torch.ops.assay.offload.default
reload = torch.ops.assay.reload.default

record(Kind.composite, None, "assay.offload", "assay.reload")
