"""Stores into one: what one machine found, or one part of a night, beside another."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from assay.harness.remember import schema
from assay.harness.remember.store import Store

ALL = sa.true()


def merge(target: Store, source: Store) -> int:
    """Takes the runs of a store into another one, with all that belongs to them; how many were new.

    A cluster that both know was first seen where the earlier of the two saw it.
    """
    known = {run.id for run in target.runs()}
    new = [run.id for run in source.runs() if run.id not in known]
    for table in (schema.artefacts, schema.clusters):
        _copy(target, source, table)
    _first_seen(target, source)
    for run in new:
        _copy(target, source, schema.runs, schema.runs.c.id == run)
        _copy(target, source, schema.samples, schema.samples.c.run == run)
        _copy_rows(target, source, run)
    return len(new)


def _read(store: Store, table: sa.Table, where: Any = ALL) -> list[dict[str, Any]]:
    with store.engine.connect() as connection:
        return [dict(row) for row in connection.execute(table.select().where(where)).mappings()]


def _copy(target: Store, source: Store, table: sa.Table, where: Any = ALL) -> None:
    found = _read(source, table, where)
    if found:
        with target.engine.begin() as connection:
            connection.execute(target._insert(table).on_conflict_do_nothing(), found)


def _first_seen(target: Store, source: Store) -> None:
    ours = target.clusters()
    with target.engine.begin() as connection:
        for signature, theirs in source.clusters().items():
            if theirs.first_seen < ours[signature].first_seen if signature in ours else False:
                values = {"first_seen": theirs.first_seen, "first_commit": theirs.first_commit}
                where = schema.clusters.c.signature == signature
                connection.execute(schema.clusters.update().where(where).values(**values))


def _copy_rows(target: Store, source: Store, run: str) -> None:
    """The rows of a run, which get numbers of the target's own, and what is attached to them."""
    for row in _read(source, schema.rows, schema.rows.c.run == run):
        number = row.pop("id")
        attached = _read(source, schema.row_artefacts, schema.row_artefacts.c.row == number)
        with target.engine.begin() as connection:
            made = connection.execute(schema.rows.insert().values(**row).returning(schema.rows.c.id)).scalar_one()
            for each in attached:
                connection.execute(schema.row_artefacts.insert().values(**{**each, "row": made}))
