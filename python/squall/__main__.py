"""``python -m squall ARGUMENTS``: run the command line tool, wherever it is installed."""

from __future__ import annotations

import os
import sys

from squall._binary import find_binary
from squall._errors import PortError


def main() -> None:
    """Replace this process with the command line tool.

    Raises
    ------
    SystemExit
        The tool is not installed: exit status 3 and a message.
    """
    try:
        program = find_binary()
    except PortError as error:
        print(f"squall: {error}", file=sys.stderr)
        sys.exit(3)
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
