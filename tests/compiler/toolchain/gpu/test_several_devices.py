"""Several GPUs in one process: what is each device's own, held to stand-ins for the devices and their driver."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.codegen.call import prologue
from assay.compiler.codegen.host import emit, load
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.graph.roles import Program, Signature, UserInput, UserOutput
from assay.compiler.ir.loops.kernel import Allocate, Launch, Schedule
from assay.compiler.ir.tensors.devices import asks_for_current
from assay.compiler.ops import lower
from assay.compiler.ops.lower import ON_CPU
from assay.compiler.runtime import philox
from assay.compiler.runtime.recording import cuda_graphs
from assay.compiler.schedule.fuse import fuse
from assay.compiler.schedule.order import plan
from assay.compiler.toolchain.gpu import compiled_kernels
from tests import kernel_ir as ir
from tests.kernel_ir import call, const, i, loops, store
from tests.kernel_ir import load as read
from tests.kernel_ir import options as options_of

pytest.importorskip("triton")
FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)


def schedule_of(function: Any, *devices: torch.device) -> Schedule:
    """The schedule of a function of vectors on these devices, which need not be there."""
    from assay.compiler.codegen.triton.programs import takes

    with FakeTensorMode():
        given = [torch.empty(64, device=device) for device in devices]
    module = make_fx(function, tracing_mode="fake")(*given)
    outputs = next(node for node in module.graph.nodes if node.op == "output").args[0]
    signature = Signature(
        tuple(UserInput(k) for k in range(len(given))), tuple(UserOutput(k) for k in range(len(outputs)))
    )
    program = Program(module, signature)
    return plan(fuse(lower(program, {**ON_CPU, "cuda": takes})))


def launches_of(schedule: Schedule) -> list[Launch]:
    return [step for step in schedule.steps if isinstance(step, Launch)]


def test_kernels_of_two_devices_stay_apart() -> None:
    """One kernel over tensors of two devices is neither one kernel nor one launch, though it is small."""
    schedule = schedule_of(lambda x, y: (x.exp() + 1, y.exp() + 1), FIRST, SECOND)
    assert [launch.kernel.device for launch in launches_of(schedule)] == [FIRST, SECOND]
    assert len({launch.kernel.name for launch in launches_of(schedule)}) == 2
    same = schedule_of(lambda x, y: (x.exp() + 1, y.exp() + 1), FIRST, FIRST)
    assert [launch.kernel.name for launch in launches_of(same)] == ["kernel_0_x2"]


def test_memory_of_one_device_is_not_used_on_another() -> None:
    def chained(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (((x @ x.exp()).exp() * x).to(SECOND).exp().cumsum(0) + y,)

    schedule = schedule_of(chained, FIRST, SECOND)
    made = {step.name: step.device for step in schedule.steps if isinstance(step, Allocate)}
    for launch in launches_of(schedule):
        assert {made.get(name, launch.kernel.device) for name in launch.arguments} == {launch.kernel.device}
    assert "empty_cuda" not in emit(schedule), "which takes memory from the current device"


def test_graph_of_the_second_device_runs_with_that_one_current(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = schedule_of(lambda x: (x.exp() + 1,), SECOND)
    now, seen = [0], list[int]()
    stand_in_devices(monkeypatch, now)

    def empty(size: Any, stride: Any, dtype: torch.dtype) -> Tensor:
        seen.append(now[0])
        return torch.empty_strided(size, stride, dtype=dtype)

    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cuda", empty)
    namespace = {kernel.name: lambda *addresses: seen.append(now[0]) for kernel in schedule.kernels}
    load(emit(schedule), namespace)([torch.empty(64)])
    assert seen == [1, 1] and now == [0]


def stand_in_devices(monkeypatch: pytest.MonkeyPatch, now: list[int]) -> None:
    """Devices of which `now` holds the current one."""

    @contextlib.contextmanager
    def on_device(device: int) -> Iterator[None]:
        before, now[0] = now[0], device
        try:
            yield
        finally:
            now[0] = before

    monkeypatch.setattr(torch.cuda, "device", on_device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: now[0])
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: now[0], raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 70 + device, raising=False)


@pytest.mark.parametrize("warm", [False, True], ids=["compiled", "from the cache"])
def test_kernels_are_loaded_and_launched_on_their_own_device(
    warm: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the first device current: the function of the one that a kernel is for, on its current stream."""
    from assay.compiler.toolchain import load
    from assay.compiler.toolchain.gpu import triton_launch

    now, found, loaded = [0], list[tuple[int, tuple[int, ...]]](), list[int]()
    stand_in_devices(monkeypatch, now)

    def load_cuda(code: bytes, name: str, shared: int, device: int) -> int:
        loaded.append(device)
        return 100 + device

    for module in (triton_launch, compiled_kernels):
        monkeypatch.setattr(module, "launch_cuda", lambda: lambda *values: found.append((now[0], values)))
        monkeypatch.setattr(module, "load_cuda", load_cuda)
        monkeypatch.setattr(module, "machine_of", lambda device: f"machine {device}")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    x = torch.ones(32)
    kernel = ir.make_run(loops(i=32), [store("y", i, call("mul", read("x", i), const(2)))], {"x": x}, {"y": x}).kernel
    both = [replace(kernel, name=f"kernel_{d.index}", device=d) for d in (FIRST, SECOND)]
    made = triton_launch.load_triton(both, options_of(str(tmp_path)))
    if warm:
        again = load.load_again(made.places, options_of(str(tmp_path)))
        assert again is not None
        made = again
    for name in ("kernel_0", "kernel_1", "kernel_0"):
        made[name](1 << 12, 1 << 13)
    assert sorted(set(loaded)) == [0, 1] and now == [0]
    assert [(current, values[0], values[4], values[5]) for current, values in found] == [
        (0, 100, 0, 70), (1, 101, 1, 71), (0, 100, 0, 70),
    ]  # fmt: skip


