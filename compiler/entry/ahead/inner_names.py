"""Names of what graphs take of wrappers: the inner tensors are numbered with the other inputs, as torch numbers them.

The memory that inputs share is numbered as one input.

forward(primals_1_a, primals_1_b, primals_2)    ->    forward(primals_1, primals_2, primals_3)
backward(primals_1_b, tangents_1_a, ...)        ->    backward(primals_2, tangents_1, ...)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import fx

from assay.compiler.ir.graph.roles import Inner, Program, Saved, Shared, Tangent
from assay.compiler.ir.graph.trace import module_of


@dataclass(frozen=True, slots=True)
class InnerNames:
    """The names of one compile: backward is given what forward has saved by the names that forward has for it."""

    of_forward: dict[str, str] = field(default_factory=dict)

    def numbered(self, program: Program) -> Program:
        """The program with its inputs numbered; as it is where each of them has its number already."""
        if not any(isinstance(role, (Inner, Shared)) for role in program.signature.inputs) and not self.of_forward:
            return program
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for node, name in zip(program.placeholders, self._names(program), strict=True):
            copies[node] = graph.placeholder(name)
            copies[node].meta.update(node.meta)
            if not program.is_backward:
                self.of_forward[node.name] = name
        for node in program.module.graph.nodes:
            if node not in copies:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        return Program(module_of(program.module, graph), program.signature)

    def _names(self, program: Program) -> Iterator[str]:
        counts: Counter[str] = Counter()
        for node, role in zip(program.placeholders, program.signature.inputs, strict=True):
            outer = role.of if isinstance(role, Inner) else role
            if isinstance(outer, Saved):
                yield self.of_forward.get(node.name, node.name)
                continue
            kind = "tangents" if isinstance(outer, Tangent) else "primals"
            counts[kind] += 1
            yield f"{kind}_{counts[kind]}"
