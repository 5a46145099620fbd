"""The `gossipkv` command, which is `python -m gossipkv`."""

from gossipkv import interrupt

interrupt.exit_at_once()

from gossipkv import garbage  # noqa: E402  # From the line above on, Ctrl-C ends the process.
from gossipkv.processes import streams  # noqa: E402  # Ctrl-C ends the process here, too.

streams.mend_standard()
garbage.leave()

from gossipkv.cli import main  # noqa: E402  # Loading takes time, and may be interrupted.

if __name__ == "__main__":
    main()
