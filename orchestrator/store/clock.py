"""Times as the database keeps them: ISO-8601, UTC, microseconds, so that they sort as text."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """Now."""
    return format_utc(datetime.now(UTC))


def format_utc(moment: datetime) -> str:
    """``2026-07-01T12:00:00.000000Z``; a time without a zone is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def normal_utc(text: str) -> str:
    """Any ISO-8601 time in the one form. Raises ValueError if it is none."""
    return format_utc(datetime.fromisoformat(text))


def parse_utc(text: str) -> datetime:
    """The moment that a stored time means."""
    return datetime.fromisoformat(text)
