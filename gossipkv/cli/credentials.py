"""Options by which a command makes sure of the nodes that it asks, and shows them who it is.

None of them is a token: whoever is on the machine sees a command's arguments.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import click

from gossipkv.client.credentials import Credentials
from gossipkv.errors import ConfigError
from gossipkv.settings.node_variables import TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from click.decorators import FC

_MOST_TOKEN_BYTES: Final = 4096  # 47 are usual.
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_GIVEN: Final = "gossipkv.credentials"


class _Given(NamedTuple):
    """What the options say."""

    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = None


def _option(name: str, help_text: str, kind: click.Path | None = _FILE) -> Callable[[FC], FC]:
    field = name.lstrip("-").replace("-", "_")

    def keep(ctx: click.Context, _: click.Parameter, value: Path | bool | None) -> None:  # noqa: FBT001  # click's form.
        ctx.meta[_GIVEN] = ctx.meta.get(_GIVEN, _Given())._replace(**{field: value})

    # Not by its usual name: KEY is what is asked for.
    return click.option(
        name,
        f"credentials_{field}",
        type=kind,
        is_flag=kind is None,
        metavar=kind and "FILE",
        help=help_text,
        expose_value=False,
        callback=keep,
    )


_OPTIONS: Final = (
    _option("--tls", "Speak TLS; without --ca the system says whom to trust.", None),
    _option("--ca", "Authority to trust, in PEM form; means --tls."),
    _option("--cert", "Certificate to show, and its key, in PEM form; means --tls."),
    _option("--key", "Key of that certificate, if it is in a file of its own."),
    _option("--token-file", f"File with the token to show.  [default: ${TOKEN_VARIABLE}]"),
)


def credential_options(command: FC) -> FC:
    """`--tls` and the others, of which the command itself is not told: `credentials` knows."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def credentials() -> Credentials:
    """What the command that runs was given, or the environment has.

    Raises:
        ConfigError: there is not what should be in a file or in the environment.
        UsageError: a key without its certificate.
    """
    given: _Given = click.get_current_context().meta.get(_GIVEN, _Given())
    where, token = _token(given.token_file)
    try:
        return Credentials(_tls(given), token)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _token(file: Path | None) -> tuple[str, str | None]:
    """Where the token is, and the token."""
    if file is None:
        return TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE) or None
    with file.open("rb") as opened:
        return str(file), opened.read(_MOST_TOKEN_BYTES).decode("ascii", "replace").strip()


def _tls(given: _Given) -> SSLContext | bool:
    """What `Credentials` takes."""
    if given.key is not None and given.cert is None:
        raise click.UsageError("--key is of the certificate that --cert names: give both")
    if not (given.tls or given.ca or given.cert):
        return False
    import ssl  # noqa: PLC0415  # Commands that speak plain start without it.

    try:
        context = ssl.create_default_context(cafile=given.ca)
    except ssl.SSLError:
        raise ConfigError(f"--ca {given.ca}: no certificate in PEM form") from None
    if given.cert is not None:
        try:
            context.load_cert_chain(given.cert, given.key, password=_refuse)
        except ssl.SSLError as error:
            fits = error.reason != "KEY_VALUES_MISMATCH"
            reason = "no certificate and key in PEM form" if fits else "the key is of another certificate"
            raise ConfigError(f"--cert {given.cert}: {reason}") from None
    return context


def _refuse() -> NoReturn:
    """Instead of asking whoever sits there, if anybody does."""
    raise ConfigError("the key of --cert is sealed by a passphrase: give one that is not")
