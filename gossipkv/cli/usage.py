"""Errors of wrong use in one style, also those that Click finds: the place, the value, and the expected values."""

from __future__ import annotations

import re
from typing import Final

import click

from gossipkv.address import Address, parse_address
from gossipkv.settings.nearest import near

# Click's form of a value that it refuses: `'ten' is not a valid integer.`, `0 is not in the range x>=1.`
_REFUSED: Final = re.compile(r"('.*'|\S+) (?:is not|does not match) .*")


def node_address(text: str) -> Address:
    """Parse `HOST:PORT`."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def usage_text(error: click.ClickException) -> str:
    """Return the message of an error of wrong use."""
    match error:
        case click.NoSuchOption():
            return f"no such option {error.option_name}{near(error.option_name, error.possibilities or ())}"
        case click.MissingParameter(param=click.Parameter() as param):
            expected = _expected(param.type)
            return f"{_place(error, param)} is missing{expected and f': expected {expected}'}"
        case click.BadParameter():
            return f"{_place(error, error.param)}: {_refusal(error)}{_namesakes(error)}"
        case click.BadOptionUsage():
            if "does not take" in error.message:
                return f"{error.option_name} takes no value"
            several = re.search(r" [0-9]+ ", error.message)
            return f"{error.option_name} needs {f'{several[0].strip()} values' if several else 'a value'}"
    text = error.format_message().removeprefix("Got ").removesuffix(".")
    return text if text[:2].isupper() else f"{text[:1].lower()}{text[1:]}"


def _place(error: click.BadParameter, param: click.Parameter | None) -> str:
    """Return the name of an option or argument, as help writes it."""
    if isinstance(error.param_hint, str):
        return error.param_hint
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return "argument" if param is None else param.human_readable_name.strip("[].")


def _refusal(error: click.BadParameter) -> str:
    """Return the reason for which a value is refused; ours as they are, Click's in our form."""
    found = _REFUSED.fullmatch(error.message)
    kind = None if error.param is None else error.param.type
    expected = None if found is None or kind is None else _expected(kind)
    if found is None or not expected:
        text = error.message.removesuffix(".")
        return f"{text[:1].lower()}{text[1:]}" if text[1:2].islower() else text
    choices = map(str, kind.choices) if isinstance(kind, click.Choice) else ()
    return f"{found[1]}: expected {expected}{near(found[1].strip(chr(39)), choices)}"


def _expected(kind: object) -> str:
    """Return the values of a type in words; empty if they follow from the parameter's name."""
    if isinstance(kind, click.Choice):
        return " or ".join(map(str, kind.choices))
    if isinstance(kind, click.types.FloatParamType):
        return "a number"
    if not isinstance(kind, click.types.IntParamType):
        return ""
    ends = (("at least", getattr(kind, "min", None)), ("at most", getattr(kind, "max", None)))
    bounds = " and ".join(f"{word} {end}" for word, end in ends if end is not None)
    return f"a whole number{bounds and f', {bounds}'}"


def _namesakes(error: click.BadParameter) -> str:
    """Return words that name an option whose name begins like this one: `--key-field` after `--key`."""
    place = _place(error, error.param)
    command = None if error.ctx is None else error.ctx.command
    names = (name for param in (command.params if command else ()) for name in param.opts)
    return "".join(f"; or did you mean {name}?" for name in names if name.startswith(f"{place}-") and place[:2] == "--")
