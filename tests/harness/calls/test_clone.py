"""Copies of calls: what was aliased stays aliased, and nothing is shared with the original."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from assay.harness.calls import clone
from assay.harness.calls.clone import Call, CloneError, copy_call, nearby, nudged, widened
from assay.harness.calls.memory import aliases
from assay.harness.calls.tree import walk_call
from assay.harness.observe.observation import kept_on_host, look


def graph_of(call: Call) -> frozenset[tuple[str, str, str]]:
    return aliases(walk_call(call.function, call.args, call.kwargs).tensors)


def test_clone_keeps_aliases_between_inputs() -> None:
    base = torch.randn(4, 6)
    call = Call(torch.add, (base[1:], base.t(), base[:, 0], base, base), {"out": base.data})
    copied = copy_call(call)
    assert graph_of(copied) == graph_of(call)
    assert copied.args[0]._base is copied.args[3] and copied.args[3] is copied.args[4]
    before = base.clone()
    copied.args[3].fill_(7)
    assert torch.equal(base, before) and bool((copied.args[0] == 7).all())


def test_clone_of_a_closure_over_a_module_of_python() -> None:
    package, weight = torch.special, torch.randn(3)
    function = copy_call(Call(lambda x: package.expit(x) * weight, (), {})).function
    assert function.__closure__ is not None
    held = [cell.cell_contents for cell in function.__closure__]
    assert held[0] is package and held[1] is not weight


def test_clone_keeps_version_shared_with_base() -> None:
    base = torch.randn(4)
    copied = copy_call(Call(torch.add, (base, base[:2]), {}))
    copied.args[1].add_(1)
    assert copied.args[0]._version == copied.args[1]._version > 0


def test_clone_keeps_shape_stride_offset_and_bits() -> None:
    base = torch.randn(3, 4, dtype=torch.complex64)
    tensors = (base.t(), base[1:, ::2], base.conj(), base.imag, torch.randn(3, 1).expand(3, 5), torch.empty(0, 3))
    for tensor, made in zip(tensors, copy_call(Call(torch.add, tensors, {})).args, strict=True):
        assert (made.shape, made.dtype, made.stride(), made.storage_offset()) == (
            tensor.shape,
            tensor.dtype,
            tensor.stride(),
            tensor.storage_offset(),
        )
        assert made.is_conj() == tensor.is_conj() and made.is_neg() == tensor.is_neg()
        assert torch.equal(made.resolve_conj(), tensor.resolve_conj())


def test_clone_keeps_tied_parameters_and_plain_attributes() -> None:
    model = nn.Module()
    model.one, model.other = nn.Linear(3, 3), nn.Linear(3, 3)
    model.other.weight = model.one.weight
    model.table = torch.randn(3)
    model.row = model.table[1:]
    made = copy_call(Call(model, (model.one.bias,), {})).function
    assert made.other.weight is made.one.weight is not model.one.weight
    assert isinstance(made.one.weight, nn.Parameter)
    made.table.zero_()
    assert bool((made.row == 0).all()) and not bool((model.row == 0).all())


def test_clone_copies_closures_and_shares_their_cells() -> None:
    weight = torch.randn(3)

    def inner() -> torch.Tensor:
        return weight

    def outer() -> tuple[torch.Tensor, torch.Tensor]:
        return weight, inner()

    one, other = copy_call(Call(outer, (), {})).function()
    assert one is other is not weight and torch.equal(one, weight)


def test_clone_gives_tensors_with_history_a_hidden_leaf() -> None:
    leaf = torch.tensor([-0.0, 1.5, 3.0], requires_grad=True)
    copied = copy_call(Call(torch.neg, (leaf * 1,), {}))
    (made,) = copied.args
    assert not made.is_leaf and bool(made.signbit()[0])
    (made.mul_(3)).sum().backward()
    assert copied.leaves[id(made)].grad is not None
    assert torch.equal(copied.leaves[id(made)].grad, torch.full((3,), 3.0)) and leaf.grad is None


def test_clone_view_of_leaf_reaches_its_base() -> None:
    base = torch.randn(4, requires_grad=True)
    copied = copy_call(Call(torch.neg, (base[1:],), {}))
    copied.args[0].sum().backward()
    assert torch.equal(copied.args[0]._base.grad, torch.tensor([0.0, 1.0, 1.0, 1.0])) and base.grad is None


def test_clone_widens_every_number_and_keeps_integers() -> None:
    base = torch.randn(4, 3)
    copied = copy_call(Call(nn.Linear(3, 2), (base, base.t(), torch.arange(3)), {}), widened)
    assert [arg.dtype for arg in copied.args] == [torch.float64, torch.float64, torch.int64]
    assert torch.equal(copied.args[0], base.double()) and copied.function.weight.dtype == torch.float64
    assert copied.args[1]._base is copied.args[0] and copied.args[1].stride() == base.t().stride()


def test_clone_refuses_to_widen_a_storage_of_two_dtypes() -> None:
    base = torch.randn(4)
    try:
        copy_call(Call(torch.add, (base, base.view(torch.int32)), {}), widened)
    except CloneError as error:
        assert "float32" in str(error) and "int32" in str(error)
    else:
        raise AssertionError("a storage of two dtypes was converted")


def test_clone_nudges_by_one_rounding() -> None:
    base = torch.randn(1000)
    moved = copy_call(Call(torch.neg, (base,), {}), nudged(0)).args[0]
    ratio = ((moved - base) / base).abs()
    assert bool((ratio <= 2 * torch.finfo(torch.float32).eps).all()) and bool((moved != base).float().mean() > 0.9)


def test_clone_nudges_equal_numbers_alike_where_it_is_asked_to() -> None:
    """A row of one number stays one, negatives stay negatives, and so do numbers of two tensors; others move apart."""
    row, others = torch.full((64,), 0.3), torch.randn(1000)
    move = nudged(0, moves_alike=True)
    moved, apart = move(row), move(others)
    assert len(moved.unique()) == 1 and len(nudged(0)(row).unique()) == 2
    assert torch.equal(move(-others), -apart) and torch.equal(move(others[:10]), apart[:10])
    steps = (apart - others) / others
    assert 0.4 < float((steps > 0).float().mean()) < 0.6 and bool((steps.abs() <= 2.4e-7).all())


def test_clone_moves_a_large_storage_in_pieces_as_it_moves_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    given = torch.randn(1000)
    whole = nudged(0)(given), nearby(0)(given.double())
    monkeypatch.setattr(clone, "PIECE", 300)
    assert torch.equal(nudged(0)(given), whole[0]) and torch.equal(nearby(0)(given.double()), whole[1])
    assert nudged(0)(given.reshape(10, 100)).shape == (10, 100)


def test_clone_says_what_cannot_be_copied() -> None:
    lock = __import__("threading").Lock()
    try:
        copy_call(Call(torch.add, ({"lock": lock},), {}))
    except CloneError as error:
        assert "lock" in str(error)
    else:
        raise AssertionError("a lock was copied")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_observe_clone_widened_shares_nothing_and_keeps_every_number(dtype: torch.dtype) -> None:
    given = torch.randn(3, dtype=dtype)
    (made,) = copy_call(Call(torch.neg, (given,), {}), widened).args
    assert made.dtype == (torch.complex128 if dtype.is_complex else torch.float64)
    assert torch.equal(made, given.to(made.dtype)) and made.untyped_storage()._cdata != given.untyped_storage()._cdata


def test_observe_clone_nudged_moves_complex_numbers_by_one_rounding() -> None:
    given = torch.randn(50, dtype=torch.complex64)
    (made,) = copy_call(Call(torch.neg, (given,), {}), nudged(1)).args
    off = (torch.view_as_real(made) - torch.view_as_real(given)).abs() / torch.view_as_real(given).abs()
    assert bool((off > 0).all()) and bool((off < 3e-7).all())


def test_large_copies_are_kept_on_the_host_where_that_is_asked_for() -> None:
    with FakeTensorMode():
        large, small = (torch.empty(numel, device="cuda") for numel in (8, 7))

        def devices() -> list[str]:
            return [look(tensor, {}).value.device.type for tensor in (large, small)]

        with kept_on_host(8):
            assert devices() == ["cpu", "cuda"]
        assert devices() == ["cuda", "cuda"]


def test_what_stays_as_it_was_is_kept_once() -> None:
    value = torch.tensor([0.0, 1.0])
    before = value.clone()
    assert look(value, {}, before).value is before
    value[0] = -0.0
    changed = look(value, {}, before)
    assert changed.value is not before and torch.equal(changed.value.signbit(), torch.tensor([True, False]))
    assert look(value[:1], {}, before).value.shape == (1,)


def test_walk_ends_at_a_function_that_calls_itself() -> None:
    scale = torch.ones(3)

    def halved(x: torch.Tensor, times: int) -> torch.Tensor:
        return halved(x * scale / 2, times - 1) if times else x

    tree = walk_call(lambda x: halved(x, 2), (torch.ones(3),), {})
    assert any(value is scale for value in tree.tensors.values())
