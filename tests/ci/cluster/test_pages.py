"""Every fenced block of README.md and docs/ is run, has a check of its own, or is listed with a reason."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import click
import pytest

from gossipkv import cli
from tests.ci.cluster.pages import (
    ROOT,
    WILD,
    Block,
    Typed,
    blocks_in,
    blocks_of,
    checked,
    commands,
    is_shown,
    pages,
    value_noted,
)
from tests.ci.cluster.terminal import Reader, Said
from tests.unit.table.real_store import make_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

CLIENT = "tests/unit/client/test_client_page_slow.py::test_every_example_runs"
FEAST = "tests/nightly/feast/test_feast.py::test_cases"
SPARK = "tests/ci/cluster/test_spark.py::test_the_page_has_both_examples"
OFFLINE = "tests/unit/dataset/offline/test_offline_builds_page_slow.py"
TABLE = "tests/unit/dataset/offline/test_your_table_page_slow.py"
LIFE = "tests/unit/dataset/test_life_page.py::test_the_documentation_draws_the_tables"
ORDERS = "tests/unit/cli/test_databases_slow.py::test_an_order_is_given"
GOSSIP = "tests/unit/gossip/test_gossip_page.py::test_the_drawing_is_the_automaton"
HERE = "tests/ci/cluster/test_pages.py::"
OTHER_READERS = ("docs/operators/", "docs/development/", "docs/reference/")
# Helm's commands take the name of a release, which is no command.
COMMAND = re.compile(r"(?:^|(?<!install)(?<!upgrade)[\s/(])gossipkv (?!demo$)([^|;&#)\n]+)")
NO_COMMANDS = {"gossipkv packets 1"}  # This is a word of a key's derivation.
HEARD = re.compile(r"gossipkv (?:members|tree)\b|^cat ")
LOOKED_AT = re.compile(r"gossipkv (?:get|scan|status|members|tree)\b|^cat \S+\.log$")
UNBUILT = "has no version ready yet"
MOMENT_S = 60
PROGRAMS = ("curl", "nvim", "redis-cli", "redis-server")
RUNNABLE = {"sh", "console", "python", "lua"}
FILE = re.compile(r"# (\S+\.\w+)\n")
TABLES = "tests/nightly/cluster/test_tables.py::"
MACHINES = "docs/operators/three-machines.md"
ON_MACHINES = "tests/ci/cluster/test_three_machines.py::test_the_page_on_machines"
NVIM = "nvim --headless --clean -n -i NONE -c 'luafile {}' -c 'qa!'"


@dataclass(frozen=True)
class Claim:
    """Blocks of one page and language that hold a text, their number, and the test that checks them.

    `by` is a test's id, or `not run: ` and the reason.
    """

    page: str
    language: str
    count: int
    by: str
    holding: str = ""

    def covers(self, block: Block) -> bool:
        return (block.page, block.language) == (self.page, self.language) and self.holding in block.text


@dataclass(frozen=True)
class Stage:
    """The assumptions of a page: a preparation, words to replace, lines before each program."""

    prepare: Callable[[Reader], None] = lambda _: None
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    prelude: str = ""


INSTALL = "tests/ci/deploy/test_install.py::test_one_line_says_where_the_package_is"
CLAIMS = (
    Claim("README.md", "sh", 2, "tests/ci/tidy/test_documents.py::test_the_readme_has_two_lines", "-m venv"),
    Claim("docs/users/client.md", "python", 6, CLIENT),
    Claim(
        "docs/users/http.md", "http", 1, "tests/ci/cluster/test_users.py::test_what_is_no_token_and_who_may_no_longer"
    ),
    Claim("docs/users/spark.md", "python", 2, SPARK),
    Claim(
        "docs/users/spark.md",
        "python frames",
        1,
        "tests/ci/cluster/test_spark_frames.py::test_the_page_writes_and_reads",
    ),
    Claim("docs/users/feast.md", "yaml", 1, FEAST),
    Claim("docs/users/feast.md", "python", 1, FEAST),
    Claim("docs/users/offline-builds.md", "python multiprocessing", 1, f"{OFFLINE}::test_the_example_writes_a_version"),
    Claim("docs/users/offline-builds.md", "json", 1, f"{OFFLINE}::test_the_declaration_of_the_page_is_one"),
    *(
        Claim(
            "docs/users/your-table.md", f"python {engine}", 1, f"{TABLE}::test_an_engine_writes_what_can_be_published"
        )
        for engine in ("spark", "dask", "ray")
    ),
    Claim("docs/users/your-table.md", "python airflow", 1, f"{TABLE}::test_a_scheduler_can_say_its_command"),
    Claim(
        "docs/operators/kubernetes.md", "sh", 4, "tests/ci/deploy/test_kubernetes.py::test_the_page_names_what_there_is"
    ),
    Claim("docs/operators/kubernetes.md", "yaml", 1, "tests/ci/deploy/test_kubernetes.py::test_the_job_of_the_page"),
    Claim("docs/development/gossip.md", "mermaid", 1, GOSSIP),
    Claim("docs/development/version-states.md", "mermaid", 2, LIFE),
    Claim(
        "docs/operators/life-of-a-version.md", "sh", 2, "tests/unit/cli/test_databases_slow.py::test_an_order_is_given"
    ),
    # The page shows the answer of a node that is not ready, and files of other programs.
    Claim("docs/operators/monitoring.md", "console", 1, "not run: shows a node before it is ready", "not ready"),
    Claim("docs/operators/monitoring.md", "yaml", 2, f"{HERE}test_configurations_of_others_can_be_read"),
    Claim("docs/install.md", "sh", 1, f"{HERE}test_a_reader_installs_as_the_readme_does", "-m venv .venv"),
    Claim("docs/install.md", "sh", 2, INSTALL, "0.1.0/bin"),
    Claim("docs/install.md", "sh", 1, INSTALL, "PIP_"),
    Claim("docs/install.md", "sh", 2, "not run: needs a container engine", "docker"),
    Claim("docs/operators/running.md", "sh", 1, f"{HERE}test_lost_tables_are_forgotten", "--forget-tables"),
    Claim("docs/operators/backups.md", "sh", 7, f"{HERE}test_a_lost_cluster_comes_back"),
    Claim(
        "docs/operators/backups.md",
        "cron",
        1,
        "tests/ci/cluster/test_cron_page.py::test_the_line_of_cron_makes_a_backup",
    ),
    Claim("docs/operators/security.md", "sh", 1, "not run: needs machines at 10.0.0.1 and 10.0.0.2", "10.0.0.1"),
    Claim("docs/operators/sizing.md", "python", 5, "tests/ci/cluster/test_sizing.py::test_the_example_is_right"),
    Claim(MACHINES, "sh", 13, ON_MACHINES, "# on "),
    Claim(MACHINES, "console", 5, ON_MACHINES),
    Claim(MACHINES, "sh", 2, "not run: its machines reach no package index; a program is put there", "-m venv"),
    Claim("docs/operators/tables.md", "sh", 1, f"{TABLES}test_acceptors_that_forgot_their_tables", "n3 n6"),
    Claim("docs/operators/cluster.md", "python", 1, f"{HERE}test_the_fixture_of_the_page_is_one"),
    Claim("docs/development/contributing.md", "sh", 2, "not run: each compiles everything, with other flags"),
    Claim("docs/development/performance.md", "console", 1, "not run: measures for hours, on a machine that is quiet"),
    Claim("docs/development/simulation.md", "python", 1, f"{HERE}test_the_scenario_of_the_page_is_right"),
)


CAPITALS = "france\tParis\nperu\tLima\nportugal\tLisbon\n"


def the_start(reader: Reader) -> None:
    """Start a node that serves the first version of `docs/users/start.md`."""
    place = reader.place / "tmp" / "source" / "capitals" / "1"
    place.mkdir(parents=True)
    (place / "part-0").write_text(CAPITALS)
    reader.type("gossipkv serve --source /tmp/source --data /tmp/data --http-listen 127.0.0.1:8080")
    assert reader.type("gossipkv status --wait").status == 0


def datasets(reader: Reader) -> None:
    """Write two databases of two versions below /srv/datasets, and a settings file with that source."""
    for database in ("capitals", "geo"):
        for version in ("1", "2"):
            place = reader.place / "srv" / "datasets" / database / version
            place.mkdir(parents=True)
            (place / "part-0").write_text("france\tParis\nperu\tLima\nlima\tPeru\n")
    (reader.place / "etc" / "gossipkv.toml").write_text(reader.here('source = "/srv/datasets"\n'))


def a_node(reader: Reader) -> None:
    """Start a node that serves these databases, as a service would."""
    datasets(reader)
    reader.type("gossipkv serve --config /etc/gossipkv.toml --data /var/lib/gossipkv")
    reader.type("gossipkv status --wait")


def key_rings(reader: Reader) -> None:
    """Make a directory for a key ring, and an existing ring."""
    (reader.place / "etc" / "gossipkv").mkdir()
    assert reader.type("gossipkv keys new RING").status == 0


def a_place_for_secrets(reader: Reader) -> None:
    (reader.place / "etc" / "gossipkv").mkdir()


# The load tests of a page are shortened for a busy machine, and a port that may be in use is replaced.
SHORTER = {
    "--duration 10s": "--duration 500ms", "--duration 20s": "--duration 500ms", "--duration 60s": "--duration 500ms",
    "40000/60s": "40000/1s", "--rounds 5": "--rounds 5 --duration 200ms", "loadtest --": "loadtest --warm-up 0s --",
    "--warm-up 0s --compare": "--compare", "p99>5ms": "p99>5s", "rate<1990": "rate<1", "6379": "8099",
}  # fmt: skip

REDIS_PORT = {"redis-cli ": "redis-cli -p 8099 ", "-p 8099 -p 6379": "-p 8099", "6379": "8099"}

# The pages for users whose blocks a reader types and runs, one page after the other, in the order of the README.
FOLLOWED: dict[str, Stage] = {
    "README.md": Stage(words=REDIS_PORT),
    "docs/users/start.md": Stage(),
    "docs/users/publish.md": Stage(),
    "docs/users/read.md": Stage(),
    "docs/users/tables.md": Stage(),
    "docs/users/your-table.md": Stage(
        prelude="import pyarrow\nframe, path = pyarrow.table({'key': ['k'], 'value': ['v']}), 'version'"
    ),
    "docs/users/http.md": Stage(),
    "docs/users/redis.md": Stage(words=REDIS_PORT),
    "docs/users/keyspace.md": Stage(),
    "docs/users/offline-builds.md": Stage(
        prelude="key, partitions, partition, records, directory = b'k', 1, 0, [(b'k', b'v')], 'of-tasks'"
    ),
    "docs/users/wire.md": Stage(),
    "docs/users/load-test.md": Stage(words=SHORTER),
}

# The other pages, each of which a reader types by itself.
RUN: dict[str, Stage] = {
    "docs/users/asyncio-service.md": Stage(),
    "docs/users/change-feeds.md": Stage(),
    "docs/users/delta-and-iceberg.md": Stage(),
    "docs/users/partitions.md": Stage(the_start),
    "docs/operators/cluster.md": Stage(datasets),
    "docs/operators/gossip.md": Stage(a_node),
    "docs/operators/monitoring.md": Stage(the_start),
    "docs/operators/rotate-secrets.md": Stage(a_place_for_secrets),
    "docs/operators/running.md": Stage(a_node),
    "docs/operators/security.md": Stage(a_place_for_secrets),
    "docs/operators/status-page.md": Stage(the_start),
    "docs/operators/tables.md": Stage(a_node),
    "docs/development/gossip-packets.md": Stage(
        key_rings, {"KEY-ID": "$(gossipkv keys list RING | tail -n 1 | cut -f 1)"}
    ),
    "docs/development/simulation.md": Stage(words={"--runs 1000": "--runs 20"}),
    "docs/development/whole-nodes.md": Stage(),
}
STAGES = FOLLOWED | RUN


def offered() -> list[str]:
    """Return the pages for users in the order in which README.md, and then the list of all pages, links to them."""
    readme, listed = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/README.md"))
    links = re.findall(r"\]\((docs/[\w/-]+\.md)", readme[readme.index("## Next") :])
    links += [f"docs/{page}" for page in re.findall(r"\]\(([\w/-]+\.md)", listed)]
    return [page for page in dict.fromkeys(["README.md", *links]) if not page.startswith(OTHER_READERS)]


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]


def claims_on(block: Block) -> list[str]:
    return [claim.by for claim in CLAIMS if claim.covers(block)]


def seen_to(block: Block) -> list[str]:
    """Return the tests or reasons that cover a block; correct blocks have exactly one."""
    if claims := claims_on(block):
        return claims
    if not block.language:
        return [f"{HERE}test_drawings_hold_no_commands"]
    if block.language == "toml":
        return [f"{HERE}test_settings_are_accepted"]
    if block.language in {"json", "jsonl"}:
        return [f"{HERE}test_json_is_json"]
    by = "test_the_pages_for_users_in_a_row" if block.page in FOLLOWED else "test_a_page_does_what_it_says"
    return [f"{HERE}{by}"] if block.page in STAGES and block.language in RUNNABLE else []


def is_test(name: str) -> bool:
    file, _, function = name.partition("::")
    path = ROOT / file
    return (
        path.exists() and re.search(rf"(?m)^def {re.escape(function)}\(", path.read_text(encoding="utf-8")) is not None
    )


def run_blocks(page: str, stage: Stage, reader: Reader) -> None:
    stage.prepare(reader)
    for block in blocks_of(page):
        if block.language == "toml" or (block.language == "python" and FILE.match(block.text)):
            save(block, reader)
        elif block.language in RUNNABLE and not claims_on(block) and can_run(block):
            run_block(block, stage, reader)


def programs_of(block: Block) -> set[str]:
    """Return the programs that a block needs and a reader may lack."""
    return {"nvim"} if block.language == "lua" else {name for name in PROGRAMS if re.search(rf"\b{name} ", block.text)}


def can_run(block: Block) -> bool:
    """True if the block's programs are installed; `test_what_needs_a_program_was_run` reports missing ones."""
    return all(shutil.which(program) for program in programs_of(block))


