"""Why a version could not be built: what its copy in ERROR says, and the error that a build ends with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gossipkv.errors import LocalError

if TYPE_CHECKING:
    from gossipkv.errors import GossipKVError


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a copy is in ERROR."""

    message: str
    details: dict[str, str | int] = field(default_factory=dict)  # `file`, `line`, `offset` where known
    lasting: bool = True  # Only another source can help; else it is tried again after a pause.


class BuildError(LocalError):
    """A build ended with an error."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message, {**trouble.details})
        self.trouble = trouble


def trouble_of(error: GossipKVError | OSError) -> Trouble:
    """Return what a version in ERROR says about an error."""
    if isinstance(error, BuildError):
        return error.trouble
    if isinstance(error, OSError):
        named = "" if error.filename is None else f"{error.filename}: "
        return Trouble(f"the process that builds it cannot be started: {named}{error.strerror}", lasting=False)
    details = {name: value for name, value in error.details.items() if isinstance(value, str | int)}
    return Trouble(error.message, details, lasting=False)
