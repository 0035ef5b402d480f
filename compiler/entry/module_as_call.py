"""A module, or a graph that takes or returns structures, as a call of flat tensors to record.

model({"x": x, "n": 3}, [y])      ->      call(weight, x, y), valid where the other leaf is 3
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch._guards import Source
from torch.fx.graph import _PyTreeCodeGen
from torch.utils import _pytree as pytree

from assay.compiler.capture.inputs import Call, fake_leaf
from assay.compiler.capture.module_state import call_and_assigned, call_with_state
from assay.compiler.entry.graph_as_call import has_regions, recording_mode, run_inlined, run_module
from assay.compiler.errors import ExportError, InputMismatch, Unsupported
from assay.compiler.fallback import nodes_of
from assay.compiler.ir.graph.roles import Buffer, CallInput, GraphCall, Parameter, UserInput

IS_GIVEN = object()
"""Stands, among the constants of a call, for a leaf that is an input."""


def module_state(mod: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a module, each once, by their names."""
    return {**dict(mod.named_parameters()), **dict(mod.named_buffers())}


def state_role(index: int, name: str, value: object) -> CallInput:
    return Parameter(index, name) if isinstance(value, nn.Parameter) else Buffer(index, name)


def called(
    mod: nn.Module,
    state: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    run: Callable[..., Any] = run_module,
) -> Any:
    """What a module returns with this state. Raises: Unsupported where it assigns what nothing outside learns of."""
    try:
        return call_with_state(mod, state, args, kwargs, run)
    except ExportError as reason:
        raise Unsupported(str(reason)) from reason


def called_and_assigned(
    mod: nn.Module, state: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, dict[str, torch.Tensor | None]]:
    """What a module returns with this state, and the buffers that it replaced.

    Raises: Unsupported where it assigns anything else.
    """
    try:
        return call_and_assigned(mod, state, args, kwargs, run_module)
    except ExportError as reason:
        raise Unsupported(str(reason)) from reason


def is_flat_graph(model: nn.Module, examples: Sequence[object]) -> bool:
    """Whether a model is a graph whose placeholders are its inputs, none of which is a structure, and whose own tensors
    are nodes."""
    if not isinstance(model, fx.GraphModule) or isinstance(model.graph._codegen, _PyTreeCodeGen):
        return False
    return not model.graph.find_nodes(op="call_module", target=None) and all(map(pytree.tree_is_leaf, examples))


def _sources(module: nn.Module, spec: pytree.TreeSpec, count: int) -> list[Source | None]:
    """Where Dynamo found each leaf of a call of its graph, of which the inputs are the last; None where it did not."""
    placeholders = module.graph.find_nodes(op="placeholder") if isinstance(module, fx.GraphModule) else []
    if len(placeholders) != spec.num_leaves or len(placeholders) > count:
        return [None] * count
    found = [getattr(node, "_dynamo_source", None) for node in placeholders]
    return [*[None] * (count - len(found)), *found]


@dataclass(frozen=True, slots=True)
class ModuleAsCall:
    """A module on structures as a call of flat tensors: its state first, then the leaves of its arguments.

    `constants` are the leaves that are no tensors, in their places, `state` the module's tensors. Recording leaves in
    `structure` that of the results.
    """

    call: Call
    state: tuple[torch.Tensor, ...]
    spec: pytree.TreeSpec
    constants: tuple[object, ...]
    structure: list[pytree.TreeSpec] = field(default_factory=list)

    @staticmethod
    def of(
        module: nn.Module,
        examples: Sequence[object],
        is_fixed: bool = False,
        keywords: dict[str, Any] | None = None,
    ) -> ModuleAsCall:
        """The call for these examples. The sizes of the module's own tensors are numbers, and those of real examples
        where they are `is_fixed`.

        Raises: Unsupported for an input that the compiler does not take.
        """
        state = module_state(module)
        flat, spec = pytree.tree_flatten(tuple(examples) if keywords is None else (tuple(examples), keywords))
        constants = tuple(IS_GIVEN if isinstance(leaf, (torch.Tensor, torch.SymInt)) else leaf for leaf in flat)
        given = [*state.values(), *(leaf for leaf in flat if isinstance(leaf, (torch.Tensor, torch.SymInt)))]
        roles = [state_role(index, name, value) for index, (name, value) in enumerate(state.items())]
        roles += [UserInput(index) for index in range(len(state), len(given))]
        mode, sources = recording_mode(given), _sources(module, spec, len(given))
        leaves = tuple(
            fake_leaf(role, value, mode, source, is_fixed or not isinstance(role, UserInput))
            for role, value, source in zip(roles, given, sources, strict=True)
        )
        structure: list[pytree.TreeSpec] = []

        def run(values: list[object], how: Callable[..., Any] = run_module) -> Sequence[object]:
            left = iter(values[len(state) :])
            filled = [next(left) if leaf is IS_GIVEN else leaf for leaf in constants]
            given = pytree.tree_unflatten(filled, spec)
            args, named = (given, {}) if keywords is None else given
            given_state = dict(zip(state, values, strict=False))
            results, found = pytree.tree_flatten(called(module, given_state, args, named, how))
            structure[:] = [found]
            return results

        nodes = nodes_of(module) if isinstance(module, fx.GraphModule) else 1
        inlined = functools.partial(run, how=run_inlined) if has_regions(module) else None
        call = Call(run, leaves, mode, constants=constants, nodes=nodes, inlined=inlined)
        return ModuleAsCall(call, tuple(state.values()), spec, constants, structure)

    def function(self, run: GraphCall) -> Callable[..., Any]:
        """`run`, which takes the leaves of the call, as a function of the module's own arguments.

        Raises: InputMismatch, when it is called with another structure or with other constants.
        """

        def flattened(*args: object) -> Any:
            return rebuilt(run([*self.state, *self._given(args)]))

        def flat(*args: object) -> Any:
            return rebuilt(run([*self.state, *args]))

        def rebuilt(results: Sequence[object]) -> Any:
            return pytree.tree_unflatten(list(results), self.structure[0])

        has_constants = any(constant is not IS_GIVEN for constant in self.constants)
        is_flat = all(child.is_leaf() for child in self.spec.children())
        return flat if is_flat and not has_constants else flattened

    def _given(self, args: tuple[object, ...]) -> Iterator[object]:
        """The leaves of a call's arguments that are inputs."""
        leaves, spec = pytree.tree_flatten(args)
        if spec != self.spec:
            raise InputMismatch(f"the inputs are {spec} where the graph was compiled for {self.spec}")
        yield from given_leaves(leaves, self.constants)


def given_leaves(leaves: Sequence[object], constants: Sequence[object]) -> Iterator[object]:
    """Those leaves of a call that are inputs of its graph. Raises: InputMismatch where another is not the constant."""
    for position, (leaf, constant) in enumerate(zip(leaves, constants, strict=True)):
        if constant is IS_GIVEN:
            yield leaf
        elif type(leaf) is not type(constant) or leaf != constant:
            raise InputMismatch(f"leaf {position} of the inputs is {leaf!r} where it was {constant!r}")
