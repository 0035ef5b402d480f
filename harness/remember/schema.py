"""The tables of the store. A change of them is a migration, too (`harness/remember/migrations/versions`).

runs        one a command: when, on which commit, in which environment, what was asked for, whether it has ended
rows        one a case, mode and backend of a run
clusters    failures of one cause, by their signature, with the commit at which the first was seen
artefacts   texts and files by the hash of their content; `row_artefacts` and `clusters` name them
samples     measured numbers: of a series at a commit, with the hash of the kernels that ran
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

runs = Table(
    "runs", metadata,
    Column("id", String(32), primary_key=True),
    Column("started", String(32), nullable=False),
    Column("ended", String(32)),
    Column("commit", String(64)),
    Column("surroundings", String(64), nullable=False),  # a hash of what a result may depend on beside the commit
    Column("environment", JSON, nullable=False),
    Column("request", JSON, nullable=False),
)  # fmt: skip

clusters = Table(
    "clusters", metadata,
    Column("signature", String(64), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("rung", String(80), nullable=False, default=""),
    Column("first_commit", String(64)),
    Column("first_seen", String(32), nullable=False),
    Column("body", JSON, nullable=False),
)  # fmt: skip

rows = Table(
    "rows", metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run", String(32), ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("case", String(200), nullable=False),
    Column("mode", String(16), nullable=False),
    Column("backend", String(200), nullable=False),
    Column("verdict", String(24), nullable=False),
    Column("kind", Text, nullable=False, default=""),
    Column("passes", Boolean, nullable=False),
    Column("signature", String(64)),
    Column("result", JSON, nullable=False),
    Column("notes", JSON, nullable=False),
    UniqueConstraint("run", "case", "mode", "backend", name="one_row"),
    Index("rows_by_signature", "signature"),
)  # fmt: skip

artefacts = Table(
    "artefacts", metadata,
    Column("digest", String(64), primary_key=True),
    Column("kind", String(40), nullable=False),
    Column("content", LargeBinary, nullable=False),
)  # fmt: skip

row_artefacts = Table(
    "row_artefacts", metadata,
    Column("row", Integer, ForeignKey("rows.id", ondelete="CASCADE"), primary_key=True),
    Column("role", String(40), primary_key=True),
    Column("digest", String(64), ForeignKey("artefacts.digest"), nullable=False),
)  # fmt: skip

samples = Table(
    "samples", metadata,
    Column("series", String(200), primary_key=True),
    Column("commit", String(64), primary_key=True),
    Column("run", String(32), primary_key=True),
    Column("position", Integer, nullable=False),  # the commit's place in the history
    Column("value", Float, nullable=False),
    Column("unit", String(16), nullable=False),
    Column("kernels", String(64), nullable=False, default=""),
    Column("steady", Float),  # what a fixed eager workload took beside it
)  # fmt: skip
