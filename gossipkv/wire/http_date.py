"""HTTP dates (RFC 9110, 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`, and two older forms, for reading only.

Times are whole seconds since the epoch.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_LONG_DAY = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_FORMS: Final = tuple(
    re.compile(form, re.ASCII)
    for form in (
        rf"(?:{'|'.join(_DAYS)}), (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_CLOCK} GMT",
        rf"(?:{_LONG_DAY}), (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_CLOCK} GMT",
        rf"(?:{'|'.join(_DAYS)}) {_MONTH} (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})",
    )
)

_FIRST_YEAR: Final = 70  # Two-digit years from 70 to 99 are in the last century, as in POSIX.
_LEAP_SECOND: Final = 60


@lru_cache(maxsize=1024)  # All answers from one version have the same date.
def write(seconds: int) -> bytes:
    """Return a time in the current form.

    Raises:
        OverflowError: the time is beyond the year 9999, or before the year 1.
    """
    at = _EPOCH + timedelta(seconds=seconds)
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day}, {at.day:02} {month} {at.year:04} {at.hour:02}:{at.minute:02}:{at.second:02} GMT".encode()


def read(value: bytes) -> int | None:
    """Return a time in any of the three forms; None for anything else, which a reader must ignore."""
    stated = value.decode("latin-1")
    found = next((found for form in _FORMS if (found := form.fullmatch(stated)) is not None), None)
    if found is None:
        return None
    year = int(found["year"])
    if len(found["year"]) == len("94"):
        year += 1900 if year >= _FIRST_YEAR else 2000
    second = int(found["second"])
    try:
        day = datetime(year, _MONTHS.index(found["month"]) + 1, int(found["day"]), tzinfo=UTC)
        at = day.replace(hour=int(found["hour"]), minute=int(found["minute"]), second=min(second, _LEAP_SECOND - 1))
    except ValueError:
        return None
    if second > _LEAP_SECOND:
        return None
    return (at - _EPOCH) // timedelta(seconds=1) + second // _LEAP_SECOND
