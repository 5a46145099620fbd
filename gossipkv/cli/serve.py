"""`serve`: a node."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from functools import partial
from typing import TYPE_CHECKING, Final, final

import click
import trio

from gossipkv.address import Address
from gossipkv.cli.flags import SettingsCommand, load_settings, setting_options
from gossipkv.cli.output import allow_descriptors, say_ready
from gossipkv.environment.trio_world import real
from gossipkv.log import Log
from gossipkv.node import wiring as node
from gossipkv.processes import logs
from gossipkv.processes.supervisor import ProcessSupervisor

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.cli.flags import Flag

# How long a thread that computes keeps the interpreter's lock from the thread that serves.  Reads need no lock, but
# what Python answers does, and each turn of Trio, two or three times: with Python's own 5 ms some of those took 9 ms
# beside such a thread.  With this the thread loses a few hundredths of its speed; with 0.1 ms it would be a third.
LOCK_KEPT_S: Final = 0.0005


@click.command(cls=SettingsCommand, params=setting_options())
@click.option(
    "--forget-tables",
    is_flag=True,
    help="Start as another node, without its tables: what is left of them is set aside.  Not a setting: for one start.",
)
def serve(file: Path | None, *, forget_tables: bool, **flags: Flag) -> None:
    """Run a node.

    It writes one line to standard output, `ready HOST:PORT`, when it listens, has looked at its source once, and serves
    every database it has built files for; its log names those that are still to be built.  systemd, or whoever set
    NOTIFY_SOCKET, is told the same, and that it lives.  SIGTERM ends it after
    answering what is in flight; SIGHUP has it read the databases' tables in the settings file again, and look at its
    source.
    """
    config = load_settings(file, flags)
    logs.configure(config.log_level, config.log_format)
    supervisor = ProcessSupervisor.take()
    supervisor.doing("starts: opens what is built, and looks at its source")
    allow_descriptors()
    sys.setswitchinterval(LOCK_KEPT_S)
    _keep_private(config.data)

    # Not `nursery.start`: a node that a signal ends before it is ready has done what it was told.
    trio.run(
        partial(
            node.run,
            config,
            real(),
            forget_tables=forget_tables,
            reload=lambda: load_settings(file, flags).databases,
            supervisor=supervisor,
            task_status=_Announcement(),
        )
    )


@final
class _Announcement:
    """The line for whoever started the node."""

    def started(self, value: tuple[str, int] | None = None) -> None:
        assert value is not None
        say_ready(Address(*value))


def _keep_private(data: Path) -> None:
    """Let nobody else read what is made here, by this process or its children; say so where others can already.

    A directory that was made for the node, a container's volume say, is left as it is.
    """
    os.umask(0o077)
    with contextlib.suppress(OSError):  # It is yet to be made, or else what opens it says what is wrong.
        found = data.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            log = Log("gossipkv.node")
            log.warning("not_private", path=str(data), mode=f"{stat.S_IMODE(found.st_mode):04o}", owner=found.st_uid)
