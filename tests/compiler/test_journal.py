"""The debug ladder, the dumped states and the counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.compiler import journal
from assay.compiler.entry.dynamo import assay
from assay.compiler.errors import OptionError
from assay.compiler.options import Options


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ w, -1)


def run(**options: object) -> None:
    torch._dynamo.reset()
    torch.compile(f, backend=assay, options=options)(torch.randn(4, 4), torch.randn(4, 4))


@pytest.mark.parametrize(
    ("level", "shows", "hides"),
    [
        (0, [], ["assay graph_"]),
        (1, ["1 of 1 compute nodes in 1 kernels"], ["kernel_0 x1"]),
        (2, ["kernel_0 x1: 128 bytes: _softmax"], ["after captured"]),
        (3, ["after captured", "after schedule", "@sum"], ["def graph(args)"]),
        (4, ["def graph(args)", "def call(args)", "after source_kernels"], []),
    ],
)
def test_debug_is_a_ladder(level: int, shows: list[str], hides: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(debug=level)
    text = capsys.readouterr().out
    assert all(part in text for part in shows), text
    assert not any(part in text for part in hides), text


def test_dump_writes_every_state_to_numbered_files(tmp_path: Path) -> None:
    run(dump=str(tmp_path))
    names = [path.name for path in sorted(tmp_path.glob("*/*"))]
    assert names[0] == "01_captured.py" and "source_call" in names[-1]
    assert any("source_graph" in name for name in names)
    assert all(path.read_text() for path in tmp_path.glob("*/*"))


def test_totals_count_nodes_and_calls_to_aten() -> None:
    journal.reset()
    run()
    counted = journal.totals()
    assert (counted["compiles"], counted["nodes"], counted["nodes_generated"], counted["kernels"]) == (1, 1, 1, 1)
    assert counted["eager_graphs"] == 0 and counted["fallbacks"] == {}


def test_debug_in_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DEBUG", "much")
    with pytest.raises(OptionError, match="ASSAY_DEBUG is 'much'; it takes 0 to 4"):
        Options.of(None, None)
