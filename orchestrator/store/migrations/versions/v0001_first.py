"""The first schema; a database of this version was created by ``schema.sql``."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing is older."""
