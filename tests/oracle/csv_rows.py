"""The ends of rows in CSV, by an expression for a whole row."""

from __future__ import annotations

import re


def end_of_rows(data: bytes, delimiter: str, quote: str, *, first: bool = False) -> int:
    """Return the size of the whole rows, or of the first, at the beginning of the data."""
    comma, mark = re.escape(delimiter), re.escape(quote)
    quoted = f"{mark}(?:[^{mark}]|{mark}{mark})*{mark}(?!{mark})[^{comma}\\r\\n]*"
    field = f"(?:{quoted}|(?!{mark})[^{comma}\\r\\n]*)"
    row = re.compile(f"{field}(?:{comma}{field})*(?:\\r?\\n|\\r(?=[^\\n]))".encode(), re.DOTALL)
    end = 0
    while (found := row.match(data, end)) is not None:
        end = found.end()
        if first:
            break
    return end
