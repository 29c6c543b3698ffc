#!/usr/bin/env python3
"""CPU time per connection of Squall's flows, compared to wrk and nginx: one request per connection,
100-octet bodies (--page), over a veth pair. And CPU time per request of HTTP/2, compared to h2load,
and of HTTP/3, compared to oha.

Clients: wrk (`Connection: close`) and `squall flows http`, both against the same nginx. Servers:
nginx and `squall flows serve`, both against the same wrk. HTTP/2 without TLS (side `http2`): h2load
and `squall flows http --http2`, both against the same nginx, with 10 streams in each of 10
connections. HTTP/3 (side `http3`, only if asked for): oha and `squall flows http --http3`, both
against the same server of quinn, which is built first (tests/interop/quinn_server); as many streams
and connections. Clients run on the last CPU, servers on the first; rounds alternate, ratios are
taken within a round.

On veth, the sender's system call also receives the frame. By default (--softirq), each end
therefore pays for the TCP of the other, and the CPU times of the two ends cannot be separated. So
for all tools, the frames of an end are received on its own CPU, like those of a NIC: for the
kernel's stack by RPS, for XDP by a pinned kernel thread (threaded NAPI). The figure of an end is
the user and system time of its process, including interrupts while it runs, and of that thread; `of
all` is the time of both ends and of everything else on the machine.

    flows.py [--rounds 5] [--seconds 4] [--connections 50] [--ports af_xdp,af_packet] [--sides
    clients,servers,http2,http3] [--page 100] [--softirq]
             [--realtime] [--out FILE]

Options of a port follow its kind: --ports af_xdp+mode=native,af_packet. With moderation=200 as
another option, frames of the veth gather in the driver, like those of a NIC; the kernel's stack
has no such wait.

On a busy machine, --realtime runs both ends with real-time priority (chrt -f).

`oha` is found in $PATH; its HTTP/3 is a feature: cargo install oha --features http3
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

import tools
from lab import IP_B, PORT_A, PORT_B, TICKS_PER_S, Lab, run, wait_for

RUNS = pathlib.Path(__file__).resolve().parents[1] / "runs"
# Addresses of Squall's flows, next to those of the kernel.
CLIENTS, SERVER = "10.9.0.101-10.9.0.150", "10.9.0.100"
# Connections of HTTP/2 and HTTP/3, and streams of each.
STREAMS = (10, 10)
ROOT = pathlib.Path(__file__).resolve().parents[2]
QUINN = ROOT / "target/quinn/release/quinn-server"
# Prefix of the commands of both ends.
REALTIME: list[str] = []
NGINX = """
daemon off; worker_processes 1; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 80 backlog=4096; root {folder}/www; }}
  server {{ listen 82 http2; root {folder}/www; keepalive_requests 1000000000; }}
}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=50, help="at once")
    parser.add_argument(
        "--ports", type=lambda text: text.split(","), default=["af_xdp", "af_packet"]
    )
    parser.add_argument(
        "--sides", type=lambda text: text.split(","), default=["clients", "servers", "http2"]
    )
    parser.add_argument("--page", type=int, default=100, help="octets of a body")
    parser.add_argument("--softirq", action="store_true")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args()
    REALTIME.extend(["chrt", "-f", "50"] if o.realtime else [])
    of_side = {side: ["nginx", "wrk"] for side in ("clients", "servers")}
    of_side |= {"http2": ["nginx", "h2load"], "http3": ["oha", "cargo", "openssl"]}
    for tool in dict.fromkeys(tool for side in o.sides for tool in of_side[side]):
        if shutil.which(tool) is None:
            return print(f"SKIPPED: needs {tool}", file=sys.stderr)
    if "http3" in o.sides:
        build_quinn()
    out = o.out or RUNS / f"{datetime.date.today()}-flows.json"
    records: list[dict] = []
    with out.open("w") as file, Lab() as lab:
        print(json.dumps(tools.host()), file=file)
        network(lab, own_cpu=not o.softirq)
        cases = [
            (side, round_, peer)
            for side in o.sides
            for round_ in range(o.rounds)
            for peer in ("peer", *o.ports)
        ]
        for side, round_, peer in cases:
            about = {"side": side, "round": round_, "load": os.getloadavg()[0]}
            measure = {"clients": clients, "servers": servers, "http2": http2, "http3": http3}[side]
            records.append(about | measure(lab, peer, o))
            print(json.dumps(records[-1]), file=file, flush=True)
            print(json.dumps(records[-1]), file=sys.stderr)
    print(table(records))


