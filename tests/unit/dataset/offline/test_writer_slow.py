"""Imports of an executor; the other tests are in `test_writer.py`."""

import subprocess
import sys


def test_importing_it_is_light():
    """An executor loads neither Trio nor fsspec, and its functions are pickled by name."""
    script = (
        "import sys, pickle, gossipkv.dataset as d\n"
        "heavy = {'trio', 'fsspec', 'asyncio', 'click', 'rich', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "for function in (d.write_partition, d.finish_version, d.partition_of):\n"
        "    assert pickle.loads(pickle.dumps(function)) is function\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
