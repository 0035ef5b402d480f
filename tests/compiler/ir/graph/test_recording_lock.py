"""Threads that record: what is the process's is held by one of them, in whatever order they ask for its parts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import assay
from assay.compiler.assembly.halves import lazily
from assay.compiler.autograd.symbolic_gradients import symbols_in_gradients
from assay.compiler.capture.decompositions.checked_by_eager import refusing_as_eager
from assay.compiler.capture.decompositions.kept_whole import operators_whole
from assay.compiler.capture.decompositions.product_gradients import products_by_values
from assay.compiler.ir.graph.trace import Trace

PATIENCE_S, DEADLINE_S = 0.1, 10.0


def _made_later() -> AbstractContextManager[object]:
    return nullcontext(lazily(lambda: lambda: ())())


PARTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "operators whole": operators_whole,
    "refusals": refusing_as_eager,
    "products": products_by_values,
    "gradients of symbols": lambda: symbols_in_gradients(FakeTensorMode()),
    "a graph made when it is first called": _made_later,
}


@pytest.mark.parametrize("part", PARTS)
def test_a_thread_takes_no_part_of_what_another_one_records_under(part: str) -> None:
    """Else each of two threads could hold what the other one waits for."""
    entered = threading.Event()

    def enter() -> None:
        with PARTS[part]():
            entered.set()

    other = threading.Thread(target=enter, daemon=True)
    with Trace(FakeTensorMode(), {}).recording():
        other.start()
        assert not entered.wait(PATIENCE_S)
        with PARTS[part]():
            pass
    other.join(DEADLINE_S)
    assert entered.is_set()


def test_backwards_of_one_call_in_threads_end() -> None:
    """Some go backward in a recording, others compile that backward."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x).prod()

    call = torch.compile(f, backend="assay", dynamic=False)
    leaf = torch.rand(4, requires_grad=True)
    with assay.compiled_autograd():
        results = [call(leaf) for _ in range(6)]
        threads = [threading.Thread(target=result.backward, daemon=True) for result in results]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(6 * DEADLINE_S)
        assert not any(thread.is_alive() for thread in threads)
    found, leaf.grad = leaf.grad, None
    for _ in results:
        f(leaf).backward()
    torch.testing.assert_close(found, leaf.grad)
