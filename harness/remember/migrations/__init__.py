"""The migrations of the store, which Alembic runs when a store is opened."""
