"""Names of what graphs take: inner tensors of wrappers, and tokens, are numbered with the other inputs, as torch does.

The memory that inputs share is numbered as one input.

forward(primals_1_a, primals_1_b, primals_2)    ->    forward(primals_1, primals_2, primals_3)
backward(primals_1_b, tangents_1_a, ...)        ->    backward(primals_2, tangents_1, ...)
forward(token, primals_1)                       ->    forward(primals_1, primals_2)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import fx

from assay.compiler.entry.ahead.tokens import TokenNames
from assay.compiler.ir.graph.roles import Inner, Program, Saved, Shared, Tangent, Token
from assay.compiler.ir.graph.trace import module_of


@dataclass(frozen=True, slots=True)
class InnerNames:
    """The names of one compile: backward is given what forward has saved by the names that forward has for it."""

    of_forward: dict[str, str] = field(default_factory=dict)
    tokens: TokenNames = field(default_factory=TokenNames)

    def numbered(self, program: Program) -> Program:
        """The program with its inputs numbered; as it is where each of them has its number already."""
        is_odd = any(isinstance(role, Inner | Shared | Token) for role in program.signature.inputs)
        if not is_odd and not (program.is_backward and (self.of_forward or self.tokens.renamed)):
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
                name = self.tokens.renamed.get(node.name, node.name)
                yield self.of_forward.get(name, name)
                continue
            if isinstance(outer, Token) and program.is_backward:
                yield node.name
                continue
            kind = "tangents" if isinstance(outer, Tangent) else "primals"
            counts[kind] += 1
            yield f"{kind}_{counts[kind]}"
