"""`assay memory`: measured against planned, against the resident set, and what is shown of it."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from assay.harness.backends.registry import resolve
from assay.harness.bench.memory import memory_dial, memory_report
from assay.harness.bench.memory.live_memory import BESIDE_BYTES, BESIDE_SHARE, Curve, Memory, Value, measure
from assay.harness.bench.memory.memory_dial import Dial, Row
from assay.harness.bench.memory.memory_report import Shown, grouped, highest, picture
from assay.harness.bench.models import Subject
from assay.harness.cli.commands import commands
from assay.harness.discover import discover
from assay.harness.processes import worker
from tests.harness.report.test_report_html import Page
from tests.harness.report.test_report_totals import ENVIRONMENT

CASES = """
import torch
from torch import nn
from assay.harness.case import case

class Layers(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).sigmoid()
        return x.square().mean()

@case(modes=("train",), sizes=("tiny", "small"))
def layers(size):
    width, rows = {"tiny": (32, 64), "small": (256, 2048)}[size]
    return Layers(width, 4), (torch.randn(rows, width),), {}

@case(modes=("train",))
def other():
    return Layers(8, 1), (torch.randn(4, 8),), {}
"""


@pytest.fixture
def cases(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(CASES)
    return str(tmp_path / "mine.py")


@pytest.mark.parametrize("backend", ["assay", "assay,memory_budget=0"])
def test_memory_measured_is_what_was_planned(cases: str, backend: str) -> None:
    case = next(case for case in discover((cases,)) if case.name == "mine.layers")
    found = measure(case, backend, "tiny", 0)
    assert found.planned is not None
    (_, measured), (_, planned) = found.measured.peak, found.planned.peak
    assert abs(measured - planned) <= 0.02 * planned, (measured, planned)
    assert found.measured.points[-1][1] == 0, "a step leaves nothing behind"
    saved = sum(value.held_bytes for value in found.values if value.is_saved)
    assert abs(found.measured.kept_bytes - saved) <= 64, "but for the loss"


def test_memory_agrees_with_the_resident_set(cases: str) -> None:
    case = next(case for case in discover((cases,)) if case.name == "mine.layers")
    with worker.cold_environment() as extra:
        asked = [
            memory_dial.request_of(Subject(case, ("train",), "small"), kind, "assay", 0) | {"budgets": (1.0,)}
            for kind in ("live", "peak")
        ]
        live, peak = [worker.ask("assay.harness.bench.memory.memory_worker", request, 300, extra) for request in asked]
    assert live.failure is None and peak.failure is None
    _, measured = Memory.of(live.lines[0]).measured.peak
    resident = peak.lines[0]["peak_bytes"]
    assert measured > 20 << 20, "large enough to tell"
    assert abs(resident - measured) <= BESIDE_SHARE * measured + BESIDE_BYTES, (resident, measured)


def value(name: str, **changes: object) -> Value:
    made = Value("graph_001", name, "aten.mm.default", True, "a library computes it", None, 5_000_000, "float32[4, 4]",
                 64, 64, "layers.0.up", "model.py:7", ("mm_3", "mm_4"))  # fmt: skip
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


MEASURED = Curve(((0.0, 0), (1.0, 100), (2.0, 300), (3.0, 200), (4.0, 0)), 2.0)


def shown(*values: Value, dial: Dial | None = None) -> Shown:
    return Shown("mine.layers", "tiny", "assay", Memory(MEASURED, MEASURED, values), dial)


def test_values_that_differ_by_their_layer_are_one_group() -> None:
    (group,) = grouped([value("mm"), value("mm_1", module="layers.1.up")])
    assert (group.count, group.bytes, group.again_ps) == (2, 128, 10_000_000)
    assert (group.module, group.readers) == ("layers.*.up", "mm")
    assert len(grouped([value("mm"), value("mm_1", reason="random")])) == 2


def test_picture_is_as_high_as_the_most_that_is_live() -> None:
    assert highest(MEASURED, 4) == [0, 100, 300, 200]
    lines = picture(MEASURED, 4, 3).plain.splitlines()
    assert [line.partition("┤")[2] for line in lines[:3]] == ["  █ ", "  ██", " ███"]


def test_a_span_ends_with_the_step_however_its_end_is_rounded() -> None:
    """96 * 0.1 / 0.1 is 96.00000000000001."""
    for end in (0.1, *(0.0057 * each for each in range(1, 400))):
        assert highest(Curve(((0.0, 1), (end, 2)), end / 2), 96) == [1] * 95 + [2], end


def test_curve_knows_its_peak_and_what_forward_leaves() -> None:
    assert MEASURED.peak == (2.0, 300) and MEASURED.kept_bytes == 300 and MEASURED.end_ms == 4.0
    assert Memory.of(json.loads(json.dumps(dataclasses.asdict(shown(value("mm")).memory)))) == shown(value("mm")).memory


def test_page_and_document_hold_pictures_and_reasons() -> None:
    rows = (Row(None, 20.0, 300 << 20, 0.0), Row(1.0, 10.0, 200 << 20, 0.0), Row(0.5, 12.0, 100 << 20, 0.0))
    made = shown(value("mm"), value("exp", is_saved=False, held_bytes=0, reason="<fused>"), dial=Dial(rows))
    page = Page(memory_report.render_html(made, ENVIRONMENT))
    assert page.open == [] and len(page.elements("svg")) == 2 and len(page.elements("circle")) == 4
    assert "a library computes it" in page.text and "<fused>" in page.text and "layers.0.up" in page.text
    data = json.loads(json.dumps(memory_report.document(made, ENVIRONMENT)))
    assert data["measured"]["peak_bytes"] == 300 and len(data["budgets"]) == 3
    assert [each["reason"] for each in data["values"]] == ["a library computes it", "<fused>"]


def test_terminal_says_what_is_saved_and_why() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    memory_report.show(console, shown(value("mm"), value("exp", is_saved=False, held_bytes=0)))
    text = console.export_text()
    assert "Saved: 6.1e-05 MB" in text and "layers.0.up" in text and "Recomputed in backward" in text


def test_command_draws_any_backend(cases: str, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    arguments = ["memory", f"{cases}::layers", "--size", "tiny", "--backend", "eager", "--json", str(path)]
    done = CliRunner().invoke(commands, [*arguments, "--html", str(tmp_path / "page")])
    assert done.exit_code == 0, done.output
    data = json.loads(path.read_text())
    assert data["measured"]["peak_bytes"] > 4 * 64 * 32 * 4 and data["planned"] is None and data["values"] == []
    assert "eager says nothing of what it saves" in (tmp_path / "page" / "index.html").read_text()


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "holds 2 cases, and one is measured; name one of layers, other"),
        (("--backend", "eager", "--budget", "0.5"), "eager has no memory budget"),
        (("--budget", "2"), "0<=x<=1"),
    ],
)
def test_command_refuses_what_it_cannot_measure(cases: str, arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(commands, ["memory", cases, *arguments])
    assert done.exit_code == 2 and said in " ".join(done.output.split())


def test_option_of_a_backend_may_be_a_number() -> None:
    assert resolve("assay,memory_budget=0.5,warm=False").name == "assay,memory_budget=0.5,warm=False"