def save(block: Block, reader: Reader) -> None:
    """Append a block to the file that its first line names in a comment, if any, where the reader is."""
    if named := FILE.match(block.text):
        text = shlex.quote(reader.here(block.text))
        assert reader.run(f"printf %s {text} >> {reader.here(named[1])}").status == 0


def run_block(block: Block, stage: Stage, reader: Reader) -> None:
    """Run a program, or type command by command; each must succeed and show the page's output."""
    if block.language in {"python", "lua"}:
        program = reader.directory / f"block-{block.line}.{block.language}"
        text = stage.prelude + "\n" + checked(block.text) if block.language == "python" else block.text
        program.write_text(reader.here(as_staged(text, stage)), encoding="utf-8")
        said = reader.run(f"python -W error {program}" if block.language == "python" else NVIM.format(program))
        assert (said.status, "Error" in said.text) == (0, False), f"{block.where}: {said.text}"
        return
    for typed in commands(block):
        command = as_staged(typed.command, stage)
        said = reader.type(command)
        give_up_s = time.monotonic() + MOMENT_S
        while is_for_later(typed, said) and time.monotonic() < give_up_s:
            time.sleep(0.1)
            said = reader.type(command)
        assert said.status == 0, f"{block.where}: {typed.command}\nended with {said.status}:\n{said.text}"
        if typed.shown:
            difference = f"{block.where}: {typed.command}\nshows\n{said.text}\nand the page\n{typed.shown}"
            assert is_shown(typed.shown, said.text), difference