def network(lab: Lab, own_cpu: bool) -> None:
    for namespace, port, cpu in ((lab.a, PORT_A, lab.tx_cpu), (lab.b, PORT_B, lab.rx_cpu)):
        inside = ("ip", "netns", "exec", namespace)
        run(
            *inside,
            "sysctl",
            "-qw",
            "net.ipv4.ip_local_port_range=1024 65535",
            "net.ipv4.tcp_tw_reuse=1",
        )
        if own_cpu:
            run(
                *inside,
                "sh",
                "-c",
                f"echo {1 << cpu:x} > /sys/class/net/{port}/queues/rx-0/rps_cpus",
            )


def pin(lab: Lab) -> None:
    """Pin the threads that receive for XDP; they exist only while its program is attached."""
    for namespace, port, cpu in ((lab.a, PORT_A, lab.tx_cpu), (lab.b, PORT_B, lab.rx_cpu)):
        threaded = f"echo 1 > /sys/class/net/{port}/threaded"
        # The kernel refuses threaded NAPI without an XDP program.
        subprocess.run(
            ("ip", "netns", "exec", namespace, "sh", "-c", threaded),
            stderr=subprocess.DEVNULL,
            check=False,
        )
        for pid in napi(port):
            run("taskset", "-p", "-c", str(cpu), str(pid))
            if REALTIME:
                run("chrt", "-f", "-p", "50", str(pid))


def napi(port: str) -> list[int]:
    """Return the kernel threads that receive on `port`."""
    found = []
    for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text().startswith(f"napi/{port}-"):
                found.append(int(comm.parent.name))
    return found


class Cpu:
    """CPU seconds since this object was created: of some processes, of an end's receiving threads,
    and of the machine."""

    def __init__(self, port: str, *pids: int) -> None:
        self.port, self.pids = port, pids
        self.ticks: dict[int, int] = {}
        self.sample()
        self.start, self.machine = sum(self.ticks.values()), machine_ticks()

    def sample(self) -> None:
        """Sample the CPU time of the receiving threads: they end with their program, so the last
        sample is kept."""
        for pid in (*self.pids, *napi(self.port)):
            with contextlib.suppress(OSError):
                self.ticks[pid] = cpu_ticks(pid)

    def spent(self) -> tuple[float, float]:
        self.sample()
        return (sum(self.ticks.values()) - self.start) / TICKS_PER_S, (
            machine_ticks() - self.machine
        ) / TICKS_PER_S


def cpu_ticks(pid: int) -> int:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def machine_ticks() -> int:
    """Return the CPU time that was neither idle, nor waiting for I/O, nor steal time, in clock
    ticks."""
    fields = [
        int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    ]
    return sum(fields) - fields[3] - fields[4] - fields[7]


def timed(lab: Lab, cpu: Cpu, own_cpu: bool, *argv: str) -> tuple[str, float, float]:
    """Run a client to its end. Return its output, the CPU seconds of its end, and those of the
    machine."""
    log, usage = lab.folder / "client.log", None
    with log.open("wb") as out:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    time.sleep(0.5)
    if own_cpu:
        pin(lab)
    while usage is None:
        time.sleep(0.05)
        cpu.sample()
        pid, status, spent = os.wait4(child.pid, os.WNOHANG)
        usage = spent if pid else None
    end, machine = cpu.spent()
    child.returncode = os.waitstatus_to_exitcode(status)
    output = log.read_text(errors="replace")
    # 4: the run was not valid, because arrivals were late.
    if child.returncode not in (0, 4):
        raise SystemExit(f"flows: {' '.join(argv)}: {output.strip()[-500:]}")
    return output, end + usage.ru_utime + usage.ru_stime, machine


@contextlib.contextmanager
def nginx(lab: Lab, page: int):
    (lab.folder / "www").mkdir(exist_ok=True)
    (lab.folder / "www/index.html").write_bytes(b"x" * page)
    (lab.folder / "nginx.conf").write_text(NGINX.format(folder=lab.folder))
    server = lab.receiver(
        *REALTIME,
        "nginx",
        "-p",
        str(lab.folder),
        "-c",
        str(lab.folder / "nginx.conf"),
        "-g",
        "user root;",
    )
    try:
        wait_for(lambda: ":80 " in run("ip", "netns", "exec", lab.b, "ss", "-ltn"), "nginx")
        yield server
    finally:
        server.stop()


