"""The programs of docs/users/your-table.md whose engines are large: run where those are installed."""

import ast
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gossipkv.cli.build import version_of
from gossipkv.cli.publish import publish
from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.offline.preview import preview
from gossipkv.environment.real_files import RealFiles

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "users" / "your-table.md").read_text(encoding="utf-8")
RECORDS = {b"france": b"Paris", b"peru": b"Lima", b"chile": b"Santiago"}


def example(name):
    (found,) = re.findall(rf"```python {name}\n(.*?)```", PAGE, re.DOTALL)
    return found


@pytest.mark.parametrize(
    ("name", "module", "records"), [("spark", "pyspark", 2), ("dask", "dask", 3), ("ray", "ray", 2)]
)
def test_an_engine_writes_what_can_be_published(tmp_path, name, module, records):
    """The program runs as it is printed, and a node would serve its rows."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    if name == "spark" and shutil.which("java") is None:
        pytest.skip("there is no java")
    script, version = tmp_path / "capitals.py", tmp_path / "version"
    script.write_text(example(name), encoding="utf-8")
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(script), str(version)], capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    _, listed = version_of(str(version))
    found = preview(BuildJob.of(listed, "."), RealFiles())
    assert found.records == records
    assert dict(found.first).items() <= RECORDS.items()


def test_a_scheduler_can_say_its_command():
    """The program compiles, and the command line has the options that it names."""
    code = ast.parse(example("airflow"))
    texts = [node.value for node in ast.walk(code) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    words = [word for text in texts for word in (shlex.split(text) if text.startswith("gossipkv ") else [text])]
    options = {word for word in words if word.startswith("--")}
    known = {name for option in publish.params for name in option.opts}
    assert "--wait" in options <= known
