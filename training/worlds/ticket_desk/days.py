"""Dates in a time zone and the days between them. Pure."""

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo


def local_date(moment: datetime, zone: str) -> date:
    """The date that a clock in the IANA time zone shows at `moment`."""
    return moment.astimezone(ZoneInfo(zone)).date()


def business_days(first: date, last: date, holidays: Collection[str]) -> int:
    """How many of the days after `first` up to `last` are no Saturday, no Sunday and no holiday; holidays are texts like 2026-12-25."""
    return _business_days(first, last, tuple(holidays))


@lru_cache(maxsize=65536)
def _business_days(first: date, last: date, holidays: tuple[str, ...]) -> int:
    days = (first + timedelta(days=offset) for offset in range(1, (last - first).days + 1))
    return sum(day.weekday() < 5 and day.isoformat() not in holidays for day in days)


def midnight(day: date, zone: str) -> datetime:
    """The moment at which `day` begins in the time zone."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))


def turning_points(start: datetime, unit: str, limit: int, zone: str, holidays: Collection[str]) -> list[datetime]:
    """The moments before `start` at which a ticket's age in `unit` days comes to be `limit`: the limit itself, or midnights.

    Args:
        unit: elapsed, calendar or business.
    """
    if unit == "elapsed":
        return [start - timedelta(days=limit)]
    today = local_date(start, zone)
    points = []
    for back in range(2 * limit + 12):
        day = today - timedelta(days=back)
        days = back if unit == "calendar" else business_days(day, today, holidays)
        if days == limit:
            points.append(midnight(day, zone).astimezone(UTC))
    return [point for point in points if point <= start]
