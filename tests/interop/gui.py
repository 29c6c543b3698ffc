#!/usr/bin/env python3
"""The web page in Chromium, in a private lab: tests/gui/gui.mjs acts as a user. This script sets up
the lab with a pair of interfaces, a daemon that requires a token, and a second daemon whose page
may use the first one. With `--shots FOLDER`, screenshots of all pages are saved there.
"""

import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A run typically takes a minute; screenshots take another.
TIMEOUT_S = 400


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(0)


def browse(command, environment, restart):
    """Run the browser's steps. Return its exit status, or the reason why it was ended."""
    browser = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    watchdog = threading.Timer(TIMEOUT_S, os.killpg, (browser.pid, signal.SIGKILL))
    watchdog.start()
    for line in browser.stdout:
        if line.strip() == "RESTART":
            restart()
        else:
            print(line, end="", flush=True)
    done = browser.wait()
    watchdog.cancel()
    return f"more than {TIMEOUT_S} s" if done == -signal.SIGKILL else done


def first_visit(squall, node, chromium):
    """A first visit: in a namespace without interfaces, by the user of the daemon."""
    # The lab only gives an ordinary user the permission to make another namespace.
    inside = [squall, "lab", "exec", f"gui-{os.getpid()}", "--"]
    url = "https://127.0.0.1:8443"
    with tempfile.TemporaryDirectory(prefix="squall-visit-") as folder:
        serve = [squall, "serve", "--listen", url.removeprefix("https://"), "--grpc", "off"]
        steps = [node, ROOT / "tests/gui/gui.mjs", url, chromium, "--first-visit", *sys.argv[1:]]
        script = f"""
            ip link set lo up
            {shlex.join(serve)} --data {folder}/data > {folder}/log 2>&1 &
            until grep -q 'squall serves' {folder}/log; do sleep 0.05; done
            {shlex.join(map(str, steps))}
            status=$?
            kill %1
            wait %1
            exit $status
        """
        return browse([*inside, "unshare", "-n", "bash", "-c", script], os.environ, lambda: None)


def main():
    squall = os.environ.get("SQUALL", str(ROOT / "target/debug/squall"))
    node, chromium = shutil.which("node"), shutil.which("chromium")
    if not (ROOT / "ui/dist/index.html").exists():
        skip("the web page is not built: make ui")
    if not node or not (ROOT / "ui/node_modules/playwright-core").exists():
        skip("no Node.js with playwright-core: scripts/setup node && scripts/ui")
    if not chromium:
        skip("no chromium: scripts/setup browser")
    name = f"gui-{os.getpid()}"
    up = subprocess.run([squall, "lab", "up", name], capture_output=True, text=True, timeout=60)
    if up.returncode == 3:
        skip(f"no lab: {up.stderr.strip()}")
    if up.returncode:
        sys.exit(f"lab up: {up.stderr}")
    daemon = other = None
    # Loopback addresses of the lab, whose loopback interface is its own.
    here, there = "https://127.0.0.1:8443", "https://127.0.0.1:8444"

    # Runs over nodes use a controller that does not need Ray.
    controlled = {
        **os.environ,
        "SQUALL_PYTHON": str(ROOT / "python/tests/cluster_controller.py"),
    }

    def serving(url, folder, peer):
        return [
            squall,
            "serve",
            "--listen",
            url.removeprefix("https://"),
            "--grpc",
            "off",
            "--data",
            folder,
            "--token",
            "always",
            "--peer",
            peer,
            "--inventory",
            str(pathlib.Path(folder).parent / "lab.toml"),
            "--json",
        ]

    def begin(command):
        begun = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=controlled)
        bound = json.loads(begun.stdout.readline())
        return begun, pathlib.Path(bound["token_file"]).read_text().strip()

    try:
        with tempfile.TemporaryDirectory(prefix="squall-gui-") as folder:
            (pathlib.Path(folder) / "lab.toml").write_text(
                '[node.one]\n[node.two]\n[ports]\nA = "one/eth1"\nB = "two/eth1"\n'
            )
            inside = [squall, "lab", "exec", name, "--"]
            # The browser reaches the daemon over loopback, which is down in a new namespace.
            subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True, timeout=20)
            serve = serving(here, f"{folder}/here", there)
            daemon, token = begin([*inside, *serve])
            other, second = begin([*inside, *serving(there, f"{folder}/there", here)])
            script = [
                node,
                str(ROOT / "tests/gui/gui.mjs"),
                here,
                chromium,
                *sys.argv[1:],
            ]
            # Passed in the environment, because all users can read arguments.
            environment = {
                **os.environ,
                "SQUALL_TOKEN": token,
                "SQUALL_OTHER": there,
                "SQUALL_OTHER_TOKEN": second,
            }

            def restart():
                nonlocal daemon
                daemon.kill()
                daemon.wait(timeout=20)
                daemon, _ = begin([*inside, *serve])

            done = browse([*inside, *script], environment, restart)
            daemon.send_signal(signal.SIGTERM)
            ended = daemon.wait(timeout=20)
            if done or ended not in (0, -signal.SIGTERM):
                sys.exit(f"the page: {done}, the daemon: {ended}")
            other.terminate()
            other.wait(timeout=20)
        if done := first_visit(squall, node, chromium):
            sys.exit(f"the first visit: {done}")
    finally:
        for each in (daemon, other):
            if each and each.poll() is None:
                each.kill()
        subprocess.run([squall, "lab", "down", name], capture_output=True, timeout=60)


if __name__ == "__main__":
    main()
