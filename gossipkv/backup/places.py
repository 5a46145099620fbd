"""The places that a client may name for backups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, final

from gossipkv.errors import BadRequest, StorageError
from gossipkv.settings.masking import is_url, mask_url
from gossipkv.settings.stores import Stores, is_below, plain_place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.environment.seam import Files
    from gossipkv.settings.config import Config
    from gossipkv.settings.masking import Option


@final
@dataclass(frozen=True)
class BackupPlaces:
    """The places that the settings allow, and those that belong to the node."""

    roots: Sequence[str]
    stores: Stores
    own: Sequence[str]  # The data directory and the sources: nobody may write there.
    is_open: bool  # True: whoever may operate the cluster may name any other directory of this machine.

    @classmethod
    def of(cls, config: Config, data: PurePath) -> BackupPlaces:
        """Return the places of a node with that data directory."""
        stores = Stores({**{root: {} for root in config.backup_roots if is_url(root)}, **config.storage})
        tables = (settings.table for settings in config.databases.values() if settings.catalog is None)
        own = (str(data), config.source, *tables)
        is_open = config.users is not None and not config.backup_roots
        return cls(config.backup_roots, stores, tuple(place for place in own if place is not None), is_open)

    def check(self, named: str) -> str:
        """Return a place as it is used; `resolved` may refuse it as well.

        Raises:
            BadRequest: the settings do not allow it.
        """
        try:
            place = plain_place(named)
        except ValueError as error:
            raise _refusal(named, str(error)) from None
        if not (self.roots or self.is_open):
            line = f'backup_roots = ["{place}"]'
            raise _refusal(place, f"a node without users needs a list of places; add to its settings: {line}")
        if is_url(place):
            self.options(place)
        return place

    def options(self, url: str) -> Mapping[str, Option]:
        """Return the options of the store of a URL, none for a path.  Raises BadRequest: the settings name no store."""
        if not is_url(url):
            return {}
        options = self.stores.options(url)
        if options is None:
            raise _refusal(url, f'no store of the settings has it; add [storage."{url}"] with its options, if any')
        if any(is_below(url, own) for own in self.own):
            raise _refusal(url, "it belongs to the source")
        return options

    def resolved(self, path: str, files: Files) -> str:
        """Return a path without links; blocks.  Raises BadRequest, StorageError."""
        resolved = _resolved(path, files)
        for own in self.own:
            if not is_url(own) and is_below(resolved, _resolved(own, files)):
                raise _refusal(path, f"it leads into {own}, which belongs to the node or to its source")
        if not self.is_open and not any(is_below(resolved, _resolved(root, files)) for root in self.roots):
            raise _refusal(path, f"it leads to no directory of backup_roots, which are: {', '.join(self.roots)}")
        return resolved


def _refusal(place: str, reason: str) -> BadRequest:
    shown = mask_url(place)
    return BadRequest(f"backups: {shown!r} cannot be a place of backups: {reason}", {"destination": shown})


def _resolved(path: str, files: Files) -> str:
    """Return a path without links, also if its last parts do not exist yet."""
    known, unknown = PurePath(path), PurePath()
    while True:
        try:
            return str(files.resolve(known) / unknown)
        except FileNotFoundError:
            known, unknown = known.parent, known.name / unknown
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}", {"file": path, "errno": error.errno}) from error
