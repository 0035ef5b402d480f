"""The store of runs: an SQLite file by default, or any database that SQLAlchemy has a URL for.

    with Store.open("sqlite:///.assay/runs.sqlite") as store:
        run = store.begin(environment, {"names": ["zoo"]})
        store.add(run, row)
        store.end(run)

Every row is written at once. So a run that is killed loses the case in flight, and goes on where it was: `resumed`
gives the run of the same commit, surroundings and request that has not ended. Writers of one store may run at a time.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url

from assay.harness import outcome
from assay.harness.judge.ledger import Judgement
from assay.harness.outcome import Result
from assay.harness.remember import schema
from assay.harness.report.documents import Row, finite
from assay.harness.search.generated import kind_of

DEFAULT = "sqlite:///.assay/runs.sqlite"
MIGRATIONS = Path(__file__).parent / "migrations"
LOCK_S = 60
"""How long a writer of SQLite waits for another one."""
SURROUNDINGS = ("python", "torch", "triton", "numpy", "compiler", "cpu", "cores", "device", "gpu", "cuda")
"""What a result may depend on beside the commit. With all of it equal, two results of a case are one or it is flaky."""
DRAWN = ("programs.", "machine.")
"""How the names of cases begin that were drawn at random."""
MIGRATING = 4_715_926
"""The number of the lock under which PostgreSQL migrates, so that two processes do not at once."""


class StoreError(ValueError):
    """A store that cannot be opened, or a run that it does not have; the message says which exist."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the store."""

    id: str
    started: str
    ended: str | None
    commit: str | None
    surroundings: str
    environment: Mapping[str, Any]
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """A row of a run: what it came to, and the signature of its cause, if it failed and that was looked for."""

    id: int
    run: str
    result: Result
    judgement: Judgement
    kind: str
    signature: str | None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.result.case, self.result.mode, self.result.backend

    @property
    def is_drawn(self) -> bool:
        """Whether its program was drawn at random: no suite has a case of its name."""
        return self.result.case.startswith(DRAWN)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cause: its name, on which rung it first shows, when it was first seen, and what else is known of it."""

    signature: str
    name: str
    rung: str
    first_commit: str | None
    first_seen: str
    body: Mapping[str, Any]


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def hashed(value: Any) -> str:
    """The hash of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def surroundings_of(environment: Mapping[str, Any]) -> str:
    """The hash of what a result may depend on beside the commit."""
    return hashed({name: environment.get(name) for name in SURROUNDINGS})


