"""The node's own build child, which says at its end how much memory it has had at most.

A process of its own, because `VmHWM` never sinks.  It takes the child's order on its standard input, and its last line
on standard output is the number of bytes.
"""

from __future__ import annotations

import sys

from gossipkv.dataset.build import child


def main() -> int:
    """What the child says, then its peak."""
    status = child.main()
    print(child.peak_bytes())
    return status


if __name__ == "__main__":
    sys.exit(main())
