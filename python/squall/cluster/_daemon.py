"""A node's daemon, started on this machine for one owner, and ended with it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from .._binary import find_binary
from .._errors import Error
from .._http import Http, Reply

__all__ = ["Daemon", "DaemonError"]

#: Command prefix for a process that must end with this process.
KEPT = (sys.executable, "-I", "-S", str(pathlib.Path(__file__).with_name("_keeper.py")))
#: Maximum seconds until the daemon serves, and until it has ended after a request to end.
START_S, END_S = 20.0, 8.0
#: Number of characters of the log that an error message shows.
LAST = 2000


class DaemonError(Error):
    """A node's daemon does not start, or has died."""


class Daemon:
    """``squall serve`` on loopback, accessed through its Unix socket with a private token.

    Its directory is private to this user. Without `data` the directory is temporary, and removed
    with the daemon.
    """

    def __init__(
        self,
        squall: str | None = None,
        data: str | None = None,
        lease_s: float = 2.0,
        allow: Sequence[str] = (),
    ) -> None:
        self._own = data is None
        self.data = pathlib.Path(data or tempfile.mkdtemp(prefix="squall-node-"))
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.log = self.data / "node.log"
        token = self.data / "cluster-token"
        token.unlink(missing_ok=True)
        with os.fdopen(os.open(token, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        self.command = [
            *(squall or find_binary(), "serve", "--json", "--grpc", "off"),
            *("--listen", "127.0.0.1:0", "--token", str(token), "--data", str(self.data)),
            *("--lease", f"{round(lease_s * 1000)}ms"),
            *(word for one in allow for word in ("--allow", one)),
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*KEPT, *(("--remove", str(self.data)) if self._own else ()), *self.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        try:
            self.bound = self._served()
            self.http = Http(f"unix:{self.bound['socket']}", token.read_text(), None, 10.0)
            self.info = self.ask("GET", "/info")
        except BaseException:
            self.end()
            raise

    def ask(
        self, method: str, path: str, body: Any = None, query: dict[str, Any] | None = None
    ) -> Any:
        """Send a request to ``/squall/v1``, and return the JSON of the response."""
        reply = self.send(method, path, body, query)
        return reply.json() if reply.body else None

    def send(
        self, method: str, path: str, body: Any = None, query: dict[str, Any] | None = None
    ) -> Reply:
        """Send a request to ``/squall/v1``."""
        return self.http.send(method, f"/squall/v1{path}", body, query)

    def alive(self) -> bool:
        """Return whether the daemon's process is running."""
        return self.process.poll() is None

    def last_words(self) -> str:
        """Return the end of the daemon's log."""
        with contextlib.suppress(OSError):
            return self.log.read_bytes()[-LAST:].decode(errors="replace").strip()
        return ""

    def end(self) -> None:
        """End the daemon and remove a temporary directory, within a few seconds in any case."""
        if self.process.stdin:
            # The keeper takes end of file as the end of its parent.
            self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_S)
        if self.process.stdout:
            self.process.stdout.close()
        if hasattr(self, "http"):
            self.http.close()
        if self._own:
            shutil.rmtree(self.data, ignore_errors=True)

    def _served(self) -> dict[str, Any]:
        """Return the line that the daemon prints when it is ready to serve."""
        assert self.process.stdout is not None
        end, text = time.monotonic() + START_S, b""
        while not text.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0:
                raise DaemonError(f"squall serve is silent after {START_S:.0f} s{self._log_tail()}")
            if select.select([self.process.stdout], [], [], left)[0]:
                more = os.read(self.process.stdout.fileno(), 65536)
                if not more:
                    raise DaemonError(f"squall serve does not start{self._log_tail()}")
                text += more
        table: dict[str, Any] = json.loads(text)
        return table

    def _log_tail(self) -> str:
        words = self.last_words()
        return f":\n  {words}" if words else ""
