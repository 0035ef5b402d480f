"""The store: rows survive a kill, writers do not meet, stores merge, tables migrate; on SQLite, and on PostgreSQL.

PostgreSQL is started for these tests where Debian's package and psycopg are installed: `tox -e postgresql`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the store needs SQLAlchemy: the extra `nightly`")
pytest.importorskip("alembic", reason="the store needs Alembic: the extra `nightly`")

from assay.harness.remember import schema
from assay.harness.remember.merge import merge
from assay.harness.remember.store import Cluster, Store, StoreError
from tests.harness.remember.rows import FACTS, row
from tests.sources import ROOT

WRITER = "tests.harness.remember.store_writer"
POSTGRESQL = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The beginning of the URLs of a PostgreSQL server of its own."""
    pytest.importorskip("psycopg", reason="PostgreSQL is tested with psycopg: tox -e postgresql")
    if POSTGRESQL is None:
        pytest.skip("no PostgreSQL is installed: tox -e postgresql says how")
    folder = Path(tempfile.mkdtemp(prefix="assay-postgresql-"))
    user = "postgres" if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)

    def run(tool: str, *arguments: str) -> None:
        subprocess.run([str(POSTGRESQL / tool), *arguments], check=True, capture_output=True, user=user, cwd=folder)

    data = str(folder / "data")
    run("initdb", "-D", data, "-U", "assay", "-A", "trust")
    run("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", f"-k {folder} -c listen_addresses=''", "start")
    try:
        yield str(folder)
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Two stores that nothing has been written to."""
    if request.param == "sqlite":
        return [f"sqlite:///{tmp_path}/{name}.sqlite" for name in ("one", "two")]
    folder = request.getfixturevalue("server")
    names = [f"{name}_{os.getpid()}_{abs(hash(tmp_path))}" for name in ("one", "two")]
    import psycopg

    with psycopg.connect(f"host={folder} user=assay dbname=postgres", autocommit=True) as connection:
        for name in names:
            connection.execute(f'create database "{name}"'.encode())
    return [f"postgresql+psycopg://assay@/{name}?host={folder}" for name in names]


def write(url: str, name: str, count: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", WRITER, url, name, str(count)], env=environment, cwd=ROOT)


def test_store_gives_back_what_it_was_given(urls: list[str]) -> None:
    with Store.open(urls[0]) as store:
        run = store.begin(FACTS, {"names": ["zoo"]})
        store.add(run, row("a", "diverged"))
        store.add(run, row("a", "same"))
        store.add(run, row("b", "diverged", "stride"))
        kept = store.rows(run)
        assert [(each.result.case, each.result.verdict, each.kind) for each in kept] == [
            ("a", "same", ""), ("b", "diverged", "diverged stride"),
        ]  # fmt: skip
        assert kept[1].result.differences[0].detail == "off by 1"
        digest = store.keep("text", b"content")
        assert store.keep("text", b"content") == digest and store.content(digest) == b"content"
        store.attach(kept[1], "repro", digest)
        assert store.attached(kept[1]) == {"repro": digest}
        with pytest.raises(StoreError, match="no run 'nothing'"):
            store.run("nothing")


def test_store_takes_two_writers_at_a_time(urls: list[str]) -> None:
    Store.open(urls[0]).engine.dispose()
    writers = [write(urls[0], name, 60) for name in ("first", "second")]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    with Store.open(urls[0]) as store:
        assert sorted(len(store.rows(run)) for run in store.runs()) == [60, 60]
        with store.engine.connect() as connection:
            assert len(connection.execute(schema.artefacts.select()).all()) == 3


def test_store_goes_on_where_a_run_was_killed(urls: list[str]) -> None:
    assert write(urls[0], "killed", 5).wait(120) == -9
    with Store.open(urls[0]) as store:
        run = store.resumed(FACTS, {"names": ["killed"]})
        assert run is not None and [kept.result.case for kept in store.rows(run)] == [
            f"killed.case_{n}" for n in range(5)
        ]
        assert store.resumed(FACTS | {"torch": "2.11.0"}, {"names": ["killed"]}) is None
        assert store.resumed(FACTS, {"names": ["another"]}) is None
        store.end(run)
        assert store.resumed(FACTS, {"names": ["killed"]}) is None


def test_stores_merge(urls: list[str]) -> None:
    with Store.open(urls[0]) as one, Store.open(urls[1]) as two:
        for store, commit, seen in ((one, "abc", "2026-02-01"), (two, "earlier", "2026-01-01")):
            run = store.begin(FACTS, {})
            store.add(run, row(f"of_{commit}", "diverged"))
            store.assign(store.rows(run), Cluster("s", "a cause", "fused", commit, seen, {}))
            store.attach(store.rows(run)[0], "repro", store.keep("text", commit.encode()))
            store.measured(run.id, [{"series": "x", "commit": commit, "position": 1, "value": 2.0, "unit": "s"}])
            store.end(run)
        assert (merge(one, two), merge(one, two)) == (1, 0)
        assert {kept.result.case for run in one.runs() for kept in one.rows(run)} == {"of_abc", "of_earlier"}
        assert one.clusters()["s"].first_commit == "earlier"
        taken = one.rows(two.runs()[0].id)[0]
        assert one.content(one.attached(taken)["repro"]) == b"earlier"
        assert len(one.samples()) == 2


def test_store_migrates_what_an_earlier_version_made(urls: list[str]) -> None:
    store = Store.open(urls[0])
    from alembic import command  # the store goes up alone; a test goes down
    from alembic.config import Config

    from assay.harness.remember.store import MIGRATIONS

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    run = store.begin(FACTS, {})
    with store.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
    assert store.version == "0001"
    with Store.open(urls[0]) as again:
        assert again.version == "0002" and again.runs() == [run] and again.samples() == []


def test_migrations_make_the_tables_of_the_schema(tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with Store.open(f"sqlite:///{tmp_path}/store.sqlite") as store, store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []


def test_store_says_what_is_wrong_with_a_url() -> None:
    for url in ("nothing", "postgresql+psycopg://nobody@127.0.0.1:1/x"):
        with pytest.raises(StoreError, match="the store"):
            Store.open(url)
