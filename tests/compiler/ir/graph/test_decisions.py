"""What a compile says of memory: each decision of the cut with the reason that made it, and the plan of live bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from assay.compiler.autograd.partition import Split, default_split
from assay.compiler.autograd.rematerialization.memory_budget import budget_split
from assay.compiler.autograd.rematerialization.rematerialize import cheapest_split
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.graph.decisions import Decision, Reason, Told
from assay.compiler.ir.graph.roles import Saved
from assay.compiler.journal import listening
from tests.compiler.autograd.rematerialization.test_memory_budget import layers
from tests.compiler.autograd.rematerialization.test_rematerialize import functions
from tests.compiler.autograd.test_partition import joint_of

aten = torch.ops.aten


def decisions_of(made: Split) -> dict[str, Decision]:
    return {each.name: each for each in made.decisions()}


def told_of(function: Callable[..., Tensor], *inputs: Tensor, **options: object) -> Told:
    torch._dynamo.reset()
    with listening() as told:
        torch.compile(function, backend=assay, options=options or None)(*inputs).sum().backward()
    return told


def reasons_of(told: Told) -> dict[str, Reason]:
    """The reasons by what computes the values."""
    return {each.call: each.why.reason for made in told.decisions.values() for each in made}


@pytest.mark.parametrize("name", functions())
def test_decisions_are_what_the_split_does(name: str) -> None:
    function, inputs = functions()[name]
    made = cheapest_split(joint_of(function, inputs))
    decided = decisions_of(made)
    saved = {role.of for role in made.forward.signature.outputs if isinstance(role, Saved)}
    assert {each for each, decision in decided.items() if decision.is_saved} == saved
    nodes = {node.name for node in made.backward.module.graph.nodes if node.op == "call_function"}
    again = {each for each, decision in decided.items() if not decision.is_saved}
    assert again <= nodes and all(set(decision.readers) <= nodes for decision in decided.values())


@pytest.mark.parametrize("name", functions())
def test_what_was_weighed_is_not_dearer_than_the_other_choice(name: str) -> None:
    function, inputs = functions()[name]
    for decision in decisions_of(cheapest_split(joint_of(function, inputs))).values():
        why = decision.why
        if why.reason is Reason.keep:
            assert why.keep_ps is not None and why.again_ps is not None and why.keep_ps <= why.again_ps, decision
        if why.reason in (Reason.fused, Reason.stored) and why.keep_ps is not None:
            assert why.again_ps is not None and why.again_ps <= why.keep_ps, decision


def test_reasons_name_what_decided() -> None:
    x, w = torch.randn(16, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    joint = joint_of(lambda x, w: (nn.functional.dropout(nn.functional.gelu(x @ w).sigmoid(), 0.5) @ w).exp(), [x, w])
    by_call = {decision.call: decision for decision in decisions_of(cheapest_split(joint)).values()}
    assert by_call["aten.native_dropout.default[1]"].why.reason is Reason.random
    assert by_call["aten.exp.default"].why.reason is Reason.held
    assert by_call["aten.mm.default"].why.reason is Reason.library
    assert by_call["aten.sigmoid.default"].why.reason in (Reason.fused, Reason.stored, Reason.keep)
    assert {d.why.reason for d in by_call.values() if d.call in ("input", "aten.t.default")} == {Reason.input}
    assert {d.why.reason for d in decisions_of(default_split(joint)).values()} == {Reason.read}


def test_only_memory_that_lives_because_it_is_kept_is_counted() -> None:
    x, w = torch.randn(16, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    made = default_split(joint_of(lambda x, w: ((h := (x @ w).exp()) @ w).sin() @ h.t(), [x, w]))
    decided = decisions_of(made)
    whole = 16 * 16 * 4
    assert sum(d.held_bytes for d in decided.values()) == 3 * whole, decided  # exp, what sin reads, and sin
    assert all(not d.held_bytes for d in decided.values() if d.why.reason is Reason.free)


def test_a_checkpoint_region_and_its_policy_are_reasons() -> None:
    def region(x: Tensor, w: Tensor) -> Tensor:
        return ((x @ w).sigmoid() @ w).tanh() @ w

    def policy(context: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op is aten.sigmoid.default else CheckpointPolicy.PREFER_RECOMPUTE

    def plain(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(region, x.sin(), w, use_reentrant=False).sin()  # type: ignore[no-any-return]

    def chosen(x: Tensor, w: Tensor) -> Tensor:
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(region, x.sin(), w, use_reentrant=False, context_fn=contexts).sin()  # type: ignore[no-any-return]

    inputs = [torch.randn(16, 16, requires_grad=True) for _ in range(2)]
    found = reasons_of(told_of(plain, *inputs))
    assert found["aten.mm.default"] in (Reason.asked, Reason.border) and found["aten.tanh.default"] is Reason.asked
    assert Reason.border in found.values()
    assert reasons_of(told_of(chosen, *inputs))["aten.sigmoid.default"] is Reason.policy


def test_a_budget_is_a_reason() -> None:
    joint = joint_of(*layers(12))
    found = {d.why.reason for d in decisions_of(budget_split(joint, 0.6)).values()}
    assert {Reason.budget, Reason.segment} <= found, found


def test_a_value_says_where_it_was_made() -> None:
    inner = nn.ModuleDict({"act": nn.Sequential(nn.GELU(), nn.Linear(8, 8))})
    model = nn.ModuleList([inner])

    def run(x: Tensor) -> Tensor:
        return model[0]["act"](x @ x)  # type: ignore[no-any-return, index]

    (made,) = told_of(run, torch.randn(8, 8, requires_grad=True)).decisions.values()
    by_call = {each.call: each for each in made}
    line = run.__code__.co_firstlineno + 1
    assert by_call["aten.mm.default"].line == f"test_decisions.py:{line}"
    assert by_call["aten.gelu.default"].module == "0.act.0"


def test_nothing_is_told_where_nobody_listens() -> None:
    with listening() as told:
        pass
    torch._dynamo.reset()
    torch.compile(lambda x: x.sin().exp(), backend=assay)(torch.randn(4, requires_grad=True)).sum().backward()
    assert not told.decisions and not told.plans


def test_a_plan_frees_what_forward_kept_and_ends_with_the_gradients() -> None:
    x, w = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    told = told_of(lambda x, w: ((x @ w).sin() @ w).cos() @ w, x, w)
    forward, backward = told.plans
    (made,) = told.decisions.values()
    kept = sum(each.held_bytes for each in made if each.is_saved)
    assert not forward.is_backward and backward.is_backward
    assert (forward.moments[0].live_bytes, backward.moments[0].live_bytes) == (0, kept)
    assert forward.moments[-1].live_bytes == kept + x.nbytes and backward.moments[-1].live_bytes == x.nbytes + w.nbytes
