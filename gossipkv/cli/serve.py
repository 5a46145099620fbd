"""`serve`: a node."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, final

import click
import trio

from gossipkv.address import Address
from gossipkv.cli.flags import SettingsCommand, load_settings, setting_options
from gossipkv.cli.output import allow_descriptors, say_ready
from gossipkv.environment.trio_world import real
from gossipkv.log import Log
from gossipkv.node import wiring as node
from gossipkv.processes import logs, orphans
from gossipkv.processes.supervisor import ProcessSupervisor

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.cli.flags import Flag

# Time for which a computing thread may keep the interpreter's lock from the serving thread.  Reads need no lock, but
# Python's answers do, and each turn of Trio takes it two or three times.  With Python's default of 5 ms some answers
# took 9 ms beside such a thread.  This value costs the thread a few hundredths of its speed; 0.1 ms would cost a third.
LOCK_KEPT_S: Final = 0.0005

# Modules that Python imports at their first use. Without free descriptors nothing can be imported.
LATER: Final = ("concurrent.futures.thread", "encodings.idna")


@click.command(cls=SettingsCommand, params=setting_options())
@click.option(
    "--forget-tables",
    is_flag=True,
    help=(
        "Start as a new node without the old tables; the remains of the table store are kept under "
        "another name. For one start only."
    ),
)
def serve(file: Path | None, *, forget_tables: bool, **flags: Flag) -> None:
    """Run a node.

    The node writes one line to standard output, `ready HOST:PORT`, when it listens, has scanned its source once, and
    serves every database with built files. Its log names the databases that are still to be built. The node notifies
    systemd, or another supervisor that sets NOTIFY_SOCKET. On SIGTERM the node answers the requests in flight and ends.
    On SIGHUP it reads the [databases] tables of the settings file again, and scans its source.
    """
    config = load_settings(file, flags)
    logs.configure(config.log_level, config.log_format)
    supervisor = ProcessSupervisor.take()
    supervisor.doing("starts: opens what is built, and looks at its source")
    allow_descriptors()
    sys.setswitchinterval(LOCK_KEPT_S)
    _keep_private(config.data)
    orphans.reap_as_first()

    for name in LATER:
        import_module(name)
    # `nursery.start` would fail for a node that a signal ends before it is ready, which is no failure.
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
    """Writes the ready line for the process that started the node."""

    def started(self, value: tuple[str, int] | None = None) -> None:
        assert value is not None
        say_ready(Address(*value))


def _keep_private(data: Path) -> None:
    """Make files of this process and its children private; warn if others can read the data directory already.

    An existing directory, such as a container's volume, is left as it is.
    """
    os.umask(0o077)
    with contextlib.suppress(OSError):  # It does not exist yet, or opening it reports the error.
        found = data.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            log = Log("gossipkv.node")
            log.warning("not_private", path=str(data), mode=f"{stat.S_IMODE(found.st_mode):04o}", owner=found.st_uid)
