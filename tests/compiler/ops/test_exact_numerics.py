"""`numerics="exact"`: bit for bit what eager gives, by operator and by drawn program."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler import journal
from assay.compiler.capture import inputs
from assay.compiler.capture.decompositions.batch_norm import without_cudnn
from assay.compiler.capture.decompositions.table import EXACT
from assay.compiler.capture.functionalize import capture
from assay.compiler.errors import Unsupported
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Call, Cast, Const, Expr, Load
from assay.compiler.ops.exact import exact
from assay.compiler.ops.registry import Declined
from assay.compiler.passes import CHOICES, PASSES
from assay.harness.backends.registry import resolve
from assay.harness.batches.batch import How, run_batch
from assay.harness.batches.batch_report import judged
from assay.harness.batches.batch_run import Shard, Unit, plan
from assay.harness.batches.sample import Sample, key_of
from assay.harness.calls.memory import number_bits
from assay.harness.case import MODES, SHAPES
from assay.harness.judge import ledger
from assay.harness.judge.oracle import Run
from assay.harness.observe.observation import WITHOUT_POKES, Seen, observe
from assay.harness.observe.scripts import Scripts
from assay.harness.protocol.acts import steps
from assay.harness.run import _Trial, compiled_by, first_call, made_call
from assay.harness.search.generated import case_of
from assay.suites import ops
from assay.suites.programs import draw

BACKEND = "assay,numerics=exact"
SEEDS = 16
EVERY, MOST = 900, 6
"""Of the batches of operators one in so many, and so many samples of one."""
KNOWN = ledger.read()
ROWS, COLUMNS = 6, 37


def hard_numbers(dtype: torch.dtype) -> Tensor:
    """NaN, infinities, subnormals and zeros of both signs among others, in vectors and in their tails."""
    made = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(5)) * 3
    flat = made.flatten()
    flat[:7] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-41, -1e-41])
    flat[9::11], flat[10::11] = 0.0, -0.0
    return made.to(dtype)


def places(x: Tensor) -> Tensor:
    return x.nan_to_num(0, 0, 0).abs().long() % COLUMNS


GENERATED: dict[str, Callable[[Tensor], object]] = {
    "selection": lambda x: (torch.where(x > 0, x, -x), F.relu(x), x.clamp(-1, 1), F.threshold(x, 0.5, 2.0)),
    "rounded_once": lambda x: (x * 0.5, x + 2, 3 - x, x / 4, x * x.flip(0), x.reciprocal(), x - x.flip(1)),
    "snapped": lambda x: (x.floor(), x.ceil(), x.trunc(), x.round(), x.abs(), x.sign(), torch.fmod(x, 2)),
    "compared": lambda x: (x > x.flip(0), x.isnan(), x.argmax(1), (x > 0).any(0), (x > 0).sum(), x.signbit()),
    "moved": lambda x: (x.gather(1, places(x)), x.roll(3, 1) + 0, F.pad(x, (1, 2)) * 2, x.tril(), x[:, ::2].clone()),
    "converted": lambda x: (x.double(), x.float().bfloat16(), x.half().float(), x.nan_to_num().clamp(-9, 9).long()),
    "integers": lambda x: (places(x).sum(), places(x).cumsum(1), places(x) // 3, places(x) % 5, places(x).amax(1)),
    "fused": lambda x: ((x * 0.5 + 2) / 4 - x) * x - x.flip(0) * x.flip(1),
}
CALLED: dict[str, Callable[[Tensor], object]] = {
    "transcendental": lambda x: (x.exp(), x.sigmoid(), x.tanh(), x.sqrt(), F.gelu(x), F.silu(x)),
    "ordered": lambda x: (x.sum(1), x.mean(), x.cumsum(1), x.softmax(1), x.std(0), F.layer_norm(x, (COLUMNS,))),
    "rounded_twice": lambda x: (torch.add(x, x.flip(0), alpha=0.3), torch.addcmul(x, x, x), torch.lerp(x, x + 1, 0.3)),
    "signs_of_zero": lambda x: (torch.maximum(x, x.flip(0)), x.amax(1), torch.fmin(x, x.flip(0)), F.softshrink(x)),
    "numbers_beside_halves": lambda x: (x + 0.1, 1.3 - x, torch.fmod(x, 0.7), x.div(x.flip(0), rounding_mode="trunc")),
    "complex": lambda x: (torch.complex(x.float(), x.float().flip(0)).neg(),),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", [*GENERATED, *CALLED])
def test_results_have_eagers_bits(name: str, dtype: torch.dtype) -> None:
    function, x = {**GENERATED, **CALLED}[name], hard_numbers(dtype)
    before = journal.totals()["nodes_generated"]
    compiled = torch.compile(function, backend="assay", options={"numerics": "exact", "fallback": "error"})
    pairs = zip(*(torch.utils._pytree.tree_leaves(f(x)) for f in (compiled, function)), strict=True)
    for position, (found, expected) in enumerate(pairs):
        assert found.dtype == expected.dtype
        assert torch.equal(number_bits(found), number_bits(expected)), (position, found, expected)
    assert name in CALLED or journal.totals()["nodes_generated"] > before


def divided(by: float, dtype: torch.dtype, device: str) -> Call:
    """The elements of `x / by`; halves are computed in float32."""
    wide = torch.float32 if dtype is torch.float16 else dtype
    x: Expr = Load("x", Int(0), dtype)
    quotient: Expr = Call("div", (x if wide is dtype else Cast(x, wide), Const(by, wide)), wide)
    (found,) = exact((quotient if wide is dtype else Cast(quotient, dtype),), "aten.div.Tensor", False, device)
    while not isinstance(found, Call) or found.op == "rounded":
        found = found.args[0] if isinstance(found, Call) else found.expr
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("by", [3.0, 49.0, 0.3])
def test_on_a_gpu_a_quotient_by_a_number_is_a_product(by: float, dtype: torch.dtype) -> None:
    """As ATen's kernel for CUDA has it, whose reciprocal is of the dtype that it computes in."""
    number = torch.tensor(1, dtype=dtype) / torch.tensor(by, dtype=dtype)
    found = divided(by, dtype, "cuda")
    assert found.op == "mul" and found.args[1] is Const(number.item(), dtype)
    assert divided(by, dtype, "cpu").op == "div"


