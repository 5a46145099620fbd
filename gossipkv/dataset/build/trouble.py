"""The reason why a version could not be built, for its copy in ERROR and for the error that ends a build."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gossipkv.errors import LocalError

if TYPE_CHECKING:
    from gossipkv.errors import Detail, GossipKVError

# Details that may contain data of a record, as the message may.
_DATA_DETAILS: Final = frozenset({"reason", "key", "expected", "got"})
FOR_READERS: Final = "the reason is shown to users with read access to the database, and in the node's log"


@dataclass(frozen=True, slots=True)
class Trouble:
    """The reason why a copy is in ERROR."""

    message: str
    # The details are `file`, `line` and `offset`, where known.
    details: dict[str, str | int] = field(default_factory=dict)
    lasting: bool = True  # Only another source can help; otherwise the build is retried after a pause.

    def to_map(self, *, to_readers: bool) -> dict[str, Detail]:
        """Return the message and the details, or only the place for an audience that may not read the database.

        The text of a format or a library about a file is withheld from that audience, since it may contain data.
        """
        if to_readers or not (self.lasting or _DATA_DETAILS & self.details.keys()):
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
    """Return the trouble that a version in ERROR reports for an error."""
    if isinstance(error, BuildError):
        return error.trouble
    if isinstance(error, OSError):
        named = "" if error.filename is None else f"{error.filename}: "
        return Trouble(f"the build process cannot be started: {named}{error.strerror}", lasting=False)
    details = {name: value for name, value in error.details.items() if isinstance(value, str | int)}
    return Trouble(error.message, details, lasting=False)
