"""`Packed`: what forward keeps in place of a value, where hooks on saved tensors are parts of the graphs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx
from torch.utils import _pytree as pytree

from assay.compiler.ir.graph.roles import Saved


@dataclass(frozen=True, slots=True)
class Packed:
    """What a hook returned for the value `of`: its `leaves`, as fake tensors, symbols and constants, in a structure;
    `nodes` are those of forward that compute all leaves but the constants, in order."""

    of: str
    nodes: tuple[fx.Node, ...]
    leaves: tuple[object, ...]
    structure: pytree.TreeSpec

    @property
    def roles(self) -> list[Saved]:
        """Under which names the nodes are kept."""
        return [Saved(f"{self.of}_packed_{index}") for index, _ in enumerate(self.nodes)]
