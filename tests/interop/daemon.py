#!/usr/bin/env python3
"""Kills the daemon and its clients (a Python client, a browser with the web page, stock clients of
Open Traffic Generator) during runs, captures and uploads. Traffic stops within the lease, ports are
free, the history is complete, and no partial file is left on the disk. SIGTERM ends everything
within two seconds; a directory belongs to one daemon; a full or read-only disk is an error.
Everything runs in a lab. An argument names a single step.
"""

import contextlib
import http.client
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

from tools import in_a_lab, slowness
from secure import (
    API,
    OCTETS,
    ROOT,
    SQUALL,
    Daemon,
    Failed,
    WebSocket,
    check,
    expect,
    in_steps,
    profile,
)

SEED = int(os.environ.get("SEED", "7"))
# Lease duration of all clients here, and the slack for a busy machine, in seconds.
LEASE, MORE = 3, 2
RATE = 1000
SNAPPI = ROOT / "target/otg/snappi-1.62.0/bin/python"
COUNTER = pathlib.Path("/sys/class/net/veth-a/statistics/tx_packets")
PORTS = ["af_packet:veth-a", "af_packet:veth-b"]


def sent():
    return int(COUNTER.read_text())


def sends(timeout_s=60, what="nothing is sent", frames=RATE // 10):
    before, deadline = sent(), time.monotonic() + timeout_s
    while sent() < before + frames:
        expect(time.monotonic() < deadline, f"{what}: {sent() - before} frames in {timeout_s} s")
        time.sleep(0.02)


def goes_on(seconds, what):
    """Check that frames leave continuously, with allowance for a busy machine."""
    end = time.monotonic() + seconds
    # Count polls at intervals of 0.1 s instead of time: a machine that is stopped meanwhile does
    # not poll either.
    before, looks = sent(), 0
    while time.monotonic() < end:
        time.sleep(0.1)
        now = sent()
        before, looks = now, 0 if now > before else looks + 1
        expect(looks * 0.1 < LEASE / 2, f"{what}: nothing is sent any more")


def stops(within, what):
    """Return the seconds for which frames still leave."""
    since = last = time.monotonic()
    before = sent()
    while time.monotonic() - last < 0.4:
        time.sleep(0.01)
        if sent() != before:
            before, last = sent(), time.monotonic()
        expect(
            last - since < within + 5, f"{what}: frames are sent {last - since:.1f} s later still"
        )
    most = within * slowness()
    check(
        last - since < most,
        f"{what}: frames were sent for {last - since:.1f} s, expected less than {most:.1f} s",
    )
    return last - since


def within_limit(took, what):
    """Check that the daemon has ended within its limit."""
    most = 2 * slowness()
    check(took < most, f"{what}: {took:.2f} s, expected less than {most:.2f} s")


everywhere = []


class Served:
    """A daemon in a directory, in which it can be restarted."""

    def __init__(self, folder, **options):
        self.folder = folder
        self.options = {
            "listen": "127.0.0.1:0",
            "grpc": "127.0.0.1:0",
            "lease": f"{LEASE}s",
            "token": "always",
            **options,
        }
        self.tmp = folder.with_name(f"tmp-{folder.name}")
        self.tmp.mkdir(exist_ok=True)
        self.daemon = None
        everywhere.append(self)

    def start(self):
        os.environ["TMPDIR"] = str(self.tmp)
        try:
            self.daemon = Daemon(
                self.folder,
                *[part for name, value in self.options.items() for part in (f"--{name}", value)],
            )
        finally:
            del os.environ["TMPDIR"]
        return self.daemon

    def kill(self):
        self.daemon.process.kill()
        self.daemon.process.wait()

    def terminate(self, how=signal.SIGTERM):
        """Terminate the daemon. Return its exit status, and the seconds that it took."""
        since = time.monotonic()
        self.daemon.process.send_signal(how)
        try:
            return self.daemon.process.wait(60), time.monotonic() - since
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed("the daemon goes on after more than 60 s") from None

    def clean(self):
        """Check that no file of an unfinished operation is left."""
        left = [
            str(path.relative_to(self.tmp))
            for path in self.tmp.rglob("*")
            if "squall-recordings" in str(path)
        ]
        check(not left, f"left in the folder for temporary files: {left}")
        unfinished = list((self.folder / "unfinished").iterdir())
        check(not unfinished, f"left of uploads: {unfinished}")
        with contextlib.closing(sqlite3.connect(self.folder / "history.sqlite")) as history:
            check(
                history.execute("PRAGMA integrity_check").fetchall() == [("ok",)],
                "the history is damaged",
            )

    def stored_report(self, path):
        """Return the report of the run at `path` that a crash now would leave, compressed; None if
        there is none yet."""
        run = path.rpartition("/")[2]
        with contextlib.closing(sqlite3.connect(self.folder / "history.sqlite")) as history:
            row = history.execute("SELECT report FROM runs WHERE id = ?", (run,)).fetchone()
        return row and row[0]

    def free(self):
        got = self.daemon.ask("POST", f"{API}/leases", {"ports": PORTS, "owner": "next"})
        check(got.status == 201, f"the ports are not free: {got}")
        if got.status == 201:
            self.daemon.ask("DELETE", f"{API}/leases/{got.json()['id']}")

    def latest(self, **wanted):
        for run in self.daemon.ask("GET", f"{API}/runs").json()["runs"]:
            if all(run[key] == value for key, value in wanted.items()):
                return run
        raise Failed(f"no run with {wanted}")

    def reported(self, run, before, because):
        """Check that an ended run has a report, and that its number of frames equals the increase
        of the interface's counter from `before`.
        """
        path = f"{API}/runs/{run['id']}"
        row = self.daemon.until(path, lambda row: row["state"] in ("done", "failed", "interrupted"))
        check(
            row["state"] == "interrupted" and because in (row["error"] or ""), f"the run is {row}"
        )
        report = self.daemon.ask("GET", f"{path}/report")
        expect(report.status == 200, f"the report: {report}")
        found_frames, counted = (
            sum(stream["tx_packets"] for stream in report.json()["streams"]),
            sent() - before,
        )
        check(
            found_frames == counted,
            f"the report tells of {found_frames} frames, the interface of {counted}",
        )


def client_of(command, printed, environment=None, stdin=None):
    """Start a client in its own process group, and wait until it has printed `printed`."""
    client = subprocess.Popen(
        [str(part) for part in command],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    if stdin:
        client.stdin.write(stdin)
        client.stdin.close()
    output_lines = []
    for line in client.stdout:
        output_lines.append(line)
        if line.startswith(printed):
            return client, line.split()[1:]
    raise Failed(f"the client said {''.join(output_lines)[-2000:]!r}")


@contextlib.contextmanager
def killed_at_last(client):
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(client.pid, signal.SIGKILL)
        client.wait()
        client.stdout.close()


PYTHON = """
import os, sys, time, squall
client = squall.connect(sys.argv[1], token=os.environ["SQUALL_TOKEN"], verify=False)
run = client.session(sys.argv[2], name="of a client").start()
print("started", run.id, flush=True)
time.sleep(3600)
"""

# A client that uses the HTTP API alone, for when the package is not built.
BARE = """
import http.client, json, os, ssl, sys, time
context = ssl._create_unverified_context()
headers = {"authorization": "Bearer " + os.environ["SQUALL_TOKEN"], "content-type": "application/json"}
asks = http.client.HTTPSConnection(sys.argv[1].split("//")[1], context=context)
def ask(method, path, body):
    asks.request(method, path, json.dumps(body), headers)
    return json.loads(asks.getresponse().read())
run = ask("POST", "/squall/v1/runs", {"profile": open(sys.argv[2]).read(), "name": "of a client"})["run"]
print("started", run["id"], flush=True)
while True:
    ask("POST", f"/squall/v1/leases/{run['lease']}/renew", {})
    time.sleep(1)
"""


def stopped_by_its_lease(served, run, before, because):
    took = stops(LEASE + MORE, because)
    served.reported({"id": run}, before, "lease has expired")
    served.free()
    served.daemon.end()
    return f"traffic stopped after {took:.1f} s of {LEASE} s"


def a_client_in_python_is_killed(folder):
    python = ROOT / ".venv/bin/python"
    built = (
        python.exists()
        and subprocess.run([python, "-c", "import squall"], capture_output=True).returncode == 0
    )
    if not built:
        print(
            "SKIPPED: the package is not built (maturin develop): a client without it is killed instead"
        )
        python = sys.executable
    served = Served(folder / "python")
    daemon = served.start()
    text = folder / "endless.toml"
    text.write_text(profile(*PORTS))
    before = sent()
    command = [python, "-c", PYTHON if built else BARE, f"https://{daemon.name}", text]
    client, (run,) = client_of(command, "started", {"SQUALL_TOKEN": daemon.token})
    with killed_at_last(client):
        sends()
        goes_on(LEASE + 2, "the client lives")
    return stopped_by_its_lease(served, run, before, "the client was killed")


# A user who starts the first example of the page and watches it.
PAGE = """
const { chromium } = require("playwright-core");
const [url, executablePath] = process.argv.slice(-2);
(async () => {
  const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
  const server = await chromium.launchServer({ executablePath, args });
  const browser = await chromium.connect(server.wsEndpoint());
  const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
  page.setDefaultTimeout(60000);
  await page.goto(`${url}/#/streams`);
  await page.getByLabel("Token").fill(process.env.SQUALL_TOKEN);
  await page.getByRole("button", { name: "Log in" }).click();
  for (const [port, name] of [["A", "veth-a"], ["B", "veth-b"]]) {
    await page.getByLabel(`Address of port ${port}`).fill(name);
    await page.getByLabel(`Address of port ${port}`).press("Tab");
  }
  await page.getByText("ready", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Start" }).click();
  await page.waitForURL(/#\\/run\\?id=/);
  console.log("started", new URL(page.url().replace("#/", "")).searchParams.get("id"), server.process().pid);
})().catch((error) => { console.log(error.message); process.exit(1); });
"""


def the_browser_of_the_page_is_killed(folder):
    node, chromium = shutil.which("node"), shutil.which("chromium")
    if (
        not (ROOT / "ui/dist/index.html").exists()
        or not (ROOT / "ui/node_modules/playwright-core").exists()
        or not node
        or not chromium
    ):
        print("SKIPPED: no page, or no browser for it: scripts/setup node browser && scripts/ui")
        return None
    served = Served(folder / "page")
    daemon = served.start()
    before = sent()
    environment = {"SQUALL_TOKEN": daemon.token, "NODE_PATH": str(ROOT / "ui/node_modules")}
    # The script is read from standard input, so modules are found through NODE_PATH.
    client, (run, browser) = client_of(
        [node, "-", f"https://{daemon.name}", chromium], "started", environment, PAGE
    )
    with killed_at_last(client):
        sends()
        # The user keeps watching: the run lasts longer than its lease.
        try:
            goes_on(2 * LEASE, "the page watches")
        finally:
            os.killpg(int(browser), signal.SIGKILL)
    return stopped_by_its_lease(served, run, before, "the browser was killed")


# A stock client: it has no lease, and keeps its ports while it is connected.
OTG = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
import snappi
if sys.argv[1] == "grpc":
    api = snappi.api(location=sys.argv[2], transport="grpc")
else:
    api = snappi.api(location=sys.argv[2], verify=False)
config = snappi.Config()
config.ports.add(name="p1", location="veth-a")
config.ports.add(name="p2", location="veth-b")
config.captures.add(name="all", port_names=["p2"], format="pcapng")
flow = config.flows.add(name="f")
flow.tx_rx.port.tx_name, flow.tx_rx.port.rx_names = "p1", ["p2"]
flow.rate.pps, flow.metrics.enable, flow.size.fixed = 1000, True, 128
api.set_config(config)
capture = snappi.ControlState()
capture.port.capture.state = "start"
api.set_control_state(capture)
control = snappi.ControlState()
control.traffic.flow_transmit.state = "start"
api.set_control_state(control)
print("started", flush=True)
time.sleep(3600)
"""


def by_otg(served, transport):
    """Send and capture with a stock client. Over loopback it needs no token, and has none."""
    daemon = served.daemon
    where = (
        f"{daemon.grpc[0]}:{daemon.grpc[1]}" if transport == "grpc" else f"https://{daemon.name}"
    )
    client, _ = client_of([SNAPPI, "-c", OTG, transport, where], "started")
    return client


def stock_clients_are_killed(folder):
    if not SNAPPI.exists():
        print("SKIPPED: no snappi: scripts/setup otg")
        return None
    served = Served(folder / "otg", token="auto")
    daemon = served.start()
    took = []
    for transport in ["grpc", "https"]:
        before = sent()
        client = by_otg(served, transport)
        with killed_at_last(client):
            sends()
            # The connection is open but idle.
            goes_on(LEASE + 2, f"snappi over {transport} lives")
        took.append(stops(LEASE + MORE, f"snappi over {transport} was killed"))
        run = next(
            run for run in daemon.ask("GET", f"{API}/runs").json()["runs"] if len(run["ports"]) == 2
        )
        served.reported(run, before, "lease has expired")
        config = daemon.ask("GET", "/config").json()
        check(
            [flow["name"] for flow in config.get("flows", [])] == ["f"],
            f"the session's configuration is {str(config)[:200]}",
        )
        asked = {"choice": "flow", "flow": {}}
        metrics = daemon.ask("POST", "/monitor/metrics", asked).json()["flow_metrics"]
        counted = sent() - before
        found = [(m["transmit"], int(m["frames_tx"])) for m in metrics]
        check(
            found == [("stopped", counted)],
            f"its counters are {found}, the interface counted {counted}",
        )
        # A reader of metrics kept the ports while it was connected, and for one more lease.
        most = 2 * (LEASE + MORE) * slowness()
        daemon.until(f"{API}/leases", lambda found: not found["leases"], most)
        served.free()
    status, _ = served.terminate()
    check(status == 0, f"exit status {status}")
    served.clean()
    return f"traffic stopped after {' and '.join(f'{t:.1f}' for t in took)} s of {LEASE} s"


def upload(daemon, name, octets):
    """Return the head of an upload request."""
    lines = [
        f"PUT {API}/files/{name} HTTP/1.1",
        f"host: {daemon.name}",
        f"authorization: Bearer {daemon.token}",
    ]
    return "\r\n".join([*lines, f"content-length: {octets}", "", ""]).encode()


def under_way(served, otg=True):
    """Start all operations of a daemon. Yields names of runs, and connections to close."""
    daemon = served.daemon
    open_ones, runs = contextlib.ExitStack(), []

    def start(path, **body):
        got = daemon.ask("POST", f"{API}/{path}", body)
        expect(got.status == 201, f"{path} {body}: {got}")
        runs.append(got.json()["run"]["id"])

    if otg and SNAPPI.exists():
        open_ones.enter_context(killed_at_last(by_otg(served, "grpc")))
    else:
        start("runs", profile=profile(*PORTS), ttl_s=60)
    start(
        "runs",
        profile=profile("loop:x", "loop:x"),
        ttl_s=60,
        options={"capture": {"file": "beside.pcapng"}, "force": True},
    )
    start("captures", ports=["loop:y"], ttl_s=60, file="alone.pcapng", force=True)
    half = daemon.connect()
    half.sendall(upload(daemon, "half.bin", 9_999_999) + bytes(100_000))
    open_ones.callback(half.close)
    # One client reads, one does not, and one sends nothing.
    watch, lazy = (
        WebSocket(daemon, "runs=all&every_ms=100"),
        WebSocket(daemon, "runs=all&every_ms=100&log=1", receive=4096),
    )
    silent, unshaken = daemon.connect(), daemon.connect(tls=False)
    for one in [watch, lazy, silent, unshaken]:
        open_ones.callback(one.close)
    sends()
    # Frames are written in chunks, the first of them after 0.1 s or later.
    daemon.until(
        f"{API}/files",
        lambda found: any(
            file["name"] == "beside.pcapng" and file["size"] > 10_000 for file in found["files"]
        ),
    )
    time.sleep(0.6)
    return runs, open_ones


def the_daemon_is_killed(folder):
    served = Served(folder / "killed", token="auto")
    daemon = served.start()
    done = daemon.ask(
        "POST",
        f"{API}/runs",
        {"profile": profile("null:"), "name": "before", "options": {"packets": 50}},
    ).json()["run"]["id"]
    row = daemon.until(f"{API}/runs/{done}", lambda row: row["state"] == "done")
    report = daemon.ask("GET", f"{API}/runs/{done}/report").body

    def namespaces():
        # Other scripts make labs at the same time.
        return (
            [name for name in sorted(os.listdir("/run/netns")) if "daemon" in name]
            if os.path.isdir("/run/netns")
            else []
        )

    before = namespaces()
    longest = 0
    for number in range(2):
        runs, open_ones = under_way(served, otg=number == 0)
        runs = [run["id"] for run in daemon.ask("GET", f"{API}/runs?state=live").json()["runs"]]
        expect(len(runs) >= 3, f"only {runs} go on")
        served.kill()
        longest = max(longest, stops(0.5, "the daemon was killed"))
        open_ones.close()
        daemon = served.start()
        served.clean()
        served.free()
        check(
            daemon.ask("GET", f"{API}/runs/{done}").json() == row,
            "another run before the kill is not as it was",
        )
        check(
            daemon.ask("GET", f"{API}/runs/{done}/report").body == report,
            "its report is not as it was",
        )
        for run in runs:
            got = daemon.ask("GET", f"{API}/runs/{run}").json()
            check(
                got["state"] == "interrupted" and "killed" in got["error"],
                f"a run that was broken off is {got}",
            )
        check(
            daemon.ask("GET", f"{API}/runs?state=live").json()["runs"] == [],
            "runs go on in a daemon that was just started",
        )
        files = {
            entry["name"]: entry["size"]
            for entry in daemon.ask("GET", f"{API}/files").json()["files"]
        }
        check("half.bin" not in files and files.get("beside.pcapng", 0) > 0, f"files are {files}")
        packets = daemon.ask("GET", f"{API}/captures/beside.pcapng/packets?count=1")
        check(
            packets.status == 200 and packets.json()["packets"],
            f"a capture that was broken off: {packets}",
        )
    check(namespaces() == before, f"namespaces are left: {before} before, {namespaces()} now")
    # Kill repeatedly at random times: a run that was answered with 201 is in the history.
    dice, known = random.Random(SEED), []
    for _ in range(6):
        with contextlib.suppress(OSError, http.client.HTTPException):
            until = time.monotonic() + dice.uniform(0, 0.3)
            while time.monotonic() < until:
                got = daemon.ask(
                    "POST", f"{API}/runs", {"profile": profile("null:"), "options": {"packets": 3}}
                )
                if got.status == 201:
                    known.append(got.json()["run"]["id"])
        served.kill()
        daemon = served.start()
        served.clean()
    all_of = {
        run["id"]: run["state"]
        for run in daemon.ask("GET", f"{API}/runs?limit=1000").json()["runs"]
    }
    check(
        set(known) <= set(all_of),
        f"runs that are not in the history: {sorted(set(known) - set(all_of))}",
    )
    check(
        set(all_of.values()) <= {"done", "failed", "interrupted"},
        f"states are {set(all_of.values())}",
    )
    daemon.end()
    return f"traffic stopped after {longest:.2f} s at most; {len(all_of)} runs in the history"


def sigterm_ends_all_within_two_seconds(folder):
    longest = 0
    for how in [signal.SIGTERM, signal.SIGINT]:
        served = Served(folder / how.name, token="auto")
        daemon = served.start()
        before = sent()
        _, open_ones = under_way(served)
        runs = daemon.ask("GET", f"{API}/runs?state=live").json()["runs"]
        with open_ones:
            status, took = served.terminate(how)
            check(status == 0, f"{how.name}: exit status {status}: {daemon.words()[-1000:]}")
            within_limit(took, how.name)
            longest = max(longest, took)
            stops(0.1, how.name)
        wrong = [line for line in daemon.words().splitlines() if " INFO " not in line]
        check(not wrong, f"{how.name}: the daemon said {wrong!r}")
        daemon = served.start()
        served.clean()
        served.free()
        for run in runs:
            path = f"{API}/runs/{run['id']}"
            row, report = daemon.ask("GET", path).json(), daemon.ask("GET", f"{path}/report")
            check(
                row["state"] == "interrupted" and row["error"] == "the daemon ended",
                f"{how.name}: a run is {row}",
            )
            check(report.status == 200, f"{how.name}: the report of {row['name']}: {report}")
            if (
                report.status == 200
                and any("veth-a" in port["address"] for port in row["ports"])
                and row["streams"]
            ):
                found_frames, counted = (
                    sum(stream["tx_packets"] for stream in report.json()["streams"]),
                    sent() - before,
                )
                check(
                    found_frames == counted,
                    f"{how.name}: the report tells of {found_frames} frames, the interface of {counted}",
                )
        served.terminate()
    return f"{longest:.2f} s at most"


def it_starts_again_and_again(folder):
    served = Served(folder / "again")
    daemon = served.start()
    token, certificate = daemon.token, (daemon.data / "cert.pem").read_bytes()
    served.options |= {"listen": daemon.name, "grpc": f"{daemon.grpc[0]}:{daemon.grpc[1]}"}
    dice, times = random.Random(SEED), []
    kept = []
    for number in range(30):
        kept.append(daemon.connect())
        kept[-1].sendall(f"GET {API}/info HTTP/1.1\r\nhost: {daemon.name}\r\n\r\n".encode())
        kept[-1].recv(100)
        if number % 3 == 0:
            served.kill()
        else:
            status, took = served.terminate()
            check(status == 0, f"restart {number}: exit status {status} after {took:.1f} s")
            within_limit(took, f"restart {number}")
        if number % 5 == 0:
            # A daemon that is killed during its start does not prevent the next start.
            serve = [
                SQUALL,
                "serve",
                "--data",
                str(served.folder),
                "--listen",
                daemon.name,
                "--grpc",
                "off",
            ]
            early = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(dice.uniform(0, 0.08))
            early.kill()
            early.wait()
        since = time.monotonic()
        daemon = served.start()
        times.append(time.monotonic() - since)
        check(daemon.ask("GET", f"{API}/runs").status == 200, f"restart {number}")
    for one in kept:
        one.close()
    check(
        (daemon.token, (daemon.data / "cert.pem").read_bytes()) == (token, certificate),
        "token or certificate are others",
    )
    served.clean()
    # A first start that is killed at any point does not prevent the next start.
    for number in range(10):
        fresh = Served(folder / f"fresh-{number}", token="auto")
        serve = [
            SQUALL,
            "serve",
            "--data",
            str(fresh.folder),
            "--listen",
            "127.0.0.1:0",
            "--grpc",
            "off",
        ]
        early = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(number * 0.004)
        early.kill()
        early.wait()
        fresh.start()
        check(
            fresh.daemon.ask("GET", f"{API}/runs").status == 200,
            f"after a first start that was killed after {number * 4} ms",
        )
        fresh.daemon.end()
    daemon.end()
    return f"ready after {max(times):.2f} s at most"


def refused(folder, *words, options=()):
    """Check that a daemon that cannot start prints the reason, with status 3 and without a
    panic."""
    serve = [
        SQUALL,
        "serve",
        "--data",
        str(folder),
        "--listen",
        "127.0.0.1:0",
        "--grpc",
        "off",
        *options,
    ]
    try:
        done = subprocess.run(serve, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return check(False, f"a daemon starts in {folder}")
    printed = done.stderr
    good = (
        done.returncode == 3
        and str(folder) in printed
        and "panicked" not in printed
        and any(word in printed for word in words)
    )
    return check(
        good,
        f"in {folder}: exit status {done.returncode}, {printed!r}; expected {' or '.join(words)}",
    )


def a_folder_has_one_daemon(folder):
    served = Served(folder / "one")
    daemon = served.start()
    before = {
        path.name: path.read_bytes()
        for path in daemon.data.iterdir()
        if path.name in ("token", "key.pem", "cert.pem")
    }
    run = daemon.ask("POST", f"{API}/runs", {"profile": profile(*PORTS), "ttl_s": 60}).json()[
        "run"
    ]["id"]
    half = daemon.connect()
    half.sendall(upload(daemon, "whole.bin", 100) + bytes(50))
    sends()
    for _ in range(3):
        refused(daemon.data, "another daemon uses this folder")
    link = folder / "link"
    link.symlink_to(daemon.data)
    refused(link, "another daemon uses this folder")
    goes_on(1, "a second daemon was refused")
    check(
        daemon.ask("GET", f"{API}/runs/{run}").json()["state"] == "running", "the run of the first"
    )
    half.sendall(bytes(50))
    check(daemon.reply(half).status == 201, "an upload to the first")
    half.close()
    now = {name: (daemon.data / name).read_bytes() for name in before}
    check(now == before, "token or certificate are others")
    served.terminate()
    # The message about an address in use must differ from that about a directory in use.
    other = Served(folder / "other")
    other.start()
    serve = [
        SQUALL,
        "serve",
        "--data",
        str(folder / "third"),
        "--listen",
        other.daemon.name,
        "--grpc",
        "off",
    ]
    done = subprocess.run(serve, capture_output=True, text=True, timeout=30)
    check(
        done.returncode == 3
        and other.daemon.name in done.stderr
        and "try another port" in done.stderr,
        done.stderr,
    )
    other.terminate()


def full_or_read_only_disks_are_errors(folder):
    afile = folder / "afile"
    afile.write_text("x")
    refused(afile, "exists", "directory")
    for name, words in {
        "history.sqlite": ["not a database"],
        "token": ["letters, digits"],
        "cert.pem": ["certificate"],
    }.items():
        damaged = folder / f"damaged-{name}"
        Served(damaged).start().end()
        for journal in damaged.glob("history.sqlite-*"):
            journal.unlink()
        (damaged / name).write_bytes(b"\0no such thing\n" * 200)
        refused(damaged, *words)
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, text=True
    )
    if mounted.returncode:
        print(f"SKIPPED: no disk to fill: {mounted.stderr.strip()}")
        return
    served = Served(disk / "data", token="auto")
    try:
        full = disk / "full"
        with contextlib.suppress(OSError), open(full, "wb", buffering=0) as fill:
            while True:
                fill.write(bytes(65536))
        refused(disk / "data", "no space left", "full")
        full.unlink()
        daemon = served.start()
        before = sent()
        run = daemon.ask("POST", f"{API}/runs", {"profile": profile(*PORTS), "ttl_s": 60}).json()[
            "run"
        ]["id"]
        sends()
        with contextlib.suppress(OSError), open(full, "wb", buffering=0) as fill:
            while True:
                fill.write(bytes(4096))
        messages = {
            "an upload": daemon.ask("PUT", f"{API}/files/x.bin", bytes(1 << 20), OCTETS),
            "a note": daemon.ask("PATCH", f"{API}/runs/{run}", {"note": "x" * 9000}),
        }
        for what, got in messages.items():
            check(
                got.status == 422 and (b"full" in got.body or b"space" in got.body),
                f"on a full disk, {what}: {got}",
            )
        goes_on(1, "the disk is full")
        # A full disk does not prevent sending.
        small = {"profile": profile("null:") + "# " + "x" * 50_000, "options": {"packets": 1}}
        got = daemon.ask("POST", f"{API}/runs", small)
        expect(got.status == 201, f"a run on a full disk: {got}")
        of_full = got.json()["run"]["id"]
        daemon.until(f"{API}/runs/{of_full}", lambda row: row["state"] == "done")
        check(
            daemon.ask("GET", f"{API}/runs/{of_full}/report").json()["ports"][0]["tx"]["packets"]
            == 1,
            "its report",
        )
        got = daemon.ask("POST", f"{API}/captures", {"ports": ["loop:z"], "file": "z.pcapng"})
        check(got.status in (201, 422), f"a capture on a full disk: {got}")
        daemon.ask("POST", f"{API}/runs/{run}/stop")
        stops(1, "a stop on a full disk")
        daemon.alive()
        daemon.until(f"{API}/runs/{run}", lambda row: row["state"] in ("done", "failed"))
        served.free()
        full.unlink()
        status, took = served.terminate()
        check(status == 0, f"exit status {status} after {took:.1f} s")
        within_limit(took, "the end")
        daemon.stderr_text.close()
        daemon = served.start()
        row = daemon.ask("GET", f"{API}/runs/{run}").json()
        check(row["state"] in ("done", "failed"), f"after another start it is {row}")
        row = daemon.ask("GET", f"{API}/runs/{of_full}").json()
        check(row["state"] == "done", f"a run of the full disk is {row} after another start")
        check(sent() > before, "it has sent")
        served.terminate()
        # The message is in the log on the disk, too.
        daemon.stderr_text.close()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True, timeout=10)
        refused(disk / "data", "Read-only", "read-only", "readonly")
        refused(disk / "new", "Read-only", "read-only")
    finally:
        if served.daemon:
            served.daemon.end()
        subprocess.run(["umount", "-l", disk], timeout=10, check=False)


def a_run_that_lost_its_port_has_failed(folder):
    """Check that a run that sends or captures fails if its port is lost. A refused start is not a
    run."""
    served = Served(folder / "lost", allow="gone-*")
    daemon = served.start()
    answered = []
    for kind in ["runs", "captures"]:
        for command in ["add gone-a type veth peer name gone-b", "set gone-a up", "set gone-b up"]:
            subprocess.run(["ip", "link", *command.split()], check=True, timeout=10)
        body = (
            {"profile": profile("af_packet:gone-a")}
            if kind == "runs"
            else {"ports": ["af_packet:gone-a"]}
        )
        run = daemon.ask("POST", f"{API}/{kind}", {**body, "ttl_s": 60}).json()["run"]["id"]
        daemon.until(f"{API}/runs/{run}", lambda row: row["state"] == "running")
        counter = pathlib.Path("/sys/class/net/gone-a/statistics/tx_packets")
        deadline = time.monotonic() + 60
        while kind == "runs" and int(counter.read_text()) < RATE / 2:
            expect(time.monotonic() < deadline, "nothing is sent on gone-a")
            time.sleep(0.02)
        time.sleep(0.3)
        subprocess.run(["ip", "link", "del", "gone-a"], check=True, timeout=10)
        row = daemon.until(
            f"{API}/runs/{run}", lambda row: row["state"] not in ("starting", "running")
        )
        check(
            row["state"] == "failed" and "gone-a" in (row["error"] or ""),
            f"{kind}: the run is {row}",
        )
        if kind == "runs":
            report = daemon.ask("GET", f"{API}/runs/{run}/report").json()
            check(
                report["ports"][0]["tx"]["packets"] > RATE / 4,
                f"its report has {report['ports'][0]['tx']}",
            )
        got = daemon.ask("POST", f"{API}/{kind}", {**body, "ttl_s": 60})
        check(
            got.status >= 400 and "gone-a" in got.body.decode(),
            f"{kind} on a port that is gone: {got}",
        )
        answered.append(run)
    found = [run["id"] for run in daemon.ask("GET", f"{API}/runs").json()["runs"]]
    check(sorted(found) == sorted(answered), f"runs are {found}, expected {answered} alone")
    check(served.terminate()[0] == 0, "it ends")


def otg_config(flows, layers=1, **more):
    """Return a configuration with in-memory ports, and flows with this number of tags."""
    value = lambda text: {"choice": "value", "value": text}  # noqa: E731
    packet = [
        {
            "choice": "ethernet",
            "ethernet": {"dst": value("02:00:00:00:00:01"), "src": value("02:00:00:00:00:02")},
        },
        *[{"choice": "vlan", "vlan": {"id": value(n % 4000)}} for n in range(layers)],
        {"choice": "ipv4", "ipv4": {"src": value("10.0.0.1"), "dst": value("10.0.0.2")}},
        {"choice": "udp", "udp": {"src_port": value(1000), "dst_port": value(2000)}},
    ]
    flow = {
        "tx_rx": {"choice": "port", "port": {"tx_name": "p", "rx_names": ["q"]}},
        "packet": packet,
        "rate": {"choice": "pps", "pps": "1"},
        "size": {"choice": "fixed", "fixed": 512},
        "metrics": {"enable": True},
        **more,
    }
    ports = [{"name": name, "location": "loop:hostile"} for name in "pq"]
    return {"ports": ports, "flows": [{"name": f"f{n}", **flow} for n in range(flows)]}


# Maximum memory of a configuration, in MiB, that may remain allocated.
STAYS = 50


def memory_of_hostile_configurations_is_given_back(folder):
    served = Served(folder / "memory", token="none")
    daemon = served.start()
    transmit = lambda state: {
        "choice": "traffic",
        "traffic": {"choice": "flow_transmit", "flow_transmit": {"state": state}},
    }  # noqa: E731

    def otg(config, start=False):
        status = daemon.ask("POST", "/config", config, timeout=120).status
        if start and status == 200:
            status = daemon.ask("POST", "/control/state", transmit("start"), timeout=120).status
            time.sleep(1)
            daemon.ask("POST", "/monitor/metrics", {"choice": "flow", "flow": {}}, timeout=120)
            daemon.ask("POST", "/control/state", transmit("stop"), timeout=120)
        daemon.ask("POST", "/config", {})
        return status

    def run(text):
        return daemon.ask(
            "POST", f"{API}/runs", {"profile": text, "options": {"packets": 1000}}, timeout=120
        ).status

    cases = {
        "100,000 flows": lambda: otg(otg_config(100_000)),
        "10,000 flows, sent": lambda: otg(otg_config(10_000), start=True),
        "2,000,000 ports of nothing": lambda: (
            daemon.ask("POST", "/config", {"ports": [{}] * 2_000_000}, timeout=120).status
        ),
    }
    for small in [
        lambda: otg(otg_config(2), start=True),
        lambda: run(profile("loop:hostile", "loop:hostile")),
    ]:
        small()
    time.sleep(4)
    results = []
    for name, case in cases.items():
        # Repeated if too much is left: the layout of the allocator's pages varies, while a leak
        # appears each time.
        for _ in range(2):
            before, since = daemon.status()["MiB"], time.monotonic()
            status = case()
            took, most = time.monotonic() - since, daemon.status()["most MiB"]
            over = lambda found: all(
                run["state"] not in ("starting", "running") for run in found["runs"]
            )  # noqa: E731
            daemon.until(f"{API}/runs", over, 60)
            # Memory that is still in use after 10 s will not be freed.
            for _ in range(5):
                time.sleep(2)
                after = daemon.status()["MiB"]
                if after <= before + STAYS:
                    break
            daemon.alive()
            if after <= before + STAYS:
                break
        check(
            after <= before + STAYS,
            f"{name}: {before} MiB before, {after} MiB 10 s after it (status {status}, {took:.1f} s)",
        )
        results.append(
            f"{name}: status {status} after {took:.1f} s, {before} -> {after} MiB (at most {most})"
        )
    served.terminate()
    return "\n        ".join(["", *results])


def captures_of_otg_stop_at_once(folder):
    """Check that captures stop at once, idle or with traffic. The shortest time counts: a busy
    machine has pauses."""
    served = Served(folder / "stops", token="none")
    daemon = served.start()
    ports = [{"name": name, "location": f"veth-{name}"} for name in "ab"]
    config = {
        **otg_config(1),
        "ports": ports,
        "captures": [{"name": "c", "port_names": ["a", "b"], "format": "pcap"}],
    }
    config["flows"][0]["tx_rx"]["port"] = {"tx_name": "a", "rx_names": ["b"]}
    config["flows"][0]["rate"]["pps"] = "1000"
    capture = lambda state: {
        "choice": "port",
        "port": {"choice": "capture", "capture": {"state": state}},
    }  # noqa: E731
    got = daemon.ask("POST", "/config", config)
    expect(got.status == 200, f"{got}")
    took = []
    for busy in [False, True]:
        if busy:
            transmit = {
                "choice": "traffic",
                "traffic": {"choice": "flow_transmit", "flow_transmit": {"state": "start"}},
            }
            daemon.ask("POST", "/control/state", transmit)
        for _ in range(5):
            expect(
                daemon.ask("POST", "/control/state", capture("start")).status == 200,
                "the capture starts",
            )
            if busy:
                sends(frames=300)
            else:
                time.sleep(0.3)
            sock = daemon.connect()
            since = time.monotonic()
            expect(
                daemon.ask("POST", "/control/state", capture("stop"), sock=sock).status == 200,
                "the capture stops",
            )
            took.append(time.monotonic() - since)
            sock.close()
            if busy:
                got = daemon.ask("POST", "/monitor/capture", {"port_name": "b"})
                check(
                    len(got.body) > 50 * 512,
                    f"of 300 frames or more, {len(got.body)} octets are in the capture",
                )
    took.sort()
    served.terminate()
    check(
        took[0] < 0.1 * slowness(),
        f"seconds that stop_capture of two ports took: {[round(t, 3) for t in took]}",
    )
    return f"{took[len(took) // 2] * 1000:.0f} ms, at most {took[-1] * 1000:.0f} ms"


def a_standard_test_goes_on_after_a_kill(folder):
    """Kill the daemon during a test: frames stop on the interfaces, and a restarted daemon resumes
    from the journal."""
    served = Served(folder / "tested", allow="af_packet:veth-*")
    daemon = served.start()
    body = {
        "method": "soak",
        "ports": {"A": PORTS[0], "B": PORTS[1]},
        "between": {"one_way": True},
        "max_rate": f"{RATE}pps",
        "rest_s": 0,
        "options": {"linger": "50ms"},
        "settings": {"duration_s": 3600, "trial_s": 0.5, "load": 1, "frame_size": 64},
        "detached": True,
    }
    estimate = daemon.ask("POST", f"{API}/tests/estimate", body).json()
    check(estimate["trials"] == 7200, f"an hour of half seconds is estimated as {estimate}")
    before = sent()

    def begin(**more):
        got = daemon.ask("POST", f"{API}/tests", {**body, **more})
        expect(got.status == 201, f"the test does not start: {got}")
        return f"{API}/runs/{got.json()['run']['id']}"

    path = begin()
    row = daemon.until(path, lambda row: row["test"]["trial"] >= 4)
    found_frames = sum(trial["sent"] for trial in row["test"]["latest"])
    check(
        0 < found_frames <= sent() - before,
        f"trials tell of {found_frames} frames, veth-a of {sent() - before}",
    )
    first = served.stored_report(path)
    deadline = time.monotonic() + 60
    while served.stored_report(path) == first:
        expect(time.monotonic() < deadline, "no further report is stored while the test runs")
        time.sleep(0.05)
    served.kill()
    stops(1, "a test in a daemon that is killed")
    daemon = served.start()
    row = daemon.ask("GET", path).json()
    check(row["state"] == "interrupted", f"the test that was killed is {row}")
    report = daemon.ask("GET", f"{path}/report").json()
    check(len(report["trials"]) >= 1, "no trial is reported")
    served.free()
    again = begin(journal=row["test"]["journal"])
    known = len(report["trials"])
    daemon.until(again, lambda row: row["test"]["latest"])
    daemon.ask("POST", f"{again}/stop")
    row = daemon.until(again, lambda row: row["state"] == "done")
    more = daemon.ask("GET", f"{again}/report").json()
    check(more["trials"][:known] == report["trials"], "the first trials are other ones")
    check(more["verdict"]["status"] == "stopped", f"it ends as {more['verdict']}")
    check(served.terminate()[0] == 0, "it ends")
    check(len(more["trials"]) > known, "no trial is new")
    return f"{known} trials reported after the kill, {len(more['trials'])} in the end"


STEPS = [
    a_client_in_python_is_killed,
    the_browser_of_the_page_is_killed,
    stock_clients_are_killed,
    the_daemon_is_killed,
    sigterm_ends_all_within_two_seconds,
    it_starts_again_and_again,
    a_folder_has_one_daemon,
    full_or_read_only_disks_are_errors,
    a_run_that_lost_its_port_has_failed,
    a_standard_test_goes_on_after_a_kill,
    memory_of_hostile_configurations_is_given_back,
    captures_of_otg_stop_at_once,
]


def inside(folder, only):
    for command in ["ip link set lo up", "sysctl -qw net.ipv6.conf.all.disable_ipv6=1"]:
        subprocess.run(command.split(), check=True, timeout=20)
    failed = 0
    for what in STEPS:
        if not only or what.__name__ in only:
            failed += not in_steps(what.__name__, lambda what=what: what(folder))
            # Processes that outlived a failed step would disturb the next one.
            for served in everywhere:
                if served.daemon and served.daemon.process.poll() is None:
                    served.kill()
            everywhere.clear()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(in_a_lab(SQUALL, __file__, inside))