@dataclass(frozen=True, slots=True)
class Store:
    """An open store; a context manager."""

    engine: Engine

    @staticmethod
    def open(url: str = DEFAULT, is_made: bool = True) -> Store:
        """Opens a store, or makes it where that is asked for, and brings its tables up to date.

        Raises: StoreError for a URL that means nothing, or a database that cannot be reached.
        """
        try:
            if not is_made and _is_missing(url):
                raise StoreError(f"the store {url}: there is no such file; `assay run --record` makes one")
            store = Store(_engine(url))
            store.migrate()
        except (sa.exc.SQLAlchemyError, ImportError, OSError) as error:
            raise StoreError(f"the store {url}: {str(error).partition(chr(10))[0]}") from error
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.dispose()

    @property
    def version(self) -> str | None:
        """The migration that the tables are at."""
        with self.engine.connect() as connection:
            if not sa.inspect(connection).has_table("alembic_version"):
                return None
            return connection.scalar(sa.text("select version_num from alembic_version"))

    def migrate(self, revision: str = "head") -> None:
        """Runs the migrations that are left; one process at a time."""
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        with self._writing() as connection:
            if self.engine.dialect.name == "postgresql":
                connection.execute(sa.text("select pg_advisory_xact_lock(:number)"), {"number": MIGRATING})
            config.attributes["connection"] = connection
            command.upgrade(config, revision)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self.engine.begin() as connection:
            yield connection

    def _insert(self, table: sa.Table) -> Any:
        """An insertion that may leave a row as it is, or write over it."""
        return (postgresql.insert if self.engine.dialect.name == "postgresql" else sqlite.insert)(table)

    # ---- runs

    def begin(self, environment: Mapping[str, Any], request: Mapping[str, Any]) -> Run:
        """A new run."""
        around = surroundings_of(environment)
        made = Run(uuid.uuid4().hex, now(), None, environment.get("commit"), around, dict(environment), dict(request))
        with self._writing() as connection:
            connection.execute(schema.runs.insert().values(**dataclasses.asdict(made)))
        return made

    def resumed(self, environment: Mapping[str, Any], request: Mapping[str, Any]) -> Run | None:
        """The last run of the same commit, surroundings and request, if it has not ended."""
        around = surroundings_of(environment)
        alike = [
            run for run in self.runs()
            if run.surroundings == around and run.commit == environment.get("commit") and run.request == dict(request)
        ]  # fmt: skip
        return alike[-1] if alike and alike[-1].ended is None else None

    def end(self, run: Run) -> None:
        with self._writing() as connection:
            connection.execute(schema.runs.update().where(schema.runs.c.id == run.id).values(ended=now()))

    def runs(self) -> list[Run]:
        """Every run, the latest last."""
        with self.engine.connect() as connection:
            found = connection.execute(schema.runs.select().order_by(schema.runs.c.started, schema.runs.c.id))
            return [Run(**row) for row in found.mappings()]

    def runs_with_rows(self) -> set[str]:
        """The ids of the runs in which a row has ended."""
        with self.engine.connect() as connection:
            return set(connection.execute(sa.select(schema.rows.c.run).distinct()).scalars())

    def run(self, name: str) -> Run:
        """The run of that beginning of its id, or of that commit, or `last`; the latest where several are.

        Raises: StoreError if there is none.
        """
        known = self.runs()
        found = [run for run in known if name == "last" or run.id.startswith(name) or (run.commit or "") == name]
        if not found:
            latest = ", ".join(f"{run.id[:8]} ({run.started}, {run.commit})" for run in known[-5:])
            told = f"its last runs are {latest}" if latest else "it has none yet: `assay run --record` keeps one"
            raise StoreError(f"the store has no run {name!r}; {told}")
        return found[-1]

    # ---- rows

    def add(self, run: Run, row: Row) -> None:
        """Keeps a row; one that the run has already is written over."""
        result = row.result
        values = {
            "run": run.id, "case": result.case, "mode": result.mode, "backend": result.backend,
            "verdict": result.verdict, "kind": "" if result.verdict == "same" else str(kind_of(result)),
            "passes": row.judgement.passes, "result": finite(dataclasses.asdict(result)),
            "notes": list(row.judgement.notes), "signature": None,
        }  # fmt: skip
        key = ("run", "case", "mode", "backend")
        changed = {name: value for name, value in values.items() if name not in key}
        with self._writing() as connection:
            insertion = self._insert(schema.rows).values(**values)
            connection.execute(insertion.on_conflict_do_update(index_elements=key, set_=changed))

    def rows(self, run: Run | str) -> list[Kept]:
        """The rows of a run, in the order in which they ended."""
        wanted = run if isinstance(run, str) else run.id
        query = schema.rows.select().where(schema.rows.c.run == wanted).order_by(schema.rows.c.id)
        with self.engine.connect() as connection:
            return [_kept(dict(row)) for row in connection.execute(query).mappings()]

    def assign(self, rows: Iterable[Kept], cluster: Cluster) -> None:
        """Says that rows are of one cause. A cluster that is known keeps its name and its first commit."""
        values = {field.name: getattr(cluster, field.name) for field in dataclasses.fields(cluster)}
        with self._writing() as connection:
            connection.execute(self._insert(schema.clusters).values(**values).on_conflict_do_nothing())
            connection.execute(
                schema.rows.update()
                .where(schema.rows.c.id.in_([row.id for row in rows]))
                .values(signature=cluster.signature)
            )

    def clusters(self) -> dict[str, Cluster]:
        """Every cause by its signature."""
        with self.engine.connect() as connection:
            return {row["signature"]: Cluster(**row) for row in connection.execute(schema.clusters.select()).mappings()}

    def signatures_until(self, run: Run) -> frozenset[str]:
        """The causes that this run or one before it has rows of."""
        query = (
            sa.select(schema.rows.c.signature).distinct()
            .join(schema.runs, schema.runs.c.id == schema.rows.c.run)
            .where(schema.runs.c.started <= run.started, schema.rows.c.signature.is_not(None))
        )  # fmt: skip
        with self.engine.connect() as connection:
            return frozenset(connection.scalars(query))

    def verdicts(self, surroundings: str, commit: str | None) -> dict[tuple[str, str, str], set[bool]]:
        """Whether each row passed in the runs of one commit and surroundings: both, where it is flaky."""
        query = (
            sa.select(schema.rows.c.case, schema.rows.c.mode, schema.rows.c.backend, schema.rows.c.verdict)
            .join(schema.runs, schema.runs.c.id == schema.rows.c.run)
            .where(schema.runs.c.surroundings == surroundings, schema.runs.c.commit == commit)
        )
        found: dict[tuple[str, str, str], set[bool]] = {}
        with self.engine.connect() as connection:
            for case, mode, backend, verdict in connection.execute(query):
                found.setdefault((case, mode, backend), set()).add(verdict == "same")
        return found

    # ---- artefacts

    def keep(self, kind: str, content: bytes) -> str:
        """Keeps a content once, and gives its hash."""
        digest = hashlib.sha256(content).hexdigest()
        with self._writing() as connection:
            values = {"digest": digest, "kind": kind, "content": content}
            connection.execute(self._insert(schema.artefacts).values(**values).on_conflict_do_nothing())
        return digest

    def content(self, digest: str) -> bytes:
        """Raises: StoreError for a hash of nothing."""
        query = sa.select(schema.artefacts.c.content).where(schema.artefacts.c.digest == digest)
        with self.engine.connect() as connection:
            found = connection.scalar(query)
        if found is None:
            raise StoreError(f"the store has nothing of the hash {digest}")
        return bytes(found)

    def attach(self, row: Kept, role: str, digest: str) -> None:
        """Says that an artefact is of a row."""
        values = {"row": row.id, "role": role, "digest": digest}
        with self._writing() as connection:
            insertion = self._insert(schema.row_artefacts).values(**values)
            connection.execute(insertion.on_conflict_do_update(index_elements=("row", "role"), set_={"digest": digest}))

    def attached(self, row: Kept) -> dict[str, str]:
        """The hashes of a row's artefacts by their roles."""
        query = schema.row_artefacts.select().where(schema.row_artefacts.c.row == row.id)
        with self.engine.connect() as connection:
            return {found["role"]: found["digest"] for found in connection.execute(query).mappings()}

    def in_role(self, run: Run, role: str) -> dict[int, str]:
        """The hashes of the artefacts that the rows of a run have in a role, by the rows' numbers."""
        query = (
            sa.select(schema.row_artefacts.c.row, schema.row_artefacts.c.digest)
            .join(schema.rows, schema.rows.c.id == schema.row_artefacts.c.row)
            .where(schema.rows.c.run == run.id, schema.row_artefacts.c.role == role)
        )
        with self.engine.connect() as connection:
            return {row: digest for row, digest in connection.execute(query)}

    # ---- samples

    def measured(self, run: str, samples: Sequence[Mapping[str, Any]]) -> None:
        """Keeps numbers of a run."""
        with self._writing() as connection:
            for sample in samples:
                values = {"kernels": "", "steady": None, **sample, "run": run}
                insertion = self._insert(schema.samples).values(**values)
                key = ("series", "commit", "run")
                changed = {name: value for name, value in values.items() if name not in key}
                connection.execute(insertion.on_conflict_do_update(index_elements=key, set_=changed))

    def samples(self) -> list[Mapping[str, Any]]:
        """Every number, by series and the place of its commit in the history."""
        order = (schema.samples.c.series, schema.samples.c.position, schema.samples.c.run)
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(schema.samples.select().order_by(*order)).mappings()]


