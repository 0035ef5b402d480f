"""What backward draws random numbers again with: `assay::generator_state` and `assay::exchange_generator_state`.

What they do is said in `compiler/runtime/generators.py`.
"""

from __future__ import annotations

import torch

from assay.compiler.ops.registry import Kind, record
from assay.compiler.runtime import generators

_LIBRARY = torch.library.Library("assay", "FRAGMENT")
_DRAWS = (torch.Tag.nondeterministic_seeded,)
_LIBRARY.define("generator_state(Device device) -> Tensor", tags=_DRAWS)
_LIBRARY.define("exchange_generator_state(Tensor state, Device device) -> Tensor", tags=_DRAWS)
_LIBRARY.impl("generator_state", generators.generator_state, "CompositeExplicitAutograd")
_LIBRARY.impl("exchange_generator_state", generators.exchange_generator_state, "CompositeExplicitAutograd")

generator_state = torch.ops.assay.generator_state.default
exchange_generator_state = torch.ops.assay.exchange_generator_state.default

record(Kind.random, None, "assay.generator_state", "assay.exchange_generator_state")
