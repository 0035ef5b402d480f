"""Versions of inputs, which grow as often as eager's do."""

from __future__ import annotations

from assay.compiler.codegen.call.source import Source
from assay.compiler.ir.graph.roles import Bump, Signature
from assay.compiler.runtime.call import bump_version


def emit_bumps(source: Source, signature: Signature) -> None:
    """What makes versions of inputs grow where nothing is written. Before anything is saved, if anything is: what was
    saved first, capture has refused."""
    for effect in signature.effects:
        if isinstance(effect, Bump) and isinstance(effect.by, int):
            source.line(1, f"{source.bind('bump_version', bump_version)}(keep_{effect.of.index}, {effect.by})")
