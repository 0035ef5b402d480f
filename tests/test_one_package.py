"""The project is one import package, `assay`, whatever else a user's folders are called.

The four folders at the root are its parts: by links in a checkout, as folders of their own in a wheel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.sources import PACKAGES, ROOT

MINE = """
import torch
import compiler, harness, suites
from assay import case

assert compiler.MINE and harness.MINE and suites.MINE

@case(modes=("infer",))
def doubled():
    return compiler.double, (torch.ones(3),), {}
"""
DOUBLE = "MINE = True\ndef double(x):\n    return x * 2\n"


def run(folder: Path, arguments: Sequence[str], paths: Sequence[Path] = (ROOT,)) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONSAFEPATH": ""}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def users_folder(folder: Path) -> Path:
    """A case file beside a package `compiler`, a module `harness` and a package `suites` of the user's own."""
    for package in ("compiler", "suites"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text(DOUBLE)
    (folder / "harness.py").write_text(DOUBLE)
    (folder / "mine.py").write_text(MINE)
    return folder


@pytest.mark.parametrize("backend", ["assay", "eager"])
def test_a_users_folders_of_the_same_names_stay_theirs(backend: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ("-m", "assay", "run", "mine.py", "--backend", backend, "--json", str(report))
    run(users_folder(tmp_path), arguments)
    assert [row["verdict"] for row in json.loads(report.read_text())["results"]] == ["same"]


def test_a_users_tests_beside_them_find_the_backend(tmp_path: Path) -> None:
    (users_folder(tmp_path) / "test_mine.py").write_text(
        "import assay, torch\nimport compiler\n\ndef test_mine():\n    assert compiler.MINE\n"
        "    compiled = torch.compile(compiler.double, backend=assay.backend)\n"
        "    assert compiled(torch.ones(3)).tolist() == [2, 2, 2]\n"
    )
    assert "1 passed" in run(tmp_path, ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"))


def test_a_folder_of_the_checkout_is_the_same_module() -> None:
    same = "import compiler.options, assay.compiler.options as own; assert compiler.options is own"
    run(ROOT, ("-c", f"{same}; import harness.case, assay; assert harness.case.case is assay.case"))
    run(
        ROOT,
        ("-c", "from compiler.entry.aot import aot_function; import assay; assert assay.aot_function is aot_function"),
    )
    assert "Usage: assay" in run(ROOT, ("-m", "harness", "--help"))


def test_public_names_are_loaded_when_they_are_asked_for() -> None:
    code = "import sys, assay; assert 'torch' not in sys.modules; [getattr(assay, name) for name in assay.__all__]"
    run(ROOT, ("-c", code))
    assert "no attribute" in run(ROOT, ("-c", "import assay\ntry: assay.nothing\nexcept AttributeError as e: print(e)"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    code = f"import setuptools.build_meta as build; print(build.build_wheel({str(folder)!r}))"
    source = tmp_path_factory.mktemp("checkout")
    for name in ("assay", *PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    run(source, ("-c", code), ())
    (built,) = folder.glob("*.whl")
    return built


def names_of(wheel: Path) -> Mapping[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry for entry in archive.infolist()}


RESULTS = "assay/suites/benchmarks/results/"
"""Raw measurements, kept beside the benchmarks in the repository: for readers, not for installations."""


def test_a_wheel_holds_every_module_and_template(wheel: Path) -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.*") if "__pycache__" not in file.parts]
    absent = {f"assay/{file.relative_to(ROOT).as_posix()}" for file in files} - set(names_of(wheel))
    assert {name for name in absent if not name.startswith(RESULTS)} == set()
    assert all(name.endswith(".json") for name in absent)


def test_a_wheel_holds_the_package_and_no_tests(wheel: Path) -> None:
    names = names_of(wheel)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"assay"}
    assert [name for name in names if Path(name).name.startswith(("test_", "conftest"))] == []
    files = ("py.typed", "compiler/pipeline.py", "compiler/codegen/cpp/math.h", "harness/templates/report.html.jinja")
    assert {f"assay/{name}" for name in (*files, "suites/ledger.toml", "reference/pipeline.py")} <= set(names)


def test_a_wheel_runs_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    installed, work = tmp_path / "installed", users_folder(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    report = tmp_path / "report.json"
    page = str(tmp_path / "page")
    run(work, ("-m", "assay", "run", "mine.py", "--json", str(report), "--html", page), (installed,))
    (row,) = json.loads(report.read_text())["results"]
    assert row["verdict"] == "same"
    code = "import torch, assay, compiler; assert assay.compiler.FOLDER.is_relative_to('" + str(installed) + "')"
    run(work, ("-c", code.replace("assay, compiler", "assay.compiler")), (installed,))
    named = "import torch; print(torch.compile(lambda x: x + 1, backend='assay')(torch.ones(2)))"
    assert "2." in run(work, ("-c", named), (installed,))
