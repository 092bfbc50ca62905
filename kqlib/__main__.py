"""`python -m kqlib` is the command `kq`."""

import sys

from kqlib.command.main import main

if __name__ == "__main__":
    sys.exit(main())
