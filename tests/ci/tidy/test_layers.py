"""Imports go one way: the tree obeys the table of layers, and the checks see what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ci.tidy import layers
from tests.ci.tidy.planted import plant
from tests.ci.tidy.source import ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = sources(ROOT, "gossipkv", "src_ext/gossipkv")


def test_the_table_goes_one_way() -> None:
    """No part reaches itself through the parts it may import."""
    assert layers.check_table(layers.MAY_IMPORT) == []


def test_imports_go_one_way() -> None:
    """Every import in Python and every cimport in Cython goes down the layers."""
    assert layers.check_layers(PACKAGE) == []


def test_private_modules_stay_private() -> None:
    """Only an extension's own package imports it from Python."""
    assert layers.check_private_extensions(PACKAGE) == []


def test_only_shells_know_trio() -> None:
    """Trio is imported by the listed shells and by nothing else."""
    assert layers.check_trio(PACKAGE) == []


def test_cores_do_not_reach_the_world() -> None:
    """Cores import no clock, no randomness, no sockets, no files."""
    assert layers.check_cores(PACKAGE) == []


def test_no_modules_know_each_other_in_a_circle() -> None:
    """Not for types either: what two share has a place of its own."""
    assert layers.check_circles(PACKAGE) == []


UPWARDS = [
    ("gossipkv/wire/frames.py", "from gossipkv.node import pump\n"),
    ("gossipkv/wire/frames.py", "def late():\n    import gossipkv.cli\n"),
    ("gossipkv/wire/frames.py", "from gossipkv import dataset\n"),
    ("gossipkv/wire/frames.py", "from . import rpc\n"),
    ("gossipkv/wire/frames.py", "import gossipkv\n"),
    ("gossipkv/client/session.py", "from gossipkv.environment.seam import Clock\n"),
    ("gossipkv/storage/builder.py", "from tests.oracle import sorted_file\n"),
    ("gossipkv/node/wiring.py", "from gossipkv.environment.trio_world import real\n"),
    ("gossipkv/dataset/source/listing.py", "from gossipkv.dataset.database import Database\n"),
    ("gossipkv/gossip/membership/members.py", "from gossipkv.gossip.tree import tree\n"),
    ("gossipkv/gossip/tree/tree.py", "from gossipkv.gossip.core import Gossip\n"),
    ("gossipkv/dataset/build/job.py", "import gossipkv.dataset.offline.writer\n"),
    ("gossipkv/errors.py", "import gossipkv.settings.config\n"),
    ("gossipkv/novelty/thing.py", "import os\n"),
    ("src_ext/gossipkv/wire/_frames.pyx", "from gossipkv.serving._serving cimport Pump\n"),
    ("src_ext/gossipkv/wire/_frames.pxd", "cimport gossipkv.storage._sorted_file\n"),
    ("src_ext/gossipkv/wire/_frames.pyx", "from gossipkv.node cimport (\n    _serving,\n)\n"),
    ("src_ext/gossipkv/wire/_frames.pyx", "cdef f():\n    from gossipkv.serving.pump import Pump\n"),
    ("gossipkv/wire/_frames.pyi", "from gossipkv.dataset.local.version import Version\n"),
]


@pytest.mark.parametrize(("name", "text"), UPWARDS)
def test_an_import_upwards_is_seen(tmp_path: Path, name: str, text: str) -> None:
    """Each planted import against the layers is reported, once, with its place."""
    (wrong,) = layers.check_layers(plant(tmp_path, {name: text}))
    assert wrong.startswith(name)


DOWNWARDS = [
    (
        "gossipkv/dataset/build/parent.py",
        "from gossipkv.storage import builder\nimport gossipkv.keyspace.partitioner\n",
    ),
    ("gossipkv/node/wiring.py", "from gossipkv import __version__\n"),
    ("gossipkv/cli/serve.py", "from gossipkv.client import blocking\nfrom gossipkv.node import node\n"),
    ("src_ext/gossipkv/serving/_serving.pyx", "from gossipkv.storage._sorted_file cimport Slice, SortedFile\n"),
    ("src_ext/gossipkv/serving/_serving.pyx", "# from gossipkv.cli import main\nx = 'import gossipkv.cli'\n"),
    ("src_ext/gossipkv/wire/_frames.pyx", '"""Words.\n\nimport gossipkv.node in a docstring\n"""\nimport math\n'),
]


