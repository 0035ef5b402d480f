"""Biases of convolutions apart from them, as a GPU has it, on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.ir.graph.roles import Program, Signature
from assay.compiler.passes.products.add_biases import add_biases

aten = torch.ops.aten
PASS = "assay.compiler.passes.products.add_biases"


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[PASS], "DEVICE", "cpu")


def program_of(function: Callable[..., list[Tensor]], *inputs: Tensor) -> Program:
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(value) for value in inputs]
        return Program(make_fx(function)(*fakes), Signature((), ()))


def convolved(dims: int, transposed: bool) -> Callable[..., list[Tensor]]:
    settings = ([1] * dims, [1] * dims, [1] * dims, transposed, [0] * dims, 2)

    def function(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
        return [aten.convolution.default(x, w, b, *settings).relu()]

    return function


def operands(dims: int, layout: torch.memory_format = torch.contiguous_format) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, w, b = (torch.randint(-3, 4, size).float() for size in ((2, 4, *[6] * dims), (4, 2, *[3] * dims), (4,)))
    return x.to(memory_format=layout), w, b  # small integers, whose sums round nowhere


def calls(program: Program, target: object) -> list[fx.Node]:
    return list(program.module.graph.find_nodes(op="call_function", target=target))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_add_biases_keeps_values_and_strides(dims: int, transposed: bool) -> None:
    layouts = [torch.contiguous_format, *([torch.channels_last] if dims == 2 else [])]
    for layout in layouts:
        inputs = operands(dims, layout)
        program = program_of(convolved(dims, transposed), *inputs)
        (want,) = program.module(*inputs)
        assert add_biases(program) == 1
        program.module.graph.lint()
        program.module.recompile()
        (got,) = program.module(*inputs)
        assert torch.equal(got, want) and got.stride() == want.stride()
        (call,) = calls(program, aten.convolution.default)
        assert call.args[2] is None


def backward(mask: list[bool]) -> Callable[..., list[Tensor]]:
    def function(g: Tensor, x: Tensor, w: Tensor) -> list[Tensor]:
        found = aten.convolution_backward.default(g, x, w, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 2, mask)
        return [value for value in found if value is not None]

    return function


@pytest.mark.parametrize("mask", [[True, True, True], [False, True, True], [True, False, True]])
def test_add_biases_sums_their_gradients(mask: list[bool]) -> None:
    x, w, _ = operands(2)
    g = torch.randint(-3, 4, (2, 4, 6, 6)).float()
    program = program_of(backward(mask), g, x, w)
    want = program.module(g, x, w)
    assert add_biases(program) == 1
    program.module.graph.lint()
    program.module.recompile()
    for got, expected in zip(program.module(g, x, w), want, strict=True):
        assert torch.equal(got, expected) and got.stride() == expected.stride()
    (call,) = calls(program, aten.convolution_backward.default)
    assert call.args[10] == [*mask[:2], False]


def without_bias(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
    return [torch.conv2d(x, w, groups=2) + b[:, None, None]]


def of_complex(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
    return [aten.convolution.default(x + 1j, w + 1j, b + 1j, [1, 1], [0, 0], [1, 1], False, [0, 0], 2)]


@pytest.mark.parametrize("function", [without_bias, of_complex])
def test_add_biases_leaves_other_convolutions(function: Callable[..., list[Tensor]]) -> None:
    program = program_of(function, *operands(2))
    found = [node.target for node in program.module.graph.nodes]
    assert add_biases(program) == 0
    assert [node.target for node in program.module.graph.nodes] == found


def test_add_biases_leaves_a_gradient_of_nothing_but_a_bias() -> None:
    x, w, _ = operands(2)
    program = program_of(backward([False, False, True]), torch.ones(2, 4, 6, 6), x, w)
    assert add_biases(program) == 0


def test_add_biases_leaves_a_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[PASS], "DEVICE", "cuda")
    assert add_biases(program_of(convolved(2, False), *operands(2))) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_biases_are_summed_apart_under_autocast_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """There autocast has sums of halves in float32, where the graph is compiled as well."""
    monkeypatch.setattr(sys.modules[PASS], "DEVICE", "cuda")
    network = torch.nn.Conv2d(3, 8, 4, 4).cuda()
    image = torch.randn(2, 3, 16, 16, device="cuda")
    found = []
    for run in (network, torch.compile(network, backend="assay", options={"fallback": "error"})):
        network.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            result = run(image)
        result.square().sum().backward()
        found.append([weight.grad for weight in network.parameters()])
    torch.testing.assert_close(found[1], found[0], rtol=2e-2, atol=2e-2)
