"""Batch norm taken apart against eager's own, in its variants, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler import journal
from assay.compiler.capture.decompositions.batch_norm import (
    _moments,
    batch_norm_gradients,
    normalized_by_batch,
    normalized_by_statistics,
)
from assay.compiler.entry.dynamo import assay


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "untracked"])
@pytest.mark.parametrize("shape", [(8, 5), (4, 5, 3), (4, 5, 3, 2)], ids=str)
def test_batch_norm_is_eagers(training: bool, affine: bool, tracked: bool, shape: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    journal.reset()
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    ours, theirs = (kind(5, affine=affine, track_running_stats=tracked).train(training) for _ in range(2))
    compiled = torch.compile(ours, backend=assay)
    for step in range(2):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(shape, generator=generator) * 3 + 1
        results = [step_of(module, x) for module in (compiled, theirs)]
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()))
    assert not journal.totals()["eager_graphs"] and not journal.totals()["fallbacks"]


def step_of(module: nn.Module, values: Tensor) -> list[Tensor]:
    x = values.clone().requires_grad_()
    y = module(x)
    leaves = [x, *module.parameters()]
    return [y, *torch.autograd.grad((y * values.cos()).sum(), leaves)]


FORMS = {
    "rows": lambda x: x,
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.mT.contiguous().mT,
    "expanded": lambda x: x[:1].expand(4, -1, -1, -1),
}


@pytest.mark.parametrize("layout", FORMS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("is_strided", [True, False], ids=["strided_weight", "dense_weight"])
def test_batch_norm_of_numbers_nearly_alike_has_eagers_form(layout: str, training: bool, is_strided: bool) -> None:
    """One of eager's two forms loses digits where a mean is large beside the variance, and has other infinities."""

    def normalized(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.batch_norm(x, mean, var, weight, weight, training, eps=1e-5 if training else 0.0)

    torch._dynamo.reset()
    apart = 0.0 if training else 1e-4  # in training the rounding of the mean would hide that of the form
    x = FORMS[layout](torch.full((4, 3, 2, 5), -8.4784) + torch.arange(5) * apart)
    weight = torch.tensor([-4.3228, 0.0, 0.0, 1.0, 2.5, 0.5])
    weight = weight[::2] if is_strided else weight[::2].contiguous()
    states = [(torch.full((3,), -8.4784), torch.tensor([1e-5, 0.0, 2.0])) for _ in range(2)]
    got, want = torch.compile(normalized, backend=assay)(x, *states[0], weight), normalized(x, *states[1], weight)
    is_rounded = layout in ("rows", "channels_last") and (training or not is_strided)  # eager itself loses digits
    torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-2 if is_rounded else 1e-5, equal_nan=True)
    assert got.stride() == want.stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_batch_norm_with_update_keeps_the_dtype_of_its_statistics(dtype: torch.dtype) -> None:
    """torch says that statistics in halves come back in float32; memory read so holds other numbers."""

    def normalized(x: Tensor, *state: Tensor) -> Tensor:
        return torch.ops.aten._batch_norm_with_update(x, *state, 0.3, 1e-5)[0]

    torch._dynamo.reset()
    x = torch.randn((3, 2, 4), generator=torch.Generator().manual_seed(0)).to(dtype)
    states = [[torch.full((2,), value, dtype=dtype) for value in (1.5, 0.5, 0.25, 2.0)] for _ in range(2)]
    got, want = torch.compile(normalized, backend=assay)(x, *states[0]), normalized(x, *states[1])
    torch.testing.assert_close([got, *states[0]], [want, *states[1]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_variance_of_halves_on_a_gpu_is_no_difference_of_squares(dtype: torch.dtype) -> None:
    """Which float32 could not tell from one another, where a mean is far from zero."""
    with FakeTensorMode():
        x = torch.empty(4, 3, 8, 8, dtype=dtype, device="cuda")
        graph = make_fx(_moments)(x).graph
    targets = [node.target for node in graph.nodes if node.op == "call_function"]
    assert torch.ops.aten.var_mean.correction in targets and torch.ops.aten.mul.Tensor not in targets


LAYOUTS = {
    "channels_last": ((4, 3, 8, 8), (192, 1, 24, 3)),
    "contiguous": ((4, 3, 8, 8), (192, 64, 8, 1)),
    "columns": ((4, 3), (3, 1)),
    "strided columns": ((4, 3), (6, 2)),
}


@pytest.mark.parametrize("mask", [[True] * 3, [True, False, False], [False, True, True]], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_by_running_statistics_a_gpu_gives_them_and_backward_reads_those_that_eager_reads(
    dtype: torch.dtype, layout: str, mask: list[bool]
) -> None:
    """Training may have changed the running ones since. ATen's kernel for all gradients reads these."""
    wide = torch.promote_types(dtype, torch.float32)
    with FakeTensorMode():
        x = torch.empty_strided(*LAYOUTS[layout], dtype=dtype, device="cuda")
        weight, bias, mean, var = (torch.empty(3, dtype=dtype, device="cuda") for _ in range(4))
        y, used, rstd = normalized_by_statistics(x, weight, bias, mean, var, 0.1, 1e-5)
        assert [(v.dtype, v.shape) for v in (y, used, rstd)] == [(dtype, x.shape), (wide, (3,)), (wide, (3,))]

        def gradients(grad: Tensor, x: Tensor, *kept: Tensor) -> object:
            return batch_norm_gradients(grad, x, *kept, train=False, eps=1e-5, output_mask=mask)

        graph = make_fx(gradients)(y, x, weight, mean, var, used, rstd).graph
    read = [bool(node.users) for node in graph.nodes if node.op == "placeholder"]
    is_of_running = layout in ("contiguous", "strided columns") and mask == [True] * 3
    assert read[3:5] == [is_of_running] * 2 and read[5] is not is_of_running


@pytest.mark.parametrize("is_cudnns", [False, True])
def test_on_a_gpu_the_output_lies_as_that_of_the_library_that_eager_calls(
    monkeypatch: pytest.MonkeyPatch, is_cudnns: bool
) -> None:
    """cuDNN's is in rows, or by channels where the input is; that of ATen's own kernel as the input."""
    laid_out = list[torch.Size]()
    monkeypatch.setattr("assay.compiler.capture.decompositions.batch_norm._is_cudnns", lambda *_, **__: is_cudnns)
    monkeypatch.setattr(
        "assay.compiler.capture.decompositions.batch_norm._laid_out", lambda y, x: laid_out.append(x.shape) or y
    )
    with FakeTensorMode():
        x, *state = (torch.empty(size, device="cuda") for size in ((5, 4, 3), *[(4,)] * 4))
        for training in (False, True):
            for given in (x, x.permute(2, 1, 0)):
                y, *_ = normalized_by_batch(given, *state, training=training, momentum=0.1, eps=1e-5)
                assert y.stride() == given.stride()
    assert laid_out == [torch.Size([3, 4, 5])] * 2 * is_cudnns  # what lay in rows already is left
