"""Results from files: the output of `gossipkv loadtest --json`, read back and checked field by field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from gossipkv.environment import small_file
from gossipkv.errors import ConfigError
from gossipkv.loadtest.result import FORMAT, Result
from gossipkv.storage.typed import typed

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.loadtest.result import Json

RESULT: Final = small_file.Kind("result of a load test", 1 << 28, is_private=False)


def load(path: Path) -> Result:
    """Read a result from a file.

    Raises:
        ConfigError: there is no file, or it holds something else.
    """
    text = small_file.read(path, RESULT)
    try:
        found = parse(json.loads(text))
    except (ValueError, RecursionError) as error:  # Invalid UTF-8 and invalid JSON are ValueErrors.
        raise ConfigError(
            f"{path} is not the result of a load test: {error}; write one with `gossipkv loadtest ... --json > FILE`"
        ) from None
    return found


def parse(document: Json) -> Result:
    """Decode the result from a document.

    Raises:
        ValueError: it is malformed; says where.
    """
    if not isinstance(document, dict) or "format" not in document:
        raise ValueError("expected a map with `format`")
    if document["format"] != FORMAT:
        raise ValueError(f"the format is {document['format']!r}, and this program reads only format {FORMAT}")
    return typed(Result, document)
