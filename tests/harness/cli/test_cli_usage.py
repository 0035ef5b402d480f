"""Bad usage of the command line: exit 2, and a message that says what, where and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from assay.harness.case import SIZES
from assay.harness.cli.commands import commands
from assay.harness.judge.ledger import read as read_ledger_at

CASES = """
from assay.harness.case import case
@case(modes=("infer",), tags=("quick",))
def double():
    import torch
    return (lambda x: x * 2), (torch.ones(3),), {}
"""


@pytest.fixture
def cases(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(CASES)
    return str(path)


def invoke(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "400"}).invoke(commands, arguments)


def refused(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.output


@pytest.mark.parametrize("command", ["run", "bench", "list"])
def test_cli_unknown_suite_names_the_suites(command: str) -> None:
    backend = [] if command == "list" else ["--backend", "eager"]
    said = refused(command, "no_such_suite", *backend)
    assert "'no_such_suite' is not a suite" in said and "overhead" in said


@pytest.mark.parametrize("command", ["run", "bench"])
def test_cli_unknown_backend_names_the_backends_and_the_nearest(command: str, cases: str) -> None:
    said = refused(command, cases, "--backend", "inductr")
    assert "'inductr' does not exist" in said and "did you mean 'inductor'" in said and "aot_eager" in said


def test_cli_backend_of_a_module_that_does_not_import_says_why(cases: str) -> None:
    said = refused("run", cases, "--backend", "no_such_module:thing")
    assert "no_such_module" in said and "ModuleNotFoundError" in said


def test_cli_backend_that_is_not_callable_says_what_it_is(cases: str) -> None:
    assert "is a str, and must be callable" in refused("run", cases, "--backend", "sys:platform")


@pytest.mark.parametrize(
    ("option", "value", "choices"),
    [
        ("--mode", "both_of_them", ("infer", "train", "both")),
        ("--size", "huge", SIZES),
        ("--device", "tpu", ("cpu", "cuda")),
    ],
)
@pytest.mark.parametrize("command", ["run", "bench"])
def test_cli_bad_choice_names_the_choices(command: str, option: str, value: str, choices: tuple[str, ...]) -> None:
    said = refused(command, option, value)
    assert option in said and value in said
    for choice in choices:
        assert repr(choice) in said


@pytest.mark.parametrize("option", [("--timeout", "0"), ("--timeout", "soon"), ("--seed", "x")])
def test_cli_bad_number_is_refused(option: tuple[str, str]) -> None:
    said = refused("run", *option)
    assert option[0] in said and option[1] in said


def test_cli_bench_without_rounds_is_refused() -> None:
    assert "--rounds" in refused("bench", "--rounds", "0")


def test_cli_missing_file_is_named() -> None:
    assert "no/such/file.py: there is no such file" in refused("run", "no/such/file.py", "--backend", "eager")


@pytest.mark.parametrize(("text", "error"), [("def broken(:\n", "SyntaxError"), ("\n1 / 0\n", "ZeroDivisionError")])
def test_cli_case_file_with_an_error_says_where(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    said = refused("run", str(path), "--backend", "eager")
    assert error in said and f"broken.py:{2 if error == 'ZeroDivisionError' else 1}" in said


def test_cli_case_file_without_cases_says_what_a_case_is(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n")
    assert "holds no cases" in refused("run", str(path), "--backend", "eager")


def test_cli_filter_that_matches_nothing_names_the_cases(cases: str) -> None:
    said = refused("run", cases, "--backend", "eager", "--filter", "tripel")
    assert "'tripel' matches no case" in said and "mine.double" in said


def test_cli_filter_that_matches_none_of_many_names_the_nearest() -> None:
    said = " ".join(refused("run", "semantics", "--backend", "eager", "--filter", "second_ordre_gradients").split())
    assert "semantics.second_order_gradients" in said and "The nearest of" in said and said.count("semantics.") <= 8


def test_cli_mode_that_no_case_has_names_those_they_have(cases: str) -> None:
    said = refused("run", cases, "--backend", "eager", "--mode", "train")
    assert "no case has the mode train; they have infer" in said


@pytest.mark.parametrize("command", ["run", "bench"])
def test_cli_unwritable_json_is_refused_before_anything_runs(command: str, cases: str, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "report.json"
    said = refused(command, cases, "--backend", "eager", "--json", str(path))
    assert f"--json {path}: cannot be written (No such file or directory)" in said
    assert "Is a directory" in refused(command, cases, "--backend", "eager", "--json", str(tmp_path))


def test_cli_unwritable_html_is_refused(cases: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refused("run", cases, "--backend", "eager", "--html", str(tmp_path / "file"))
    assert "--html" in said and "cannot be written" in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_cli_cuda_without_a_gpu_says_what_to_do(cases: str) -> None:
    assert "use --device cpu" in refused("run", cases, "--backend", "eager", "--device", "cuda")


def test_cli_bench_against_nothing_is_refused(cases: str) -> None:
    assert "--against names no backend" in refused("bench", cases, "--backend", "eager", "--against", " , ")


def test_cli_bench_against_an_unknown_backend_is_refused(cases: str) -> None:
    assert "'inducto' does not exist" in refused("bench", cases, "--backend", "eager", "--against", "eager,inducto")


def test_cli_broken_ledger_is_named(cases: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.toml"
    path.write_text('[[known]]\ncase = "x"\n')
    monkeypatch.setattr("assay.harness.cli.commands.ledger.read", lambda device: read_ledger_at(path))
    assert "ledger.toml: entry 1 has no" in refused("run", cases, "--backend", "eager")


def test_cli_list_shows_modes_sizes_and_tags(cases: str) -> None:
    result = invoke("list", cases)
    assert result.exit_code == 0
    for word in ("mine.double", "infer", "tiny", "quick"):
        assert word in result.output


@pytest.mark.parametrize("command", ["env", "show-environment"])
def test_cli_environment_names_the_versions(command: str) -> None:
    result = invoke(command)
    assert result.exit_code == 0
    assert torch.__version__ in result.output and "compiler" in result.output and "threads" in result.output


@pytest.mark.parametrize("arguments", [("--examples", "3"), ("--shard", "1/4"), ("--subjects", "x"), ("--resume", "x")])
def test_cli_option_that_a_suite_does_not_read_is_refused(cases: str, arguments: tuple[str, str]) -> None:
    said = refused("run", cases, "--backend", "eager", *arguments)
    assert f"{arguments[0]} is read by" in said


def test_cli_option_of_another_suite_is_refused() -> None:
    assert "--steps is read by machine alone" in refused("run", "programs", "--backend", "eager", "--steps", "3")


@pytest.mark.parametrize("arguments", [("--continue",), ("--into", "abc")])
def test_cli_run_goes_on_with_a_store_alone(cases: str, arguments: tuple[str, ...]) -> None:
    assert f"{arguments[0]} needs a store" in refused("run", cases, "--backend", "eager", *arguments)


@pytest.mark.parametrize("command", ["ladder", "bisect", "profile", "shrink", "repro"])
def test_cli_locating_on_an_unknown_backend_is_refused(command: str, cases: str) -> None:
    assert "'inductr' does not exist" in refused(command, f"{cases}::double", "--backend", "inductr")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_cli_ladder_without_a_gpu_says_that_there_is_none(cases: str) -> None:
    assert "torch sees no CUDA GPU" in refused("ladder", f"{cases}::double", "--device", "cuda")


@pytest.mark.parametrize("arguments", [("--slower", "call"), ("--repository", ".")])
def test_cli_bisect_of_no_history_takes_none_of_its_options(cases: str, arguments: tuple[str, str]) -> None:
    said = refused("bisect", f"{cases}::double", "--backend", "eager", *arguments)
    assert f"{arguments[0]} is for a history" in said


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
@pytest.mark.parametrize("command", ["record", "kernels"])
def test_cli_file_of_anything_else_is_refused(command: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    store = ("--store", f"sqlite:///{tmp_path}/new.sqlite") if command == "record" else ()
    assert str(path) in refused(command, str(path), *store)
    assert not (tmp_path / "new.sqlite").exists()


@pytest.mark.parametrize("command", ["triage", "publish", "regressions", "merge"])
def test_cli_store_that_is_not_there_is_not_read(command: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/missing.sqlite"
    arguments = (f"sqlite:///{tmp_path}/new.sqlite", url) if command == "merge" else ("--store", url)
    assert "there is no such file" in refused(command, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_cli_night_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert "cannot be made" in refused("nightly", "--output", str(path), "--store", f"sqlite:///{tmp_path}/x.sqlite")


@pytest.mark.parametrize("arguments", [("--every", "2"), ("--models",)])
def test_cli_selftest_that_locates_nothing_takes_none_of_its_options(arguments: tuple[str, ...]) -> None:
    assert f"{arguments[0]} is read by --locate alone" in refused("selftest", *arguments)


@pytest.mark.parametrize("of", [(), ("--backends",), ("--locate",), ("--false-alarms",)])
def test_cli_selftest_goes_on_behind_no_report_where_none_is_named(of: tuple[str, ...]) -> None:
    assert "--resume needs the file of --json" in refused("selftest", "--resume", *of)


def test_cli_selftest_that_is_to_locate_nothing_is_refused() -> None:
    assert "leaves no fault" in refused("selftest", "--locate", "--filter", "no_such_fault")


@pytest.mark.parametrize("command", ["ladder", "bisect", "profile", "shrink", "repro"])
def test_cli_locating_finds_out_first_that_no_report_can_be_written(command: str, cases: str, tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / "report.json")
    assert "cannot be written" in refused(command, f"{cases}::double", "--backend", "eager", "--json", path)


def test_cli_locating_leaves_no_report_where_it_is_refused(cases: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    refused("ladder", f"{cases}::double", "--backend", "inductr", "--json", str(path))
    assert not path.exists()


def test_cli_machine_of_an_unknown_subject_names_the_subjects() -> None:
    assert "--subjects 'nothing' is none of" in refused("run", "machine", "--backend", "eager", "--subjects", "nothing")
