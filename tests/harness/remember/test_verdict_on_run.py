"""What is new, known, excused, fixed and flaky, and what CI is told of it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("sqlalchemy", reason="the store needs SQLAlchemy: the extra `nightly`")
pytest.importorskip("alembic", reason="the store needs Alembic: the extra `nightly`")

from click.testing import CliRunner

from assay.harness.cli.commands import commands
from assay.harness.cli.store_commands import lines_of
from assay.harness.judge.ledger import Known
from assay.harness.remember.causes import normal_form
from assay.harness.remember.duplicates import Seen, duplicates_of
from assay.harness.remember.formats import junit, sarif
from assay.harness.remember.replays import replays, with_stale
from assay.harness.remember.store import Cluster, Run, Store, hashed, now
from assay.harness.remember.verdict_on_run import Verdict, base_of, document, judge_run
from assay.harness.report.documents import Row
from tests.harness.remember.rows import FACTS, row


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/store.sqlite") as made:
        yield made


def ran(store: Store, rows: Sequence[Row], commit: str = "abc", started: str = "") -> Run:
    run = store.begin(FACTS | {"commit": commit}, {})
    for each in rows:
        store.add(run, each)
    store.end(run)
    if started:
        from assay.harness.remember import schema

        with store.engine.begin() as connection:
            connection.execute(schema.runs.update().where(schema.runs.c.id == run.id).values(started=started))
    return store.run(run.id)


def test_causes_are_new_known_excused_and_fixed(store: Store) -> None:
    was = [row("a", "diverged"), row("b", "diverged", "stride"), row("c")]
    base = ran(store, was, "old", "2026-01-01")
    today = [
        row("a", "diverged"),
        row("d", "diverged"),
        row("b"),
        row("c", "crash"),
        row("e", "diverged", "alias", passes=True),
    ]
    run = ran(store, today, "new", "2026-01-02")
    assert base_of(store, run) == base
    verdict = judge_run(store, run, base)
    states = {cause.cluster.body["kind"]: (cause.state, len(cause.rows)) for cause in verdict.causes}
    assert states == {
        "diverged values": ("known", 2), "crash": ("new", 1), "diverged alias": ("excused", 1),
        "diverged stride": ("fixed", 1),
    }  # fmt: skip
    assert not verdict.passes
    assert verdict.sentence() == "4 differences, 3 causes, 1 new since commit old, 1 fixed; 5 rows"
    assert document(verdict)["causes"][0]["first_commit"] == "new"


def test_a_run_without_a_row_is_no_base(store: Store) -> None:
    """As one of measurements alone, or a night that was cut before a row had ended."""
    base = ran(store, [row("a", "diverged"), row("b")], "old", "2026-01-01")
    judge_run(store, base, None)
    ran(store, [], "measured", "2026-01-02")
    run = ran(store, [row("a", "diverged"), row("b", "diverged")], "new", "2026-01-03")
    assert base_of(store, run) == base
    (cause,) = judge_run(store, run, base_of(store, run)).causes
    assert (cause.state, cause.broken) == ("new", 1)


def test_a_cause_that_the_base_was_cut_before_is_known_from_an_earlier_run(store: Store) -> None:
    judge_run(store, ran(store, [row("a", "diverged"), row("b", "diverged", "stride")], "older", "2026-01-01"), None)
    base = ran(store, [row("a", "diverged")], "old", "2026-01-02")
    today = [row("a", "diverged"), row("b", "diverged", "stride"), row("c", "crash")]
    assert states_of(judge_run(store, ran(store, today, "new", "2026-01-03"), base)) == ["new crash", "known", "known"]
    fixed = ran(store, [row("b")], "mended", "2026-01-04")
    again = judge_run(store, ran(store, today[1:2], "newer", "2026-01-05"), fixed)
    assert states_of(again) == ["new diverged stride"]


def test_a_row_that_was_as_eager_is_new_though_others_failed_in_that_way(store: Store) -> None:
    base = ran(store, [row("a", "diverged"), row("b"), row("c", "diverged")], "old", "2026-01-01")
    run = ran(store, [row("a", "diverged"), row("b", "diverged"), row("c", "diverged")], "new", "2026-01-02")
    verdict = judge_run(store, run, base)
    assert states_of(verdict) == ["new diverged values"]
    assert verdict.causes[0].size() == "3 rows, 1 as eager before"


def test_a_cause_is_no_news_for_being_located(store: Store) -> None:
    base = ran(store, [row("a", "diverged"), row("b")], "old", "2026-01-01")
    run = ran(store, [row("a", "diverged"), row("b", "diverged")], "new", "2026-01-02")
    found = Cluster("f" * 64, "mine: values in add", "mine", "new", now(), {"kind": "diverged values", "form": "add"})
    first, second = store.rows(run)
    store.assign([first], found)
    assert states_of(judge_run(store, run, base)) == ["new diverged values", "known"]
    store.assign([second], found)
    assert states_of(judge_run(store, run, base)) == ["known"]


def states_of(verdict: Verdict) -> list[str]:
    """The state of each cause; of a new one its kind, too."""
    return [f"new {cause.cluster.body['kind']}" if cause.state == "new" else cause.state for cause in verdict.causes]


def test_a_cause_that_did_not_run_again_is_not_fixed(store: Store) -> None:
    base = ran(store, [row("a", "diverged")], "old", "2026-01-01")
    assert judge_run(store, ran(store, [row("b")]), base).causes == ()


def test_flaky_is_both_on_one_commit(store: Store) -> None:
    ran(store, [row("a", "diverged"), row("b", "diverged")], "abc", "2026-01-01")
    ran(store, [row("b")], "another", "2026-01-02")
    verdict = judge_run(store, ran(store, [row("a"), row("b", "diverged")], "abc"), None)
    assert verdict.flaky == (("a", "infer", "mine"),)


def test_an_excuse_that_nothing_needs_is_red(store: Store) -> None:
    def entry(case: str, field: str, torch: str = "") -> Known:
        return Known(case, "*", "mine*", field, "a reason", "someone", datetime.date(2030, 1, 1), torch)

    run = ran(store, [row("a"), row("b", "diverged", passes=True)])
    ledger = [entry("a", "values"), entry("b", "values"), entry("b*", "stride"), entry("elsewhere", "values")]
    ledger.append(entry("a", "stride", "<2.0"))
    verdict = judge_run(store, run, None, ledger)
    assert [each.case for each in verdict.stale] == ["a"] and not verdict.passes


@pytest.mark.parametrize(
    ("modes", "shapes", "is_stale"),
    [
        (("infer",), ("", ",dynamic"), False),
        (("infer", "train"), ("",), False),
        (("infer", "train"), ("", ",dynamic"), True),
    ],
)
def test_an_excuse_is_not_stale_before_its_case_ran_in_every_mode(
    store: Store, modes: tuple[str, ...], shapes: tuple[str, ...], is_stale: bool
) -> None:
    name = "semantics.pair_of_pairs"
    entry = Known(name, "*", "*", "error", "a reason", "someone", datetime.date(2030, 1, 1), "")
    ran_rows = [row(name, backend=f"mine{kind}") for kind in shapes]
    rows = [dataclasses.replace(each, result=dataclasses.replace(each.result, mode=mode))
            for each in ran_rows for mode in modes]  # fmt: skip
    verdict = judge_run(store, ran(store, rows), None, (entry,))
    assert bool(verdict.stale) == is_stale


def test_formats_fail_for_what_is_new_alone(store: Store) -> None:
    run = ran(store, [row("a", "diverged"), row("b"), row("c", "diverged", "alias", passes=True)])
    verdict = judge_run(store, run, None)
    suite = ElementTree.fromstring(junit(verdict))[0]
    assert suite.attrib == {"name": "assay", "tests": "3", "failures": "1", "skipped": "1"}
    levels = {each["message"]["text"].split()[0]: each["level"] for each in sarif(verdict)["runs"][0]["results"]}
    assert levels == {"a": "error", "c": "note"}


def test_triage_of_an_empty_store_says_how_a_run_is_kept(tmp_path: Path) -> None:
    told = CliRunner().invoke(commands, ["triage", "--store", f"sqlite:///{tmp_path}/empty.sqlite"])
    assert told.exit_code == 2 and "assay run --record" in told.output


def test_triage_names_the_command_that_shows_a_new_cause(store: Store) -> None:
    ran(store, [row("a", "diverged"), row("b")])
    told = CliRunner().invoke(commands, ["triage", "--store", str(store.engine.url)])
    assert "assay repro a --mode " in told.output and "assay repro b" not in told.output


def test_triage_says_so_by_its_exit_code(store: Store, tmp_path: Path) -> None:
    ran(store, [row("a", "diverged")], "old", "2026-01-01")
    url = str(store.engine.url)
    told = CliRunner().invoke(commands, ["triage", "--store", url, "--json", f"{tmp_path}/t.json"])
    assert told.exit_code == 1 and "1 new" in told.output
    ran(store, [row("a", "diverged")], "newer", "2026-01-02")
    told = CliRunner().invoke(commands, ["triage", "--store", url])
    assert told.exit_code == 0 and "0 new since commit old" in told.output
    assert CliRunner().invoke(commands, ["triage", "--store", url, "--base", "nothing"]).exit_code == 2


def test_triage_of_a_run_without_rows_is_no_good_news(store: Store) -> None:
    ran(store, [row("a", "diverged")], "old", "2026-01-01")
    url = str(store.engine.url)
    ran(store, [], "newer", "2026-01-02")
    told = CliRunner().invoke(commands, ["triage", "--store", url])
    assert told.exit_code == 3 and "the run has no rows" in told.output
    ran(store, [row("a")], "newest", "2026-01-03")
    told = CliRunner().invoke(commands, ["triage", "--store", url])
    assert told.exit_code == 0 and "has no rows" not in told.output


def test_normal_form_tells_no_names_and_numbers_apart() -> None:
    one = normal_form("def program(x0, x1):\n    add = torch.add(x0, 2)\n    return add,")
    other = normal_form("def program(a, b):\n    add_3 = torch.add(a, 17)\n    return add_3,")
    assert one == other
    assert one != normal_form("def program(a, b):\n    add_3 = torch.mul(a, 17)\n    return add_3,")


def cause_of(kind: str, rung: str, operators: Sequence[str], form: str, seen: str = "2026-01-02") -> Cluster:
    body = {"kind": f"diverged {kind}", "form": form, "operators": list(operators)}
    return Cluster(hashed([kind, rung, *operators, form]), f"mine, {rung}: {kind}", rung, "new", seen, body)


VALUES = cause_of("values", "fused", ["add", "mul"], "return add(mul(v0))", "2026-01-01")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (cause_of("alias", "written", ["add"], "return add(mul(v0))"), "the same program"),
        (cause_of("stride", "fused", ["mul", "add"], "another"), "the same rung and operators, in another field"),
        (cause_of("values", "fused", ["add", "mul"], "another"), ""),
        (cause_of("stride", "lowered", ["add", "mul"], "another"), ""),
        (cause_of("stride", "fused", ["add"], ""), ""),
        (cause_of("stride", "fused", [], ""), ""),
    ],
    ids=["one program", "another field", "another program", "another rung", "other operators", "no operators"],
)
def test_causes_that_are_one_are_marked(store: Store, other: Cluster, why: str) -> None:
    """The one that was seen first is kept, though the other one has more rows."""
    run = ran(store, [row("a", "diverged"), row("b", "diverged", "stride"), row("c", "diverged", "stride")])
    first, *rest = store.rows(run)
    store.assign([first], VALUES)
    store.assign(rest, other)
    verdict = judge_run(store, run, None)
    found = {cause.cluster.signature: cause.duplicate for cause in verdict.causes}
    assert found[VALUES.signature] is None
    twice = found[other.signature]
    assert (twice.why, twice.of) == (why, VALUES) if twice else why == ""
    assert ("1 duplicate" in verdict.sentence()) == bool(why)
    data = {each["signature"]: each["duplicate"] for each in document(verdict)["causes"]}
    assert data[other.signature] == ({"of": VALUES.signature, "why": why} if why else None)
    said = [str(line) for line in lines_of(verdict)]
    assert any(f"duplicate of {VALUES.signature[:8]}: {why}" in line for line in said) == bool(why)


def test_causes_of_two_backends_are_two(store: Store) -> None:
    run = ran(store, [row("a", "diverged"), row("a", "diverged", "alias", backend="another")])
    first, second = store.rows(run)
    store.assign([first], VALUES)
    store.assign([second], cause_of("alias", "fused", ["add", "mul"], "return add(mul(v0))"))
    assert [cause.duplicate for cause in judge_run(store, run, None).causes] == [None, None]


def test_nothing_is_a_duplicate_of_a_duplicate() -> None:
    later = cause_of("stride", "fused", ["add", "mul"], "another", "2026-01-02")
    last = cause_of("values", "fused", ["mul", "add"], "a third one", "2026-01-03")
    found = duplicates_of(Seen(each, frozenset({"mine"}), 1) for each in (last, later, VALUES))
    assert list(found) == [later.signature]


FAILS, PASSES_NOW = "assert 1 == 2\n", "assert 1 == 1\n"
SEEN_AGAIN, GONE = "raise SystemExit(0)\n", "raise SystemExit(1)\n"


def excuse(case: str, reason: str = "a reason") -> Known:
    return Known(case, "*", "mine*", "values", reason, "someone", datetime.date(2030, 1, 1))


@pytest.mark.parametrize(
    ("repro", "file", "stale"),
    [(FAILS, SEEN_AGAIN, []), (PASSES_NOW, SEEN_AGAIN, ["a"]), (FAILS, GONE, ["b"]), ("", GONE, ["b"])],
    ids=["both fail", "the cause's is gone", "the file's is gone", "a file alone"],
)
def test_an_excuse_whose_repro_fails_no_more_is_stale(
    store: Store, tmp_path: Path, repro: str, file: str, stale: list[str]
) -> None:
    run = ran(store, [row("a", "diverged", passes=True), row("b", "diverged", passes=True)])
    first, second = store.rows(run)
    body = {"kind": "diverged values", "form": "x", "repro": repro}
    store.assign([first], Cluster("a" * 64, "mine: values", "fused", "new", "2026-01-01", body))
    store.assign([second], Cluster("b" * 64, "mine: more", "fused", "new", "2026-01-01", body | {"repro": ""}))
    (tmp_path / "upstream_bugs").mkdir()
    (tmp_path / "upstream_bugs" / "of_torch.py").write_text(file)
    known = [excuse("a"), excuse("b", "a bug (upstream_bugs/of_torch.py) of torch"), excuse("c", "upstream_bugs/x.py")]
    verdict = judge_run(store, run, None, known)
    assert verdict.passes and verdict.stale == ()
    found = list(replays(verdict, known, tmp_path))
    assert [each.name for each in found] == (["repro of aaaaaaaa"] if repro else []) + ["upstream_bugs/of_torch.py"]
    again = with_stale(verdict, found)
    assert [entry.case for entry in again.stale] == stale and again.passes == (not stale)
