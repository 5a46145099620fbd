from typing import Self, final

@final
class Crew:
    size: int
    def __new__(
        cls, size: int, *, max_connections: int, max_of_address: int, max_in_flight: int, max_held: int
    ) -> Self: ...
