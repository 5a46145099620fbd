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

KEY: Final = small_file.Kind("key", 64 * 1024, ", and make all certificates anew if somebody may have read it")
AUTHORITY: Final = "ca"
_HOST: Final = re.compile(r"(\*\.)?[a-zA-Z0-9]([-a-zA-Z0-9.]{0,250}[a-zA-Z0-9])?")


def _name(text: str) -> str:
    if text == AUTHORITY:
        raise click.BadParameter(f"{text!r} is what the authority's own files are called")
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
    """Make a certificate authority of one's own, and certificates of nodes and clients that it signs."""


@certificates.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("name", metavar="[NAME]", required=False, type=_name)
@click.option("--host", "hosts", metavar="HOST", multiple=True, type=_host, help="Where the node is; again for each.")
@click.option(
    "--uuid",
    metavar="UUID",
    type=click.UUID,
    help="Of a node that has one: `gossipkv inspect DATA/NODE`.  [default: drawn]",
)
@click.option("--days", type=click.IntRange(1, 3650), help="How long it holds.  [default: 365; of an authority 3650]")
def new(directory: Path, name: str | None, *, hosts: tuple[str, ...], uuid: UUID | None, days: int | None) -> None:
    """Make an authority, or a certificate that it signs: with --host that of a node, else of a client.

    Without NAME: an authority, DIR/ca.pem and DIR/ca.key.  Its key is needed here alone: keep it where no node runs.
    With NAME: DIR/NAME.pem and DIR/NAME.key, for the node or for the user of that name.  Nothing that is there is
    replaced.
    """
    if name is None and hosts:
        raise click.UsageError("--host is of a node: NAME is missing")
    if uuid is not None and not hosts:
        raise click.UsageError("--uuid is of a node: where is it?  --host, again for each name and address")
    if name is None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = AUTHORITY
    certificate, key = (directory / f"{name}.{kind}" for kind in ("pem", "key"))
    for path in (certificate, key):
        if path.exists():
            raise click.BadParameter(f"{path} exists, and nothing is replaced; move it away first", param_hint="DIR")
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
        raise click.BadParameter(f"no authority in it; {make} makes one", param_hint="DIR")
    authority = (
        small_file.read(certificate, CERTIFICATES).decode("latin-1"),
        small_file.read_text(directory / f"{AUTHORITY}.key", KEY),
    )
    subject = library.Subject(name, hosts, (uuid or uuid4()) if hosts else None)
    return library.new_certificate(authority, subject, now, days or library.CERTIFICATE_DAYS)
