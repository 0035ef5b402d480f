"""The first tables.

A store that an earlier version made has them all; what came later is a migration of its own beside this one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("started", sa.String(32), nullable=False),
        sa.Column("ended", sa.String(32)),
        sa.Column("commit", sa.String(64)),
        sa.Column("surroundings", sa.String(64), nullable=False),
        sa.Column("environment", sa.JSON, nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
    )
    op.create_table(
        "clusters",
        sa.Column("signature", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("rung", sa.String(80), nullable=False),
        sa.Column("first_commit", sa.String(64)),
        sa.Column("first_seen", sa.String(32), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
    )
    op.create_table(
        "rows",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run", sa.String(32), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("case", sa.String(200), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("backend", sa.String(200), nullable=False),
        sa.Column("verdict", sa.String(24), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("passes", sa.Boolean, nullable=False),
        sa.Column("signature", sa.String(64)),
        sa.Column("result", sa.JSON, nullable=False),
        sa.Column("notes", sa.JSON, nullable=False),
        sa.UniqueConstraint("run", "case", "mode", "backend", name="one_row"),
    )
    op.create_index("rows_by_signature", "rows", ["signature"])
    op.create_table(
        "artefacts",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "row_artefacts",
        sa.Column("row", sa.Integer, sa.ForeignKey("rows.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("role", sa.String(40), primary_key=True),
        sa.Column("digest", sa.String(64), sa.ForeignKey("artefacts.digest"), nullable=False),
    )


def downgrade() -> None:
    for name in ("row_artefacts", "artefacts", "rows", "clusters", "runs"):
        op.drop_table(name)
