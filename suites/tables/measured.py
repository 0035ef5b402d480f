"""Tables of figures, made from the JSON of measurements in `suites/benchmarks/results`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.suites.tables.markdown import table

Row = Mapping[str, Any]
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
ON_CPU, ON_GPU = "zoo_small_against_inductor_2cores.json", "zoo_full_h200.json"
LANGUAGE = ("language_2cores.json", "language_scan_2cores.json", "language_h200.json")
WHOLE_BACKWARDS = ("whole_backward_2cores.json", "whole_backward_h200.json")
COMPARED = {
    "ratio": "ours over the other's",
    "gain": "the other's over ours",
    "over": "us above eager's",
    "share": "our excess over the other's",
    "value": "ours",
}
COMPARISONS = {
    "beside": "Inductor's time over ours",
    "over": "time over the simpler program's",
    "first_call": "first call over the simpler program's",
    "an_input": "us that an input adds",
}
OF_OPERATORS = "ops_2cores_at_967b1a3.json"
OF_ARCHITECTURES = "architectures_h200.json"
OF_CALLS = "overhead_against_inductor_2cores.json"


def measured(name: str) -> dict[str, Any]:
    """A file of measurements."""
    return json.loads((RESULTS / name).read_text())  # type: ignore[no-any-return]


def mean(values: Sequence[float]) -> str:
    """The geometric mean of ratios."""
    return f"{statistics.geometric_mean(values):.2f}"


def ratios(rows: Sequence[Row], key: str, mode: str) -> list[float]:
    """What rows of a mode have, of those that count."""
    return [row[key] for row in rows if row["mode"] == mode and row.get(key) and row.get("verdict", "same") == "same"]


def _place_of_gpu(found: Mapping[str, Any]) -> str:
    return f"{found['device'].removeprefix('one ')}, torch {found['torch'].partition('+')[0]}, {found['date']}"


def _place(where: Mapping[str, Any]) -> str:
    """The machine, the version of torch and the day of a measurement."""
    return f"{where['cpu']}, {where['cores']} cores, torch {where['torch'].partition('+')[0]}, {where['date'][:10]}"


def summary() -> str:
    """Assay beside Inductor in seven rows."""
    cpu, gpu, calls, others = (measured(name) for name in (ON_CPU, ON_GPU, OF_CALLS, OF_ARCHITECTURES))
    first = [
        dict(row, ratio=row["first_call_s_inductor"] / row["first_call_s_assay"])
        for row in gpu["rows"]
        if row.get("first_call_s_inductor")
    ]
    tiny = [row for row in calls["rows"] if row["against"] == "inductor" and "tiny" in row["case"]]
    on_cpu = _place(cpu["environment"])
    on_gpu = _place_of_gpu(gpu)
    lines = [
        ("CPU: speed of a step", cpu["rows"], "speed_ratio", on_cpu),
        ("CPU: cold compile time", cpu["rows"], "compile_ratio", on_cpu),
        ("CPU: peak memory", cpu["rows"], "memory_ratio", on_cpu),
        ("CPU: a call of a tiny function", tiny, "speed_ratio", _place(calls["environment"])),
        ("GPU: speed of a step", gpu["rows"], "speed_ratio", on_gpu),
        ("GPU: first call", first, "ratio", on_gpu),
        ("GPU: speed, models that nothing was tuned on", others["rows"], "speed_ratio", _place_of_gpu(others)),
    ]
    table = ["| Inductor's over Assay's, geometric mean | inference | training | measured on |", "|---|---|---|---|"]
    for what, rows, key, place in lines:
        found = [ratios(rows, key, mode) for mode in ("infer", "train")]
        cells = [f"{mean(values)} ({len(values)})" if values else "" for values in found]
        table.append(f"| {what} | {cells[0]} | {cells[1]} | {place} |")
    return "\n".join(table)


def zoo_on_cpu() -> str:
    """Each model of the zoo beside Inductor on a CPU."""
    rows = measured(ON_CPU)["rows"]
    table = ["| model | mode | ms | Inductor ms | speed | cold compile | memory |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        low, high = row["speed_spread"]
        said = f"{row['speed_ratio']:.2f} ({low:.2f} to {high:.2f})"
        said += "" if row.get("verdict", "same") == "same" else f", `{row['verdict']}`"
        cells = (
            row["case"].removeprefix("zoo."), row["mode"], f"{row['ms']:.3g}", f"{row['against_ms']:.3g}", said,
            *(f"{row[key]:.2f}" if row.get(key) else "" for key in ("compile_ratio", "memory_ratio")),
        )  # fmt: skip
        table.append("| " + " | ".join(cells) + " |")
    return "\n".join(table)


def kernels_on_cpu() -> str:
    """Each fused kernel beside Inductor's and beside the speed of a copy, on a CPU."""
    rows = measured("kernels_small_against_inductor_2cores.json")["rows"]
    cells = (
        (
            row["case"].removeprefix("kernels."), f"{row['ms']:.3g}", f"{row['against_ms']:.3g}",
            f"{row['speed_ratio']:.2f}", f"{row['copy_share']:.2f}" if row["copy_share"] else "",
        )
        for row in rows
    )  # fmt: skip
    mean_row = ("**geometric mean**", "", "", f"**{mean([row['speed_ratio'] for row in rows])}**", "")
    return table(("kernel", "ms", "Inductor ms", "speed", "share of a copy"), [*cells, mean_row])


