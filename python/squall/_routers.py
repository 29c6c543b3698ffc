"""Live orders of the routers of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["RouterControl"]

#: None, or an awaitable.
Done = TypeVar("Done")


class RouterControl(Generic[Done]):
    """The orders of one router of a run: `Run.router` makes it.

    An order is carried out at once, by the router's daemon. The report has it among the steps of
    the router, with its times and its error, if there is one. `duration` is a time after which the
    reverse follows: ``"5 s"``, or seconds.

    Raises
    ------
    Error
        From each method: there is no such router, or it does not have what the order names.
    """

    def __init__(self, send: Callable[[dict[str, Any]], Done]) -> None:
        self._send = send

    def _order(self, action: str, **keys: object) -> Done:
        given = {key: value for key, value in keys.items() if value is not None}
        return self._send({"action": action, **given})

    def withdraw(
        self,
        group: str | None = None,
        *,
        count: int | None = None,
        duration: float | str | None = None,
    ) -> Done:
        """Withdraw the routes of `group` (None: all groups), or the first `count` of them that are
        announced. A count needs a group with ``single = true``, or one that flaps."""
        return self._order("withdraw", group=group, count=count, duration=duration)

    def announce(self, group: str | None = None, *, count: int | None = None) -> Done:
        """Announce the routes of `group` (None: all groups), or the first `count` of them that are
        withdrawn."""
        return self._order("announce", group=group, count=count)

    def down(
        self,
        neighbor: str | None = None,
        *,
        message: str | None = None,
        duration: float | str | None = None,
    ) -> Done:
        """End the session of BGP with `neighbor`, or (None) all sessions of the router. `message`
        is a text for the neighbor (RFC 9003)."""
        return self._order("down", neighbor=neighbor, message=message, duration=duration)

    def up(self, neighbor: str | None = None) -> Done:
        """Begin sessions again that `down` has ended."""
        return self._order("up", neighbor=neighbor)

    def notify(
        self,
        code: int,
        subcode: int = 0,
        *,
        data: bytes = b"",
        neighbor: str | None = None,
        duration: float | str | None = None,
    ) -> Done:
        """End the session with `neighbor`, or (None) all sessions, with this NOTIFICATION (RFC 4271
        section 4.5). The router needs ``daemon = "native"``."""
        return self._order(
            "notify",
            neighbor=neighbor,
            code=code,
            subcode=subcode,
            data=data.hex() or None,
            duration=duration,
        )

    def restart(self) -> Done:
        """Restart the daemon, gracefully if the profile has ``graceful_restart = true``."""
        return self._order("restart")

    def refresh(self, neighbor: str | None = None) -> Done:
        """Ask neighbors of BGP for their routes again (RFC 2918)."""
        return self._order("refresh", neighbor=neighbor)

    def silent(self, *, duration: float | str | None = None) -> Done:
        """Drop all frames of the router in both directions, as if its link were cut."""
        return self._order("silent", duration=duration)

    def talk(self) -> Done:
        """End `silent`."""
        return self._order("talk")
