"""HTTP dates (RFC 9110, 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`, and two older forms, for reading only.

Times are whole seconds since the epoch.
"""

from __future__ import annotations

import time
from calendar import timegm
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORMS: Final = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")


@lru_cache(maxsize=1024)  # All answers from one version have the same date.
def write(seconds: int) -> bytes:
    """Return a time in the current form.

    Raises:
        OverflowError: the time is beyond the year 9999, or before the year 1.
    """
    return format_datetime(_EPOCH + timedelta(seconds=seconds), usegmt=True).encode()


def read(value: bytes) -> int | None:
    """Return a time in any of the three forms; None for anything else, which a reader must ignore.

    Readers should be robust (RFC 9110, 5.6.7), so numbers of one digit pass.
    """
    for form in _FORMS:
        with suppress(ValueError):
            return timegm(time.strptime(value.decode("ascii"), form))
    return None
