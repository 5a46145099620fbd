"""The ACTIVE document of a database: the version that clients get, its identity, and its owners.

    `version`, `newest`    the version that requests naming none get; the newest that was ever active
    `identity`             null, or `digest`, `partitions`, `function`, `regrouped` of the version
    `holders`              its owners at the time of writing, each as
                           [uuid in hexadecimal, name, "HOST:PORT", bitmap of partitions in hexadecimal]
    `sealed`               the fixed checksums of versions, each as name, identity and by kind
                           [bitmap of partitions, checksums], in hexadecimal (`placement.seals`)
    `records`              number of records, the reference for a newer version; null: not known

The holders only tell a restarted node without peers whom to ask, and may be outdated.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.address import parse_address
from gossipkv.errors import Corrupt
from gossipkv.placement import seals as packing
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.ownership import Owner, Ownership
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.seals import Sealed
from gossipkv.settings.databases import is_name
from gossipkv.storage.document import checked, text, whole
from gossipkv.storage.typed import typed

if TYPE_CHECKING:
    from gossipkv.storage.document import Body
    from gossipkv.storage.typed import Json

KIND: Final = "ACTIVE"


@final
@dataclass(frozen=True, slots=True)
class ActiveDocument:
    """The content of a database's ACTIVE document."""

    version: str  # The version that requests naming none get.
    newest: str  # The newest version that was ever active; differs from `version` only after a hold has led back.
    identity: VersionIdentity | None = None  # None: unknown at the time of writing.
    owners: tuple[Ownership, ...] = ()
    sealed: tuple[Sealed, ...] = ()
    records: int | None = None

    def __post_init__(self) -> None:
        """Assert that all parts are about one version."""
        assert self.version <= self.newest, self
        assert self.identity is None or self.identity.version == self.version, self
        assert self.identity is not None or not self.owners, self
        for ownership in self.owners:
            assert self.identity is None or ownership.partitions.partitions == self.identity.partitions, ownership


def to_body(database: str, active: ActiveDocument) -> Body:
    """Encode the document as JSON."""
    identity = active.identity
    assert identity is None or identity.database == database, (database, identity)
    holders: list[Json] = [
        [owner.uuid.hex(), owner.name, str(owner.address), partitions.to_bytes().hex()]
        for owner, partitions in active.owners
    ]
    return {
        "database": database,
        "version": active.version,
        "newest": active.newest,
        "identity": None if identity is None else _identity_to_json(identity),
        "holders": holders,
        "sealed": [_sealed_to_json(sealed) for sealed in active.sealed],
        "records": active.records,
    }


def _identity_to_json(identity: VersionIdentity) -> Body:
    return {
        "digest": identity.digest,
        "partitions": identity.partitions,
        "function": identity.function,
        "regrouped": identity.regrouped,
    }


def _sealed_to_json(sealed: Sealed) -> Json:
    packed = packing.pack(sealed.seals, sealed.identity.partitions)
    seals: Body = {kind: [bitmap.hex(), seals.hex()] for kind, (bitmap, seals) in packed.items()}
    return [sealed.identity.version, _identity_to_json(sealed.identity), seals]


def from_body(database: str, body: Body, name: str) -> ActiveDocument:
    """Decode the document from JSON; errors call it `name`.

    Raises:
        Corrupt: it is malformed, or not about a version of this database.
    """
    version, newest = text(body, "version", name), text(body, "newest", name)
    if text(body, "database", name) != database or not is_name(version) or not version <= newest:
        raise Corrupt(name, 0, f"the document does not describe a version of {database}")
    identity = _identity(database, version, body.get("identity", ...), name)
    holders = body.get("holders")
    if not isinstance(holders, list) or (holders and identity is None):
        raise Corrupt(name, 0, "'holders' should be a list, and empty if 'identity' is null")
    partitions = 0 if identity is None else identity.partitions
    owners = tuple(_ownership(row, partitions, name) for row in holders)
    sealed = body.get("sealed")
    if not isinstance(sealed, list):
        raise Corrupt(name, 0, "'sealed' should be a list")
    records = None if body.get("records") is None else whole(body, "records", name)
    return ActiveDocument(
        version, newest, identity, owners, tuple(_sealed(database, row, name) for row in sealed), records
    )


def _sealed(database: str, row: Json, name: str) -> Sealed:
    match row:
        case [str(version), fields, dict(seals)] if is_name(version):
            identity = _identity(database, version, fields, name)
            if identity is not None:
                with contextlib.suppress(ValueError):
                    pairs = typed(dict[str, list[bytes]], seals, "sealed")
                    return Sealed(identity, packing.unpack(pairs.items(), identity.partitions))
    raise Corrupt(name, 0, "each entry of 'sealed' should be a version, an identity, and checksums by kind")


def _identity(database: str, version: str, fields: Json | object, name: str) -> VersionIdentity | None:
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise Corrupt(name, 0, "'identity' should have digest, partitions, function and regrouped, or be null")
    identity = checked(VersionIdentity, {**fields, "database": database, "version": version}, name)
    if identity.partitions < 1:
        raise Corrupt(name, 0, "'partitions' should be at least 1")
    return identity


def _ownership(row: Json, partitions: int, name: str) -> Ownership:
    try:
        uuid, node, address, bitmap = typed(tuple[bytes, str, str, bytes], row, "holders")
        return Ownership(Owner(node, uuid, parse_address(address)), PartitionSet.from_bytes(partitions, bitmap))
    except ValueError as error:
        raise Corrupt(name, 0, f"'holders': {error}") from error
