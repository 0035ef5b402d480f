"""Inputs whose storage a program replaces or resizes in place: what is compiled, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.aot import aot_function, nop
from assay.compiler.errors import Unexpected, Unsupported

STORAGE, SHAPE = "replaces the storage of an input", "changes, in place, a shape that has symbols"
Program = Callable[[Tensor, Tensor], Tensor]
resize = torch.ops.inductor.resize_storage_bytes_.default


def same_shape(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(y)  # type: ignore[call-overload]
    return x * 2


def other_shape(x: Tensor, y: Tensor) -> Tensor:
    x.set_(y.view(-1))  # type: ignore[call-overload]
    return x * 2


def data(x: Tensor, y: Tensor) -> Tensor:
    x.data = y.data
    return x * 2


def intermediate(x: Tensor, y: Tensor) -> Tensor:
    x.set_(y + 1)  # type: ignore[call-overload]
    return x[1:]


def written_before_and_after(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    before = x.clone()
    x.set_(y)  # type: ignore[call-overload]
    x.mul_(3)
    return before + y


def set_and_returned(x: Tensor, y: Tensor) -> Tensor:
    x.data = y * 2
    x.add_(1)
    return x


def data_written(x: Tensor, y: Tensor) -> Tensor:
    x.data = y * 2
    x.add_(1)
    return x * y


def filled(x: Tensor, y: Tensor) -> Tensor:
    resize(x, 64)
    x.copy_(y)
    return x + 1


def filled_and_freed(x: Tensor, y: Tensor) -> Tensor:
    resize(x, 64)
    x.copy_(y)
    z = x * y
    resize(x, 0)
    return z


def set_and_freed(x: Tensor, y: Tensor) -> Tensor:
    x.set_(torch.cat([y[:1], y[2:3]]))  # type: ignore[call-overload]
    z = x.sin()
    resize(x, 0)
    return z


def smaller_and_asked(x: Tensor, y: Tensor) -> Tensor:
    x.data = y.sum(0)
    return x.view(-1, 2) * x.shape[0] + len(x.stride())


def turned(x: Tensor, y: Tensor) -> Tensor:
    x.data = y.t() * 2
    return x * (2 if x.is_contiguous() else 3)


def larger(x: Tensor, y: Tensor) -> Tensor:
    x.data = torch.cat([y, y])
    return x * x.shape[0]


def set_back(x: Tensor, y: Tensor) -> Tensor:
    old = torch.ops.aten.alias.default(x)
    with torch.no_grad():
        x.set_(y)  # type: ignore[call-overload]
        x.set_(old)  # type: ignore[call-overload]
    return x + 2 * y


def given(is_freed: bool = False) -> tuple[Tensor, Tensor]:
    x, y = torch.ones(4, 4), torch.arange(16.0).view(4, 4)
    x.untyped_storage().resize_(0 if is_freed else 64)
    return x, y


def facts(x: Tensor, y: Tensor, result: Tensor) -> tuple[object, ...]:
    storages = [one.untyped_storage()._cdata for one in (x, y, result)]
    sizes = [one.untyped_storage().nbytes() for one in (x, y, result)]
    values = [
        one.tolist() if size >= one.numel() * 4 else None for one, size in zip((x, y, result), sizes, strict=True)
    ]
    shared = [storages.index(one) for one in storages]
    return values, sizes, shared, x.shape, x.stride(), [x._version, y._version], result is x


FREED = (filled, filled_and_freed)


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        same_shape, data, intermediate, written_before_and_after, set_and_returned,
        filled, filled_and_freed, set_and_freed,
    ],
)  # fmt: skip
def test_what_replaces_an_input_is_as_in_eager(program: Program, dynamic: bool, keeps: bool) -> None:
    compiled = aot_function(program, nop, dynamic=dynamic, keep_inference_input_mutations=keeps, fallback="error")
    for _ in range(2):
        found, wanted = given(program in FREED), given(program in FREED)
        assert facts(*found, compiled(*found)) == facts(*wanted, program(*wanted))


@pytest.mark.parametrize(
    ("program", "requires_grad"),
    [(each, False) for each in (same_shape, data, intermediate, written_before_and_after, data_written)]
    + [(data, True), (data_written, True)],
)
def test_memory_that_an_input_had_is_written_before_it_is_replaced_alone(program: Program, requires_grad: bool) -> None:
    found = []
    for function in (program, aot_function(program, nop, fallback="error")):
        x, y = given()
        y.requires_grad_(requires_grad)
        before = x.view(-1), x.detach()
        result = function(x, y)
        if result.requires_grad:
            result.sum().backward()
        found.append((*before, x, [one._version for one in before], y.grad))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_write_to_memory_that_an_input_had_is_refused_by_name() -> None:
    def written_late(x: Tensor, y: Tensor) -> Tensor:
        old = x.view(-1)
        x.data = y * 2
        old.add_(1)
        return x * 2

    found, wanted = given(), given()
    assert facts(*found, aot_function(written_late, nop)(*found)) == facts(*wanted, written_late(*wanted))
    with pytest.raises(Unsupported, match="before it was given other memory") as refusal:
        aot_function(written_late, nop, fallback="error")(*given())
    assert not isinstance(refusal.value, Unexpected)


def test_storage_freed_between_forward_and_backward_is_read_as_it_was_filled_again() -> None:
    def gathered(whole: Tensor, x: Tensor) -> Tensor:
        resize(whole, 64)
        with torch.no_grad():
            whole.copy_(torch.full_like(whole, 2.0))
        y = x * whole
        resize(whole, 0)
        return y.sin()

    found = []
    for function in (gathered, aot_function(gathered, nop, keep_inference_input_mutations=True, fallback="error")):
        whole, x = given(is_freed=True)
        x.requires_grad_()
        result = function(whole, x)
        whole.untyped_storage().resize_(64)
        with torch.no_grad():
            torch.full((4, 4), 2.0, out=whole.data)
        result.sum().backward()
        found.append((result.tolist(), x.grad))
    torch.testing.assert_close(found[1], found[0])


def test_parameter_read_before_its_data_is_replaced_is_refused_by_name() -> None:
    def read_before(x: Tensor, y: Tensor) -> Tensor:
        z = x.sin()
        x.data = y * 2
        return z + x

    found, wanted = given(), given()
    found[0].requires_grad_(), wanted[0].requires_grad_()
    with pytest.raises(Unsupported, match=STORAGE):
        aot_function(read_before, nop, fallback="error")(*found)
    aot_function(read_before, nop)(*found).sum().backward()
    read_before(*wanted).sum().backward()
    torch.testing.assert_close(found[0].grad, wanted[0].grad)


def test_input_set_to_a_view_of_another_shape_is_refused_by_name() -> None:
    found, wanted = given(), given()
    assert facts(*found, aot_function(other_shape, nop)(*found)) == facts(*wanted, other_shape(*wanted))
    with pytest.raises(Unsupported, match=STORAGE):
        aot_function(other_shape, nop, fallback="error")(*given())


@pytest.mark.parametrize("program", [smaller_and_asked, turned])
def test_input_given_memory_of_another_form_lies_as_that(program: Program) -> None:
    found, wanted = given(), given()
    assert facts(*found, aot_function(program, nop, fallback="error")(*found)) == facts(*wanted, program(*wanted))


@pytest.mark.parametrize("program", [larger, set_back])
def test_input_given_larger_memory_or_its_own_again_is_refused_by_name(program: Program) -> None:
    found, wanted = given(), given()
    assert facts(*found, aot_function(program, nop)(*found)) == facts(*wanted, program(*wanted))
    with pytest.raises(Unsupported) as refusal:
        aot_function(program, nop, fallback="error")(*given())
    assert not isinstance(refusal.value, Unexpected)


def test_shape_of_symbols_changed_in_place_is_refused_by_name() -> None:
    def resized(x: Tensor, y: Tensor) -> Tensor:
        x.resize_(2, 2)
        return x * 2

    def resized_to_its_shape(x: Tensor, y: Tensor) -> Tensor:
        x.resize_(x.shape)
        return x * 2

    found, wanted = given(), given()
    torch.testing.assert_close(aot_function(resized_to_its_shape, nop, dynamic=True)(*found), wanted[0] * 2)
    with pytest.raises(Unsupported, match="symbolic sizes") as refusal:
        aot_function(resized_to_its_shape, nop, dynamic=True, fallback="error")(*given())
    assert not isinstance(refusal.value, Unexpected)
    torch.testing.assert_close(aot_function(resized, nop, dynamic=True)(*found), resized(*wanted))
    torch.testing.assert_close(found, wanted)
    with pytest.raises(Unsupported, match=SHAPE) as refusal:
        aot_function(resized, nop, dynamic=True, fallback="error")(*given())
    assert not isinstance(refusal.value, Unexpected)
