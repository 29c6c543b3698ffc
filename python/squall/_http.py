"""Requests to a daemon: persistent connections, known certificates, and token lookup."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import json
import os
import pathlib
import re
import select
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from . import _native
from ._errors import Error, PortError, ProfileError, ServerError, UnknownStream

__all__ = ["Http", "Reply", "Verify"]

Verify = bool | str | os.PathLike[str] | None

PORT = 8443
#: Maximum octets of a response that is not written to a file: a report of 64 k streams has about
#: 100 MB.
LARGEST = 1 << 30
CHUNK = 1 << 20


@dataclass(frozen=True)
class Reply:
    """A response; ``body`` is empty if it was written to a file."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON.

        Raises
        ------
        ServerError
            The body is not JSON.
        """
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ServerError(
                f"the daemon's answer is not JSON: {self.body[:80]!r}", self.status, "no_json"
            ) from error


class Http:
    """Blocking requests to one daemon, from any thread; connections are reused.

    Parameters
    ----------
    url : str
        ``https://HOST[:PORT]`` or ``http://...``; the default scheme is https, the default port
        8443. ``unix:PATH`` is the socket of a daemon on this machine.
    token : str, optional
        Default: ``SQUALL_TOKEN``, or, for a daemon on this machine, the token in its directory, if
        it is readable.
    verify
        How to check the daemon's certificate: as in `squall.connect`.
    timeout : seconds
        Limit for connecting, and for each wait for a response.
    """

    def __init__(self, url: str, token: str | None, verify: Verify, timeout: float) -> None:
        self._timeout = timeout
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._closed = False
        self.ssl: ssl.SSLContext | None = None
        self._socket: str | None = None
        if url.startswith("unix:"):
            self._socket = url.removeprefix("unix:").removeprefix("//")
            if not self._socket:
                raise ValueError(
                    f"url {url!r}: expected unix:PATH, such as unix:/run/squall/socket"
                )
            # On a Unix socket the kernel identifies the user, so a token is rarely needed; a token
            # meant for another daemon is never sent.
            self.host, self.port, self.url, self.token = (
                "localhost",
                0,
                f"unix:{self._socket}",
                token,
            )
            return
        parts = urllib.parse.urlsplit(url if "://" in url else f"https://{url}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ValueError(f"url {url!r}: {error}") from None
        if parts.scheme not in ("https", "http") or not host:
            raise ValueError(
                f"url {url!r}: expected https://HOST:PORT, such as https://127.0.0.1:{PORT}"
            )
        if parts.path.rstrip("/") or parts.query or parts.username:
            raise ValueError(
                f"url {url!r}: expected only https://HOST:PORT; try token= for the token"
            )
        self.host, self.port = host, PORT if port is None else port
        self.url = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"
        known_token = None
        if parts.scheme == "https":
            self.ssl, known_token = self._trusting(verify)
        self.token = token or os.environ.get("SQUALL_TOKEN") or known_token

    def headers(self) -> dict[str, str]:
        """Return the headers that every request has."""
        headers = {
            "User-Agent": f"squall-python/{_native.__version__}",
            "Accept": "application/json",
        }
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        upload: IO[bytes] | None = None,
        into: IO[bytes] | None = None,
    ) -> Reply:
        """Send a request, and wait for the response.

        Parameters
        ----------
        path : str
            Path relative to the daemon's root, percent-encoded.
        body
            Sent as JSON.
        query
            None values are left out.
        upload, into
            Files that the request's body is read from, and that the response's body is written to.

        Raises
        ------
        ProfileError, PortError, UnknownStream
            The daemon refused the request; the same exceptions as for a local run.
        ServerError
            The daemon answered with another error, or not at all.
        """
        asked = {key: value for key, value in (query or {}).items() if value is not None}
        target = path + (f"?{urllib.parse.urlencode(asked)}" if asked else "")
        headers = self.headers()
        content: bytes | IO[bytes] | None = None
        if upload is not None:
            content = upload
            headers["Content-Type"] = "application/octet-stream"
            headers["Content-Length"] = str(_left(upload))
        elif body is not None or method in ("POST", "PUT", "PATCH"):
            content = json.dumps({} if body is None else body).encode()
            headers["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, target, content, headers)
            response = connection.getresponse()
            if into is not None and response.status < 400:
                while chunk := response.read(CHUNK):
                    into.write(chunk)
                octets = b""
            else:
                octets = response.read(LARGEST)
        except ssl.SSLError as error:
            connection.close()
            raise ServerError(
                f"{self.url}: {_why(error)}\n  try verify=: squall.connect explains it", 0, "tls"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ServerError(
                f"{self.url}: {_why(error)}\n  is `squall serve` running there?", 0, "unreachable"
            ) from error
        except BaseException:
            # A connection that was interrupted in the middle of a response cannot be reused.
            connection.close()
            raise
        self._keep(connection, response)
        if response.status >= 400:
            raise refused(response.status, octets)
        return Reply(response.status, octets)

    def close(self) -> None:
        """Close idle connections now, and every other one after its response."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                # The daemon has closed the idle connection. Sending on it would leave open whether
                # the request was executed.
                if (
                    connection.sock is not None
                    and not select.select([connection.sock], [], [], 0)[0]
                ):
                    return connection
                connection.close()
        if self._socket is not None:
            return _Unix(self._socket, self._timeout)
        if self.ssl is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=self._timeout)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=self._timeout, context=self.ssl
        )

    def _keep(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        with self._lock:
            if (
                not self._closed
                and not response.will_close
                and response.isclosed()
                and connection.sock is not None
            ):
                self._idle.append(connection)
                return
        connection.close()

    def _trusting(self, verify: Verify) -> tuple[ssl.SSLContext, str | None]:
        """Return how to check the daemon's certificate, and the token of a local daemon with this
        certificate."""
        if verify is False:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return context, None
        if verify is True:
            return ssl.create_default_context(), None
        if isinstance(verify, os.PathLike) or (
            isinstance(verify, str) and not _fingerprint(verify)
        ):
            try:
                return ssl.create_default_context(cafile=os.fspath(verify)), None
            except (OSError, ssl.SSLError) as error:
                expected = "expected True, False, a file of certificates (PEM), or a fingerprint (sha256:AB:CD...)"
                raise ValueError(f"verify = {verify!r}: {error}: {expected}") from None
        certificate = self._certificate()
        found = hashlib.sha256(certificate).hexdigest()
        if isinstance(verify, str):
            if not hmac.compare_digest(_fingerprint(verify) or "", found):
                raise ServerError(
                    f"{self.url} has an unexpected certificate\n  found    sha256:{found}\n"
                    f"  expected sha256:{_fingerprint(verify)}",
                    0,
                    "tls",
                )
            return _only(certificate), None
        for folder in _data_folders() if _is_loopback(self.host) else []:
            try:
                own = ssl.PEM_cert_to_DER_cert((folder / "cert.pem").read_text())
            except (OSError, ValueError):
                continue
            if own == certificate:
                # Other users may read the certificate, but not the token.
                with contextlib.suppress(OSError):
                    return _only(certificate), (folder / "token").read_text().strip() or None
                return _only(certificate), None
        if self._well_known():
            return ssl.create_default_context(), None
        remember(f"{self.host}:{self.port}", found)
        return _only(certificate), None

    def _certificate(self) -> bytes:
        """Fetch the daemon's certificate, unchecked."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with socket.create_connection((self.host, self.port), self._timeout) as plain:
                with context.wrap_socket(plain, server_hostname=self.host) as secure:
                    return secure.getpeercert(binary_form=True) or b""
        except ssl.SSLError as error:
            raise ServerError(f"{self.url}: {_why(error)}\n  is it http://?", 0, "tls") from error
        except OSError as error:
            raise ServerError(
                f"{self.url}: {_why(error)}\n  is `squall serve` running there?", 0, "unreachable"
            ) from error

    def _well_known(self) -> bool:
        """Return whether the certificate is signed by an authority that the system trusts."""
        try:
            with socket.create_connection((self.host, self.port), self._timeout) as plain:
                with ssl.create_default_context().wrap_socket(plain, server_hostname=self.host):
                    return True
        except OSError:
            return False


class _Unix(http.client.HTTPConnection):
    """HTTP over a Unix domain socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.close()
            raise


def remember(name: str, found: str) -> None:
    """Trust on first use: store the fingerprint of `name` (``host:port``), or compare it to the
    stored one.

    Raises
    ------
    ServerError
        The fingerprint has changed.
    """
    path = known_file()
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    for number, line in enumerate(lines, 1):
        known, _, fingerprint = line.partition(" ")
        if known == name:
            if hmac.compare_digest(_fingerprint(fingerprint.strip()) or "", found):
                return
            raise ServerError(
                f"the certificate of {name} has changed since it was first seen: someone may be eavesdropping\n"
                f"  found sha256:{found}\n  if the daemon was set up again, remove line {number} of {path}",
                0,
                "tls",
            )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{name} sha256:{found}\n")
    except OSError:
        # The file cannot be stored without a writable directory, so every use counts as the first.
        pass


def known_file() -> pathlib.Path:
    """Return the file with the fingerprints of daemons, one per line."""
    config = os.environ.get("XDG_CONFIG_HOME")
    return (
        (pathlib.Path(config) if config else pathlib.Path.home() / ".config")
        / "squall"
        / "known_daemons"
    )


def refused(status: int, body: bytes) -> Error:
    """Return the exception for an error response of the daemon."""
    try:
        error_of = json.loads(body)["error"]
        code, message, details = (
            str(error_of["code"]),
            str(error_of["message"]),
            list(error_of.get("details") or ()),
        )
    except (ValueError, LookupError, TypeError):
        return ServerError(
            f"the daemon answered {status}: {body[:200].decode(errors='replace')!r}",
            status,
            "unknown",
        )
    if code in ("bad_profile", "bad_request"):
        rows = [
            (
                "<daemon>",
                int(d.get("line") or 0),
                int(d.get("column") or 0),
                str(d.get("path") or ""),
                str(d["message"]),
                tuple(d.get("details") or ()),
            )
            for d in details
            if isinstance(d, dict) and "message" in d
        ]
        return ProfileError(message, rows)
    if code == "unknown_stream":
        return _unknown_stream(message)
    more = "".join(
        f"\n  {d.get('path', '')} {d.get('message', '')}".rstrip()
        for d in details
        if isinstance(d, dict)
    )
    if code.startswith("port_") or code == "environment":
        return PortError(message + more)
    return ServerError(message + more, status, code)


def _unknown_stream(message: str) -> UnknownStream:
    """Return the exception with the daemon's message, which lists all names."""
    named = re.search(r"'([^']*)'|\"([^\"]*)\"", message)
    error = UnknownStream((named[1] or named[2] or "") if named else "")
    error.args = (message,)
    return error


def _fingerprint(text: str) -> str | None:
    """Return the 64 hexadecimal digits of ``sha256:AB:CD...``, or None."""
    digits = text.lower().removeprefix("sha256:").replace(":", "")
    return digits if re.fullmatch("[0-9a-f]{64}", digits) else None


def _only(certificate: bytes) -> ssl.SSLContext:
    """Return a context that trusts only this certificate and ignores its host names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    return context


def _data_folders() -> list[pathlib.Path]:
    """Return the system's and the user's data directory of a local daemon."""
    state = os.environ.get("XDG_STATE_HOME")
    own = (pathlib.Path(state) if state else pathlib.Path.home() / ".local" / "state") / "squall"
    return [pathlib.Path("/var/lib/squall"), own]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _left(file: IO[bytes]) -> int:
    here = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(here)
    return end - here


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
