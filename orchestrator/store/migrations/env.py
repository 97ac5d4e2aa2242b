"""Run by Alembic: the connection comes from ``upgrade.py``, in whose transaction all happens."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transaction_per_migration=False)
context.run_migrations()
