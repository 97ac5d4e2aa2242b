"""Times as supervisors and nodes write them down."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """The time as ISO-8601 in UTC, microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
