"""What becomes of a defect: a line of the log, and an error that can be shown."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

from gossipkv.errors import GossipKVError, Internal
from gossipkv.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = Log("gossipkv.http")


@contextlib.contextmanager
def contained(where: str) -> Iterator[None]:
    """Let our own errors pass, and log whatever else the block raises.

    Raises:
        Internal: in the place of what was logged, with the id that it was logged under.
    """
    try:
        yield
    except GossipKVError:
        raise
    except Exception as error:  # Whatever it is, it ends one answer, and not the process.
        incident = uuid.uuid4().hex[:16]
        _log.error("page_failed", page=where, id=incident, exc_info=error)
        message = f"a defect in the page; the log has the traceback under {incident}"
        raise Internal(message, {"id": incident}) from error