def as_staged(text: str, stage: Stage) -> str:
    """Return a page's text with the words that its stage replaces."""
    for word, meant in stage.words.items():
        text = text.replace(word, meant)
    return text


def is_for_later(typed: Typed, said: Said) -> bool:
    """True if a reader would look again: builds, news of members and effects of signals take time."""
    if said.status != 0:
        return HEARD.search(typed.command) is not None or UNBUILT in said.text
    return LOOKED_AT.search(typed.command) is not None and not is_shown(typed.shown or WILD, said.text)


@pytest.mark.parametrize("page", RUN)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        run_blocks(page, RUN[page], reader)


@pytest.mark.timeout(900)
def test_the_pages_for_users_in_a_row(tmp_path: Path) -> None:
    """A reader types the pages in the order of the README, in one shell: each begins where the one before has ended."""
    in_order = [page for page in offered() if page in FOLLOWED]
    assert in_order == [*FOLLOWED]
    with Reader(tmp_path) as reader:
        for page in in_order:
            run_blocks(page, FOLLOWED[page], reader)


def test_every_block_is_seen_to() -> None:
    """A block that is neither run, checked nor listed is an error, and so is a block covered twice."""
    wrong = {block.where: (block.language, seen_to(block)) for block in all_blocks() if len(seen_to(block)) != 1}
    assert wrong == {}