def calls_on_cpu() -> str:
    """What a call costs beside Inductor under `torch.compile`, and beside torch's own `aot_function`."""
    rows = measured(OF_CALLS)["rows"]
    cells = (
        (
            row["case"].removeprefix("overhead."), row["mode"], row["against"], f"{row['ms'] * 1000:.1f}",
            f"{row['against_ms'] * 1000:.1f}", f"{row['speed_ratio']:.2f}",
        )
        for row in rows
    )  # fmt: skip
    return table(("function", "mode", "beside", "us a call", "theirs", "speed"), cells)


def memory_budgets() -> str:
    """One training step of a transformer at each memory budget, beside eager."""
    rows = measured("memory_budgets_2cores.json")["rows"]
    cells = (
        (
            "eager" if row["budget"] is None else f"{row['budget']:g}", f"{row['peak_bytes'] / 2**20:.0f}",
            f"{row['ms']:.0f}", f"{row['peak_ratio']:.2f}", f"{row['time_ratio']:.2f}",
        )
        for row in rows
    )  # fmt: skip
    return table(("budget", "peak MiB", "ms", "peak beside budget 1", "time beside budget 1"), cells)


def zoo_on_gpu() -> str:
    """Each model of the zoo at size `full` beside Inductor on a GPU."""
    rows = measured(ON_GPU)["rows"]
    by_mode = {mode: {row["model"]: row for row in rows if row["mode"] == mode} for mode in ("infer", "train")}
    cells = (
        (model.removeprefix("zoo."), *(text for mode in by_mode for text in _times(by_mode[mode].get(model))))
        for model in dict.fromkeys(row["model"] for row in rows)
    )
    means = [f"**{mean(ratios(rows, 'speed_ratio', mode))}**" for mode in by_mode]
    heads = ("infer ms", "Inductor", "eager", "speed", "train ms", "Inductor", "eager", "speed")
    return table(("model", *heads), [*cells, ("**geometric mean**", "", "", "", means[0], "", "", "", means[1])])


def _times(row: Row | None) -> tuple[str, str, str, str]:
    """The times of a row of the zoo, and their ratio."""
    if row is None:
        return "", "", "", ""
    return (*(f"{row[key]:.3g}" for key in ("ms", "against_ms", "eager_ms")), f"{row['speed_ratio']:.2f}")  # type: ignore[return-value]


def architectures_on_gpu() -> str:
    """Each architecture that no suite is tuned on: times, and Inductor's time, first call and memory over ours."""
    rows = [row for row in measured(OF_ARCHITECTURES)["rows"] if "speed_ratio" in row]
    by_mode = {mode: {row["model"]: row for row in rows if row["mode"] == mode} for mode in ("infer", "train")}
    cells = (
        (model.partition(".")[2], *(text for mode in by_mode for text in _beside(by_mode[mode].get(model))))
        for model in sorted({row["model"] for row in rows})
    )
    means = (
        text
        for found in by_mode.values()
        for text in ("", "", *(f"**{mean(by)}**" for by in zip(*map(_over, found.values()), strict=True)))
    )
    heads = ("ms", "Inductor", "speed", "first call", "memory")
    return table(
        ("model", *(f"{mode} {head}" if head == "ms" else head for mode in by_mode for head in heads)),
        [*cells, ("**geometric mean**", *means)],
    )


def _over(row: Row) -> tuple[float, float, float]:
    """Inductor's over ours: a step's time, the first call's, a step's memory."""
    pairs = (("first_call_s_inductor", "first_call_s_assay"), ("peak_bytes_inductor", "peak_bytes_assay"))
    first, memory = (row[theirs] / row[ours] for theirs, ours in pairs)
    return row["speed_ratio"], first, memory


def _beside(row: Row | None) -> tuple[str, ...]:
    if row is None:
        return ("",) * 5
    return (*(f"{row[key]:.3g}" for key in ("ms", "against_ms")), *(f"{ratio:.2f}" for ratio in _over(row)))


def zoo_recorded_on_gpu() -> str:
    """Each model with CUDA graphs asked for on both sides."""
    rows = measured("zoo_full_recorded_h100.json")["rows"]
    cells = ((row["model"].removeprefix("zoo."), *_times(row)) for row in rows)
    last = ("**geometric mean**", "", "", "", f"**{mean([row['speed_ratio'] for row in rows])}**")
    return table(("model", "infer ms", "Inductor", "eager", "speed"), [*cells, last])


