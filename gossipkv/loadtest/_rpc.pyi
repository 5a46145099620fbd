from collections.abc import Iterable
from typing import Self, final

from gossipkv.loadtest._dialect import Dialect

@final
class RpcDialect(Dialect):
    def __new__(cls, database: str, records: Iterable[tuple[bytes, bytes | None]]) -> Self: ...
