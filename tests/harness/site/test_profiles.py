"""A step taken apart: its numbers, its graph drawn, its code beside the user's lines."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("sqlalchemy", reason="the store needs the extra `nightly`")
pytest.importorskip("plotly", reason="the figures need the extra `nightly`")

from assay.harness.site.drawn_graph import MOST_NODES, drawn, placed, reads
from assay.harness.site.plots import read
from assay.harness.site.profiles import Profile, roof_at, roofline, stage_bars, timelines
from assay.harness.site.user_lines import beside, lines_of
from tests.harness.site.profiled import JOINT, SOURCE, STATES, profile

TRITON = """\
@triton.jit
def kernel_0(in0, out0):
    # gelu
    # lt
    x = 1


@triton.jit
def kernel_1(in0, out0):
    # mm
    y = 2
"""
PROFILE = Profile.of("zoo.bert", json.loads(json.dumps(profile())))


def test_kernels_have_the_bandwidth_of_their_bytes_and_their_share_of_a_copys() -> None:
    first, second, symbolic = PROFILE.kernels
    assert (first.gb_s, second.gb_s, symbolic.gb_s) == (pytest.approx(2.048), pytest.approx(20.97152), None)
    assert first.share_of(PROFILE.roof) == pytest.approx(2.048 / 4) and symbolic.share_of(PROFILE.roof) is None


def test_roof_is_that_of_the_nearest_size() -> None:
    assert [roof_at(PROFILE.roof, size) for size in (1, 5000, 1 << 21, 1 << 30)] == [4.0, 4.0, 40.0, 10.0]


def test_roofline_shows_each_kernel_whose_bytes_are_known() -> None:
    roof, kernels = read(roofline([PROFILE])[0]["data"])["data"]
    assert roof["y"] == [4.0, 40.0, 10.0] and kernels["x"] == [4096, 1 << 20]


def test_stages_add_up_with_the_passes_as_one() -> None:
    assert PROFILE.grouped()["passes"] == pytest.approx(0.05)
    assert sum(PROFILE.grouped().values()) == pytest.approx(sum(PROFILE.stages.values()))
    named = {each["name"]: each["x"] for each in read(stage_bars([PROFILE])[0]["data"])["data"]}
    assert named["python"] == [0.6] and named["emit"] == [0.0]


def test_memory_is_drawn_as_measured_and_as_planned() -> None:
    measured, planned = read(timelines([PROFILE])[0]["data"])["data"]
    assert measured["y"] == [0, 4.0, 2.0, 0] and planned["y"] == [0, 3.0]


def test_nothing_taken_apart_draws_nothing() -> None:
    assert [*stage_bars([]), *roofline([]), *timelines([])] == []


def test_a_graph_is_read_from_its_text() -> None:
    found = reads(JOINT)
    assert list(found) == ["x", "w", "mm", "gelu", "_softmax", "lt", "output"]
    assert found["mm"] == ("x", "w") and found["output"] == ("lt",)
    assert reads(SOURCE) == {}


def test_nodes_stand_under_what_they_read() -> None:
    found = {"x": (), "a": ("x",), "b": ("x",), "late": (), "c": ("a", "b", "late")}
    places = placed(found)
    assert all(places[each][1] < places[name][1] for name, inputs in found.items() for each in inputs)
    assert places["late"][1] == places["c"][1] - 1
    assert len(set(places.values())) == len(found)


def test_large_graphs_are_cut_and_say_so() -> None:
    count = 2 * MOST_NODES
    lines = [f"        v{at} = f(v{at - 1})" for at in range(1, count)]
    text = "\n".join(["class P:", "    def forward(self, v0):", *lines, f"        return v{count - 1}"])
    figure = drawn(text, "graph_001", {})
    assert figure is not None and f"the first {MOST_NODES} of {count + 1} values" in figure["name"]
    assert len(read(figure["data"])["data"][1]["x"]) == MOST_NODES


def test_nodes_show_the_users_line() -> None:
    figure = drawn(JOINT, "graph_001", lines_of(STATES)["graph_001"])
    assert figure is not None
    shown = read(figure["data"])["data"][1]["customdata"]
    assert shown[3] == "gelu<br>model.py:9  h = gelu(x @ w)"


def test_kernels_stand_beside_the_lines_they_compute() -> None:
    first, second = beside(STATES)
    assert first.nodes == ("gelu", "_softmax", "lt") and "#pragma omp simd" in first.text
    assert first.lines == ("model.py:9  h = gelu(x @ w)", "model.py:10  return h.softmax(-1) < 1")
    assert second.nodes == ("made_by_a_pass",) and second.lines == () and "out0[0] = 1" in second.text


def test_triton_kernels_stand_beside_their_lines() -> None:
    first, second = beside([*STATES[:1], {"graph": "graph_001", "state": "source_kernels", "text": TRITON}])
    assert (first.nodes, second.nodes) == (("gelu", "lt"), ("mm",)) and "x = 1" in first.text
