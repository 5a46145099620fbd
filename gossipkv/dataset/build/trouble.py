"""Why a version could not be built: what its copy in ERROR says, and the error that a build ends with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gossipkv.errors import LocalError

if TYPE_CHECKING:
    from gossipkv.errors import Detail, GossipKVError

# Details that may have something of a record in them, as the message has it then.
_OF_DATA: Final = frozenset({"reason", "key", "expected", "got"})
FOR_READERS: Final = "what is wrong there is told to users who may read the database, and in the node's log"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a copy is in ERROR."""

    message: str
    details: dict[str, str | int] = field(default_factory=dict)  # `file`, `line`, `offset` where known
    lasting: bool = True  # Only another source can help; else it is tried again after a pause.

    def told(self, *, to_readers: bool) -> dict[str, Detail]:
        """Return the message and the details; to whoever may not read the database only where it is.

        Everything is withheld that a format or a library has said of a file: nobody can tell what of it is data.
        """
        if to_readers or not (self.lasting or _OF_DATA & self.details.keys()):
            return {"message": self.message, **self.details}
        place: dict[str, Detail] = {
            name: self.details[name] for name in ("file", "line", "offset") if name in self.details
        }
        words = {"file": "{}", "line": "line {:,}", "offset": "byte {:,}"}
        where = ", ".join(words[name].format(value) for name, value in place.items())
        return {"message": f"{where}: {FOR_READERS}" if where else FOR_READERS, **place}


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
