from typing import final

@final
class Tunnels:
    count: int
