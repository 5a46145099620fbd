"""Build the extensions: every `src_ext/gossipkv/<package>/_name.pyx` becomes `gossipkv.<package>._name`.

All compiler flags and Cython directives stand here and nowhere else.  `GOSSIPKV_DEBUG=1` flips one build to
checks, line tables and annotated C; nothing else distinguishes it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE_ROOT = Path("src_ext")
DEBUG = os.environ.get("GOSSIPKV_DEBUG") == "1"

DIRECTIVES: dict[str, object] = {
    "language_level": "3",
    "auto_pickle": False,  # A pickled pointer is a wild pointer.
    "autotestdict": False,  # `__test__` would show in every stub.
    "binding": True,
    "embedsignature": False,
    "wraparound": False,  # Negative indices into buffers are bugs, not a feature.
    "cdivision": True,  # C's division; a divisor that came from outside is checked where it enters.
    "initializedcheck": True,
    "boundscheck": True,  # Raw reads go through checked cursors; nothing turns this off for a module.
    "warn.unused": True,
    "warn.multiple_declarators": True,
}

if sys.platform == "win32":
    COMPILE_ARGS = ["/O2"]
elif DEBUG:
    COMPILE_ARGS = ["-O0", "-g", "-DGKV_CHECKS=1", "-fno-strict-aliasing"]
else:
    # No -march=native: a wheel must run on every x86-64 and aarch64; faster instructions are found at run time.
    COMPILE_ARGS = ["-O3", "-fno-strict-aliasing", "-fno-plt"]

# The serving loop speaks epoll; elsewhere the package installs without it and is a client.
LINUX_ONLY = {"gossipkv.node._serving"}


def extensions() -> list[Extension]:
    """One extension for each .pyx below `src_ext`, named by its path."""
    found = []
    for path in sorted(SOURCE_ROOT.rglob("_*.pyx")):
        name = ".".join(path.relative_to(SOURCE_ROOT).with_suffix("").parts)
        if name in LINUX_ONLY and not sys.platform.startswith("linux"):
            continue
        headers = [str(header) for header in sorted(SOURCE_ROOT.rglob("*.h"))]
        found.append(
            Extension(
                name,
                [str(path)],
                include_dirs=[str(SOURCE_ROOT)],
                depends=headers,
                extra_compile_args=COMPILE_ARGS,
            )
        )
    return found


setup(
    ext_modules=cythonize(
        extensions(),
        include_path=[str(SOURCE_ROOT)],
        build_dir="build/cython",
        compiler_directives=DIRECTIVES,
        annotate=DEBUG,
        emit_linenums=DEBUG,
        show_all_warnings=False,
    ),
)
