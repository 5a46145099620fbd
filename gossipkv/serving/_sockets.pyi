from typing import Self, final

from gossipkv.environment.seam import Listener
from gossipkv.serving._transport import Transport

@final
class Sockets(Transport):
    def __new__(cls, listener: Listener | None, *beside: Listener | None, polls: bool) -> Self: ...