def clients(lab: Lab, peer: str, o: argparse.Namespace) -> dict:
    with nginx(lab, o.page) as server:
        peer_cpu = Cpu(PORT_B, server._process.pid)
        end_cpu = Cpu(PORT_A)
        if peer == "peer":
            output, spent, machine = timed(
                lab, end_cpu, not o.softirq, *wrk(lab, lab.a, lab.tx_cpu, IP_B, o)
            )
            done = connections_of(output)
        else:
            report = lab.folder / "report.json"
            argv = (
                *inside(lab.a, lab.tx_cpu),
                tools.squall_binary(),
                "flows",
                "http",
                "--port",
                address(peer, PORT_A),
            )
            load = (
                "--url",
                f"http://{IP_B}/",
                "--clients",
                CLIENTS,
                "--users",
                str(o.connections),
                "-o",
                "close=true",
            )
            end = ("-d", f"{o.seconds}s", "--cores", "1", "-q", "--json", str(report))
            _, spent, machine = timed(lab, end_cpu, not o.softirq, *argv, *load, *end)
            done, setup = of_report(report, "client")
        record = {"tool": "wrk" if peer == "peer" else f"squall {peer}", "connections": done}
        record |= {
            "us": spent / done * 1e6,
            "other_us": peer_cpu.spent()[0] / done * 1e6,
            "machine_us": machine / done * 1e6,
        }
        return record | ({} if peer == "peer" else {"setup_p50_us": setup})


def servers(lab: Lab, peer: str, o: argparse.Namespace) -> dict:
    with contextlib.ExitStack() as stack:
        report = lab.folder / "report.json"
        if peer == "peer":
            server, target = stack.enter_context(nginx(lab, o.page)), IP_B
        else:
            target = SERVER
            argv = (
                tools.squall_binary(),
                "flows",
                "serve",
                "--port",
                address(peer, PORT_B),
                "--servers",
                SERVER,
            )
            server = lab.receiver(
                *REALTIME, *argv, "--body", str(o.page), "--cores", "1", "-q", "--json", str(report)
            )
            stack.callback(server.stop)
            # Make the kernel resolve the address: the ARP exchange would cost wrk its first second.
            probe = (
                "ip",
                "netns",
                "exec",
                lab.a,
                "curl",
                "-s",
                "-o",
                "/dev/null",
                "--max-time",
                "1",
                f"http://{SERVER}/",
            )
            wait_for(
                lambda: subprocess.run(probe, check=False).returncode == 0, "squall flows serve"
            )
        peer_cpu, end_cpu = Cpu(PORT_A), Cpu(PORT_B, server._process.pid)
        output, other, _ = timed(
            lab, peer_cpu, not o.softirq, *wrk(lab, lab.a, lab.tx_cpu, target, o)
        )
        spent, machine = end_cpu.spent()
        done = connections_of(output)
        record = {"tool": "nginx" if peer == "peer" else f"squall {peer}", "connections": done}
        return record | {
            "us": spent / done * 1e6,
            "other_us": other / done * 1e6,
            "machine_us": machine / done * 1e6,
        }


def http2(lab: Lab, peer: str, o: argparse.Namespace) -> dict:
    """Requests over streams of HTTP/2, to nginx."""
    with nginx(lab, o.page) as server:
        peer_cpu, end_cpu = Cpu(PORT_B, server._process.pid), Cpu(PORT_A)
        argv: tuple[str, ...] = inside(lab.a, lab.tx_cpu)
        report = lab.folder / "report.json"
        if peer == "peer":
            load = ("-c", str(STREAMS[0]), "-m", str(STREAMS[1]), "-t1", "-D", f"{o.seconds}s")
            argv += ("h2load", *load, f"http://{IP_B}:82/index.html")
        else:
            argv += streams(peer, f"http://{IP_B}:82/index.html", "--http2", o, report)
        output, spent, machine = timed(lab, end_cpu, not o.softirq, *argv)
        if peer == "peer":
            done = int(re.search(r"(\d+) succeeded, 0 failed", output)[1])
        else:
            done = answers(report)
        costs = (spent, peer_cpu.spent()[0], machine)
        return of_requests("h2load" if peer == "peer" else f"squall {peer}", done, *costs)