@pytest.mark.parametrize(("name", "text"), DOWNWARDS)
def test_an_import_downwards_is_not(tmp_path: Path, name: str, text: str) -> None:
    """What the layers allow, and what only looks like an import, is not reported."""
    assert layers.check_layers(plant(tmp_path, {name: text})) == []


def test_a_ring_in_the_table_is_seen() -> None:
    """Two parts that may import each other through a third are no layers."""
    ring = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert layers.check_table(ring) == ["`a` reaches itself", "`b` reaches itself", "`c` reaches itself"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gossipkv/node/wiring.py", "from gossipkv.storage import _sorted_file\n"),
        ("gossipkv/node/wiring.py", "from gossipkv.storage._sorted_file import SortedFile\n"),
        ("gossipkv/node/wiring.py", "import gossipkv.storage._sorted_file\n"),
        ("gossipkv/node/wiring.py", "from gossipkv.storage.builder import _merge\n"),
        ("src_ext/gossipkv/serving/_serving.pyx", "from gossipkv.storage._sorted_file import SortedFile\n"),
    ],
)
def test_a_private_import_is_seen(tmp_path: Path, name: str, text: str) -> None:
    """Each planted import of another package's private name is reported."""
    (wrong,) = layers.check_private_extensions(plant(tmp_path, {name: text}))
    assert wrong.startswith(name)


def test_a_private_import_at_home_is_not(tmp_path: Path) -> None:
    """A package's own modules may import its extension, and Cython may cimport it from above."""
    tree = plant(
        tmp_path,
        {
            "gossipkv/storage/sorted_file.py": "from gossipkv.storage._sorted_file import SortedFile\n",
            "gossipkv/storage/__init__.py": "from gossipkv.storage import _sorted_file\n",
            "src_ext/gossipkv/serving/_serving.pyx": "from gossipkv.storage._sorted_file cimport SortedFile\n",
        },
    )
    assert layers.check_private_extensions(tree) == []


def test_trio_outside_a_shell_is_seen(tmp_path: Path) -> None:
    """An unlisted module that imports trio, and a listed one that does not, are both reported."""
    tree = plant(
        tmp_path, {"gossipkv/node/core.py": "import trio.lowlevel\n", "gossipkv/serving/pump.py": "import os\n"}
    )
    wrong = layers.check_trio(tree, {"gossipkv.serving.pump": "waits for the epoll descriptor"})
    assert [line.split(":")[0] for line in wrong] == ["gossipkv.node.core", "gossipkv.serving.pump"]


@pytest.mark.parametrize("world", sorted(layers.WORLD))
def test_a_core_that_reaches_the_world_is_seen(tmp_path: Path, world: str) -> None:
    """Each module that reaches the world is reported in a core."""
    tree = plant(tmp_path, {"gossipkv/client/route.py": f"def f():\n    from {world} import something\n"})
    assert len(layers.check_cores(tree)) == 1


def test_a_circle_is_seen(tmp_path: Path) -> None:
    """Through a third module, and for types alone; what only imports from it is not part of it."""
    typed = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from gossipkv.{} import Thing\n"
    tree = plant(
        tmp_path,
        {
            "gossipkv/storage/one.py": "from gossipkv.storage import two\n",
            "gossipkv/storage/two.py": typed.format("storage.three"),
            "src_ext/gossipkv/storage/three.pyx": "from gossipkv.storage.one cimport Thing\n",
            "gossipkv/storage/four.py": "from gossipkv.storage import one\n",
        },
    )
    (wrong,) = layers.check_circles(tree)
    assert wrong.startswith("gossipkv.storage.one, gossipkv.storage.three, gossipkv.storage.two:")
