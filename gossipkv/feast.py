"""Feast's online store in tables and datasets of GossipKV (`pip install gossipkv[feast]`).

Each feature view has a table, `<project>_<view>`, which `feast apply` makes (`docs/users/feast.md`); if no table may
have that name, it has the nearest one and a hash.
A key is Feast's serialized entity key.  A record is MessagePack, `[event, created, names, values]`: two times in
microseconds since 1970 (`created` may be nil), the names of the features, and their values as one `RepeatedValue` of
Feast, since one parse is a third faster than a parse for each feature.

A row replaces what an older event left, feature by feature: features that it does not have keep their values.  Of two
writers of one entity at the same moment one may undo the other's features, as with Feast's Redis store.

A view that the option `datasets` names is read from a dataset, which `write_view` makes whole from the offline store:
the fast way for large views.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

import msgpack
import pyarrow as pa
from feast import utils
from feast.infra.key_encoding_utils import serialize_entity_key
from feast.infra.offline_stores.offline_utils import get_offline_store_from_config
from feast.infra.online_stores.helpers import compute_table_id
from feast.infra.online_stores.online_store import OnlineStore
from feast.infra.supported_async_methods import SupportedAsyncMethods
from feast.protos.feast.types.Value_pb2 import RepeatedValue, Value
from feast.repo_config import FeastConfigBaseModel
from google.protobuf.message import DecodeError
from pydantic import Field, StrictStr

from gossipkv.client import aio, blocking
from gossipkv.dataset import write_frame
from gossipkv.errors import BadRequest, ProtocolError, UnknownDatabase
from gossipkv.settings.databases import MAX_NAME_CHARACTERS, is_name
from gossipkv.settings.tables import CREATION_MS, MIN_EXPIRES_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from os import PathLike

    from feast import Entity, FeatureStore, FeatureView, RepoConfig
    from feast.protos.feast.types.EntityKey_pb2 import EntityKey

    from gossipkv.dataset import VersionReport

    Row = tuple[EntityKey, dict[str, Value], datetime, datetime | None]
    Change = tuple[int, int | None, dict[str, Value]]  # Microseconds of its event and creation, and the features.
    Found = tuple[datetime | None, dict[str, Value] | None]
    Progress = Callable[[int], object] | None

_DECISION_MS: Final = 10_000
_HASH_DIGITS: Final = 16  # Names that are alike in the characters of a table get different tables.
_ROWS: Final = 10_000  # In one batch of a version.
_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class GossipKVOnlineStoreConfig(FeastConfigBaseModel):
    """The section `online_store` of `feature_store.yaml`."""

    type: Literal["gossipkv.feast.GossipKVOnlineStore"] = "gossipkv.feast.GossipKVOnlineStore"
    addresses: list[StrictStr] = Field(default=["127.0.0.1:7070"], min_length=1)
    """Some nodes of the cluster, `host:port`."""
    timeout_ms: int = Field(default=1000, gt=0)
    """Time allowed for a read, of however many entities."""
    write_timeout_ms: int = Field(default=60_000, gt=0)
    """Time allowed for a batch of rows, however many."""
    level: Literal["one", "majority", "all"] = "majority"
    """Number of replicas that have a row synced when a write returns."""
    partitions: int | None = Field(default=None, gt=0)
    """Number of partitions of a new table; none: the node's default."""
    replication: int | None = Field(default=None, gt=0)
    """Number of replicas of each partition of a new table; none: the node's default."""
    expire: bool = True
    """Rows of a view with a `ttl` leave the store when it is over, counted from the event."""
    datasets: dict[StrictStr, StrictStr] = Field(default={})
    """Names of the datasets from which feature views are read in place of a table, by feature view."""
    tls: bool | StrictStr = False
    """True: TLS, with the authorities that this system trusts; a path: with the authorities in that file."""
    token: StrictStr | None = Field(default=None, repr=False)
    """The user's token, if nodes have users."""