def test_numbers_are_reserved_of_the_generator_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stand:
        def __init__(self, seed: int) -> None:
            self.seed, self.offset = seed, 0

        def initial_seed(self) -> int:
            return self.seed

        def get_offset(self) -> int:
            return self.offset

        def set_offset(self, offset: int) -> None:
            self.offset = offset

    generators = (Stand(3), Stand(5))
    stand_in_devices(monkeypatch, [0])
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    made: list[Sequence[Any]] = []
    monkeypatch.setattr(torch, "tensor", lambda rows, **more: made.append(rows) or torch.empty(0, device="meta"))
    monkeypatch.setattr(Tensor, "to", lambda self, *to, **more: self)
    for device in (SECOND, FIRST, SECOND):
        philox.reserve_numbers([2], device)
    assert [rows[0][0] for rows in made] == [5, 3, 5] and made[0][0][1] != made[2][0][1]
    assert generators[1].offset == 2 * generators[0].offset > 0


def test_a_graph_is_recorded_with_its_own_device_current_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    stand_in_devices(monkeypatch, now)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert cuda_graphs._stream_of(1) is None and cuda_graphs._stream_of(0) == 70
    now[0] = 1
    assert cuda_graphs._stream_of(1) == 71 and cuda_graphs._stream_of(0) is None


@pytest.mark.parametrize(
    ("op", "target", "args", "kwargs", "expected"),
    [
        ("call_function", torch.ones, (64,), {"device": "cuda"}, True),
        ("call_function", torch.ones, (64,), {"device": torch.device("cuda")}, True),
        ("call_function", torch.ones, (64,), {"device": "cuda:0"}, False),
        ("call_function", torch.ones, (64,), {"device": SECOND}, False),
        ("call_function", torch.ones, (64,), {}, False),
        ("call_function", torch.amp.autocast_mode._enter_autocast, ("cuda", None, True, None), {}, False),
        ("call_method", "to", ("x", "cuda"), {}, True),
        ("call_method", "to", ("x",), {"device": "cuda"}, True),
        ("call_method", "to", ("x", SECOND), {}, False),
        ("call_method", "cuda", ("x",), {}, True),
        ("call_method", "cuda", ("x", 1), {}, False),
    ],
)
def test_a_graph_that_makes_tensors_on_the_current_device_is_known(
    op: str, target: Any, args: Any, kwargs: Any, expected: bool
) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    made = graph.create_node(op, target, tuple(x if value == "x" else value for value in args), kwargs)
    graph.output((made,))
    assert asks_for_current(fx.GraphModule(nn.Module(), graph)) is expected


@pytest.mark.parametrize("needs_gradient", [False, True], ids=["infer", "train"])
def test_a_call_that_was_compiled_with_another_device_current_is_eagers(
    needs_gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.compiler.entry.graph_as_call.current_if_asked", lambda module: 0)
    reasons: list[str] = []
    monkeypatch.setattr("assay.compiler.fallback.count_eager", lambda reason, nodes: reasons.append(reason))
    now = [0]
    stand_in_devices(monkeypatch, now)
    model, x = nn.Linear(4, 4).requires_grad_(needs_gradient), torch.randn(2, 4)
    compiled = torch.compile(model, backend=assay, options={"warm": False})
    for now[0], expected in ((0, []), (1, [prologue.CURRENT]), (0, [prologue.CURRENT])):
        torch.testing.assert_close(compiled(x), model(x))
        assert reasons == expected
