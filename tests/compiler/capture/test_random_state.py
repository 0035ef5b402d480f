"""What a recording does with the state of random numbers, which other threads use meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.convert_frame import compile_lock

from assay.compiler.entry.aot import aot_function
from assay.compiler.journal import totals

KEPT = {"fallback": "error"}


@pytest.fixture
def others_draw() -> Iterator[None]:
    """Another thread draws all the time, as one that loads data does."""
    is_over = threading.Event()

    def draw() -> None:
        while not is_over.is_set():
            torch.rand(3)

    thread = threading.Thread(target=draw)
    thread.start()
    yield
    is_over.set()
    thread.join()


def step(x: Tensor) -> Tensor:
    return (x.sin() * torch.rand_like(x)).cumsum(0)


@pytest.mark.usefixtures("others_draw")
@pytest.mark.parametrize("count", range(1, 6))
def test_a_program_is_compiled_while_other_threads_draw(count: int) -> None:
    x = torch.ones(count, requires_grad=True)
    torch.compile(lambda x: step(x) * count, backend="assay", options=KEPT, dynamic=False)(x).sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_gradients_are_recorded_while_dynamo_compiles_in_another_thread() -> None:
    """There it puts the random state back, under a lock of its own."""
    is_over = threading.Event()

    def put_back() -> None:
        while not is_over.is_set():
            with compile_lock:
                torch.manual_seed(1)

    thread, given_back = threading.Thread(target=put_back), totals()["eager_graphs"]
    thread.start()
    try:
        for count in range(1, 6):
            x = torch.ones(count, requires_grad=True)
            aot_function(lambda x: step(x) * count, itself)(x).sum().backward()  # noqa: B023
    finally:
        is_over.set()
        thread.join()
    assert totals()["eager_graphs"] == given_back


def itself(graph: fx.GraphModule, inputs: object) -> fx.GraphModule:
    return graph


@pytest.mark.parametrize("seed", [0, 5])
def test_a_seed_that_a_program_sets_is_seen(seed: int) -> None:
    """Also the one that the state has: what is drawn next begins anew."""

    def seeded(x: Tensor) -> Tensor:
        torch.manual_seed(seed)
        return x + 1

    torch.manual_seed(seed)
    expected = torch.rand(2)
    torch.rand(7)
    aot_function(seeded, itself)(torch.ones(2))
    assert torch.equal(torch.rand(2), expected)


def test_the_random_state_is_kept() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    torch.compile(torch.sin, backend="assay", options=KEPT)(torch.ones(3, requires_grad=True)).sum().backward()
    assert torch.equal(torch.rand(4), expected)
