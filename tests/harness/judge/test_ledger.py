"""The ledger: what it excuses, until when, and what it says about entries that are wrong."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from assay.harness.judge import ledger
from assay.harness.judge.ledger import Known, LedgerError, judge, read
from assay.harness.outcome import Difference, Result

TODAY = datetime.date(2026, 6, 1)
ENTRY = """
[[known]]
case = "zoo.*"
mode = "train"
backend = "inductor"
field = "stride"
reason = "gradients come out contiguous"
owner = "upstream"
expires = 2026-07-01
"""


def known(**changes: object) -> Known:
    given: dict[str, object] = {"case": "zoo.bert", "mode": "train", "backend": "inductor", "field": "stride"}
    given |= {"reason": "because", "owner": "somebody", "expires": datetime.date(2026, 7, 1), **changes}
    return Known(**given)  # type: ignore[arg-type]


def diverged(*fields: str) -> Result:
    return Result(
        "zoo.bert", "train", "inductor", "diverged", tuple(Difference(field, "output", "") for field in fields)
    )


def test_ledger_reads_entries(tmp_path: Path) -> None:
    (path := tmp_path / "ledger.toml").write_text(ENTRY)
    (entry,) = read(path)
    assert (entry.case, entry.expires) == ("zoo.*", datetime.date(2026, 7, 1))
    assert read(tmp_path / "nothing.toml") == ()


@pytest.mark.parametrize(
    ("line", "devices"), [("", {"cpu", "cuda"}), ('device = "cuda"\n', {"cuda"}), ('device = "cpu"\n', {"cpu"})]
)
def test_ledger_knows_devices(tmp_path: Path, line: str, devices: set[str]) -> None:
    (path := tmp_path / "ledger.toml").write_text(ENTRY + line)
    assert {device for device in ("cpu", "cuda") if read(path, device)} == devices


def test_ledger_of_the_repository_can_be_read() -> None:
    assert all(entry.reason and entry.owner for device in ledger.DEVICES for entry in read(ledger.PATH, device))


def test_ledger_passes_what_is_same() -> None:
    assert judge(Result("c", "infer", "b", "same"), (), TODAY).passes


def test_ledger_excuses_a_known_field_and_says_why() -> None:
    judgement = judge(diverged("stride"), (known(),), TODAY)
    assert judgement.passes and "because" in judgement.notes[0] and "2026-07-01" in judgement.notes[0]


@pytest.mark.parametrize(
    "changes", [{"case": "zoo.gpt2"}, {"mode": "infer"}, {"backend": "assay"}, {"field": "values"}], ids=str
)
def test_ledger_excuses_nothing_else(changes: dict[str, object]) -> None:
    assert not judge(diverged("stride"), (known(**changes),), TODAY).passes


def test_ledger_excuses_only_if_every_field_is_known() -> None:
    assert not judge(diverged("stride", "values"), (known(),), TODAY).passes
    assert judge(diverged("stride", "values"), (known(), known(field="values")), TODAY).passes


def test_ledger_knows_patterns() -> None:
    assert judge(diverged("stride"), (known(case="zoo.*", mode="*", backend="*"),), TODAY).passes


@pytest.mark.parametrize(
    ("version", "bounds", "is_within"),
    [
        ("2.11.0+cu130", "<2.13", True),
        ("2.13.0", "<2.13", False),
        ("2.9.1", "<2.13", True),
        ("2.12.1", ">=2.12,<2.13", True),
        ("2.11.0", ">=2.12,<2.13", False),
        ("2.13.1", "==2.13", True),
        ("2.13.1", ">2.13", False),
        ("2.13.1", "<=2.13", True),
        ("3.0.0", "", True),
    ],
)
def test_ledger_knows_versions(version: str, bounds: str, is_within: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.__version__", version)
    assert judge(diverged("stride"), (known(torch=bounds),), TODAY).passes is is_within


def test_ledger_knows_verdicts_without_differences() -> None:
    crash = Result("zoo.bert", "train", "inductor", "crash")
    assert judge(crash, (known(field="crash"),), TODAY).passes
    assert not judge(crash, (known(field="timeout"),), TODAY).passes


def test_ledger_counts_an_expired_entry_as_a_failure_and_says_so() -> None:
    judgement = judge(diverged("stride"), (known(expires=TODAY),), TODAY)
    assert not judgement.passes and "expired on 2026-06-01" in judgement.notes[0]


def test_ledger_prefers_an_entry_that_has_not_expired() -> None:
    judgement = judge(diverged("stride"), (known(expires=TODAY), known(reason="newer")), TODAY)
    assert judgement.passes and len(judgement.notes) == 1 and "newer" in judgement.notes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ENTRY.replace('owner = "upstream"\n', ""), "entry 1 has no owner"),
        (ENTRY + 'until = "never"\n', "until"),
        (ENTRY.replace("2026-07-01", '"soon"'), "expires is 'soon', and must be a date"),
        ("[[known]\n", "ledger.toml"),
        ("known = 3\n", "list of tables"),
        (ENTRY.replace("known", "knwon"), "knwon"),
        (ENTRY + 'torch = "<2.13, or so"\n', "' or so' is no bound"),
        (ENTRY + 'device = "tpu"\n', "device is 'tpu', and must be one of cpu, cuda"),
        (ENTRY + "torch = 2.13\n", "torch is 2.13, and must be a str"),
        (ENTRY.replace('field = "stride"', 'field = "*"'), "field is '*', and is one field by its name"),
    ],
)
def test_ledger_says_what_is_wrong_with_an_entry(tmp_path: Path, text: str, said: str) -> None:
    (path := tmp_path / "ledger.toml").write_text(text)
    with pytest.raises(LedgerError, match=str(path)) as caught:
        read(path)
    assert said in str(caught.value)
