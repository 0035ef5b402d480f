"""What a user gets wrong, and what a machine lacks: what it says, where, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from assay.compiler import journal, options
from assay.compiler.entry.aot import aot_module_simplified
from assay.compiler.entry.dynamo import assay, compile_fx, compile_fx_inner
from assay.compiler.errors import InputMismatch, OptionError, Unsupported
from assay.compiler.runtime.specialize import LIMIT


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def test_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"option .targt. does not exist; did you mean .target..*numerics"):
        assay(fx.symbolic_trace(double), [torch.ones(2)], options={"targt": "cpp"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": "cobol"}, "option target is 'cobol'; it takes one of cpp, aten"),
        ({"numerics": "loose"}, "option numerics is 'loose'"),
        ({"debug": 9}, "option debug is 9; it takes 0 to 4"),
    ],
)
def test_wrong_option_value_names_the_choices(given: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        assay(fx.symbolic_trace(double), [torch.ones(2)], options=given)


def test_unknown_mode_lists_the_modes() -> None:
    with pytest.raises(OptionError, match="mode 'fastest' does not exist; the modes are default"):
        assay(fx.symbolic_trace(double), [torch.ones(2)], mode="fastest")


def test_options_reach_a_compile_from_torch_compile() -> None:
    torch._dynamo.reset()
    journal.reset()
    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(double, backend=assay, options={"target": "aten"})(x), double(x))
    assert journal.totals()["nodes"] == 2 and journal.totals()["nodes_generated"] == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.ones(3), r"input 0 has shape \(3,\) where the graph was compiled for \(2,\)"),
        (torch.ones(2, dtype=torch.float64), "input 0 has dtype torch.float64 where"),
        (torch.ones(4)[::2], r"input 0 has strides \(2,\)"),
        (2.0, "input 0 is a float where the graph was compiled for a tensor"),
    ],
)
def test_wrong_input_at_run_time_says_which_and_what_to_do(wrong: object, message: str) -> None:
    gm = fx.symbolic_trace(double)
    inner = torch.fx.experimental.proxy_tensor.make_fx(lambda x: [x * 2], tracing_mode="fake")(torch.ones(2))
    for run in (
        compile_fx(gm, [torch.ones(2)]),
        aot_module_simplified(gm, [torch.ones(2)], lambda graph, _: graph),
        lambda x: compile_fx_inner(inner, [torch.ones(2)])([x]),
    ):
        with pytest.raises(InputMismatch, match=message):
            run(wrong)


def test_a_program_that_eager_rejects_is_rejected_with_eagers_class() -> None:
    torch._dynamo.reset()
    with pytest.raises(RuntimeError):
        torch.compile(lambda x: x @ x, backend=assay)(torch.ones(2, 3))


def test_without_a_compiler_everything_runs_through_aten_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch._dynamo.reset()
    journal.reset()
    with caplog.at_level(logging.WARNING, logger="assay"):
        for n in (3, 4):
            x = torch.randn(n)
            f = torch.compile(double, backend=assay, dynamic=False, options={"cxx": "/nowhere/g++-none"})
            torch.testing.assert_close(f(x), double(x))
    assert journal.totals()["nodes_generated"] == 0
    said = [record.getMessage() for record in caplog.records if "no C++ compiler" in record.getMessage()]
    assert len(said) == 1 and "/nowhere/g++-none" in said[0] and "ASSAY_CXX" in said[0]


def test_a_broken_cache_directory_still_compiles(tmp_path: Path) -> None:
    torch._dynamo.reset()
    journal.reset()
    (tmp_path / "cache").write_text("a file where a directory should be")
    x = torch.randn(5)
    f = torch.compile(double, backend=assay, options={"cache": str(tmp_path / "cache")})
    torch.testing.assert_close(f(x), double(x))
    assert journal.totals()["nodes_generated"] == 2


def test_what_cannot_be_compiled_runs_in_eager_or_raises_as_asked() -> None:
    def sparse(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    gm, x = fx.symbolic_trace(sparse), torch.eye(3).to_sparse()
    journal.reset()
    assert torch.equal(assay(gm, [x])(x).to_dense(), torch.eye(3) * 2)
    assert journal.totals()["eager_graphs"] == 1
    with pytest.raises(Unsupported, match=r"layout torch\.sparse_coo: only strided tensors"):
        assay(gm, [x], options={"fallback": "error"})


def test_a_backward_that_reads_its_data_runs_in_eager_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    @torch.library.custom_op("assay_tests::grouped", mutates_args=())
    def grouped(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return x * 2

    grouped.register_fake(lambda x, ends: torch.empty_like(x))

    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return torch.cat([gradient[:end] * 2 for end in context.ends.tolist()]), None

    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor], output: torch.Tensor) -> None:
        ctx.ends = inputs[1]

    grouped.register_autograd(backward, setup_context=setup_context)
    torch._dynamo.reset()
    journal.reset()
    x = torch.randn(3, requires_grad=True)
    with caplog.at_level(logging.WARNING):
        torch.compile(lambda x, ends: grouped(x, ends).sin().sum(), backend=assay)(x, torch.tensor([3])).backward()
    torch.testing.assert_close(x.grad, 2 * (2 * x).cos())
    assert (journal.totals()["eager_graphs"], journal.totals()["cuts"]) == (0, 1)
    assert "its backward reads its data" in caplog.text


def _negated_without_a_fake(declares: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """An operator that fake tensors cannot run: declared by its schema, or made by `custom_op`."""
    if not declares:
        name, schema = "assay_tests::negated", "(Tensor x) -> Tensor"
        return torch.library.custom_op(name, torch.neg, mutates_args=(), schema=schema)
    torch.library.define("assay_tests::negated_too", "(Tensor x) -> Tensor")
    torch.library.impl("assay_tests::negated_too", "CPU", lambda x: -x)
    negated: Callable[[torch.Tensor], torch.Tensor] = torch.ops.assay_tests.negated_too
    return negated


@pytest.mark.parametrize("declares", [False, True])
def test_a_backward_by_an_operator_without_a_fake_is_not_said_to_fail(
    declares: bool, caplog: pytest.LogCaptureFixture
) -> None:
    negated = _negated_without_a_fake(declares)
    name = f"assay_tests::mirrored_{declares}"
    mirrored = torch.library.custom_op(name, lambda x: x * -1, mutates_args=(), schema="(Tensor x) -> Tensor")
    mirrored.register_fake(torch.empty_like)
    mirrored.register_autograd(lambda context, tangent: negated(tangent))
    torch._dynamo.reset()
    journal.reset()
    x = torch.randn(3, requires_grad=True)
    with caplog.at_level(logging.WARNING, logger="assay"):
        torch.compile(lambda x: mirrored(x).sin().sum(), backend="assay")(x).backward()
    torch.testing.assert_close(x.grad, -(-x).cos())
    assert (journal.totals()["eager_graphs"], journal.totals()["cuts"]) == (0, 1)
    assert "its backward calls" in caplog.text and "as eager's will" not in caplog.text


def test_a_backward_that_is_not_taken_is_not_said_to_fail_in_eager(caplog: pytest.LogCaptureFixture) -> None:
    class Shifted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
            return ctx.saved_tensors[0].as_strided((3,), (1,), 1) * tangent

    torch._dynamo.reset()
    journal.reset()
    base = torch.arange(8.0, requires_grad=True)
    with caplog.at_level(logging.WARNING, logger="assay"):
        torch.compile(lambda x: Shifted.apply(x), backend="assay")(base[2:5]).sum().backward()
    assert torch.equal(base.grad, torch.tensor([0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0]))  # type: ignore[arg-type]
    assert journal.totals()["eager_graphs"] == 1
    assert "its backward is none that is compiled" in caplog.text and "as eager's will" not in caplog.text


def test_an_overlap_that_appears_later_is_noticed() -> None:
    """Dynamo guards identity of inputs, not that their memory overlaps."""
    torch._dynamo.reset()
    journal.reset()

    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    compiled = torch.compile(f, backend=assay)
    torch.testing.assert_close(compiled(torch.zeros(4), torch.zeros(4)), torch.zeros(4))
    base, expected = torch.zeros(6), torch.zeros(6)
    torch.testing.assert_close(compiled(base[:4], base[2:]), f(expected[:4], expected[2:]))
    torch.testing.assert_close(base, expected)
    compiled(base[:4], base[2:])
    compiled(torch.zeros(4), torch.zeros(4))
    assert journal.totals()["compiles"] == 2 and journal.totals()["eager_graphs"] == 0


def test_ways_to_overlap_are_specialised_to_up_to_a_limit() -> None:
    torch._dynamo.reset()
    journal.reset()

    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        return a + b

    compiled = torch.compile(f, backend=assay, options={"target": "aten"})
    compiled(torch.ones(20), torch.ones(20))
    for _ in range(2):
        for shift in range(LIMIT + 2):
            base = torch.arange(40.0)
            expected = base.clone()
            got = compiled(base[:20], base[shift + 1 :][:20])
            torch.testing.assert_close(got, f(expected[:20], expected[shift + 1 :][:20]))
            torch.testing.assert_close(base, expected)
    assert journal.totals()["compiles"] == 1 + LIMIT and journal.totals()["eager_graphs"] == 4


def test_writes_that_eager_refuses_for_their_overlap_are_refused() -> None:
    torch._dynamo.reset()

    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.mul_(b)

    compiled = torch.compile(f, backend=assay, options={"target": "aten"})
    compiled(torch.ones(3), torch.ones(3))
    base = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="single memory location"):
        compiled(base[1:], base[:-1])
    torch.testing.assert_close(compiled(base, base), torch.arange(4.0) ** 2)


def test_environment_is_read_when_options_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_TARGET", "aten")
    monkeypatch.setenv("ASSAY_DEBUG", "2")
    made = options.Options.of(None, None)
    assert (made.target, made.debug) == ("aten", 2)