def http3(lab: Lab, peer: str, o: argparse.Namespace) -> dict:
    """Requests over streams of HTTP/3, to a server of quinn."""
    pem, key = (str(lab.folder / name) for name in ("server.pem", "server.key"))
    new = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    names = ("-addext", f"subjectAltName=IP:{IP_B}", "-addext", "basicConstraints=CA:FALSE")
    run(*new, "-nodes", "-days", "2", "-subj", "/CN=bench", *names, "-keyout", key, "-out", pem)
    server = lab.receiver(*REALTIME, str(QUINN), IP_B, pem, key, str(o.page))
    try:
        wait_for(lambda: "ready" in server.output(), "quinn-server")
        peer_cpu, end_cpu = Cpu(PORT_B, server._process.pid), Cpu(PORT_A)
        argv: tuple[str, ...] = inside(lab.a, lab.tx_cpu)
        report = lab.folder / "report.json"
        if peer == "peer":
            load = ("-c", str(STREAMS[0]), "-p", str(STREAMS[1]), "-z", f"{o.seconds}s")
            how = ("--http-version", "3", "--insecure", "--no-tui", "--output-format", "json")
            argv += ("oha", *load, *how, f"https://{IP_B}/")
        else:
            argv += streams(peer, f"https://{IP_B}/", "--http3", o, report)
            argv += ("--tls-option", f"ca={pem}")
        output, spent, machine = timed(lab, end_cpu, not o.softirq, *argv)
        if peer == "peer":
            done = json.loads(output)["statusCodeDistribution"]["200"]
        else:
            done = answers(report)
        costs = (spent, peer_cpu.spent()[0], machine)
        return of_requests("oha" if peer == "peer" else f"squall {peer}", done, *costs)
    finally:
        server.stop()


def build_quinn() -> None:
    """Build the server of quinn: in its own folder, because it is not of this workspace."""
    build = ("cargo", "build", "--quiet", "--release", "--locked", "--target-dir")
    folder = ROOT / "tests/interop/quinn_server"
    subprocess.run((*build, ROOT / "target/quinn"), cwd=folder, check=True)


def streams(
    peer: str, url: str, version: str, o: argparse.Namespace, report: pathlib.Path
) -> tuple[str, ...]:
    """Return the command of Squall's clients."""
    load = (version, "--streams", str(STREAMS[1]), "--users", str(STREAMS[0]))
    # Enough that handshakes cost little; connections still end within the drain.
    load += ("--requests", str(1_000 * STREAMS[1]), "--clients", CLIENTS)
    end = ("-d", f"{o.seconds}s", "--cores", "1", "-q", "--json", str(report))
    argv = (tools.squall_binary(), "flows", "http", "--port", address(peer, PORT_A))
    return (*argv, "--url", url, *load, *end)


def answers(report: pathlib.Path) -> int:
    return json.loads(report.read_text())["flows"]["total"]["client"]["http"]["2xx"]


def of_requests(tool: str, done: int, spent: float, other: float, machine: float) -> dict:
    each = {"us": spent, "other_us": other, "machine_us": machine}
    return {"tool": tool, "connections": done} | {
        name: cost / done * 1e6 for name, cost in each.items()
    }


def address(peer: str, port: str) -> str:
    """Return the address of a port; `peer` may have options: af_xdp+mode=native."""
    kind, *options = peer.split("+")
    return ",".join([f"{kind}:{port}", *options])


def inside(namespace: str, cpu: int) -> tuple[str, ...]:
    return "ip", "netns", "exec", namespace, "taskset", "-c", str(cpu), *REALTIME


def wrk(lab: Lab, namespace: str, cpu: int, address: str, o: argparse.Namespace) -> tuple[str, ...]:
    how = ("-t1", f"-c{o.connections}", f"-d{o.seconds}s", "-H", "Connection: close")
    return *inside(namespace, cpu), "wrk", *how, f"http://{address}/"


def connections_of(output: str) -> int:
    """Return the number of connections, which equals the number of requests."""
    if "Non-2xx" in output:
        raise SystemExit(f"flows: wrk: {output}")
    return int(re.search(r"(\d+) requests in", output)[1])


def of_report(report: pathlib.Path, side: str) -> tuple[int, float]:
    role = json.loads(report.read_text())["flows"]["total"][side]
    return role["completed"], role["setup_ns"]["p50"] / 1000


def table(records: list[dict]) -> str:
    lines = [
        "| side | tool | CPU us a connection (http2, http3: a request) | of all | spread | peer's / ours | connections (requests) | set-up p50, us |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for side in dict.fromkeys(record["side"] for record in records):
        of_side = [record for record in records if record["side"] == side]
        peer = {
            record["round"]: record["us"]
            for record in of_side
            if not record["tool"].startswith("squall")
        }
        for tool in dict.fromkeys(record["tool"] for record in of_side):
            own = [record for record in of_side if record["tool"] == tool]
            us = [record["us"] for record in own]
            ratio = statistics.median(peer[record["round"]] / record["us"] for record in own)
            setups = [record["setup_p50_us"] for record in own if "setup_p50_us" in record]
            median = lambda key: statistics.median(record[key] for record in own)  # noqa: E731
            lines.append(
                f"| {side} | {tool} | {median('us'):.1f} | {median('machine_us'):.1f} | {min(us):.1f}-{max(us):.1f} | "
                f"{ratio:.2f} | {median('connections'):.0f} | {statistics.median(setups) if setups else '-'} |"
            )
    return "\n".join(lines)


main()
