"""Options for the authentication of nodes and of the command itself.

A token is never an option value: every user of the machine can see a command's arguments.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from gossipkv.cli.help import ConnectionOption
from gossipkv.client.credentials import Credentials
from gossipkv.environment import small_file
from gossipkv.errors import ConfigError
from gossipkv.settings.node_variables import TOKEN_VARIABLE

if TYPE_CHECKING:
    from ssl import SSLContext

    from click.decorators import FC

TOKEN_FILE: Final = small_file.Kind("token file", 64 * 1024, ", and replace the token if others may have read it")
_KEY: Final = small_file.Kind("key", 64 * 1024, ", and replace the pair if others may have read it")
CERTIFICATES: Final = small_file.Kind("list of certificates", 4 << 20, is_private=False)
_KINDS: Final = {"--ca": CERTIFICATES, "--cert": CERTIFICATES, "--key": _KEY, "--token-file": TOKEN_FILE}
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS: Final = {
    "tls": "Use TLS; without --ca, trust the system's authorities.",
    "ca": "PEM file of the authorities to trust; implies --tls.",
    "cert": "PEM file of the client certificate and its key; implies --tls.",
    "key": "PEM file of the key, if --cert does not contain the key.",
    "token-file": f"File with the token to send.  [default: ${TOKEN_VARIABLE}]",
}


def _keep(context: click.Context, option: click.Parameter, value: Path | bool | None) -> None:  # noqa: FBT001  # click's.
    name = option.opts[0]
    if isinstance(value, Path):
        value = context.with_resource(small_file.rereadable(value, _KINDS[name]))
    context.meta.setdefault(__name__, {})[name] = value


def credential_options(command: FC) -> FC:
    """Add `--tls` and the other options; the command does not receive them, `credentials` reads them."""
    for name, text in reversed(_OPTIONS.items()):
        kind = {"is_flag": True} if name == "tls" else {"type": _FILE, "metavar": "FILE"}
        # A command may have an argument KEY, so the fields have names of their own.
        field = f"credentials_{name.replace('-', '_')}"
        command = click.option(
            f"--{name}", field, help=text, cls=ConnectionOption, expose_value=False, callback=_keep, **kind
        )(command)
    return command


def credentials() -> Credentials:
    """Return the credentials of the running command, from its options or the environment.

    Raises:
        ConfigError: a file or the environment has invalid content.
        UsageError: a key without its certificate.
    """
    given = click.get_current_context().meta.get(__name__, {})
    tls, ca, cert, key, file = (given.get(f"--{name}") for name in _OPTIONS)
    context = _context(ca, cert, key) if tls or ca or cert or key else False
    where, token = _token(file)
    try:
        return Credentials(context, token)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def tls_files() -> tuple[Path | None, ...] | None:
    """Return authority, certificate and key as given; None if TLS is not wanted."""
    given = click.get_current_context().meta.get(__name__, {})
    tls, *files = (given.get(f"--{name}") for name in list(_OPTIONS)[:4])
    return tuple(files) if tls or any(files) else None


def _token(file: Path | None) -> tuple[str, str | None]:
    if file is None:
        return TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE) or None
    return str(file), small_file.read_text(file, TOKEN_FILE).strip()


def _context(ca: Path | None, cert: Path | None, key: Path | None) -> SSLContext:
    if key is not None and cert is None:
        raise click.BadParameter("belongs to a certificate: give --cert as well", param_hint="--key")
    import ssl  # noqa: PLC0415  # Commands that use no TLS start faster without it.

    try:
        trusted = None if ca is None else small_file.read(ca, CERTIFICATES).decode("ascii", "ignore")
        context = ssl.create_default_context(cadata=trusted)
    except ssl.SSLError:
        raise ConfigError(f"--ca {ca}: the file has no certificate in PEM form") from None
    if cert is not None:
        small_file.read(key or cert, _KEY)
        small_file.read(cert, CERTIFICATES)
        try:
            context.load_cert_chain(cert, key, password=_refuse)
        except ssl.SSLError as error:
            fits = error.reason != "KEY_VALUES_MISMATCH"
            reason = (
                "the file has no certificate and key in PEM form" if fits else "the key belongs to another certificate"
            )
            raise ConfigError(f"--cert {cert}: {reason}") from None
    return context


def _refuse() -> NoReturn:
    raise ConfigError("the key of --cert is encrypted with a passphrase: give an unencrypted key")
