from collections.abc import Iterable
from typing import Self, final

from gossipkv.loadtest._dialect import Dialect
from gossipkv.loadtest._records import Records

@final
class RedisDialect(Dialect):
    def __new__(
        cls,
        records: Records | Iterable[tuple[bytes, bytes | None]],
        *,
        database: int = 0,
        token: str | None = None,
    ) -> Self: ...
