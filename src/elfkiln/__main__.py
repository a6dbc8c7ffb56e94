"""`python -m elfkiln` is the `elfkiln` command."""

import sys

from elfkiln.cli import main

if __name__ == "__main__":
    sys.exit(main())
