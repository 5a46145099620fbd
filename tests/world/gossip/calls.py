"""A request over a connection: it arrives once and whole, or the asker learns that it failed.

What a connection suffers is what its links and its two ends suffer: loss costs time, a cut or a clogged link lasts
until it ends or the asker's time is up, a process that is not there refuses at once (its machine does), one that
crashes meanwhile breaks the connection, and a paused one answers when it goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.gossip.effects import Ask
    from tests.world.gossip.program import Core
    from tests.world.network import Host, Network
    from tests.world.scheduler import Scheduler

RETRY_US = 200 * MS  # Linux' first retransmission; each further one waits twice as long.
MOST_RETRY_US = 3 * SECOND


@final
class Call:
    """One request of one process to another."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        asker: Host,
        ask: Ask,
        core_at: Callable[[Host], Core | None],
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._asker = asker
        self._life = asker.life
        self._ask = ask
        self._core_at = core_at
        self._is_over = False

    def begin(self) -> None:
        """Open the connection and send the request."""
        self._scheduler.after(self._ask.timeout_ms * MS, self._time_out)
        refuses = self._network.refuses
        if refuses is not None and refuses(self._ask.request):
            return
        self._send(self._asker, self._ask.to, self._arrive)

    def _send(self, source: Host, to: object, then: Callable[[Host], None], retry_us: int = RETRY_US) -> None:
        """Carry something one way, however often it takes."""
        if self._is_over:
            return
        network = self._network
        found = network.way(source, self._ask.to) if to is self._ask.to else network.way(source, self._asker.address)
        if found is None:
            return  # Nobody there at all, not even a machine that refuses.
        target, link = found
        now_us = self._scheduler.now_us
        if link.cut or now_us < link.clogged_until_us or source.is_starved or network.is_lost(link):
            again = min(2 * retry_us, MOST_RETRY_US)
            self._scheduler.after(retry_us, lambda: self._send(source, to, then, again))
            return
        # The request waits for the hand-shake: three ways instead of one.
        delay_us = sum(network.delay_us(link) for _ in range(3 if source is self._asker else 1))
        self._scheduler.after(delay_us, lambda: then(target))

    def _arrive(self, answerer: Host) -> None:
        life = answerer.life
        if answerer.core is None:
            self._send(answerer, self._asker.address, lambda _: self._finish(None))  # Refused.
            return
        answerer.when_free(lambda: self._answer(answerer))
        self._watch(answerer, life)

    def _answer(self, answerer: Host) -> None:
        core = self._core_at(answerer)
        if self._is_over or core is None:
            return
        answerer.heard_ms = answerer.now_ms
        reply = core.reply(self._ask.request, now_ms=answerer.now_ms)
        self._send(answerer, self._asker.address, lambda _: self._finish(reply))
        answerer.after_input()

    def _watch(self, answerer: Host, life: int) -> None:
        """Break the connection when the answering process ends before its answer is here."""

        def look() -> bool:
            if self._is_over:
                return False
            if answerer.life != life:
                self._send(answerer, self._asker.address, lambda _: self._finish(None))
                return False
            return True

        self._scheduler.every(100 * MS, look)

    def _time_out(self) -> None:
        if not self._is_over:
            self._network.struck["ask_timeout"] += 1
        self._finish(None)

    def _finish(self, reply: bytes | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        asker = self._asker
        if asker.life == self._life:
            asker.when_free(lambda: self._tell(reply))

    def _tell(self, reply: bytes | None) -> None:
        core = self._core_at(self._asker)
        if core is not None:
            if reply is not None:
                self._asker.heard_ms = self._asker.now_ms
            core.answered(self._ask.token, reply, now_ms=self._asker.now_ms)
            self._asker.after_input()
