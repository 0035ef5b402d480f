"""Script objects, and objects of Python's that operators are given: each call is made once, in the program's order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.effects import with_effects
from torch._higher_order_ops.torchbind import enable_torchbind_tracing
from torch._library import opaque_object

from assay.compiler.entry.aot import aot_function, nop
from assay.compiler.entry.export import aot_export_module

LIBRARY = Path(torch.__file__).parent / "lib" / "libtorchbind_test.so"
has_classes = pytest.mark.skipif(not LIBRARY.exists(), reason="this torch comes without its classes for tests")
has_opaque = pytest.mark.skipif(not hasattr(opaque_object, "OpaqueBase"), reason="this torch has no opaque objects")
ASSAY: dict[str, Any] = {"backend": "assay", "fullgraph": True, "options": {"fallback": "error"}}


class FakeFoo:
    """What stands for a `_Foo` while a call of its methods is recorded."""

    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y

    @classmethod
    def __obj_unflatten__(cls, flattened: Any) -> FakeFoo:
        return cls(**dict(flattened))

    def add_tensor(self, z: Tensor) -> Tensor:
        return (self.x + self.y) * z


class FakeQueue:
    """What stands for a `_TensorQueue` while a call of its methods is recorded."""

    def __init__(self, queue: list[Tensor]) -> None:
        self.queue = queue

    @classmethod
    def __obj_unflatten__(cls, flattened: Any) -> FakeQueue:
        return cls(**dict(flattened))

    def push(self, x: Tensor) -> None:
        self.queue.append(x)

    def pop(self) -> Tensor:
        return self.queue.pop(0)

    def size(self) -> int:
        return len(self.queue)


@pytest.fixture(scope="module")
def classes() -> Iterator[Any]:
    torch.ops.load_library(str(LIBRARY))
    fakes = {"_TorchScriptTesting::_Foo": FakeFoo, "_TorchScriptTesting::_TensorQueue": FakeQueue}
    for name, fake in fakes.items():
        torch._library.register_fake_class(name, fake)  # type: ignore[attr-defined]
    yield torch.classes._TorchScriptTesting
    for name in fakes:
        torch._library.fake_class_registry.deregister_fake_class(name)


class Adds(nn.Module):
    def __init__(self, foo: Any) -> None:
        super().__init__()
        self.foo = foo

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (x.sin() + self.foo.add_tensor(x),)


@has_classes
def test_a_method_of_a_script_object_is_a_call_of_the_graph(classes: Any) -> None:
    module, x = Adds(classes._Foo(10, 20)), torch.tensor([1.0, 2.0])
    for _ in range(2):
        torch.testing.assert_close(torch.compile(module, **ASSAY)(x)[0], x.sin() + 30 * x)


@has_classes
def test_methods_of_a_script_object_are_called_in_order(classes: Any) -> None:
    def f(queue: Any, x: Tensor) -> tuple[Tensor, Tensor, Any]:
        queue.push(x.cos())
        queue.push(x.sin())
        return queue.pop() * 2, queue.pop() + queue.size(), queue

    x = torch.tensor([1.0, 2.0])
    compiled = torch.compile(f, **ASSAY)
    for _ in range(3):
        queue = classes._TensorQueue(torch.empty(0))
        first, second, same = compiled(queue, x)
        torch.testing.assert_close((first, second), (x.cos() * 2, x.sin()))
        assert same is queue and queue.size() == 0


@has_classes
def test_a_recording_leaves_the_object_as_it_is(classes: Any) -> None:
    """What is pushed in one piece of a graph is there in the next."""

    def f(queue: Any, x: Tensor, is_cut: bool) -> Tensor:
        queue.push(x.sin())
        if is_cut:
            x.new_zeros(1).expand(2).zero_()
        y = queue.pop().cos() * x
        queue.push(y)
        return y + queue.size()

    x = torch.tensor([1.0, 2.0])
    for is_cut in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="assay", fullgraph=True)
        for _ in range(3):
            queue, own = classes._TensorQueue(torch.empty(0)), classes._TensorQueue(torch.empty(0))
            for each in (queue, own):
                each.push(x + 1)
            torch.testing.assert_close(compiled(queue, x, is_cut), f(own, x, is_cut))
            assert queue.size() == own.size() == 2
            torch.testing.assert_close((queue.pop(), queue.pop()), (own.pop(), own.pop()))


@has_classes
def test_gradients_flow_through_objects_as_in_eager(classes: Any) -> None:
    """Methods that take or give what requires grad are called between pieces."""

    def kept(queue: Any, x: Tensor) -> Tensor:
        queue.push(x.sin().exp())
        return (queue.pop().cos() * x).sin()

    def given(foo: Any, x: Tensor) -> Tensor:
        return foo.add_tensor(x.sin()).cos()  # type: ignore[no-any-return]

    makes = ((kept, lambda: classes._TensorQueue(torch.empty(0))), (given, lambda: classes._Foo(1, 2)))
    for f, make in makes:
        found = []
        for run in (f, torch.compile(f, backend="assay", fullgraph=True)):
            x = torch.tensor([1.0, 2.0], requires_grad=True)
            result = run(make(), x)
            result.sum().backward()
            found.append((result, x.grad))
        torch.testing.assert_close(found[1], found[0])


@has_classes
def test_objects_are_inputs_ahead_of_time(classes: Any) -> None:
    traced: list[int] = []

    def f(queue: Any, foo: Any, x: Tensor) -> Tensor:
        traced.append(1)
        queue.push(foo.add_tensor(x))
        return queue.pop() * 2  # type: ignore[no-any-return]

    with enable_torchbind_tracing():
        compiled, x = aot_function(f, nop, fallback="error"), torch.tensor([1.0, 2.0])
        for number in (1, 2):
            queue, foo = classes._TensorQueue(torch.empty(0)), classes._Foo(number, 2)
            torch.testing.assert_close(compiled(queue, foo, x), 2 * (number + 2) * x)
            assert queue.size() == 0
    assert len(traced) == 1


@has_classes
@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_number_of_an_object_is_that_of_its_state(classes: Any, is_ahead: bool) -> None:
    def f(queue: Any, x: Tensor) -> Tensor:
        queue.push(x.sin())
        return x + queue.size()  # type: ignore[no-any-return]

    with enable_torchbind_tracing() if is_ahead else nullcontext():
        compiled = aot_function(f, nop) if is_ahead else torch.compile(f, **ASSAY)
        for length in (0, 2, 1, 0):
            queue, x = classes._TensorQueue(torch.empty(0)), torch.tensor([1.0, 2.0])
            for _ in range(length):
                queue.push(torch.zeros(2))
            torch.testing.assert_close(compiled(queue, x), x + length + 1)


@has_classes
def test_an_exported_method_follows_the_token(classes: Any) -> None:
    with enable_torchbind_tracing():
        graph, signature = aot_export_module(Adds(classes._Foo(10, 20)), (torch.ones(2),), trace_joint=False)
    (call,) = graph.graph.find_nodes(op="call_function", target=with_effects)
    assert call.args[1] is torch.ops.higher_order.call_torchbind and call.args[3] == "add_tensor"
    assert signature.input_tokens == ["arg0_1"] and signature.output_tokens == ["getitem"]


if hasattr(opaque_object, "OpaqueBase"):

    class Counter(opaque_object.OpaqueBase):  # type: ignore[misc]
        def __init__(self, start: int) -> None:
            self.count = start

        def step(self) -> int:
            self.count += 1
            return self.count


@pytest.fixture(scope="module")
def counts() -> Iterator[Any]:
    """An operator that changes an object of Python's, and is not registered as one with an effect."""
    opaque_object.register_opaque_type(Counter, typ="reference")
    library = torch.library.Library("assay_counts", "DEF")
    library.define(f"step({opaque_object.get_opaque_type_name(Counter)} counter, Tensor x) -> Tensor")
    library.impl("step", lambda counter, x: x * counter.step(), "CompositeExplicitAutograd")
    torch.library.register_fake("assay_counts::step", lambda counter, x: torch.empty_like(x), lib=library)
    yield torch.ops.assay_counts.step
    library._destroy()


@has_opaque
def test_equal_calls_with_an_object_are_two_calls(counts: Any) -> None:
    def f(counter: Any, x: Tensor) -> Tensor:
        counts(counter, x)
        return counts(counter, x) + counts(counter, x)  # type: ignore[no-any-return]

    x = torch.tensor([1.0, 2.0])
    for run in (f, torch.compile(f, **ASSAY), aot_function(f, nop, fallback="error")):
        counter = Counter(0)
        torch.testing.assert_close(run(counter, x), 5 * x)
        assert counter.count == 3
