from collections.abc import Iterable
from typing import Self, final

from gossipkv.loadtest._dialect import Dialect
from gossipkv.loadtest._records import Records

@final
class HttpDialect(Dialect):
    def __new__(
        cls,
        database: str,
        host: str,
        records: Records | Iterable[tuple[bytes, bytes | None]],
        *,
        token: str | None = None,
    ) -> Self: ...
