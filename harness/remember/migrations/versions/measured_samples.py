"""Measured numbers by series and commit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "samples",
        sa.Column("series", sa.String(200), primary_key=True),
        sa.Column("commit", sa.String(64), primary_key=True),
        sa.Column("run", sa.String(32), primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("unit", sa.String(16), nullable=False),
        sa.Column("kernels", sa.String(64), nullable=False),
        sa.Column("steady", sa.Float),
    )


def downgrade() -> None:
    op.drop_table("samples")
