"""How many parameters a function takes, and which functions take many because somebody else calls them so."""

from __future__ import annotations

import ast

MOST_PARAMETERS = 6
_TORCHS = "the signature is that of torch's function of this name"
_ENGINES = "the engine of autograd calls it, from C++"
_SCHEMA = "the parameters are those of the operator's schema"
GIVEN: dict[str, str] = {
    "compiler.entry.aot.aot_function": _TORCHS,
    "compiler.entry.aot.aot_module_simplified": _TORCHS,
    "compiler.entry.export.aot_export_module": _TORCHS,
    "compiler.entry.joint_export.aot_export_joint_with_descriptors": _TORCHS,
    "compiler.entry.dynamo.compile_fx": _TORCHS,
    "compiler.autograd.whole.recorder.proxy_call_backward": _ENGINES,
    "compiler.autograd.whole.recorder.call_copy_slices_prologue": _ENGINES,
    "compiler.capture.user_code.score_functions.attention_of": _SCHEMA,
    "compiler.ops.calls.flex_attention._meta_backward": _SCHEMA,
    "compiler.ops.calls.flex_attention._run_backward": _SCHEMA,
    "compiler.kernels.attend.attend": _SCHEMA,
    "compiler.kernels.attend.attend_backward": _SCHEMA,
    "compiler.capture.decompositions.group_norm.group_norm": _SCHEMA,
    "compiler.capture.decompositions.group_norm.group_norm_gradients": _SCHEMA,
    "compiler.capture.decompositions.batch_norm.as_eager": _SCHEMA,
    "compiler.capture.decompositions.batch_norm.as_eager_by_statistics": _SCHEMA,
    "compiler.capture.decompositions.batch_norm.normalized_by_statistics": _SCHEMA,
    "compiler.capture.decompositions.batch_norm.gradients_of_update": _SCHEMA,
    "compiler.capture.user_code.rewritten_calls._refuse_pool": _SCHEMA,
}
"""Functions of more parameters than `MOST_PARAMETERS` whose signature is not ours to choose, each with its reason."""


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names of a function's parameters, but for `self`, `cls`, `*` and `**`."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]