class GossipKVOnlineStore(OnlineStore):
    """Feature views as tables, and those that the configuration names as datasets.

    All errors are subclasses of `gossipkv.errors.GossipKVError`.  One client serves all threads, one more each event
    loop.
    """

    # Each version of a view has a table of its own, so a read may name it.
    _versioned_read_supported = True

    def __init__(self) -> None:
        self._client: blocking.Client | None = None
        self._loop: tuple[asyncio.AbstractEventLoop, aio.Client] | None = None

    @property
    def async_supported(self) -> SupportedAsyncMethods:
        return SupportedAsyncMethods(read=True, write=True)

    def online_write_batch(self, config: RepoConfig, table: FeatureView, data: list[Row], progress: Progress) -> None:
        """Write rows, unless a newer event is there; see `OnlineStore`."""
        rows, target = _by_key(config, data), self._threads(config).table(_writable(config, table))
        timeout_ms, level = config.online_store.write_timeout_ms, config.online_store.level
        found = target.get_many(rows, timeout_ms=timeout_ms)
        target.put_many(_expiring(config, table, _records(rows, found)), level=level, timeout_ms=timeout_ms)
        if progress is not None:
            progress(len(data))

    async def online_write_batch_async(
        self, config: RepoConfig, table: FeatureView, data: list[Row], progress: Progress
    ) -> None:
        """Write rows, unless a newer event is there; see `OnlineStore`."""
        rows, target = _by_key(config, data), self._tasks(config).table(_writable(config, table))
        timeout_ms, level = config.online_store.write_timeout_ms, config.online_store.level
        found = await target.get_many(rows, timeout_ms=timeout_ms)
        await target.put_many(_expiring(config, table, _records(rows, found)), level=level, timeout_ms=timeout_ms)
        if progress is not None:
            progress(len(data))

    def online_read(
        self,
        config: RepoConfig,
        table: FeatureView,
        entity_keys: list[EntityKey],
        requested_features: list[str] | None = None,
    ) -> list[Found]:
        """Read the rows of entities, in their order; see `OnlineStore`."""
        client, dataset = self._threads(config), config.online_store.datasets.get(table.name)
        source = client.table(_name(config, table)) if dataset is None else client.dataset(dataset)
        records = source.get_many(_keys(config, entity_keys))
        return [_found(record, requested_features) for record in records]

    async def online_read_async(
        self,
        config: RepoConfig,
        table: FeatureView,
        entity_keys: list[EntityKey],
        requested_features: list[str] | None = None,
    ) -> list[Found]:
        """Read the rows of entities, in their order; see `OnlineStore`."""
        client, dataset = self._tasks(config), config.online_store.datasets.get(table.name)
        source = client.table(_name(config, table)) if dataset is None else client.dataset(dataset)
        records = await source.get_many(_keys(config, entity_keys))
        return [_found(record, requested_features) for record in records]

    def update(  # noqa: PLR0917  # Feast's signature.
        self,
        config: RepoConfig,
        tables_to_delete: Sequence[FeatureView],
        tables_to_keep: Sequence[FeatureView],
        entities_to_delete: Sequence[Entity],
        entities_to_keep: Sequence[Entity],
        partial: bool,  # noqa: FBT001  # Feast's signature.
    ) -> None:
        """Make the tables that are missing, and drop those of views that are gone; see `OnlineStore`."""
        del entities_to_delete, entities_to_keep, partial
        client, store = self._threads(config), config.online_store
        there = {entry["name"] for entry in client.databases() if entry["kind"] != "dataset"}
        options = {"kind": "hash", "partitions": store.partitions, "replication": store.replication}
        for view in tables_to_keep:
            name = _name(config, view)
            if view.name not in store.datasets and name not in there:
                client.call("create_table", name, options, timeout_ms=CREATION_MS)
        for view in tables_to_delete:
            self._drop(config, view)

    def teardown(self, config: RepoConfig, tables: Sequence[FeatureView], entities: Sequence[Entity]) -> None:
        """Drop the tables of all views; datasets belong to their source."""
        del entities
        for view in tables:
            self._drop(config, view)
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def initialize(self, config: RepoConfig) -> None:
        """Connect, so that the first read needs not."""
        await self._tasks(config)

    async def close(self) -> None:
        """End the connections of this event loop."""
        loop, self._loop = self._loop, None
        if loop is not None and loop[0] is asyncio.get_running_loop():
            await loop[1].aclose()

    def _drop(self, config: RepoConfig, view: FeatureView) -> None:
        if view.name not in config.online_store.datasets:
            with suppress(UnknownDatabase):  # It is dropped already.
                self._threads(config).call("drop_table", _name(config, view), timeout_ms=_DECISION_MS)

    def _threads(self, config: RepoConfig) -> blocking.Client:
        store = config.online_store
        if self._client is None:
            self._client = blocking.connect(
                store.addresses, timeout_ms=store.timeout_ms, tls=_tls(store), token=store.token
            )
        return self._client

    def _tasks(self, config: RepoConfig) -> aio.Client:
        loop, store = asyncio.get_running_loop(), config.online_store
        if self._loop is None or self._loop[0] is not loop:
            client = aio.connect(store.addresses, timeout_ms=store.timeout_ms, tls=_tls(store), token=store.token)
            self._loop = loop, client
        return self._loop[1]


def write_view(
    store: FeatureStore,
    view: str,
    directory: str | PathLike[str],
    *,
    start: datetime,
    end: datetime,
    partitions: int = 64,
) -> VersionReport:
    """Write the newest row of each entity from the offline store as a version of a dataset.

    Args:
        store: The feature store; its offline store is read.
        view: The name of the feature view.
        directory: The version, `<root>/<database>/<version>`; a path, or a URL that fsspec opens.
        start: Events before it are left out.
        end: Events after it are left out.
        partitions: The number of partitions.

    Raises:
        feast.errors.FeatureViewNotFoundException: There is no such feature view.
        StorageError: The version is finished already, or the file system refuses.
    """
    config, found = store.config, store.get_feature_view(view)
    entities = [store.get_entity(name) for name in found.entities]
    columns = utils._get_column_names(found, entities)  # noqa: SLF001  # Feast's engines do so.
    offline = get_offline_store_from_config(config.offline_store)
    pulled = offline.pull_latest_from_table_or_query(config, found.batch_source, *columns, start, end)
    mapping = found.batch_source.field_mapping
    table = utils._run_pyarrow_field_mapping(pulled.to_arrow(), mapping)  # noqa: SLF001  # Feast's engines do so.
    joined = {column.name: column.dtype.to_value_type() for column in found.entity_columns}

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=_ROWS):
            converted = utils._convert_arrow_to_proto(batch, found, joined)  # noqa: SLF001  # Feast's engines do so.
            rows = _by_key(config, converted)
            keys, values, _ = zip(*_records(rows, [None] * len(rows)), strict=True)
            yield pa.record_batch([pa.array(keys, "binary"), pa.array(values, "binary")], _SCHEMA)

    frame = pa.RecordBatchReader.from_batches(_SCHEMA, batches())
    return write_frame(frame, directory, key="key", value="value", partitions=partitions)


