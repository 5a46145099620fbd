from collections.abc import Iterator
from typing import final

__pyx_capi__: dict[str, object]

@final
class Scan(Iterator[tuple[bytes, bytes]]):
    def __next__(self) -> tuple[bytes, bytes]: ...
    def close(self) -> None: ...
