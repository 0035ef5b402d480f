"""The keywords of `compile_fx_inner`: what `compile_fx` tells whoever builds its functional graphs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from assay.compiler.entry.ahead.graph_compilers import make_boxed_func
from assay.compiler.entry.ahead.inner_names import InnerNames
from assay.compiler.entry.ahead.joint_graph import name_placeholders
from assay.compiler.errors import OptionError
from assay.compiler.ir.graph.materialize import set_returned
from assay.compiler.ir.graph.roles import Buffer, GraphCall, Inner, InputRole, Parameter, Program, Saved, Signature
from assay.compiler.ir.graph.trace import with_text
from assay.compiler.options import Options

InnerCompile = Callable[..., Any]
_graphs = itertools.count()


class InnerKeywords(TypedDict, total=False):
    """What a caller may tell of a graph. Each is acted on, or refused by its name where it asks for something else."""

    cudagraphs: Any
    """Whether the graph is recorded as a CUDA graph, as by the option; None leaves it launched kernel by kernel."""
    static_input_idxs: Sequence[int]
    """The inputs that lie where they lay at each call: a recording reads them there and copies the others."""
    is_backward: bool
    """Whether the graph is a backward, which is part of its name in what is printed and dumped."""
    graph_id: int | None
    """A number that is part of the graph's name in what is printed and dumped."""
    is_inference: bool
    """Whether no backward follows, which is part of the graph's name. It is built the same way."""
    boxed_forward_device_index: Any
    """Where the index of a recorded forward's GPU is put, by `set`."""
    get_decomp_fn: Callable[..., object]
    """What gives the decompositions that the graph was recorded with: none of its calls is taken apart again."""
    layout_opt: bool | None
    """False or None: values lie as the graph says, as they always do here. True is refused."""
    cpp_wrapper: bool
    """Refused where it is true: the host function is Python."""
    fx_wrapper: bool
    """Refused where it is true: the host function is Python, not a graph."""
    aot_mode: bool
    """Refused where it is true: nothing is packaged for use without Python."""
    extern_node_serializer: Callable[..., object] | None
    """Refused where it is given: no call to a library is serialized."""


REFUSED = ("layout_opt", "cpp_wrapper", "fx_wrapper", "aot_mode", "extern_node_serializer")


def check_keywords(keywords: Mapping[str, object]) -> None:
    """Raises: OptionError for a keyword that does not exist, and for one that cannot be acted on."""
    for name, value in keywords.items():
        if name not in InnerKeywords.__annotations__:
            raise OptionError(f"assay: compile_fx_inner takes no {name!r}; it takes {', '.join(_known())}")
        if name in REFUSED and value not in (None, False):
            raise OptionError.refused(name)


def _known() -> list[str]:
    return list(InnerKeywords.__annotations__)


def name_of(keywords: InnerKeywords, region: str | None) -> str | None:
    """What is added to the graph's name in what is printed and dumped; None where nothing is told."""
    halves = {"is_backward": "backward", "is_inference": "inference"}
    said = [region, *(word for name, word in halves.items() if keywords.get(name))]
    if keywords.get("graph_id") is not None:
        said.append(str(keywords.get("graph_id")))
    return "_".join(filter(None, said)) or None


def with_static_inputs(program: Program, positions: Sequence[int]) -> Program:
    """The program with the inputs of these positions as parameters, which lie where they lay.

    Raises: OptionError for a position that the graph has no input at.
    """
    inputs: list[InputRole] = list(program.signature.inputs)
    for position in positions:
        if not 0 <= position < len(inputs):
            raise OptionError(f"assay: static_input_idxs has {position}; the graph has {len(inputs)} inputs")
        inputs[position] = Parameter(position, program.placeholders[position].name)
    return Program(program.module, replace(program.signature, inputs=tuple(inputs)))


@dataclass(frozen=True, slots=True)
class Told:
    """A caller's `inner_compile`, and what it is told beside each graph of one compile."""

    inner_compile: InnerCompile
    options: Options
    region: str | None
    decompositions: Mapping[Any, Callable[..., object]]
    graph_id: int
    names: InnerNames = field(default_factory=InnerNames)

    @staticmethod
    def of(
        inner_compile: InnerCompile,
        options: Options,
        region: str | None,
        decompositions: Mapping[Any, Callable[..., object]],
    ) -> Told:
        return Told(inner_compile, options, region, decompositions, next(_graphs))

    def forward(self, program: Program) -> GraphCall:
        return self._build(program, {"is_inference": False, "boxed_forward_device_index": None})

    def inference(self, program: Program) -> GraphCall:
        name_placeholders(program, [f"arg{index}_1" for index, _ in enumerate(program.placeholders)])
        return self._build(program, {"is_inference": True, "boxed_forward_device_index": None})

    def backward(self, program: Program) -> GraphCall:
        return self._build(program, {"is_backward": True, "boxed_forward_device_index": None})

    def _build(self, program: Program, half: InnerKeywords) -> GraphCall:
        if not half.get("is_inference"):
            program = self.names.numbered(program)
        set_returned(program.module, program.returned)  # a tuple, whose members may be of several types
        built: GraphCall = self.inner_compile(
            with_text(program.module),
            [node.meta["val"] for node in program.placeholders],
            compile_region_name=self.region,
            get_decomp_fn=lambda: dict(self.decompositions),
            static_input_idxs=list(_static(program.signature)),
            cudagraphs=bool(self.options.cudagraphs),
            graph_id=self.graph_id,
            **half,
        )
        return built if getattr(built, "_boxed_call", False) else make_boxed_func(built)


def _static(signature: Signature) -> Iterator[int]:
    """The positions of what lies where it lay: parameters, buffers, what a recorded forward has saved, and the inner
    tensors of any of these."""
    for position, role in enumerate(signature.inputs):
        if isinstance(role.of if isinstance(role, Inner) else role, (Parameter, Buffer, Saved)):
            yield position
