"""Log-softmax as what it is made of: the same values, and no tensor of all logarithms where a loss reads a few."""

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from assay.compiler.ir.graph.roles import Program, Signature
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Allocate
from assay.compiler.passes.split_log_softmax import split_log_softmax
from tests.lowering import assert_same, executable, planned, traced

aten = torch.ops.aten
ROWS = torch.linspace(-30, 30, 7 * 8).view(7, 8)[:, torch.randperm(8, generator=torch.Generator().manual_seed(0))]
ROWS = ROWS.contiguous()
SPECIAL = torch.tensor([[torch.inf, 0, 1], [-torch.inf, -torch.inf, -torch.inf], [-torch.inf, 3, 3], [torch.nan, 1, 2]])
TARGET = torch.tensor([0, 5, 7, 1, 2, -100, 7])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dim", [0, -1])
def test_split_log_softmax_changes_nothing(dtype: torch.dtype, dim: int) -> None:
    for x in (ROWS.to(dtype), SPECIAL.to(dtype)):
        whole, split = (traced(lambda x: (torch.log_softmax(x, dim),), x) for _ in range(2))
        names = [node.name for node in split.returned]  # type: ignore[union-attr]
        assert split_log_softmax(split) == 1
        split.module.graph.lint()
        assert [node.name for node in split.returned] == names  # type: ignore[union-attr]
        (expected,), (found,) = (executable(planned(program))([x]) for program in (whole, split))
        assert_same(found, expected, "as its own lowering", rtol=0, atol=0)
        assert_same(found, torch.log_softmax(x.double(), dim).to(dtype), "as of float64")


def loss(x: Tensor, target: Tensor) -> tuple[Tensor]:
    return (functional.cross_entropy(x, target),)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_split_log_softmax_stores_no_logarithm_that_the_loss_does_not_read(mode: str) -> None:
    program = traced(loss, ROWS, TARGET, mode=mode)
    assert split_log_softmax(program) == 1
    schedule = planned(program)
    made = [step for step in schedule.steps if isinstance(step, Allocate)]
    assert all(len(step.size) < 2 or step.size[1] == Int(1) for step in made), "the two numbers of a row, and the loss"
    (found,) = executable(schedule)([ROWS, TARGET])
    assert_same(found, loss(ROWS, TARGET)[0], "the loss")


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_split_log_softmax_lies_as_the_operators_own_result(mode: str) -> None:
    """That is contiguous whatever the operator is given, as a subtraction is not."""
    x = ROWS.t()
    program = traced(lambda x: (torch.log_softmax(x, 0),), x, mode=mode)
    assert split_log_softmax(program) == 1
    (result,) = program.returned
    assert isinstance(result, fx.Node) and result.meta["val"].is_contiguous()
    (found,) = executable(planned(program))([x])
    assert found.is_contiguous()
    assert_same(found, torch.log_softmax(x.double(), 0).to(x.dtype), "as of float64")


def test_split_log_softmax_of_pictures_by_channels_stores_no_logarithm() -> None:
    """The classes of a pixel lie side by side, and the loss reads one of them."""
    x = ROWS.reshape(1, 2, 4, 7).permute(0, 3, 1, 2)
    target = torch.randint(0, 7, (1, 1, 2, 4), generator=torch.Generator().manual_seed(1))

    def loss(x: Tensor, target: Tensor) -> tuple[Tensor]:
        return (torch.log_softmax(x, 1).gather(1, target).mean(),)

    program = traced(loss, x, target)
    assert split_log_softmax(program) == 1
    schedule = planned(program)
    made = [step for step in schedule.steps if isinstance(step, Allocate)]
    assert all(len(step.size) < 4 or step.size[1] == Int(1) for step in made), (
        "the two numbers of a pixel, and the loss"
    )
    (found,) = executable(schedule)([x, target])
    assert_same(found, loss(x, target)[0], "the loss")


def test_split_log_softmax_leaves_nothing_at_all_alone() -> None:
    assert split_log_softmax(traced(lambda x: (torch.log_softmax(x, 0),), ROWS[:0])) == 0


def test_split_log_softmax_of_halves_that_come_out_wide() -> None:
    """As a GPU's autocast has it, which no CPU runs whole."""
    x = ROWS.half()
    with FakeTensorMode():
        fake = torch.empty(7, 8, dtype=torch.float16, device="cuda")
        graph = make_fx(lambda x: [aten._log_softmax.default(x, 1, True)])(fake)
    program = Program(graph, Signature((), ()))
    assert split_log_softmax(program) == 1
    program.module.graph.lint()
    program.module.recompile()
    (result,) = program.returned
    (found,) = program.module(x)
    assert isinstance(result, fx.Node) and result.meta["val"].dtype is torch.float32
    assert_same(found, torch.log_softmax(x.double(), 1).float(), "as of float64")
