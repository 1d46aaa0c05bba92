"""python -m orion_ane: the command `orion`."""

import sys

from orion_ane.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