def _kept(row: Mapping[str, Any]) -> Kept:
    judgement = Judgement(row["passes"], tuple(row["notes"]))
    return Kept(row["id"], row["run"], outcome.read(dict(row["result"])), judgement, row["kind"], row["signature"])


def _is_missing(url: str) -> bool:
    """Whether a store would be a new file. Raises: sqlalchemy.exc.ArgumentError for what is no URL."""
    parsed = make_url(url)
    file = parsed.database if parsed.get_backend_name() == "sqlite" else None
    return bool(file) and not Path(str(file)).is_file()


def _engine(url: str) -> Engine:
    """Raises: sqlalchemy.exc.ArgumentError for what is no URL."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return sa.create_engine(parsed, pool_pre_ping=True)
    if parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(parsed, connect_args={"timeout": LOCK_S})
    event.listen(engine, "connect", _configured)
    event.listen(engine, "begin", _begun)
    return engine


def _configured(connection: Any, _: object) -> None:
    """Readers go on beside a writer; SQLAlchemy's own `begin` is in force."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "foreign_keys=ON", f"busy_timeout={LOCK_S * 1000}"):
        connection.execute(f"pragma {pragma}")


def _begun(connection: Connection) -> None:
    """A transaction takes the lock for writing at once: one that takes it late may fail."""
    connection.exec_driver_sql("begin immediate")
