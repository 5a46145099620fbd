"""The `gossipkv` command, which is `python -m gossipkv`."""

from gossipkv import garbage
from gossipkv.processes import interrupt

interrupt.exit_at_once()
garbage.leave()

from gossipkv.cli import main  # noqa: E402  # Loading takes time, and may be interrupted.

if __name__ == "__main__":
    main()
