from typing import Self, final

__pyx_capi__: dict[str, object]

@final
class Refused:
    error: bytes
    def __new__(cls, error: bytes) -> Self: ...

@final
class Pending:
    handle: int
    msgid: int
    received_ns: int
    method: bytes
    waiting: object
    def __new__(cls, handle: int, msgid: int, received_ns: int, method: bytes, waiting: object) -> Self: ...