def kernels_on_gpu() -> str:
    """Each kernel as a share of the rate at which the device copies."""
    rows = measured("kernels_h200.json")["rows"]
    names = ("assay", "inductor", "eager")
    cells = ((row["name"], *(f"{row[f'{name}_share']:.2f}" for name in names)) for row in rows)
    means = (mean([row[f"{name}_share"] for row in rows]) for name in names)
    return table(("kernel", "Assay", "Inductor", "eager"), [*cells, ("**geometric mean**", *means)])


def products_on_gpu() -> str:
    """Products of matrices with the work around them, by the library and by one kernel."""
    rows = measured("products_h200.json")["rows"]
    cells = (
        (
            row["name"], " x ".join(map(str, row["sizes"])), f"{row['library_us']:.0f}", f"{row['tiles_us']:.0f}",
            f"{row['speed_ratio']:.2f}", "ours" if row["is_chosen"] else "library",
        )
        for row in rows
    )  # fmt: skip
    return table(("region", "batch, m, n, k", "library us", "ours us", "speed", "chosen"), cells)


def operators_database() -> str:
    """The run over the whole database of operators, in figures."""
    total = measured(OF_OPERATORS)["total"]
    explained, others = (sum(total[key].values()) for key in ("explained", "unexplained"))
    rows = (
        ("batches", f"{total['units']:,}"),
        ("samples", f"{total['samples']:,}"),
        ("as eager", f"{total['same']:,}"),
        ("otherwise, explained", f"{explained:,}"),
        ("otherwise, not explained", f"{others:,}"),
        ("compute nodes of `forward` and `backward`", f"{total['nodes']:,}"),
        ("generated, not called", f"{total['generated']:.0%}"),
        ("hours of one core", f"{total['seconds'] / 3600:.1f}"),
    )
    return table((f"at {', '.join(total['commits'])}", ""), rows)


def distributed_on_gpu() -> str:
    """A training step over two GPUs, beside Inductor and eager."""
    rows = measured("distributed_2_h200.json")["rows"]
    cells = ((row["way"], str(row["batch"]), *_of_each(row["backends"])) for row in rows)
    names = ("Assay", "Inductor", "eager")
    heads = (f"{name} {what}" for what in ("ms", "peak MiB") for name in names)
    return table(("way", "rows a step", *heads), cells)


def _of_each(backends: Mapping[str, Row]) -> list[str]:
    """The time of a step by each backend, then the peak of its memory."""
    found = [backends[name] for name in ("assay", "inductor", "eager")]
    return [f"{each['ms']:.1f}" for each in found] + [f"{each['peak_bytes'] / 2**20:.0f}" for each in found]


def planted() -> str:
    """What the search for changes sees of planted ones, at twelve and at forty commits."""
    rows = [
        (row["kind"], row["commits"], f"{row['noise']:.1%}", f"{row['found']} of {row['series']}", row["alarms"])
        for row in measured("planted_series.json")["series"]
        if row["commits"] in (12, 40)
    ]
    columns = ("planted", "commits", "noise", "found at its commit", "series with another alarm")
    return table(columns, [tuple(map(str, row)) for row in rows])


def language() -> str:
    """What each part of the language costs, on a CPU and on a GPU where there is such a figure."""
    rows = []
    for name in LANGUAGE:
        document = measured(name)
        where = document["environment"]
        device = where["gpu"] or where["cpu"]
        for row in document["rows"]:
            rows.append((device, *_figure(row)))
    head = ("on", "figure", "compares", "value", "bar", "ms", "other ms", "Inductor's", "generated")
    return table(head, rows)


def whole_backwards() -> str:
    """Whole backwards as one program, beside those in parts, torch's own and eager's."""
    rows = [(_device(name), *_backward(row)) for name in WHOLE_BACKWARDS for row in measured(name)["rows"]]
    return table(("on", "figure", "compares", "value", "bar", "ours", "other"), rows)


def _device(name: str) -> str:
    where = measured(name)["environment"]
    return str(where["gpu"] or where["cpu"])


def _why_not(error: str) -> str:
    """The class of the error that a way of running it ended in, which its text begins with: `backend: class: …`."""
    raised = [part for part in error.split(": ") if part.endswith("Error")]
    return f"`{raised[0]}`" if raised else "not measured"


def _backward(row: Row) -> tuple[str, ...]:
    value = _why_not(row["error"]) if row["value"] is None else f"{row['value']:.2f}"
    limit = "at least" if row["comparison"] == "gain" else "at most"
    ours, other = (f"{row[name]:.3g}" if row[name] else "" for name in ("ours", "other"))
    return row["figure"], COMPARED[row["comparison"]], value, f"{limit} {row['bar']:g}", ours, other


def _figure(row: Row) -> tuple[str, ...]:
    ours, other, rival = (f"{row[name]:.3g}" if row[name] else "" for name in ("ms", "other_ms", "rival"))
    value = f"{row['value']:.2f}" if row["value"] else row["error"]
    limit = "at least" if row["comparison"] == "beside" else "at most"
    compares = COMPARISONS[row["comparison"]]
    made = f"{row['generated']} of {row['nodes']}" if row["nodes"] else ""
    return row["figure"], compares, value, f"{limit} {row['bar']:g}", ours, other, rival, made
