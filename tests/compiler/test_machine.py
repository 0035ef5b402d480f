"""Facts of a machine are measured once, kept beside each other, and chosen by."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.compiler import FOLDER, machine
from assay.compiler.kernels import attention_rates, product_rates
from assay.compiler.kernels.flash_attention import DEPTHS
from assay.compiler.machine import Fact, Times


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_MACHINE", str(tmp_path / "kept" / "machine.json"))
    return tmp_path / "kept" / "machine.json"


def slow() -> None:
    time.sleep(0.003)


def raises() -> None:
    raise RuntimeError("no such kernel")


def test_fact_is_measured_once_and_kept(file: Path) -> None:
    calls: list[str] = []
    ways = {"slow": slow, "quick": lambda: calls.append("quick")}
    defaults = dict.fromkeys(ways, 1.0)
    found = Fact("thing", ways, defaults).times()
    assert found.is_measured and found.fastest("slow", "quick") == "quick"
    count = len(calls)
    assert Fact("thing", ways, defaults).times() == found and len(calls) == count
    Fact("other", {"quick": dict}, {"quick": 1.0}).times()
    ((_, kept),) = json.loads(file.read_text()).items()
    assert set(kept) == {"thing", "other"} and "quick" in machine.facts()["thing"]


def test_fact_of_which_a_way_raises_is_its_default_and_not_kept(file: Path) -> None:
    found = Fact("thing", {"own": raises, "library": slow}, {"own": 1.0, "library": 2.0}).times()
    assert not found.is_measured and found.fastest("own", "library") == "own" and not file.exists()
    assert Fact("thing", {"own": slow, "library": slow}, {"own": 1.0, "library": 2.0}).times().is_measured


def test_fact_of_a_damaged_file_is_measured_anew(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("{")
    assert Fact("thing", {"slow": slow}, {"slow": 1.0}).times().is_measured
    assert json.loads(file.read_text())


def test_fact_is_its_default_where_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_MACHINE", "default")
    found = Fact("thing", {"own": raises, "library": raises}, {"own": 2.0, "library": 1.0}).times()
    assert not found.is_measured and found.fastest("own", "library") == "library"


def test_number_is_what_the_user_states(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    name, default = "streamed_kernel_bytes", machine.NUMBERS["streamed_kernel_bytes"].value
    file.parent.mkdir()
    file.write_text(json.dumps({"numbers": {name: 7, "no_such_number": 1, "split_elements": "many"}}))
    machine.stated.cache_clear()
    try:
        assert machine.number(name) == 7 and machine.numbers()[name].endswith("(stated)")
        assert machine.number("split_elements") == machine.NUMBERS["split_elements"].value
        assert "no_such_number as 1" in caplog.text and "split_elements as 'many'" in caplog.text
        Fact("thing", {"quick": dict}, {"quick": 1.0}).times()
        assert json.loads(file.read_text())["numbers"][name] == 7, "a measurement leaves what is stated"
        file.write_text("{}")
        assert machine.number(name) == 7, "it is read once a process"
    finally:
        machine.stated.cache_clear()
    assert machine.number(name) == default


@pytest.mark.parametrize("own, library, called", [(1, 2, "assay_flash_attention("), (2, 1, "flash_attention_for_cpu(")])
def test_attention_goes_to_who_is_fastest(own: int, library: int, called: str, tmp_path: Path) -> None:
    if not DEPTHS:
        pytest.skip("our own kernel is for wider vectors")
    measured = {"attention": {attention_rates.OWN: own, attention_rates.ATEN: library}}
    (file := tmp_path / "machine.json").write_text(json.dumps({machine._machine(): measured}))
    code = (
        "import torch, assay; x = torch.ones(2, 4, 64, 32)\n"
        "attend = torch.nn.functional.scaled_dot_product_attention\n"
        "print(torch.compile(attend, backend=assay.backend)(x, x, x).sum().item())"
    )
    environment = {**os.environ, "ASSAY_MACHINE": str(file), "ASSAY_DEBUG": "4", "ASSAY_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert called in done.stdout + done.stderr, done.stderr


def test_a_near_tie_goes_to_the_first() -> None:
    assert Times({"own": 1.0, "library": 0.96}, True).fastest("own", "library") == "own"
    assert Times({"own": 1.0, "library": 0.94}, True).fastest("own", "library") == "library"


@pytest.mark.parametrize(
    "times, called", [((1, 2, 2), "assay_multiply("), ((2, 1, 2), "mkldnn"), ((2, 2, 1), "aten_mm(")]
)
def test_products_go_to_who_is_fastest(times: tuple[int, int, int], called: str, tmp_path: Path) -> None:
    names = (product_rates.OWN, product_rates.ONEDNN, product_rates.MKL)
    measured = {name: dict(zip(names, times, strict=True)) for name in ("product of matrices", "product, first turned")}
    (file := tmp_path / "machine.json").write_text(json.dumps({machine._machine(): measured}))
    code = (
        "import torch, assay; x, w = torch.ones(384, 256), torch.ones(256, 1024)\n"
        "print(torch.compile(torch.mm, backend=assay.backend)(x, w).sum().item())"
    )
    environment = {**os.environ, "ASSAY_MACHINE": str(file), "ASSAY_DUMP": str(tmp_path), "ASSAY_WARM": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout.strip() == str(float(256 * 384 * 1024)), done.stderr
    assert called in "".join(path.read_text() for path in tmp_path.rglob("*source_graph.py"))


def test_ways_to_multiply_agree() -> None:
    """What is timed is one product."""
    for fact in (product_rates.STRAIGHT, product_rates.TURNED):
        shapes = {tuple(way().shape) for way in fact.ways.values()}  # type: ignore[attr-defined]
        assert shapes == {(product_rates.ROWS, product_rates.COLUMNS)} and fact.defaults.keys() == fact.ways.keys()


def test_every_number_that_is_stated_is_one_that_the_compiler_asks_for() -> None:
    asked: set[str] = set()
    for path in FOLDER.rglob("*.py"):
        text = path.read_text()
        for call in re.findall(r"(?<![.\w])number\(([^()]*)\)", text):
            asked |= set(re.findall(r'"(\w+)"', call))
        for name in re.findall(r'number_on\([^()]*"(\w+)"\)', text):
            asked |= {f"{name}_{device}" for device in ("cpu", "cuda")} & machine.NUMBERS.keys()
    assert asked == machine.NUMBERS.keys()
