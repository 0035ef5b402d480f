"""The steps that were taken apart, as figures: compile time by stage, kernels against the roofline, memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from assay.harness.remember.store import Run, Store
from assay.harness.site.plots import COLOURS, as_json, short

STAGES = ("python", "capture", "differentiate", "partition", "lower", "fuse", "plan", "emit", "build kernels")
PASSES = "passes"
PROFILE = "profile"
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up")
PALETTE = (*COLOURS, "#5f6b76", "#b3455d", "#2a8c8c", "#a67c52", "#6c8f2f")


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel of a step: the bytes that a launch moves, the microseconds that it takes."""

    graph: int
    name: str
    origins: tuple[str, ...]
    launches: int
    moved_bytes: int | None
    us: float

    @property
    def gb_s(self) -> float | None:
        """Billions of bytes a second; None where the bytes are not known."""
        return None if self.moved_bytes is None or not self.us else self.moved_bytes / self.us / 1e3

    def share_of(self, roof: Sequence[tuple[int, float]]) -> float | None:
        """Of what a copy of as many bytes reaches."""
        if self.gb_s is None or self.moved_bytes is None:
            return None
        top = roof_at(roof, self.moved_bytes)
        return self.gb_s / top if top else None


@dataclass(frozen=True, slots=True)
class Profile:
    """One step of a case on our own compiler."""

    case: str
    mode: str
    stages: Mapping[str, float]
    kernels: tuple[KernelTime, ...]
    roof: tuple[tuple[int, float], ...]
    memory: Mapping[str, Any]
    states: tuple[Mapping[str, str], ...]

    @property
    def name(self) -> str:
        return f"{self.case} {self.mode}"

    @staticmethod
    def of(case: str, data: Mapping[str, Any]) -> Profile:
        kernels = tuple(
            KernelTime(each["graph"], each["name"], tuple(each["origins"]), each["launches"], each["bytes"], each["us"])
            for each in data["kernels"]
        )
        roof = tuple((int(size), float(rate)) for size, rate in data["roof"])
        return Profile(case, data["mode"], data["stages"], kernels, roof, data["memory"], tuple(data["states"]))

    def grouped(self) -> dict[str, float]:
        """The seconds of each stage, the passes as one."""
        passes = sum(spent for name, spent in self.stages.items() if name not in STAGES)
        return {**{name: self.stages.get(name, 0.0) for name in STAGES}, PASSES: passes}


def roof_at(roof: Sequence[tuple[int, float]], moved_bytes: int) -> float:
    """What a copy of so many bytes reaches, by the measured size next to it."""
    return min(roof, key=lambda each: abs(each[0].bit_length() - max(moved_bytes, 1).bit_length()), default=(0, 0.0))[1]


def profiles_of(store: Store, run: Run) -> list[Profile]:
    """Those that were kept in a run."""
    attached = store.in_role(run, PROFILE)
    rows = [row for row in store.rows(run) if row.id in attached] if attached else []
    return [Profile.of(row.result.case, json.loads(store.content(attached[row.id]))) for row in rows]


def stage_bars(profiles: Sequence[Profile]) -> list[Mapping[str, str]]:
    """Where the time of a first call goes."""
    if not profiles:
        return []
    figure = go.Figure()
    for place, name in enumerate((*STAGES, PASSES)):
        figure.add_bar(
            x=[each.grouped()[name] for each in profiles], y=[short(each.name) for each in profiles], orientation="h",
            name=name, marker={"color": PALETTE[place]}, hovertemplate=f"{name}: %{{x:.3f}} s",
        )  # fmt: skip
    figure.update_layout(barmode="stack")
    figure.update_yaxes(autorange="reversed", tickfont={"size": 10})
    return [as_json(figure, "First call with empty caches, seconds by stage")]


def roofline(profiles: Sequence[Profile]) -> list[Mapping[str, str]]:
    """Each kernel's GB/s over the bytes that a launch moves, under what a copy reaches."""
    if not profiles:
        return []
    figure = go.Figure()
    roof = profiles[0].roof
    figure.add_scatter(x=[size for size, _ in roof], y=[rate for _, rate in roof], mode="lines", name="a copy",
                       line={"color": PALETTE[5], "dash": "dash"}, hovertemplate="a copy: %{y:.3g} GB/s")  # fmt: skip
    for place, profile in enumerate(profiles):
        known = [kernel for kernel in profile.kernels if kernel.gb_s is not None]
        figure.add_scatter(
            x=[kernel.moved_bytes for kernel in known], y=[kernel.gb_s for kernel in known], mode="markers",
            name=profile.name, text=[f"{kernel.name}: {', '.join(kernel.origins[:4])}" for kernel in known],
            hovertemplate="%{text}<br>%{x:,} bytes, %{y:.3g} GB/s",
            marker={"color": PALETTE[place % 5], "symbol": SYMBOLS[place % 5], "size": 9, "opacity": 0.75},
        )  # fmt: skip
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick="D2")
    return [as_json(figure, "GB/s over the bytes of a launch")]


def timelines(profiles: Sequence[Profile]) -> list[Mapping[str, str]]:
    """The bytes that are live along each step, as measured and as planned."""
    return [_timeline(each) for each in profiles if each.memory["measured"]["points"]]


UNITS = (("MB", 1e6), ("KB", 1e3), ("bytes", 1.0))


def unit_for(peak_bytes: float) -> tuple[str, float]:
    """The largest unit of which a peak has at least a tenth, and its bytes."""
    return next((unit for unit in UNITS if peak_bytes >= unit[1] / 10), UNITS[-1])


def _timeline(profile: Profile) -> Mapping[str, str]:
    figure, curves = go.Figure(), [profile.memory.get(name) or {"points": ()} for name in ("measured", "planned")]
    unit, size = unit_for(max(live for curve in curves for _, live in curve["points"]))
    for place, (name, curve) in enumerate(zip(("measured", "planned"), curves, strict=True)):
        if curve["points"]:
            figure.add_scatter(
                x=[at for at, _ in curve["points"]], y=[live / size for _, live in curve["points"]], name=name,
                mode="lines", line={"shape": "hv", "color": COLOURS[place], "dash": ("solid", "dot")[place]},
                hovertemplate=f"{name}: %{{y:.3f}} {unit} at %{{x:.3g}} ms",
            )  # fmt: skip
    if profile.mode == "train":
        end = profile.memory["measured"]["forward_ms"]
        figure.add_vline(x=end, line={"dash": "dash", "color": PALETTE[5]}, annotation_text="backward")
    figure.update_yaxes(rangemode="tozero")
    return as_json(figure, f"{unit} over ms: {profile.name}")
