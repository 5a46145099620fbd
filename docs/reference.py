"""Write the pages below docs/reference from the code (`make reference`).

A page is a function that returns Markdown; `PAGES` lists them.  A test compares the committed pages with these texts.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from gossipkv import cli, errors
from gossipkv.access.rights import METHODS as METHOD_RIGHTS
from gossipkv.access.rights import Right
from gossipkv.cli.flags import SettingsCommand
from gossipkv.cli.help import ConnectionOption
from gossipkv.http.answers import STATUS_BY_CODE
from gossipkv.http.metric_table import IDENTITY, IDENTITY_HELP, IDENTITY_NAME, LEFT_OUT, METRICS, Metric, MetricKind
from gossipkv.loadtest import result
from gossipkv.loadtest.limits import LimitVerdict
from gossipkv.settings.config import SETTINGS, Config
from gossipkv.settings.databases import DATABASE_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

DIRECTORY: Final = Path(__file__).parent / "reference"
METHODS: Final = Path(__file__).parent / "methods.toml"
ANSWERS: Final = Path(__file__).parent / "answers.toml"
LOG: Final = Path(__file__).parent / "log.toml"
PACKAGE: Final = Path(__file__).parents[1] / "gossipkv"
LOG_LEVELS: Final = {"debug", "info", "warning", "error"}
NOTE: Final = "<!-- Written by `make reference` from the code; edit the texts there. -->"
MIN_COMMANDS: Final = 5  # Options of so many commands, with the same text, are listed once.


class CommandOption(NamedTuple):
    """An option of a command: its name and form, its meaning, and True if it is for the connection to nodes."""

    name: str
    text: str
    connects: bool


def markdown(text: str) -> str:
    """Return a text of the code as Markdown: characters outside backticks are literal."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*])", r"\\\1", part) for part in parts)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a cell may hold any characters."""
    lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *lines))


def listing(items: Iterable[tuple[str, str]]) -> str:
    """Return a list of names with their meanings."""
    return "\n".join(f"- {name}: {meaning}{'' if meaning[-1] in '.]' else '.'}" for name, meaning in items)


def permitted(allowed: str) -> str:
    """Return a setting's allowed values: a list of words, or a sentence."""
    words = allowed.split(" or ")
    if len(words) > 1 and not any(" " in word for word in words):
        return "One of " + ", ".join(f"`{word}`" for word in words)
    return f"Allowed: {markdown(allowed)}"


def sentence(text: str) -> str:
    """Return a text that begins with a capital."""
    return f"{text[:1].upper()}{text[1:]}"


def apart(parts: Iterable[str]) -> str:
    """Return paragraphs."""
    return "\n\n".join(parts)


def code(text: str) -> str:
    """Return a text as code."""
    return f"`{text}`"


def setting_lines(name: str, default: str, allowed: str, meaning: str, why: str) -> str:
    """Return the section of a setting."""
    facts = [f"- Default: {markdown(default)} ({markdown(why)}).", f"- {permitted(allowed)}."]
    return apart([f"### {name}", f"{sentence(markdown(meaning))}.", "\n".join(facts)])


def settings() -> str:
    """Return the page of settings, in the order of `gossipkv config`."""
    sections: dict[str, list[str]] = {}
    for setting in SETTINGS:
        section = next(kind for kind in Config.__mro__[1:] if setting.name in kind.__annotations__)
        text = setting_lines(setting.name, setting.default, setting.allowed, setting.meaning, setting.why)
        title = re.split(r"[:;,.]", section.__doc__ or "")[0]
        sections.setdefault(title, []).append(text)
    inherited = {setting.name for setting in SETTINGS}
    of_databases = [
        setting_lines(setting.name, setting.default, setting.allowed, setting.meaning, setting.why)
        for setting in DATABASE_SETTINGS
        if setting.name not in inherited
    ]
    names = ", ".join(code(setting.name) for setting in DATABASE_SETTINGS if setting.name in inherited)
    return f"""# Settings

[Settings of a node](../operators/configuration.md) tells how to give them, and the units.

{apart(apart([f"## {title}", *texts]) for title, texts in sections.items())}

## Settings of one database

These stand in a table `[databases.NAME]` of the settings file. {names} may stand there, too: they replace the node's
settings of the same name.

{apart(of_databases)}
"""