def _name(config: RepoConfig, view: FeatureView) -> str:
    """Return the name of a view's table: Feast's, or one made of it if no table may have that name."""
    name: str = compute_table_id(config.project, view, config.registry.enable_online_feature_view_versioning)
    if is_name(name):
        return name
    start = re.sub(r"[^-_a-zA-Z0-9]+", "_", name)[: MAX_NAME_CHARACTERS - _HASH_DIGITS - 1]
    return f"{start}-{sha256(name.encode()).hexdigest()[:_HASH_DIGITS]}"


def _writable(config: RepoConfig, view: FeatureView) -> str:
    dataset = config.online_store.datasets.get(view.name)
    if dataset is None:
        return _name(config, view)
    raise BadRequest(
        f"the feature view {view.name} is read from the dataset {dataset}, which is only replaced as a whole; write it "
        "with gossipkv.feast.write_view, or remove it from `datasets` of the online store",
        {"view": view.name, "dataset": dataset},
    )


def _tls(store: GossipKVOnlineStoreConfig) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=store.tls) if isinstance(store.tls, str) else store.tls


def _keys(config: RepoConfig, entities: Iterable[EntityKey]) -> list[bytes]:
    version = config.entity_key_serialization_version
    return [serialize_entity_key(entity, entity_key_serialization_version=version) for entity in entities]


def _by_key(config: RepoConfig, data: Sequence[Row]) -> dict[bytes, list[Change]]:
    """Return the changes of each key, in the order of their events."""
    rows: dict[bytes, list[Change]] = {}
    for key, (_, values, event, created) in zip(_keys(config, (row[0] for row in data)), data, strict=True):
        times = _microseconds(event), None if created is None else _microseconds(created)
        rows.setdefault(key, []).append((*times, values))
    for changes in rows.values():
        changes.sort(key=_age)
    return rows


def _expiring(
    config: RepoConfig, view: FeatureView, records: Iterable[tuple[bytes, bytes, int]]
) -> Iterator[tuple[bytes, bytes, int] | tuple[bytes, bytes]]:
    """Yield records for `put_many`, with their expiry if the view has a lifetime."""
    lifetime = view.ttl if config.online_store.expire else None
    for key, value, event in records:
        if lifetime:
            yield key, value, max((event + lifetime // _MICROSECOND) // 1000, MIN_EXPIRES_MS)
        else:
            yield key, value


def _records(rows: dict[bytes, list[Change]], found: Iterable[bytes | None]) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield the records that change, each with the time of its event in microseconds."""
    for (key, changes), record in zip(rows.items(), found, strict=True):
        there = _change_of(record)
        newer = [change for change in changes if there is None or _age(change) >= _age(there)]
        if newer:
            values = dict[str, Value]() if there is None else there[2]
            for _, _, changed in newer:
                values |= changed
            event, created, _ = newer[-1]
            packed = RepeatedValue(val=values.values()).SerializeToString()
            yield key, msgpack.packb([event, created, list(values), packed]), event


def _change_of(record: bytes | None) -> Change | None:
    if record is None:
        return None
    event, created, names, values = _unpacked(record)
    return event, created, dict(zip(names, values, strict=True))


def _found(record: bytes | None, wanted: list[str] | None) -> Found:
    if record is None:
        return None, None
    event, _, names, values = _unpacked(record)
    if wanted is None or names == wanted:
        row = dict(zip(names, values, strict=True))
    else:
        row = {name: values[place] for place, name in enumerate(names) if name in wanted}
    return _EPOCH + event * _MICROSECOND, row


def _unpacked(record: bytes) -> tuple[int, int | None, list[str], Sequence[Value]]:
    try:
        event, created, names, packed = msgpack.unpackb(record)
        values = RepeatedValue.FromString(packed).val
    except (ValueError, TypeError, DecodeError) as error:
        raise ProtocolError(f"a record of {len(record):,} bytes is not a row of a feature view: {error}") from None
    return event, created, names, values


def _age(change: Change) -> tuple[int, int]:
    """Return what orders two changes of a row: by event, then by creation."""
    return change[0], change[1] or 0


def _microseconds(time: datetime) -> int:
    """Return the time since 1970; a time without a zone is UTC, as everywhere in Feast."""
    return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
