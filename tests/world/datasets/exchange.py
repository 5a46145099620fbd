"""A request from one machine to another over a connection, as the shells of nodes make them.

The request suffers the faults of its links and ends: no refusal comes at once, a cut lasts until the asker's timeout,
the end of the asked process breaks the connection, and a paused process answers after it resumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, final

from tests.world.scheduler import MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from tests.world.machine import Machine
    from tests.world.world import World

Reply = TypeVar("Reply")


@final
class Exchange(Generic[Reply]):
    """One request; `then` gets the reply, or None on failure, exactly once unless the asker has ended."""

    def __init__(
        self,
        world: World,
        asker: Machine,
        to: Address,
        *,
        serve: Callable[[Machine], Reply | None],
        then: Callable[[Reply | None], None],
    ) -> None:
        """`serve` is called on the asked machine when its process reads the request."""
        self._world = world
        self._asker, self._life = asker, asker.life
        self._to = to
        self._serve = serve
        self._then = then
        self._is_over = False

    def begin(self, timeout_ms: int) -> None:
        self._world.scheduler.after(timeout_ms * MS, lambda: self._finish(None))
        target = next((machine for machine in self._world.machines if machine.address == self._to), None)
        if target is not None:
            self._carry(self._asker, target, lambda: self._arrive(target))

    def _carry(self, source: Machine, target: Machine, do: Callable[[], None]) -> None:
        network = self._world.network
        found = network.way(source, target.address)
        if found is None or found[1].cut or network.is_lost(found[1]):
            return  # A retransmission would come too late to matter here.
        self._world.scheduler.after(network.delay_us(found[1]), do)

    def _arrive(self, target: Machine) -> None:
        life = target.life
        if target.core is None:
            self._carry(target, self._asker, lambda: self._finish(None))
        else:
            target.when_free(lambda: self._answer(target))
            self._world.scheduler.every(20 * MS, lambda: self._watch(target, life))

    def _answer(self, target: Machine) -> None:
        reply = self._serve(target)
        target.after_input()
        self._carry(target, self._asker, lambda: self._finish(reply))

    def _watch(self, target: Machine, life: int) -> bool:
        """Break the connection if the asked process ends first."""
        if not self._is_over and target.life != life:
            self._carry(target, self._asker, lambda: self._finish(None))
        return not self._is_over and target.life == life

    def _finish(self, reply: Reply | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._asker.life == self._life:
            self._asker.when_free(lambda: self._tell(reply))

    def _tell(self, reply: Reply | None) -> None:
        if self._asker.life == self._life:
            self._then(reply)
            self._asker.after_input()
