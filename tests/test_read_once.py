"""Two launches that read one tensor become one: which do, what the kernel is, and in what order the steps are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from compiler.ir.index import Int
from compiler.ir.loops import Allocate, Free, Launch, Reuse, Step
from compiler.ir.text import parse, show
from compiler.ir.verify import VerifyError, verify
from compiler.schedule.read_once import read_once
from reference.loops import run_kernel

ROWS, COLUMNS = 1 << 18, 64
SUMS = """kernel sums(x: bfloat16[{n}], w: float32[{c}], m: float32[{c}], s: float32[{c}]; ) on cuda  # mean
  for i0 in {c}
  %0 = div(@sum{{r0 in {r}}}(cast(x[i0 + {c}*r0]:bfloat16):float32):float32, {r}.0:float32):float32
  m[i0] = %0
  s[i0] = mul(%0, w[i0]:float32):float32
"""
ELEMENTS = """kernel elements(x: bfloat16[{n}], s: float32[{c}], y: float32[{n}]; ) on cuda  # sub
  for i0 in {r}
  for i1 in {c}
  y[{at}] = sub(cast(x[{at}]:bfloat16):float32, s[{row}]:float32):float32
"""
AT = "i1 + {c}*i0"


def steps(
    rows: int = ROWS,
    columns: int = COLUMNS,
    at: str = AT,
    elements: str = ELEMENTS,
    read: str = "s",
    row: str = "i1",
    result: str = "y",
) -> tuple[Step, ...]:
    sizes = {"n": rows * columns, "r": rows, "c": columns}
    first = parse(SUMS.format(**sizes))
    second = parse(elements.format(at=at.format(**sizes), row=row, **sizes))
    made = Allocate(result, (Int(rows * columns),), (Int(1),), torch.float32, torch.device("cuda"))
    return (
        Launch(first, ("x", "w", "m", "s"), (), ("mean",)),
        made,
        Free(("w",)),
        Launch(second, ("x", read, result), (), ("sub",)),
        Free(("s", "x")),
    )


def test_sums_and_what_reads_the_same_again_are_one_launch() -> None:
    made, both, *freed = read_once(steps())
    assert isinstance(made, Allocate) and freed == [Free(("w",)), Free(("s", "x"))]
    assert isinstance(both, Launch)
    assert (both.arguments, both.origins, both.offsets) == (("x", "w", "m", "s", "y"), ("mean", "sub"), ())
    kernel = both.kernel
    assert [store.buffer for store in kernel.before] == ["b2", "b3"]
    assert [store.buffer for store in kernel.stores] == ["b4"]
    verify(kernel)
    assert parse(show(kernel)) == kernel


def test_launches_that_do_the_same_are_one_kernel() -> None:
    first = steps()
    names = {"x": "x2", "w": "w2", "m": "m2", "s": "s2", "y": "y2"}
    again = [replace(e, arguments=tuple(names[n] for n in e.arguments)) for e in first if isinstance(e, Launch)]
    kernels = [step.kernel for step in read_once((*first, *again)) if isinstance(step, Launch)]
    assert len(kernels) == 2 and kernels[0] is kernels[1]


IN_PLACE = """kernel elements(x: bfloat16[{n}], s: float32[{c}], y: bfloat16[{n}]; ) on cuda  # sub
  for i0 in {r}
  for i1 in {c}
  y[{at}] = cast(sub(cast(x[{at}]:bfloat16):float32, s[i1]:float32):float32):bfloat16
"""


def on_the_cpu(given: tuple[Step, ...]) -> tuple[Step, ...]:
    there = torch.device("cpu")
    return tuple(replace(e, kernel=replace(e.kernel, device=there)) if isinstance(e, Launch) else e for e in given)


OTHERWISE = {
    "what the cache holds": steps(rows=ROWS // 2),
    "other places": steps(at="i0 + {r}*i1"),
    "places one further": steps(at="1 + i1 + {c}*i0"),
    "another device": on_the_cpu(steps()),
    "what is written over": steps(elements=IN_PLACE, result="x"),
    "sums that nobody reads": steps(read="t"),
    "sums of other rows": steps(row="(i1 + 1) % 64"),
    "the sum of one row": steps(row="0"),
    "a result in memory of another": (*steps()[:2], Reuse("z", "w"), *steps()[3:]),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_others_stay_two_launches(name: str) -> None:
    assert read_once(OTHERWISE[name]) == OTHERWISE[name]


def test_a_view_from_another_element_on_is_no_such_tensor() -> None:
    first, made, freed, second, last = steps()
    assert isinstance(second, Launch)
    given = (first, made, freed, replace(second, offsets=(4, 0, 0)), last)
    assert read_once(given) == given


def test_stages_run_one_after_the_other() -> None:
    """By the reference, which executes stores in order, and as two kernels."""
    given = steps(rows=6, columns=3)
    kernel = replace(read_once_of_any_size(given).kernel, device=torch.device("cpu"))
    x = torch.randn(18).to(torch.bfloat16)
    w, y = torch.randn(3), torch.empty(18)
    run_kernel(kernel, [x, w, torch.empty(3), torch.empty(3), y], [])
    torch.testing.assert_close(y.view(6, 3), x.float().view(6, 3) - x.float().view(6, 3).mean(0) * w)
    assert [stage.before for stage in kernel.stages] == [(), ()]
    assert [len(stage.stores) for stage in kernel.stages] == [2, 1]


def read_once_of_any_size(given: tuple[Step, ...]) -> Launch:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compiler.schedule.read_once.LEAST_BYTES", 0)
        (both,) = (step for step in read_once(given) if isinstance(step, Launch))
    return both


def test_verify_reads_both_stages() -> None:
    both = read_once_of_any_size(steps(rows=6, columns=3)).kernel
    with pytest.raises(VerifyError, match="no argument"):
        verify(replace(both, before=tuple(replace(store, buffer="nothing") for store in both.before)))
