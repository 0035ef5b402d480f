"""Assay: a PyTorch compiler, a simple eager reference, and a harness that proves one against the other.

    import assay
    compiled = torch.compile(model, backend="assay")         # `assay.backend`, in a checkout that is not installed
    with assay.compiled_autograd(): loss.backward()          # the whole backward as one program
    @assay.case()                                            # what `assay run FILE.py` holds to eager
    def mine() -> assay.Made: return model, (example,), {}

`assay.compiler`, `assay.reference`, `assay.harness` and `assay.suites` are the project's four folders.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.compiler.entry.aot import aot_function, aot_module
    from assay.compiler.entry.compiled_autograd import compiled_autograd
    from assay.compiler.entry.dynamo import assay as backend
    from assay.compiler.options import Options
    from assay.harness.case import Made, case

__all__ = ["Made", "Options", "aot_function", "aot_module", "backend", "case", "compiled_autograd"]

_PLACES = {
    "Made": ("assay.harness.case", "Made"),
    "Options": ("assay.compiler.options", "Options"),
    "aot_function": ("assay.compiler.entry.aot", "aot_function"),
    "aot_module": ("assay.compiler.entry.aot", "aot_module"),
    "backend": ("assay.compiler.entry.dynamo", "assay"),
    "compiled_autograd": ("assay.compiler.entry.compiled_autograd", "compiled_autograd"),
    "case": ("assay.harness.case", "case"),
}


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first asked for, since most of them import torch.

    Raises: AttributeError for a name that is not public.
    """
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
