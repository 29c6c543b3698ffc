"""Finds the command line tool."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

from ._errors import PortError


def find_binary() -> str:
    """Return the path of the program ``squall``.

    ``$SQUALL``, or the program installed with this package, or the first one on the search path.

    Raises
    ------
    PortError
        There is none, as with a package that was built from source.
    """
    if named := os.environ.get("SQUALL"):
        return named
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    for scheme in schemes:
        program = Path(sysconfig.get_path("scripts", scheme)) / "squall"
        if os.access(program, os.X_OK):
            return os.fspath(program)
    if found := shutil.which("squall"):
        return found
    raise PortError(
        "cannot find the program squall: it is neither in this installation nor in the search path"
        "\n  try pip install . in the source folder, or set $SQUALL to the program, such as"
        " target/demo/squall of make demo"
    )
