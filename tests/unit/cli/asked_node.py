"""A fake node for commands that ask few questions: functions answer, and the questions are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from gossipkv.errors import GossipKVError, to_wire
from tests.unit.client.fake_node import FakeNode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from tests.unit.client.fake_node import Connection


class AskedNode:
    """Answer each method with its function's result or error; `EOFError` ends the connection."""

    def __init__(self, tls: ssl.SSLContext | None = None, /, **methods: Callable[..., object]) -> None:
        self.asked: list[tuple[str, list[object]]] = []
        self._methods = methods
        self._node = FakeNode(self._serve, tls=tls)

    @property
    def address(self) -> str:
        return self._node.address

    def __enter__(self) -> Self:
        self._node.__enter__()
        return self

    def __exit__(self, *ended: object) -> None:
        self._node.__exit__(*ended)

    def _serve(self, connection: Connection) -> None:
        while (request := connection.next_request(has_members="members" in self._methods)) is not None:
            message_id, method, params = request
            self.asked.append((method, params))
            try:
                connection.answer(message_id, self._methods[method](*params))
            except GossipKVError as error:
                connection.answer(message_id, None, to_wire(error))
            except EOFError:
                return


def raising(error: Exception) -> Callable[..., object]:
    def method(*_: object) -> object:
        raise error

    return method


def answering(*answers: object) -> Callable[..., object]:
    """Return a method that gives these answers one after the other, or raises them."""
    left = [*answers]

    def method(*_: object) -> object:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return method
