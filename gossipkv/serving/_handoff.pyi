from typing import Self, final

__pyx_capi__: dict[str, object]

@final
class Refused:
    error: bytes
    ends: bool
    def __new__(cls, error: bytes, ends: bool = False) -> Self: ...

@final
class Welcome:
    user: int
    body: bytes
    def __new__(cls, user: int, body: bytes) -> Self: ...

@final
class Caller:
    handle: int
    pump: int
    user: int
    address: int
    def __new__(cls, handle: int, pump: int, user: int, address: int) -> Self: ...

@final
class Pending:
    handle: int
    msgid: int
    received_ns: int
    method: bytes
    waiting: object
    def __new__(cls, handle: int, msgid: int, received_ns: int, method: bytes, waiting: object) -> Self: ...
