"""A lab with a pair of interfaces and a daemon in it, which serves Open Traffic Generator."""

import contextlib
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile


class Failed(Exception):
    """The lab or its daemon cannot be started. The message has its output."""


class Daemon:
    """A daemon in a lab: `inside` is the prefix of commands that run there, with the user of FRR,
    and `environment` has the addresses of the service."""

    def __init__(self, inside, environment, process, log):
        self.inside, self.environment = inside, environment
        self._process, self._log = process, log

    def log(self):
        self._log.seek(0)
        return self._log.read()

    def ended(self):
        """Return the exit status of the daemon, or None while it runs."""
        return self._process.poll()


@contextlib.contextmanager
def running(squall, lab):
    """Start a lab of this name, and a daemon; end both."""
    up = subprocess.run([squall, "lab", "up", lab], capture_output=True, text=True, timeout=60)
    if up.returncode != 0:
        raise Failed(f"lab up: {up.stderr}")
    try:
        with (
            tempfile.TemporaryDirectory() as data,
            tempfile.TemporaryDirectory() as users,
            tempfile.TemporaryFile("w+") as log,
        ):
            with_frr, libraries = frr(pathlib.Path(users))
            inside = [squall, "lab", "exec", lab, "--", *with_frr]
            serve = "serve --listen 127.0.0.1:0 --grpc 127.0.0.1:0 --json --data".split()
            process = subprocess.Popen(
                [*inside, squall, *serve, data],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **libraries},
            )
            try:
                line = process.stdout.readline()
                if not line.startswith("{"):
                    log.seek(0)
                    raise Failed(f"the daemon does not start: {line}{log.read()}")
                bound = json.loads(line)
                where = {"OTG_HTTPS": bound["https"], "OTG_GRPC": bound["grpc"]}
                yield Daemon(inside, {**os.environ, **where}, process, log)
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
    finally:
        subprocess.run([squall, "lab", "down", lab], capture_output=True, timeout=60)


def frr(folder):
    """A prefix of commands by which these have the user of FRR, even if the machine does not, and
    the environment for FRR's libraries. FRR is used if it is installed or unpacked."""
    found = shutil.which("zebra")
    if found is None:
        return [], {}
    home = pathlib.Path(found).resolve().parent.parent
    libraries = [*home.glob("*-linux-gnu"), *home.glob("*-linux-gnu/frr")]
    environment = {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}
    with contextlib.suppress(KeyError):
        pwd.getpwnam("frr")
        return [], environment
    more = {
        "passwd": "frr:x:64901:64901::/nonexistent:/usr/sbin/nologin\n",
        "group": "frr:x:64901:\nfrrvty:x:64902:frr\n",
    }
    for name, lines in more.items():
        (folder / name).write_text(pathlib.Path("/etc", name).read_text() + lines)
        (folder / name).chmod(0o644)
    folder.chmod(0o755)
    binds = "".join(f"mount --bind {folder}/{name} /etc/{name}; " for name in more)
    return ["unshare", "--mount", "sh", "-ec", f'{binds}exec "$@"', "sh"], environment
