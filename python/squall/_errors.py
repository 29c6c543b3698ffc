"""Exceptions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Diagnostic", "Error", "PortError", "ProfileError", "ServerError", "UnknownStream"]


class Diagnostic(NamedTuple):
    """One error in a profile.

    Attributes
    ----------
    origin : str
        File name, or ``<python>``.
    line, column : int
        1-based; 0 if there is no text.
    path : str
        The key: ``stream[3].rate``. Empty if the error is not in a single key.
    message : str
        The error.
    details : list of str
        The valid names, and what to try.
    """

    origin: str
    line: int
    column: int
    path: str
    message: str
    details: Sequence[str]


#: Control characters except newline and tab, and bidirectional formatting marks.
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Make terminal control characters visible: names, rules and octets in captures may contain any
    character.
    """
    return _STEERS.sub(
        lambda found: chr(0x2400 + ord(found[0])) if found[0] < " " else "\ufffd", text
    )


class Error(Exception):
    """Base of all errors of this package, except Python's own (such as TypeError).

    ``args`` has the original message; in ``str()``, terminal control characters are replaced.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class ProfileError(Error, ValueError):
    """The profile or an address is invalid; nothing was sent.

    Attributes
    ----------
    diagnostics : list of Diagnostic
        All errors, in the order of the text. The message includes all of them.

    Examples
    --------
    >>> import squall
    >>> text = '''
    ... [ports]
    ... A = "loop:0"
    ... [[stream]]
    ... packet = "eth/ipv4/udp"
    ... rate = "12 Gbp"
    ... '''
    >>> try:
    ...     squall.Profile.from_toml(text)
    ... except squall.ProfileError as error:
    ...     [wrong] = error.diagnostics
    >>> wrong.line, wrong.path
    (6, 'stream[0].rate')
    """

    diagnostics: list[Diagnostic]

    def __init__(
        self,
        message: str,
        diagnostics: Iterable[tuple[str, int, int, str, str, Sequence[str]]] = (),
    ) -> None:
        super().__init__(message)
        self.diagnostics = [Diagnostic(*d) for d in diagnostics]


class PortError(Error):
    """A port cannot be opened or was lost: permission, interface, driver. The message has a
    hint."""


class ServerError(Error):
    """A daemon does not answer, or returns an error unrelated to a profile, a port or a stream.

    Attributes
    ----------
    status : int
        HTTP status: 401 if the token is missing or wrong; 0 if there was no response.
    code : str
        The daemon's error code: ``unauthorized``, ``not_found`` ...; this package adds
        ``unreachable`` and ``tls``.
    """

    status: int
    code: str

    def __init__(self, message: str, status: int, code: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class UnknownStream(Error, LookupError):
    """No stream or template has this name; the message lists similar names.

    Attributes
    ----------
    name : str
        The requested name.
    """

    name: str

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        names = list(known)
        near = difflib.get_close_matches(name, names) or names[:10]
        there_is = f"there is {', '.join(map(repr, near))}" if near else "there is none"
        super().__init__(f"no stream or template is called {name!r}: {there_is}")
        self.name = name
