"""Generate and measure network traffic from Python.

Everything is decided by the engine in Rust; this package converts what goes in and what comes out.

>>> import squall
>>> squall.__version__
'...'
"""

from ._native import __version__

__all__ = ["__version__"]
