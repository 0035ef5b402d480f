"""Script objects, and objects of Python's that operators are given: each call is made once, in the program's order."""

from __future__ import annotations

from collections.abc import Iterator
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
