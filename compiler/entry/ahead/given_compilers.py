"""A caller's graph compilers, as those of one compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch._dynamo.utils import assert_no_fake_params_or_buffers

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.codegen.call.border import bordered
from assay.compiler.entry.ahead.calling_form import CallingForm
from assay.compiler.entry.ahead.given_sizes import take_given_sizes
from assay.compiler.entry.ahead.graph_compilers import GraphCompiler, make_boxed_func
from assay.compiler.entry.ahead.graph_descriptors import GraphDescriptors
from assay.compiler.entry.ahead.graph_names import HALF, WHOLE, compiling, next_compile, print_as
from assay.compiler.entry.ahead.inner_names import InnerNames
from assay.compiler.entry.ahead.joint_graph import name_placeholders
from assay.compiler.entry.ahead.kept_writes import keep_writes
from assay.compiler.entry.ahead.partition_functions import PartitionFn, split_by
from assay.compiler.entry.ahead.tokens import hiding_tokens, unlifted, with_tokens
from assay.compiler.ir.graph.given_decompositions import given_decompositions
from assay.compiler.ir.graph.roles import GraphCall, Program
from assay.compiler.ir.graph.trace import with_text
from assay.compiler.passes import AS_RECORDED
from assay.compiler.torch_compat import Decompositions


@dataclass(frozen=True, slots=True)
class Given:
    """What a caller of an ahead-of-time front door gives: forward's compiler serves where another is None."""

    forward: GraphCompiler
    backward: GraphCompiler | None
    inference: GraphCompiler | None
    partition_fn: PartitionFn
    decompositions: Decompositions | None

    def compilers(self, keeps_writes: bool) -> Compilers:
        """The compilers of one compile. With `keeps_writes` a graph without gradients writes its inputs itself.

        Raises: TypeError for decompositions that are no mapping; OptionError, when the compile partitions, for a
        partition function that returns other graphs.
        """
        made = _Compile(next_compile())
        return Compilers(
            made.builder(self.forward, "forward"),
            made.builder(self.backward or self.forward, "backward"),
            made.builder(self.inference or self.forward, "inference"),
            split_by(self.partition_fn, made.compile_id),
            given_decompositions(self.decompositions),
            write=keep_writes if keeps_writes else None,
            passes=AS_RECORDED,
        )


@dataclass(frozen=True, slots=True)
class _Compile:
    """What the graphs of one compile have in common: its number, and how they name and order what they share."""

    compile_id: int
    names: InnerNames = field(default_factory=InnerNames)
    form: CallingForm = field(default_factory=CallingForm)
    descriptors: GraphDescriptors = field(default_factory=GraphDescriptors)

    def builder(self, compiler: GraphCompiler, half: str) -> Callable[[Program], GraphCall]:
        """Builds graphs by a compiler of the caller's, who may ask for the name of the graph meanwhile.

        Raises: AssertionError, when it builds, for a graph that reads a fake tensor, as one that its function closes
        over.
        """

        def build_graph(program: Program) -> GraphCall:
            form = self.form.of(program)
            given = with_tokens(form.program, self.names.tokens)
            if half == "inference":
                name_placeholders(given, [f"arg{index}_1" for index, _ in enumerate(given.placeholders)])
            else:
                given = self.names.numbered(given)
            self.descriptors.describe(given, form.outputs)
            given = unlifted(given)
            print_as(given.module, WHOLE if half == "inference" else HALF)
            assert_no_fake_params_or_buffers(given.module)
            with compiling(self.compile_id, half):
                built = compiler(with_text(given.module), [node.meta.get("val") for node in given.placeholders])
            boxed = built if getattr(built, "_boxed_call", False) else make_boxed_func(built)
            return form.called(hiding_tokens(given, boxed))

        build_plain = bordered(build_graph, returns_given=True)

        def build(program: Program) -> GraphCall:
            if half == "inference":
                take_given_sizes(program)
            return build_plain(program)

        return build
