#!/usr/bin/env python3
"""`squall top` in a terminal, driven by keys: their effect is visible in the daemon's API; the
terminal is restored after the view ends by q, Ctrl-C or SIGTERM; a restarted daemon is found.
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request

from tools import Failed, run, same

COLUMNS, ROWS = 100, 30
TIMEOUT_S = 60
PROFILE = """
[ports]
A = "loop:top"
B = "loop:top"
[[stream]]
name = "web"
port = "A"
packet = "eth/ipv4/udp"
rate = "1 kpps"
latency = true
[[stream]]
name = "dns"
port = "B"
packet = "eth/ipv4/udp(dport=53)"
rate = "100 pps"
"""


class Daemon:
    def __init__(self, squall, state, listen="127.0.0.1:0"):
        command = [
            squall,
            "serve",
            "--grpc",
            "off",
            "--json",
            "--listen",
            listen,
            "--data",
            f"{state}/squall",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["https"]
        self.tls = ssl.create_default_context(cafile=f"{state}/squall/cert.pem")

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/squall/v1/{path}", data, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20, context=self.tls) as answer:
            return json.load(answer)

    def run(self, name):
        return self.ask("runs", {"profile": PROFILE, "name": name, "ttl_s": 600})["run"]["id"]

    def asked_pps(self, run, stream):
        report = self.ask(f"runs/{run}/stats")["report"] or {"streams": []}
        return next((s["asked_pps"] for s in report["streams"] if s["name"] == stream), None)

    def state(self, run):
        return self.ask(f"runs/{run}")["state"]

    def end(self):
        self.process.terminate()
        self.process.wait(20)


class Terminal:
    """A terminal that runs a command, and its screen. Interprets only the escape sequences that the
    command uses.
    """

    def __init__(self, command, environment):
        self.main, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(end)
        # This end of the terminal stays open, so its modes can be read after the command has ended.
        self.end = end
        self.lines, self.row, self.column, self.rest = [[]], 0, 0, ""
        self.process = subprocess.Popen(
            command,
            stdin=end,
            stdout=end,
            stderr=end,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.lock = threading.Lock()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        octets = b""
        while True:
            if select.select([self.main], [], [], 0.2)[0]:
                octets += os.read(self.main, 65536)
                try:
                    text, octets = octets.decode(), b""
                except UnicodeDecodeError:
                    continue
                with self.lock:
                    self.play(text)

    def play(self, text):
        text = self.rest + text
        self.rest = ""
        while text:
            if sequence := re.match(r"\x1b\[([?0-9;]*)([A-Za-z])", text):
                self.sequence(sequence[1], sequence[2])
                text = text[sequence.end() :]
                continue
            if text[0] == "\x1b":
                self.rest = text
                return
            if text[0] == "\r":
                self.column = 0
            elif text[0] == "\n":
                self.row += 1
            else:
                self.fill()
                self.lines[self.row][self.column : self.column + 1] = [text[0]]
                self.column += 1
            text = text[1:]

    def sequence(self, parameters, what):
        self.fill()
        if what == "F":
            self.row, self.column = self.row - int(parameters or 1), 0
            if self.row < 0:
                raise Failed("the cursor leaves the screen")
        elif what == "H":
            self.row, self.column = 0, 0
        elif what == "K":
            del self.lines[self.row][self.column :]
        elif what == "J":
            del self.lines[self.row][self.column :]
            del self.lines[self.row + 1 :]

    def fill(self):
        while len(self.lines) <= self.row:
            self.lines.append([])
        line = self.lines[self.row]
        line.extend(" " * (self.column - len(line)))

    def shown(self):
        with self.lock:
            return "\n".join("".join(line) for line in self.lines)

    def press(self, keys):
        os.write(self.main, keys.encode())

    def until(self, what, text):
        until(f"{what}: {text!r} on the screen", lambda: re.search(text, self.shown()), self.shown)

    def modes(self):
        return termios.tcgetattr(self.end)[:4]


def until(what, holds, details=lambda: ""):
    end = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > end:
            raise Failed(f"{what}: not after {TIMEOUT_S} s\n{details()}")
        time.sleep(0.05)


def watch(squall, state, url):
    environment = {**os.environ, "XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state, "TERM": "xterm"}
    environment.pop("SQUALL_TOKEN", None)
    return Terminal([squall, "top", url], environment)


def near(daemon, run, stream, pps):
    until(
        f"{stream} at {pps} pps",
        lambda: abs((daemon.asked_pps(run, stream) or 0) - pps) < 1e-6,
        lambda: daemon.asked_pps(run, stream),
    )


def keys(daemon, terminal):
    """Check the keys that change rates of streams, pause a stream, and stop the run."""
    terminal.until("nothing runs", "no runs")
    run = daemon.run("evening")
    terminal.until("the run", r"▸ evening +running")
    terminal.until("its streams", r"(?s)STREAM.*▸ web.*  dns")
    if len(terminal.shown().splitlines()) > ROWS or any(
        len(l) > COLUMNS for l in terminal.shown().splitlines()
    ):
        raise Failed(f"larger than the terminal:\n{terminal.shown()}")
    for pressed, pps in [("+", 1100), ("-", 990), (">", 1980), ("<", 990)]:
        terminal.press(pressed)
        near(daemon, run, "web", pps)
    terminal.press("\x1b[B")
    terminal.until("the other stream", "▸ dns")
    terminal.press("++")
    near(daemon, run, "dns", 121)
    near(daemon, run, "web", 990)
    terminal.press("\x1b[A\x1b[A")
    terminal.until("a port", "▸ B ")
    terminal.press("+")
    terminal.until("a port has no rate", "select a stream")
    terminal.press("p")
    until("paused", lambda: daemon.state(run) == "paused", terminal.shown)
    terminal.until("paused", r"▸ evening +paused")
    terminal.press("p")
    until("resumed", lambda: daemon.state(run) == "running", terminal.shown)
    terminal.press("?")
    terminal.until("help", "end this view, but no run")
    terminal.press("x")
    until("no help", lambda: "end this view" not in terminal.shown(), terminal.shown)
    terminal.press("s")
    terminal.until("it asks", "stop evening[?]")
    terminal.press("n")
    terminal.until("it does not stop", "not stopped")
    same("state", daemon.state(run), "running")
    terminal.press("sy")
    until("stopped", lambda: daemon.state(run) == "done", terminal.shown)
    terminal.until("stopped", r"evening +done")


def ends(terminal, how, status=0):
    """Check that the view ends, and leaves the terminal as it was."""
    if isinstance(how, str):
        terminal.press(how)
    else:
        terminal.process.send_signal(how)
    same(f"exit status after {how!r}", terminal.process.wait(20), status)
    same(f"modes after {how!r}", terminal.modes(), terminal.before[:4])
    until("an empty screen", lambda: not terminal.shown().strip(), terminal.shown)


def main():
    squall = os.path.abspath(os.environ.get("SQUALL", "target/debug/squall"))
    with tempfile.TemporaryDirectory(prefix="squall-top-") as state:
        daemon = Daemon(squall, state)
        terminal = None
        try:
            terminal = watch(squall, state, daemon.url)
            keys(daemon, terminal)
            if terminal.modes() == terminal.before[:4]:
                raise Failed(
                    "the terminal's modes do not change: that they are restored proves nothing"
                )
            daemon.end()
            terminal.until("the daemon is gone", "reconnecting")
            daemon = Daemon(squall, state, daemon.url.removeprefix("https://"))
            until("found again", lambda: "reconnecting" not in terminal.shown(), terminal.shown)
            one = daemon.run("one")
            terminal.until("a run of the new daemon", r"▸ one +running")
            ends(terminal, "q")
            same("a view ends no run", daemon.state(one), "running")
            by_socket = [squall, "top", f"unix:{state}/squall/socket", "--once", "--json"]
            looked = json.loads(run(*by_socket).stdout)
            same(
                "runs by the socket",
                [one["name"] for one in looked["runs"] if one["state"] == "running"],
                ["one"],
            )
            for how in ["\x03", signal.SIGTERM, signal.SIGINT]:
                terminal = watch(squall, state, daemon.url)
                terminal.until("the run", r"▸ one +running")
                ends(terminal, how)
        except Failed as failed:
            print(f"FAILED: {failed}")
            sys.exit(1)
        finally:
            if terminal:
                terminal.process.kill()
            daemon.end()
    print(
        "squall top: keys change rates, pause and stop; the terminal is left as it was; a daemon is found again"
    )


if __name__ == "__main__":
    main()
