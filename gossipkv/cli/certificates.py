"""`certificates`: a certificate authority, and the certificates that it signs."""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import click

from gossipkv.cli import CommandGroup
from gossipkv.cli.credentials import CERTIFICATES
from gossipkv.cli.options import name_of
from gossipkv.cli.output import note
from gossipkv.environment import small_file
from gossipkv.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from gossipkv.access.certificates import Signed

KEY: Final = small_file.Kind("key", 64 * 1024, ", and replace all certificates if others may have read the key")
AUTHORITY: Final = "ca"
_HOST: Final = re.compile(r"(\*\.)?[a-zA-Z0-9]([-a-zA-Z0-9.]{0,250}[a-zA-Z0-9])?")


def _name(text: str) -> str:
    if text == AUTHORITY:
        raise click.BadParameter(f"{text!r} is the name of the authority's own files; choose another")
    return name_of(text)


def _host(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if _HOST.fullmatch(text) is None:
            raise click.BadParameter(f"{text!r}: expected a name or an address, without a port") from None
        return text


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def certificates() -> None:
    """Make your own certificate authority, and certificates for nodes and clients signed by it."""


@certificates.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("name", metavar="[NAME]", required=False, type=_name)
@click.option(
    "--host", "hosts", metavar="HOST", multiple=True, type=_host, help=("Name or address of the node; repeatable.")
)
@click.option(
    "--uuid",
    metavar="UUID",
    type=click.UUID,
    help="UUID of an existing node, as in `gossipkv inspect DATA/NODE`.  [default: random]",
)
@click.option("--days", type=click.IntRange(1, 3650), help="Days of validity.  [default: 365; for an authority 3650]")
def new(directory: Path, name: str | None, *, hosts: tuple[str, ...], uuid: UUID | None, days: int | None) -> None:
    """Make a certificate authority, or a certificate signed by it.

    Without NAME, the command makes an authority: DIR/ca.pem and DIR/ca.key. Only this command needs the key: keep it on
    a machine without nodes. With NAME, the command makes DIR/NAME.pem and DIR/NAME.key: for a node if --host is given,
    else for the user NAME. Existing files are never replaced.
    """
    if name is None and hosts:
        raise click.UsageError("--host is for the certificate of a node: give NAME")
    if uuid is not None and not hosts:
        raise click.UsageError(
            "--uuid is for the certificate of a node: give --host for each name and address of the node"
        )
    if name is None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = AUTHORITY
    certificate, key = (directory / f"{name}.{kind}" for kind in ("pem", "key"))
    for path in (certificate, key):
        if path.exists():
            raise click.BadParameter(f"{path} exists and is not replaced; move the file away first", param_hint="DIR")
    made = _made(directory, name, hosts, uuid, days)
    small_file.write_text(key, made.key)
    small_file.write_text(certificate, made.certificate, mode=0o644)
    what = "an authority" if name == AUTHORITY else "a node" if hosts else "a client"
    note(f"{certificate}, {key}: {what}, until {made.ends:%Y-%m-%d}")


def _made(directory: Path, name: str, hosts: Sequence[str], uuid: UUID | None, days: int | None) -> Signed:
    """Return a new authority, or a certificate that the directory's authority signs."""
    try:
        from gossipkv.access import certificates as library  # noqa: PLC0415  # Only this module loads cryptography.
    except ModuleNotFoundError:
        raise LocalError("certificates need the package cryptography: pip install 'gossipkv[secure]'") from None
    now = datetime.now(UTC)
    if name == AUTHORITY:
        return library.new_authority(f"GossipKV {now:%Y-%m-%d}", now, days or library.AUTHORITY_DAYS)
    certificate = directory / f"{AUTHORITY}.pem"
    if not certificate.exists():
        make = f"`gossipkv certificates new {directory}`"
        raise click.BadParameter(
            f"no certificate authority in this directory; {make} makes an authority", param_hint="DIR"
        )
    authority = (
        small_file.read(certificate, CERTIFICATES).decode("latin-1"),
        small_file.read_text(directory / f"{AUTHORITY}.key", KEY),
    )
    subject = library.Subject(name, hosts, (uuid or uuid4()) if hosts else None)
    return library.new_certificate(authority, subject, now, days or library.CERTIFICATE_DAYS)
