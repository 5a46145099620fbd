from typing import Self, final

from gossipkv.environment.seam import Clock, Listener
from gossipkv.serving._transport import Transport

@final
class Line: ...

@final
class Streams(Transport):
    def __new__(cls, listener: Listener, clock: Clock) -> Self: ...
