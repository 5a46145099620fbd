"""`python -m gossipkv` is the `gossipkv` command."""

from gossipkv.cli import main

if __name__ == "__main__":
    main()
