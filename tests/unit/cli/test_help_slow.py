"""Help: the groups of commands; options, examples and page of each command; the node before a command's name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from gossipkv import cli
from gossipkv.cli.examples import EXAMPLES
from gossipkv.cli.help import COMMANDS, GROUPS, ConnectionOption
from gossipkv.errors import DOCS, UnknownDatabase
from tests.unit.cli.asked_node import AskedNode, raising

PAGES = Path(__file__).parents[3] / "docs"


def commands(group=cli.gossipkv_command, parent=None, name="gossipkv"):
    """Yield the path, the command and its context, of all commands and groups below the root."""
    context = click.Context(group, parent, info_name=name)
    for child in group.list_commands(context):
        command = group.get_command(context, child)
        inner = click.Context(command, context, info_name=child)
        yield inner.command_path.removeprefix("gossipkv "), command, inner
        if isinstance(command, click.Group):
            yield from commands(command, context, child)


def test_the_commands_stand_in_groups(run):
    done = run("--help")
    titles = re.findall(r"^([A-Z][a-z]+):$", done.out, re.MULTILINE)
    assert titles == ["Options", "Run", "Data", "Tables", "Cluster", "Security", "Tools", "Examples"]
    assert list(GROUPS) == titles[1:-1]
    assert re.findall(r"^  ([a-z]+)  ", done.out, re.MULTILINE) == list(COMMANDS)
    assert done.out.endswith(f"Documentation: {DOCS}/README.md\n")


def test_every_command_has_examples_and_a_page(run):
    """An example is a line that the command accepts; options of the connection come last, below one heading."""
    leaves = []
    for path, command, context in commands():
        help_ = run(*path.split(), "--help").out
        page = COMMANDS[path.split()[0]].page
        assert help_.endswith(f"\nDocumentation: {DOCS}/{page}.md\n"), path
        assert (PAGES / f"{page}.md").is_file(), path
        examples = help_.partition("\nExamples:\n")[2].splitlines()[:2]
        assert all(line.startswith(f"  gossipkv {path}") for line in examples), path
        own, _, of_connection = help_.partition("\nConnection:\n")
        for option in command.params:
            if isinstance(option, click.Option) and option.get_help_record(context):
                place = of_connection if isinstance(option, ConnectionOption) else own
                assert re.search(rf"^  (-., )?{option.opts[0]}\b", place, re.MULTILINE) or "--help-all" in own, path
        if not isinstance(command, click.Group):
            leaves.append(path)
            assert [line.strip() for line in examples] == [f"gossipkv {path} {x}".rstrip() for x in EXAMPLES[path]]
            assert examples[0] != examples[1], path
    assert sorted(leaves) == sorted(EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples_are_accepted(path, tmp_path, monkeypatch):
    """Click refuses no argument of an example, but for files that are not here."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for name in ("carts.tsv", "gossipkv.toml", "new-keys", "part-00000.sorted", "export.csv", "a.jsonl"):
        Path(name).touch()
    for rest in EXAMPLES[path]:
        words = shlex.split(re.sub(r" [<>] .*", "", f"{path} {rest}").replace("*.jsonl", "a.jsonl"))
        group, context = cli.gossipkv_command, cli.gossipkv_command.make_context("gossipkv", list(words))
        while isinstance(group, click.Group):
            name, group, words = group.resolve_command(context, words)
            context = group.make_context(name, words, parent=context)
            words = [*context._protected_args, *context.args]


def test_a_node_before_the_command(run, monkeypatch):
    """It comes before the environment; the command's own comes first."""

    def node():
        return AskedNode(get=raising(UnknownDatabase("no")))

    with node() as given, node() as own, node() as other:
        monkeypatch.setenv("GOSSIPKV_NODE", other.address)
        get = ("get", "geo", "paris", "--timeout", "60s")
        assert run("--node", given.address, "--node", other.address, *get).status == 1
        assert (len(given.asked), len(own.asked), len(other.asked)) == (1, 0, 0)
        assert run("--node", given.address, *get, "--node", own.address).status == 1
        assert (len(given.asked), len(own.asked), len(other.asked)) == (1, 1, 0)
        assert run(*get).status == 1
        assert (len(given.asked), len(own.asked), len(other.asked)) == (1, 1, 1)
    assert run("--node", "here", *get).err == (
        "gossipkv: --node: expected HOST:PORT, for example 127.0.0.1:7070, got 'here' (see gossipkv --help)\n"
    )


@pytest.mark.parametrize("path", ["serve", "config", "build a b", "cluster up", "keys list f", "inspect .", "demo"])
def test_a_node_before_a_command_that_asks_none(run, path):
    """It is refused, since the command would ignore it; help is shown."""
    done = run("--node=127.0.0.1:1", *path.split())
    name = " ".join(word for word in path.split() if len(word) > 1)
    assert (done.status, done.out) == (2, "")
    assert done.err == f"gossipkv: this command asks no node; leave out --node (see gossipkv {name} --help)\n"
    assert run("--node=127.0.0.1:1", *name.split(), "--help").status == 0