def test_every_claim_is_true() -> None:
    """The pages have exactly the claimed blocks, and the tests that the claims name exist."""
    found = Counter(claim for block in all_blocks() for claim in CLAIMS if claim.covers(block))
    assert {claim: found[claim] for claim in CLAIMS if found[claim] != claim.count} == {}
    ids = {claim.by for claim in CLAIMS if not claim.by.startswith("not run: ")}
    assert [name for name in sorted(ids) if not is_test(name)] == []
    assert [page for page in STAGES if not set(RUNNABLE) & {block.language for block in blocks_of(page)}] == []


def test_drawings_hold_no_commands() -> None:
    """A block without a language is a drawing or a table, with no command to type."""
    typed = re.compile(r"(?m)^\s*(?:\$ |gossipkv |\.venv/|curl |wget |pip |python |import |from \w+ import )")
    found = {block.where: typed.findall(block.text) for block in all_blocks() if not block.language}
    assert {where: lines for where, lines in found.items() if lines} == {}


def test_settings_are_accepted(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for block in (block for block in all_blocks() if block.language == "toml" and not claims_on(block)):
            assert tomllib.loads(block.text), block.where
            (reader.directory / "settings.toml").write_text(block.text, encoding="utf-8")
            said = reader.type("gossipkv config --config settings.toml")
            assert said.status == 0, f"{block.where}: {said.text}"


def test_configurations_of_others_can_be_read() -> None:
    """The blocks for Prometheus and Datadog are valid YAML, and not empty."""
    yaml = pytest.importorskip("yaml")
    for block in blocks_of("docs/operators/monitoring.md"):
        if block.language == "yaml":
            assert yaml.safe_load(block.text), block.where


def test_json_is_json() -> None:
    for block in (block for block in all_blocks() if block.language in {"json", "jsonl"}):
        texts = [block.text] if block.language == "json" else block.text.splitlines()
        assert [json.loads(text) for text in texts], block.where


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_needs_a_program_was_run(program: str) -> None:
    """Blocks that need an installed program are run; blocks that need a missing program are left out."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    assert program in {name for page in STAGES for block in blocks_of(page) for name in programs_of(block)}


def test_a_reader_installs_as_the_readme_does() -> None:
    """The page's first line begins the README's line, which continuous integration runs; the second activates."""
    (block,) = (block for block in blocks_of("docs/install.md") if "-m venv .venv" in block.text)
    install, activate, *_ = block.text.splitlines()
    (readme, _) = (block.text for block in blocks_of("README.md") if "-m venv" in block.text)
    assert readme.startswith(f"{install} && ")
    assert activate == ". .venv/bin/activate"


def test_the_fixture_of_the_page_is_one(tmp_path: Path) -> None:
    """The example of a test with a cluster passes under pytest."""
    (block,) = (block for block in blocks_of("docs/operators/cluster.md") if block.language == "python")
    with Reader(tmp_path) as reader:
        (reader.directory / "test_example.py").write_text(block.text)
        said = reader.type("python -m pytest -q -p no:cacheprovider test_example.py", within_s=120)
        assert said.status == 0, said.text


def test_lost_tables_are_forgotten(tmp_path: Path) -> None:
    """A node forgets its tables by the page's command, and keeps them beside."""
    (forget,) = (block.text for block in blocks_of("docs/operators/running.md") if "--forget-tables" in block.text)
    data = tmp_path / "var" / "lib" / "gossipkv"
    make_tables(data)
    with Reader(tmp_path) as reader:
        reader.type(forget.replace(" ...", " --data /var/lib/gossipkv"))
        reader.end_servers()
    assert not (data / "tables").exists()
    assert (data / "tables-forgotten-1").exists()


def test_a_lost_cluster_comes_back(tmp_path: Path) -> None:
    """Every command of the page is typed; another cluster then has the records of the lost one."""
    blocks = [block.text for block in blocks_of("docs/operators/backups.md") if block.language == "sh"]
    rows = {f"k{number:04}": f"value {number}" for number in range(500)}
    with Reader(tmp_path) as reader:

        def typed(command: str) -> str:
            said = reader.type(command, within_s=180)
            if said.status:  # A detached cluster outlives its reader.
                for place in ("old", "new"):
                    reader.type(f"gossipkv cluster down --data /var/lib/gossipkv-{place} --now")
            assert said.status == 0, (command, said.text)
            return said.text

        (tmp_path / "var" / "lib").mkdir(parents=True)
        (reader.place / "srv" / "rows.tsv").write_text("".join(f"{key}\t{value}\n" for key, value in rows.items()))
        allowed = "--set backup_roots=/var/lib/gossipkv-backups"
        typed(f"gossipkv cluster up --nodes 3 --data /var/lib/gossipkv-old {allowed} --detach")
        for name, kind in (("carts", "hash"), ("log", "range")):
            typed(f"gossipkv table create {name} --kind {kind}")
            typed(f"gossipkv table import {name} /srv/rows.tsv")
        backup = typed(blocks[0]).partition(":")[0]
        typed("gossipkv put carts k0000 changed")
        typed("gossipkv delete carts k0001")
        for command in "".join(blocks[1:3]).splitlines():
            typed(re.sub(r"--since \S+", f"--since {backup}", command))
        typed("gossipkv cluster down --data /var/lib/gossipkv-old --now")
        shutil.rmtree(tmp_path / "var" / "lib" / "gossipkv-old")
        for command in "".join(blocks[3:]).splitlines():
            typed(command.strip())
        expected = rows | {"k0000": "changed"}
        del expected["k0001"]
        for name, records in (("carts", expected), ("log", rows), ("carts-before", expected)):
            found = [line.split("\t") for line in typed(f"gossipkv scan {name} --limit 1000").splitlines()]
            assert dict(found) == records, name
        typed("gossipkv cluster down --data /var/lib/gossipkv-new --now")


def test_the_scenario_of_the_page_is_right() -> None:
    """The scenario runs with the names of `tests/simulation/scenarios.py`, and breaks no promise."""
    from tests.simulation import scenarios  # noqa: PLC0415  # Only this one needs the simulated world.

    (block,) = (block for block in blocks_of("docs/development/simulation.md") if block.language == "python")
    names = dict(vars(scenarios))
    exec(compile(block.text, block.where, "exec"), names)
    assert names["leave"]() == {}


def mentioned() -> list[tuple[str, str]]:
    """Return every `gossipkv …` in the sentences and blocks of the pages, with its place."""
    found = []
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        inline = re.findall(r"`(?:\.venv/bin/)?(gossipkv [^`\n]+)`", text)
        found += [(page, line) for line in inline if line not in NO_COMMANDS]
        for block in blocks_in(page, text):
            if block.language in {"sh", "console"}:
                found += [
                    (block.where, "gossipkv " + line)
                    for typed in commands(block)
                    for line in COMMAND.findall(typed.command)
                ]
    return found


def unknown_words(line: str) -> list[str]:
    """Return the commands and options of a line that `gossipkv` does not have."""
    command: click.Command = cli.gossipkv_command
    wrong = []
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in re.split(r"[\s=]+", line.partition("gossipkv …")[0])[1:]:
        context = click.Context(command)
        if isinstance(command, click.Group) and re.fullmatch(r"[a-z][a-z-]*", word):
            following = command.get_command(context, word)
            if following is None:
                return [word]
            command = following
            options |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        elif re.fullmatch(r"--[a-z][a-z-]*", word) and word not in options | {"--help"}:
            wrong.append(word)
    return wrong


def test_commands_and_options_exist() -> None:
    wrong = [(where, line, words) for where, line in mentioned() if (words := unknown_words(line))]
    assert wrong == []


def test_an_unknown_option_is_seen() -> None:
    assert unknown_words("gossipkv get capitals peru --version 1 --node 127.0.0.1:7070") == []
    assert unknown_words("gossipkv cluster up --nodes=3 --noodles") == ["--noodles"]
    assert unknown_words("gossipkv cluster fly") == ["fly"]


def test_an_unclaimed_block_is_seen() -> None:
    """A block of an unlisted page has no cover; a block of a listed page has the listed test."""
    unclaimed, indented = blocks_in("docs/new.md", "```sh\nls\n```\n\n- so\n\n  ```console\n  $ ls\n  a\n  ```\n")
    assert (unclaimed.line, unclaimed.text, seen_to(unclaimed)) == (1, "ls\n", [])
    assert (indented.language, indented.text) == ("console", "$ ls\na\n")
    (run,) = blocks_in("README.md", "```sh\nls\n```\n")
    assert seen_to(run) == [f"{HERE}test_the_pages_for_users_in_a_row"]


def test_commands_are_told_from_output() -> None:
    """Continuation lines belong to their command; comments are skipped."""
    (script,) = blocks_in("page", "```sh\n# first\necho a \\\n  b\ncat > x <<'END'\n# kept\nEND\nls\n```\n")
    assert [typed.command for typed in commands(script)] == ["echo a \\\n  b", "cat > x <<'END'\n# kept\nEND", "ls"]
    (console,) = blocks_in("page", "```console\n$ cat <<END\n> b\n> END\nb\n$ true\n```\n")
    assert [(typed.command, typed.shown) for typed in commands(console)] == [("cat <<END\nb\nEND", "b"), ("true", "")]


@pytest.mark.parametrize(
    ("expected", "actual", "so"),
    [
        ("a", "a\n", True), ("a", "b\n", False), ("a", "a\nb\n", False), ("a.c", "abc\n", False),
        ("a … c", "a b c  \n", True), ("a … c", "a b\nc\n", False), ("…", "a\nb\n", True),
        ("a\n…\nc", "a\nc\n", True), ("a\n…\nc", "a\nb\nd\n", False),
    ],
)  # fmt: skip
def test_output_is_compared(expected: str, actual: str, *, so: bool) -> None:
    """`…` matches anything within its line, and any lines if alone."""
    assert is_shown(expected, actual) is so


def test_values_in_comments_are_compared() -> None:
    """A comment that begins with a literal is compared with the expression before it; prose is not."""
    assert [value_noted(note) for note in ("19", "11, beside 19", "-1: signed", "twenty bytes", 'b"a", or None')] == [
        "19", "11", "-1", None, 'b"a"'
    ]  # fmt: skip
    exec(checked("value = 1 + 1  # 3\nvalue + 1  # 3\nprint(value)  # 2, no more\nvalue  # prose\n"), {})
    with pytest.raises(AssertionError):
        exec(checked("1 + 1  # 3\n"), {})


def test_a_reader_has_a_shell_of_its_own(tmp_path: Path) -> None:
    """Exports persist, a status is returned, and the page's paths and ports become the reader's."""
    with Reader(tmp_path) as reader:
        assert reader.type("export NAME=value; cd ..; false").status == 1
        assert reader.type("echo $NAME").text == "value\n"
        said = reader.type("echo a > /tmp/a; ls /tmp/a; echo 127.0.0.1:7071")
        assert said.text == "/tmp/a\n127.0.0.1:7071\n"
        assert (tmp_path / "tmp" / "a").exists()
        assert str(tmp_path) in shlex.quote(reader.here("/srv/x"))