def test_on_a_gpu_halves_are_divided_by_powers_of_two() -> None:
    with pytest.raises(Declined):
        divided(3.0, torch.float16, "cuda")
    assert divided(4.0, torch.float16, "cuda").op == "mul"


@pytest.mark.parametrize(
    "operator", [torch.ops.aten._foreach_div.Scalar, torch.ops.aten._foreach_div.ScalarList], ids=str
)
def test_lists_are_divided_by_numbers_in_one_call_on_a_gpu(operator: Any) -> None:
    by = [3.0, 7.0] if operator is torch.ops.aten._foreach_div.ScalarList else 3.0
    x = [torch.randn(4), torch.randn(4)]
    found = EXACT[operator](x, by)
    assert all(torch.equal(one, other) for one, other in zip(found, operator(x, by), strict=True))  # type: ignore[call-overload]
    with FakeTensorMode():
        assert EXACT[operator]([torch.empty(4, device="cuda")] * 2, by) is NotImplemented


def test_a_batch_norm_of_cudnns_goes_back_to_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only torch tells whose it is, and of real tensors alone."""
    asked = list[list[torch.Size]]()

    def select(*args: Any) -> object:
        asked.append([each.shape for each in args[:5]])
        return torch._C._BatchNormBackend.Cudnn  # type: ignore[attr-defined]

    monkeypatch.setattr(torch._C, "_select_batch_norm_backend", select)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, device=None, **more: empty(*size, **more))
    with FakeTensorMode():
        x, *four = empty(2, 3, 8, 8, device="cuda"), *(empty(3, device="cuda") for _ in range(4))
        decompose = EXACT[torch.ops.aten._native_batch_norm_legit_functional.default]
        with without_cudnn(True):
            with pytest.raises(Unsupported, match="cuDNN"):
                decompose(x, *four, True, 0.1, 1e-5)
            assert decompose(x, None, None, *four[:2], True, 0.1, 1e-5) is NotImplemented
        assert decompose(x, *four, True, 0.1, 1e-5) is NotImplemented  # called by name: ATen's own
    assert asked == [[(2, 3, 1, 1), *[(3,)] * 4]]
    assert decompose(torch.empty(2, 3, 8, 8), *(torch.empty(3) for _ in range(4)), True, 0.1, 1e-5) is NotImplemented


@pytest.mark.parametrize("is_functional", [False, True])
@pytest.mark.parametrize("may_be_cudnns", [False, True])
def test_norms_that_the_user_calls_go_back_where_eager_may_call_cudnn(
    monkeypatch: pytest.MonkeyPatch, may_be_cudnns: bool, is_functional: bool
) -> None:
    """The norms are recorded without cuDNN, and torch is asked what eager would call.

    It is asked as the program has it: by the flag of all calls, or by an argument whatever that flag says.
    """
    empty, backends = torch.empty, torch._C._BatchNormBackend  # type: ignore[attr-defined]
    monkeypatch.setattr(
        torch._C, "_select_batch_norm_backend",
        lambda *_: backends.Cudnn if torch.backends.cudnn.enabled else backends.Native,
    )  # fmt: skip

    def function(_: list[object]) -> list[object]:
        x, *four = empty(2, 3, 8, 8, device="cuda"), *(empty(3, device="cuda") for _ in range(4))
        with monkeypatch.context() as patch:
            patch.setattr(torch, "empty", lambda *size, device=None, **more: empty(*size, **more))
            if is_functional:
                return [F.batch_norm(x, *four, training=True)]
            return [torch.batch_norm(x, *four, True, 0.1, 1e-5, may_be_cudnns)]

    call = inputs.Call(function, (), FakeTensorMode(), frozenset())
    flag = may_be_cudnns is is_functional
    with torch.backends.cudnn.flags(enabled=flag):
        with pytest.raises(Unsupported, match="cuDNN") if may_be_cudnns else nullcontext():
            capture(call, EXACT)
        assert torch.backends.cudnn.enabled is flag


def test_what_rounds_otherwise_is_called_and_counted() -> None:
    def function(x: Tensor) -> Tensor:
        return (x * 2).exp().sum(1) * 3

    before = journal.totals()
    before = {"nodes": before["nodes"], "made": before["nodes_generated"], "calls": dict(before["fallbacks"])}
    torch.compile(function, backend="assay", options={"numerics": "exact"})(torch.randn(5, 19))
    after = journal.totals()
    assert (after["nodes"] - before["nodes"], after["nodes_generated"] - before["made"]) == (4, 2)
    grown = {name for name, count in after["fallbacks"].items() if count > before["calls"].get(name, 0)}
    assert grown == {"aten.exp", "aten.sum.dim_IntList"}


def test_no_rounding_pass_runs(tmp_path: Path) -> None:
    """A loss over logits has one that splits its softmax; with `exact` no state of the compile has its name."""
    names = {step.name for step in (*PASSES, *CHOICES) if step.kind == "rounding"}
    assert names

    def function(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(x, y)

    options = {"numerics": "exact", "dump": str(tmp_path)}
    x, y = torch.randn(9, 33), torch.arange(9)
    found = torch.compile(function, backend="assay", options=options)(x, y)
    assert torch.equal(number_bits(found), number_bits(function(x, y)))
    states = [path.name for path in tmp_path.rglob("*")]
    assert states and not any(name in state for name in names for state in states)


def differences(eager: Run, ours: Run) -> list[str]:
    """What of outputs, state and gradients differs in any bit, over all steps."""
    found = []
    for step, (reference, got) in enumerate(zip(eager, ours, strict=True)):
        if reference.error is not None or got.error is not None:
            continue  # errors and their classes are the drawn programs' own test
        for field in ("outputs", "state", "gradients"):
            theirs, mine = getattr(reference, field), getattr(got, field)
            found += [f"step {step}: {path}" for path in theirs if _differs(theirs[path], mine.get(path))]
    return found


def _differs(eager: Seen | None, ours: Seen | None) -> bool:
    if eager is None or ours is None:
        return eager is not ours
    return eager.value.dtype != ours.value.dtype or not torch.equal(number_bits(eager.value), number_bits(ours.value))


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_drawn_programs_have_eagers_bits(mode: str) -> None:
    logging.disable(logging.CRITICAL)
    checked = 0
    try:
        for seed in range(SEEDS):
            program = draw(f"exact:{seed}")
            case = case_of(program.source(), "program")
            torch._dynamo.reset()
            call, acts = made_call(case, "tiny", 0, "cpu"), steps(mode, len(case.numbers) or 2)
            scripts = Scripts(case, mode, acts, call, lambda which, call=call: call)
            trial = _Trial(case, mode, resolve(BACKEND), call, 0, scripts, WITHOUT_POKES)
            eager, again = trial._observed(scripts.script()), trial._observed(scripts.script())
            if differences(eager, again):
                continue  # eager is not deterministic
            script = scripts.script()
            compiled = compiled_by(trial.backend, first_call(script).function)
            ours = observe(script, mode, 0, compiled, case.scenario, WITHOUT_POKES)
            assert not differences(eager, ours), f"{program.source()}\n{differences(eager, ours)}"
            checked += 1
    finally:
        logging.disable(logging.NOTSET)
        torch._dynamo.reset()
    assert checked > SEEDS // 2


def batches() -> list[Unit]:
    units = plan(ops.batches(), (BACKEND,), "", MODES, SHAPES, Shard())
    return [unit for unit in units if zlib.crc32(key_of(unit.batch).encode()) % EVERY == 0]


def some(samples: Sequence[Sample]) -> list[Sample]:
    return sorted(samples, key=lambda sample: zlib.crc32(sample.name.encode()))[:MOST]


@pytest.mark.parametrize("unit", batches(), ids=lambda unit: f"{key_of(unit.batch)} {unit.backend}")
def test_operators_have_eagers_bits(unit: Unit) -> None:
    """The harness holds this backend to them."""
    for result in run_batch(unit.batch, How(unit.backend, 0, "ops", only=some)).failures:
        judgement = judged(result, KNOWN)
        assert judgement.passes, (result.case, result.detail, result.differences)