def metrics() -> str:
    """Return the page of metrics, in the order of a scrape."""
    all_metrics = (Metric(IDENTITY_NAME, MetricKind.TEXT, IDENTITY_HELP, "", " ".join(IDENTITY)), *METRICS)
    (histogram,) = (metric for metric in METRICS if metric.kind is MetricKind.HISTOGRAM)
    rows = []
    for metric in all_metrics:
        labels = f"{{{', '.join(metric.labels)}}}" if metric.labels else ""
        name = f"{metric.name}_info" if metric.kind is MetricKind.TEXT else metric.name
        rows.append([code(name + labels), markdown(metric.help)])
    return f"""# Metrics

[Monitoring](../operators/monitoring.md) tells how to scrape them. Metrics whose names end in `_total` are counters. The
value of a metric on `_info` is always 1. {code(histogram.name)} is a histogram; all others are gauges.

{table(("metric and labels", "meaning"), rows)}

## Fields of info without a metric

{listing((code(".".join(path)), reason) for path, reason in LEFT_OUT.items())}
"""


def all_commands(
    command: click.Command = cli.gossipkv_command, parent: click.Context | None = None, name: str = "gossipkv"
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield each command that is no group, with its path and context, in the order of `--help`."""
    context = click.Context(command, parent, info_name=name)
    if parent is not None:
        yield context.command_path, command, context
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from all_commands(found, context, child)


def options_of(command: click.Command, context: click.Context) -> list[CommandOption]:
    """Return the options of a command, without `--help` and the settings of a node."""
    own = {setting.name for setting in SETTINGS} if isinstance(command, SettingsCommand) else set()
    options = (param for param in command.params if isinstance(param, click.Option) and param.name not in own)
    found = ((option.get_help_record(context), isinstance(option, ConnectionOption)) for option in options)
    return [CommandOption(record[0], in_words(record[1]), connects) for record, connects in found if record]


def in_words(text: str) -> str:
    """Return the help of an option as one line, with Click's ranges in words."""
    text = re.sub(r"(\d+)<=x<=(\d+)", r"\1 to \2", " ".join(text.split()))
    return re.sub(r"x>=(\d+)", r"at least \1", text)


def prose(text: str) -> str:
    """Return a docstring as Markdown; a paragraph that Click leaves as it is becomes a block of code."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return apart(
        re.sub(r"(?m)^", "    ", paragraph.partition("\n")[2])
        if paragraph.startswith("\b")
        else markdown(re.sub(r"\s+", " ", paragraph))
        for paragraph in paragraphs
    )


def commands() -> str:
    """Return the page of commands: each with its usage, help and options."""
    found = [(path, command, context, options_of(command, context)) for path, command, context in all_commands()]
    uses = Counter(option for *_, options in found for option in options)
    shared = [option for option, number in uses.items() if number >= MIN_COMMANDS and not option.connects]
    usual: dict[str, CommandOption] = {}  # By name, with the text that most commands give it.
    for option in filter(lambda option: option.connects, uses):
        usual[option.name] = max(option, usual.get(option.name, option), key=uses.__getitem__)
    sections = []
    for path, command, context, options in found:
        parts = [f"## {path.removeprefix('gossipkv ')}"]
        if isinstance(command, click.Group):
            anchor = path.removeprefix("gossipkv ").replace(" ", "-")
            links = (f"[{name}](#{anchor}-{name})" for name in command.list_commands(context))
            parts += [prose(command.help or ""), f"Commands: {', '.join(links)}."]
        else:
            usage = " ".join([path, *command.collect_usage_pieces(context)]).replace(" [OPTIONS]", "")
            parts += [code(usage), prose(command.help or "")]
        if isinstance(command, SettingsCommand):
            parts.append("Each [setting](settings.md) is an option, too.")
        if own := [option for option in options if not option.connects and option not in shared]:
            parts.append(listing((code(option.name), markdown(option.text)) for option in own))
        also = [code(option.name.split()[0]) for option in options if option in shared]
        if any(option.connects for option in options):
            also.append("[connection](#connection-options)")
        timeout = next((option for option in options if option.connects and option.name.startswith("--timeout")), None)
        unusual = (
            [f" {code('--timeout')}: {markdown(timeout.text)}"] if timeout and timeout not in usual.values() else []
        )
        if also:
            parts.append(f"[Shared options](#shared-options): {', '.join(also)}.{''.join(unusual)}")
        sections.append(apart(parts))
    listed = ((f"[{name}](#{name})", markdown(line)) for name, (_, _, line) in cli.COMMANDS.items())
    return f"""# Commands

[Commands in a shell](../operators/shell.md) tells how to use them: nodes, tokens, output, exit status, keys.
`gossipkv COMMAND --help` has the same texts, and two examples.

{listing(listed)}

## Shared options

{listing((code(option.name), markdown(option.text)) for option in shared)}

## Connection options

{listing((code(option.name), markdown(option.text)) for option in usual.values())}

{apart(sections)}
"""


def meaning_of(kind: type) -> str:
    """Return the docstring of a class as one paragraph."""
    return markdown(" ".join(inspect.cleandoc(kind.__doc__ or "").split()))


def error_codes() -> str:
    """Return the page of errors, by the party that can mend them."""
    sections = []
    for group in errors.GossipKVError.__subclasses__():
        kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, group)]
        rows = [
            [code(kind.code), code(kind.__name__), str(STATUS_BY_CODE.get(kind.code, "")), meaning_of(kind)]
            for kind in kinds
            if kind is not group
        ]
        titles = ["code", "Python", "HTTP", "meaning"]
        if group is errors.LocalError:  # Its errors never leave the machine.
            rows, titles = [[row[1], row[3]] for row in rows], ["Python", "meaning"]
        sections.append(f"## {group.__name__}\n\n{meaning_of(group)}\n\n{table(titles, rows)}")
    return f"""# Errors

An error on the wire is `[code, message, details]`. The code is for programs and the message for people. `details` is a
map for programs. [Python clients](../users/client.md) raise the classes of `gossipkv.errors`, which have all three.

{apart(sections)}
"""


def signature(name: str, method: dict[str, str]) -> str:
    """Return the call of a method, with the names of its options."""
    parts = [method["parameters"]] if "parameters" in method else []
    if "options" in method:
        parts.append(f"{{{', '.join(method['options'].split())}}}")
    return code(f"{name}({', '.join(parts)})")


def rights_of(method: str) -> str:
    """Return the rights of which a method needs one."""
    needed = METHOD_RIGHTS[method.encode()]
    return " or ".join(code(str(right.name).lower()) for right in needed) or "none"


def with_codes(text: str) -> str:
    """Return a text with the codes of errors as code."""
    codes = {str(kind.code) for kind in vars(errors).values() if inspect.isclass(kind) and hasattr(kind, "code")}
    return re.sub(rf"\b({'|'.join(codes)})\b", r"`\1`", text)


def methods() -> str:
    """Return the page of methods, with their options and answers."""
    sections = []
    documented = tomllib.loads(METHODS.read_text(encoding="utf-8"))
    for group, found in documented["methods"].items():
        parts = [f"## {group}"]
        for name, method in found.items():
            facts = [f"- Result: {method['result']}.", f"- Right: {rights_of(name)}."]
            if "errors" in method:
                facts.insert(1, f"- Errors: {with_codes(method['errors'])}.")
            parts += [f"### {name}", signature(name, method), method["effect"], "\n".join(facts)]
        sections.append(apart(parts))
    for title, options in documented["options"].items():
        items = ((f"{names_of(names)} ({kind})", with_codes(meaning)) for names, (kind, meaning) in options.items())
        sections.append(f"## {title}\n\n{listing(items)}")
    for answer, fields in tomllib.loads(ANSWERS.read_text(encoding="utf-8")).items():
        fields_with_meanings = ((names_of(names), meaning) for names, meaning in fields.items())
        sections.append(f"## Fields of {answer}\n\n{listing(fields_with_meanings)}")
    between = ", ".join(code(name.decode()) for name, right in METHOD_RIGHTS.items() if right is Right.PEER)
    return f"""# Methods

[The wire](../users/wire.md) tells how to call a method. Parameters are positional. The last one may be a map of the
options in braces. An option that is nil counts as absent, and an unknown one is `BAD_REQUEST`. Every method may also
fail with `BAD_REQUEST`, `OVERLOADED`, `UNAUTHORIZED` and `INTERNAL` ([errors](errors.md)).

{apart(sections)}

## Methods between nodes

Clients cannot call these: {between}.
"""


def names_of(names: str) -> str:
    """Return names that are separated by commas as code."""
    return ", ".join(code(name) for name in names.split(", "))


def load_test() -> str:
    """Return the page of the load test's document: its records with their fields."""
    kinds = (
        result.Result, result.RunTotals, result.LatencyResult, result.OfTarget, result.OfStep, result.OfRound,
        result.OfVersion, result.Second, result.Event, result.ServerCpu, LimitVerdict,
    )  # fmt: skip
    sections = (
        f"## {kind.__name__}\n\n{meaning_of(kind)}\n\n"
        + "\n".join(f"- `{field.name}`: `{field.type}`" for field in dataclasses.fields(kind))
        for kind in kinds
    )
    return f"""# Results of a load test

[`gossipkv loadtest --json`](../users/load-test.md) writes a JSON map with the fields of `Result`, and `limits`: a
`LimitVerdict` for each `--fail-if`. Later releases add fields; other changes raise `format`. Times are seconds since
the first counted request. Types are written as in Python, so `None` is null.

{apart(sections)}
"""


def log_events(source: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the events that a module logs, as (event, level, fields)."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                ast.Attribute(ast.Name(owner) | ast.Attribute(attr=owner), method), [ast.Constant(str(event)), *_]
            ):
                if owner.lstrip("_") == "log" and method in LOG_LEVELS:
                    yield event, method, [keyword.arg for keyword in node.keywords if keyword.arg]
                elif owner == "_warnings" and method == "say":
                    yield event, "warning", ["reason"]


def log() -> str:
    """Return the page of log events; raises KeyError for an event without a meaning."""
    notes = tomllib.loads(LOG.read_text(encoding="utf-8"))
    fields: dict[tuple[str, str], set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for event, level, names in log_events(path.read_text(encoding="utf-8")):
            fields.setdefault((event, level), set()).update(names)
    meanings = {(event, level): text for event, texts in notes["events"].items() for level, text in texts.items()}
    if wrong := fields.keys() ^ meanings.keys():
        raise KeyError(f"docs/log.toml: {wrong} must be in the code and in the file")
    parts = [f"# Log events\n\n{notes['head'].strip()}"]
    for wanted in ("error", "warning", "info"):
        events = []
        for (event, level), text in sorted(meanings.items()):
            if level == wanted:
                about = ", ".join(code(name) for name in sorted(fields[event, level]))
                events.append((f"{code(event)} ({about})" if about else code(event), text))
        parts.append(f"## {sentence(wanted)}\n\n{listing(events)}")
    parts.append(f"## Reasons of http_trouble\n\n{listing(notes['http_trouble'].items())}")
    return f"{apart(parts)}\n"


PAGES: Final[dict[str, Callable[[], str]]] = {
    "settings.md": settings,
    "metrics.md": metrics,
    "commands.md": commands,
    "errors.md": error_codes,
    "methods.md": methods,
    "load-test.md": load_test,
    "log.md": log,
}


def pages() -> dict[Path, str]:
    """Return the text of each page."""
    return {DIRECTORY / name: f"{NOTE}\n\n{page()}" for name, page in PAGES.items()}


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}\n")
