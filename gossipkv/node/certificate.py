"""The node's certificate: read at the start, at SIGHUP, and when one of its files has changed.

A reading gives a `Tls`, which new connections use; those that exist go on as they began. A certificate that cannot be
used is logged and changes nothing. If a reading falls between the replacements of certificate and key, the two do not
match; both are read again when the second has changed.

Each `Tls` encrypts its session tickets with keys of its own, so the files are also read again after `TICKETS_PERIOD_S`.
A leaked ticket key opens TLS 1.2 traffic of that period, and nothing of TLS 1.3, which agrees on new keys with each
ticket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.environment import small_file
from gossipkv.environment.real_files import WatchedFiles
from gossipkv.errors import ConfigError, GossipKVError
from gossipkv.log import Log
from gossipkv.serving.loop import Tls
from gossipkv.settings.access import LISTENERS
from gossipkv.status.words import time_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gossipkv.environment.seam import EnvironmentClock, Threads
    from gossipkv.settings.config import Config

KEY: Final = small_file.Kind("tls_key", 64 * 1024, ", and replace the pair if others may have read it")

LOOK_PERIOD_S: Final = 5.0  # Time between two checks of the files, each of which takes three system calls.

TICKETS_PERIOD_S: Final = 12 * 3600.0  # Lifetime of the keys that encrypt session tickets.


@final
class Certificate:
    """The certificate in use; `tls` is from the `read` at the start, and each of `use` is called with every new one."""

    def __init__(
        self, config: Config, clock: EnvironmentClock, threads: Threads, tls: Tls | None, *use: Callable[[Tls], None]
    ) -> None:
        self._config, self._clock, self._threads, self._users = config, clock, threads, use
        self._log = Log("gossipkv.node")
        self._tls = tls
        self._files = WatchedFiles(_paths(config), threads)
        self._read_s = trio.current_time()
        self._reading = trio.Lock()

    @property
    def expires_s(self) -> int | None:
        """End of its validity, in seconds since 1970; None if the node has no certificate."""
        return None if self._tls is None else self._tls.expires_s

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Announce the certificate, then report as started and follow its files."""
        if self._tls is not None:
            self._tell(self._tls)
        task_status.started()
        if self._tls is None:
            return
        if over := self._over(self._tls):
            self._log.warning("certificate_over", reason=over)
        await self._files.have_changed()
        while True:
            await trio.sleep(LOOK_PERIOD_S)
            if await self._files.have_changed() or trio.current_time() >= self._read_s + TICKETS_PERIOD_S:
                await self.read_again()

    async def read_again(self) -> None:
        """Use the files as they are now; log what is wrong with them."""
        if self._tls is None:
            return
        async with self._reading:
            self._read_s = trio.current_time()
            # The files are checked before they are read, so that a change during the reading is seen next time.
            await self._files.have_changed()
            try:
                tls = await self._threads.run(read, self._config)
                assert tls is not None, "settings do not change"
                if tls.uuid != self._tls.uuid and (self._tls.uuid or self._config.tls_peers):
                    owner = f"belong to the node {self._tls.uuid.hex()}" if self._tls.uuid else "have no uuid"
                    raise _wrong(self._config, "tls_certificate", f"it must {owner}, or restart the node")
                if over := self._over(tls):
                    raise _wrong(self._config, "tls_certificate", over)
            except GossipKVError as error:
                self._log.warning("certificate_unchanged", reason=error.message)
                return
            self._tls = tls
            self._tell(tls)
            self._log.info("certificate", path=str(self._config.tls_certificate), expires_s=tls.expires_s)

    def _over(self, tls: Tls) -> str | None:
        """Return why the certificate has expired by this node's clock; None if it has not."""
        is_over = tls.expires_s * 1000 <= self._clock.wall_ms()
        return f"the certificate expired at {time_text(tls.expires_s)}: make a new pair" if is_over else None

    def _tell(self, tls: Tls) -> None:
        for use in self._users:
            use(tls)


def read(config: Config) -> Tls | None:
    """Read the certificate that the settings name; None if they name none. Blocks.

    Raises:
        ConfigError: a file is not valid, others may read the key, or a setting lacks another one.
        LocalError: this system has no OpenSSL 3.
    """
    if config.tls_certificate is None or config.tls_key is None:
        for name in ("tls_certificate", "tls_key", "tls_clients", "tls_peers"):
            if getattr(config, name) is not None:
                raise _wrong(config, name, "needs both tls_certificate and tls_key")
        return None
    if config.tls_peers is not None and "listen" not in config.tls_listeners:
        raise _wrong(config, "tls_listeners", "tls_peers applies to `listen`; add `listen` to tls_listeners")
    if config.tls_peers is None and "listen" in config.tls_listeners and config.join:
        raise _wrong(
            config,
            "tls_certificate",
            "nodes that join each other by TLS need tls_peers, the authorities that sign certificates of nodes",
        )
    small_file.read_text(config.tls_key, KEY)
    listeners = sum(1 << LISTENERS.index(name) for name in set(config.tls_listeners))
    tls = Tls(config.tls_certificate, config.tls_key, config.tls_clients, config.tls_peers, listeners=listeners)
    if tls.uuid is None and config.tls_peers is not None and config.node not in tls.names:
        raise _wrong(
            config,
            "tls_certificate",
            f"it has neither a uuid nor the name of this node (the setting `node`: {config.node or 'not set'}), one of "
            "which a node must prove; make a new one with `gossipkv certificates new DIR NAME --host HOST`, and with "
            "--uuid for a node that has data",
        )
    return tls


def _wrong(config: Config, name: str, reason: str) -> ConfigError:
    where = config.origin(name)
    return ConfigError(f"{where}: {name}: {reason}", {"setting": name, "where": where})


def _paths(config: Config) -> tuple[Path, ...]:
    return tuple(filter(None, (config.tls_certificate, config.tls_key, config.tls_clients, config.tls_peers)))
