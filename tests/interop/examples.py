#!/usr/bin/env python3
"""Runs each command of the documentation (README.md, docs/index.md, docs/guide), of the tables in
docs/coming-from, and of the examples in --help, as written. The frames stay in the namespaces that
this script creates.

Each page has its own network, mount and PID namespace, and its own working directory. Its commands
run in order, so that later ones can use the files of earlier ones. Two pages run at a time. In a
page:

- eth1, eth2 and eth3 are veth pairs with carrier. Their peers are ports of a bridge in a second
  namespace. The bridge is the device between two ports; it has the address 10.0.0.2 with an HTTP
  server (80) and an HTTPS server (443), and sends datagrams to the UDP ports 53 and 5001. Examples
  of --help also have veth-a and veth-b, as in a lab. www.example.net is 10.0.0.2, lab7.example and
  lab2.example are this host.
- A file that a command refers to and that no earlier command made is a copy from `store`: captures,
certificates, rules, labels, alerts. A toml block whose first line is `# NAME` is the file NAME.
- Examples are alternatives, and some write the same file. A file to which a command writes packets
is removed first, because Squall overwrites files only with --force.
- A block is shell if its first line begins with a program. If it has lines with a prompt (`$ `),
only those are commands, and the others are output.
- A run of a daemon has a number with today's date. Where a command needs a share of an interface's
speed, the interface has 1 Gb/s: a veth has no speed.
- `sudo` runs its arguments; curl fails on HTTP errors.
- `--duration TIME` of more than a second becomes one second. A command that has not ended after 1.5
s, or 5 s if it has a duration or a count, gets SIGINT, like Ctrl-C. It must then end and print
something.
- `squall serve` runs until the next `squall serve`, or the end of its block. Other commands that
need a daemon get one.
- SQUALL_ALLOW_INVALID is set, so the verdict has no effect. (A bridge does not translate VLAN tags:
flows between VLAN 7 and VLAN 8 do not begin.)

A command fails if one of its Squall processes has an exit status other than 0, or 130 after SIGINT;
if it prints the message of a defect; or if its shell fails. EXPECTED lists the commands that may
have another status, NOT_RUN those that cannot run here, each with the reason.

By default a sample of the pages runs, chosen by --seed, for --sample seconds; with --full all
pages. The binary is $SQUALL; default: target/debug/squall. Needs root.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import datetime
import http.server
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = pathlib.Path(os.environ.get("SQUALL", ROOT / "target/debug/squall")).absolute()
LANES = 2
ENDLESS_S, ENDING_S, COMPUTING_S, PAGE_S = 1.5, 5, 60, 600
SERVER = "10.0.0.2"
HOSTS = f"127.0.0.1 localhost lab7.example lab2.example lab1.example\n{SERVER} www.example.net\n"

# Examples that cannot run here: expression, reason.
NOT_RUN = [
    (
        r"^(pip|\.venv/bin/pip|python3 -m venv|sudo (apt|apt-get|dnf)|make|cargo|scripts/\S+) ",
        "installs or builds",
    ),
    (r"^sudo systemctl ", "needs systemd"),
    (r"^ssh ", "needs another machine"),
    (r"/sys/kernel/mm/hugepages|modprobe|dpdk-devbind|dpdk:", "needs DPDK and its devices"),
    (
        r"squall cluster |--nodes |--inventory |\"nodes\": ",
        "needs several machines and Ray: tests/interop/cluster.py",
    ),
    (r"--trex-lib|profile\.py", "needs TRex's client, which is not in this project"),
    (r"streams\.yaml", "needs a profile of TRex: tests/interop/trex.py"),
    (r"^export PATH=", "sets the path of the reader's shell"),
    (r"--gateway 198\.18\.1\.1", "needs a router: tests/interop/method_paths.py"),
    (r"test bufferbloat rig\.toml", "needs a rig with flows: tests/interop/bufferbloat.py"),
    (r"test trend results/", "needs results of several days"),
    (r"-- ping ", "needs iputils-ping; tests/interop/topology.py runs the same labs"),
]
# Commands that may end with another status: expression, statuses, reason.
EXPECTED = [
    (r"'latency\.p99 > ", [1], "delays of a busy machine"),
    (r"'not_sent > 0'", [1], "50 % of the link, by an unoptimized build"),
    (r"'loss_ratio > 0\.1 % or gap", [1], "datagrams of a Python process"),
    (r"'detection < 0\.97'", [1], "alerts of no engine, but of this script"),
    (r"--self-test", [1], "NOT VALID on a busy machine"),
    (r"squall test ", [1, 4], "generator-bound on a busy machine, or worse than a baseline"),
    (r"-w - \| tshark", [2], "tshark, which SIGINT ends in the middle of a block"),
    (r"squall hosts show", [3], "the daemon has no live run with hosts"),
]
# Values that depend on the day or the machine: expression, replacement.
TODAY = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d")
REPLACED = [
    (r"\br-2026\d{4}-", f"r-{TODAY}-"),
    (r"(?s)\b(eth\d)\b(?=.*\b50%)", r"\1,speed=1Gbps"),
    (r"(?s)(?<=squall test )(.*)", lambda found: re.sub(r"=(eth\d)", r"=\1,speed=1Gbps", found[1])),
]
# Subcommands that compute something and end by themselves.
COMPUTE = "attack score info edit prep import plan completions man lab doctor ports".split()
DEFECT = re.compile(r"this is a defect in Squall|panicked at")
DURATION = re.compile(r"((?:--duration|\s-d)(?:=|\s+(?:\\\n\s*)?))(\d+)(ms|s|m|h)?(?=\s|$)")
DAEMON = "squall serve --allow eth1 --allow eth2 --name lab7.example"


@dataclasses.dataclass
class Item:
    """A command, or a profile to write."""

    place: str
    text: str
    block: int
    profile: bool = False


@dataclasses.dataclass
class Page:
    name: str
    items: list

    def commands(self):
        return [item for item in self.items if not item.profile]

    def seconds(self):
        """Return the approximate duration."""
        return 1 + sum(estimate(item.text) for item in self.commands())


def estimate(text):
    if not_run(text):
        return 0
    if "--self-test" in text:
        return 15
    if computes(text):
        return 0.2
    return 2.5 if re.search(r"squall flows|--stateful|compare|experiment", text) else 1.2


def written(text):
    """Return the files that a command writes packets to."""
    names = re.findall(r"(?: -w|--write|--capture)[ =]([\w./-]+)", text)
    names += re.findall(r"pcap:([\w./-]+)(?![\w./-]|,read)", text)
    names += [words.split()[-1] for words in re.findall(r"squall edit((?: [^-\s]\S*)+)", text)]
    if re.search(r"squall attack\b", text) and not re.search(r" (-i|--port)[ =]", text):
        names.append("attacks.pcap")
    return [name for name in names if name != "-"]


def not_run(text):
    return next((reason for expression, reason in NOT_RUN if re.search(expression, text)), None)


def computes(text):
    """Return whether a command ends by itself, without traffic."""
    found = re.search(r"\bsquall (\w+)( --\w+)?", text)
    if found is None:
        return True
    sends = re.search(r" (-i eth|-i loop|--port |--probe)", text)
    if "--self-test" in text:
        return True
    return found[1] in COMPUTE and not sends and " -- squall send" not in text


# Pages


def complete(text):
    """Return whether a shell would execute the text without waiting for another line."""
    if text.endswith("\\"):
        return False
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


PROMPT = re.compile(r"^(\w+)?\$ ")


def is_command(line):
    word = line.split()[0] if line.split() else ""
    return (
        bool(PROMPT.match(line) or not_run(line))
        or word in ("squall", "sudo")
        or shutil.which(word) is not None
    )


def commands(lines, place, block):
    """Return the commands in the lines of a block, as (number, line)."""
    prompts = any(PROMPT.match(line) for _, line in lines)
    found, text, start = [], "", 0
    for number, line in lines:
        if not text:
            if not line.strip() or line.startswith("#") or (prompts and not PROMPT.match(line)):
                continue
            start, line = number, PROMPT.sub("", line)
        text += line
        if complete(text):
            found.append(Item(f"{place}:{start}", text, block))
            text = ""
        else:
            text += "\n"
    return found + ([Item(f"{place}:{start}", text, block)] if text else [])


def of_page(path):
    """Return the items of a page, in order."""
    place, items, block = str(path.relative_to(ROOT)), [], []
    fence, language, number = False, "", 0

    def end():
        if block and language == "toml":
            name = re.match(r"# ([\w-]+\.toml)$", block[0][1])
            if name:
                text = "\n".join(line for _, line in block) + "\n"
                items.append(Item(name[1], text, number, profile=True))
        elif block and language in ("", "sh", "bash", "console") and is_command(block[0][1]):
            items.extend(commands(block, place, number))
        block.clear()

    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            end()
            fence = not fence
            language = line.strip().strip("`") if fence else ""
        elif fence:
            block.append((number, line))
        elif line.startswith("    ") and (block or not lines[number - 2].strip()):
            block.append((number, line[4:]))
        else:
            end()
    end()
    return Page(place, items)


def of_tables(path):
    """Return the items of a page like `of_page`, then the commands in the second column of
    tables."""
    page, place = of_page(path), str(path.relative_to(ROOT))
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        # A vertical bar in a cell is escaped.
        cells = re.split(r"(?<!\\)\|", line)[1:-1] if line.startswith("|") else []
        # A command later in a cell, without arguments, is only mentioned.
        command = (
            re.match(r" `(squall \w+ [^`]+|squall ports)`", cells[1]) if len(cells) > 1 else None
        )
        if command:
            found.append(Item(f"{place}:{number}", command[1].replace("\\|", "|"), number))
    profiles = [item for item in page.items if item.profile]
    return Page(page.name, profiles + found + page.commands())


def help_pages():
    """Return the examples of each command's help, as it prints them."""
    found = []

    def walk(words):
        text = subprocess.run(
            [SQUALL, *words, "--help"], capture_output=True, text=True, timeout=60
        ).stdout.splitlines()
        name = " ".join(["squall", *words, "--help"])
        if "Examples:" in text:
            start = text.index("Examples:") + 1
            end = next((i for i in range(start, len(text)) if not text[i]), len(text))
            lines = [(i + 1, text[i][2:]) for i in range(start, end)]
            found.append(Page(name, commands(lines, name, 0)))
        if "Commands:" in text:
            for line in text[text.index("Commands:") + 1 :]:
                word = re.match(r"  ([a-z][\w-]*)", line)
                if word:
                    walk([*words, word[1]])
                elif not line.startswith("  "):
                    break

    walk([])
    return found


def all_pages():
    guides = sorted((ROOT / "docs/guide").glob("*.md"))
    pages = [of_page(path) for path in [ROOT / "README.md", ROOT / "docs/index.md", *guides]]
    pages += [of_tables(path) for path in sorted((ROOT / "docs/coming-from").glob("*.md"))]
    pages += help_pages()
    return [page for page in pages if page.commands()]


def sample(pages, seconds, seed):
    """Return pages in random order, as many as two lanes can run in that time."""
    left, chosen = seconds * LANES, []
    for page in random.Random(seed).sample(pages, len(pages)):
        if page.seconds() <= min(left, seconds):
            left -= page.seconds()
            chosen.append(page)
    return chosen


# Files that pages refer to


# The streams of a test, in both directions.
RIG = """
ports.A = "eth1,speed=1Gbps"
ports.B = "eth2,speed=1Gbps"
[[stream]]
name = "A to B"
port = "A"
packet = "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02)/ipv4/udp"
rate = "1kpps"
[[stream]]
name = "B to A"
port = "B"
packet = "eth(src=02:00:00:00:00:02,dst=02:00:00:00:00:01)/ipv4/udp"
rate = "1kpps"
"""


def store(folder, pages):
    """Write the files that a reader of the documentation already has, and the profiles that pages
    show."""
    files = folder / "store"
    files.mkdir()

    def squall(*argv):
        subprocess.run(
            [SQUALL, *argv], cwd=files, check=True, stdout=subprocess.DEVNULL, timeout=60
        )

    def copies(source, *names):
        for name in names:
            shutil.copy(files / source, files / name)

    for number, app in enumerate(["http", "https-like", "dns"]):
        flows = (
            f"flows app {app} --port loop:x,virtual --port2 loop:x,virtual --cps 7 -d 1s --quiet"
        )
        ends = f"--clients 10.{number}.1.1-10.{number}.1.9 --servers 10.9.0.{number}"
        squall(*flows.split(), *ends.split(), "--capture", f"{app}.pcap")
    squall("edit", "http.pcap", "https-like.pcap", "dns.pcap", "capture.pcap", "--merge")
    squall("edit", "capture.pcap", "capture.pcapng")
    for name in ["capture.pcap", "capture.pcapng"]:
        subprocess.run(["gzip", "-k", name], cwd=files, check=True)
        subprocess.run(["zstd", "-qk", name], cwd=files, check=True)
    names = "a b big clean cut in old trace web".split()
    copies("capture.pcap", *[f"{name}.pcap" for name in names])
    copies("capture.pcapng", "office.pcapng", "big.pcapng", "trace.pcapng")
    copies("capture.pcap.gz", "old.pcap.gz")
    copies("capture.pcap", "office.pcap")

    rules = (ROOT / "examples/rules/web.rules").read_text()
    (files / "rules").mkdir()
    for name, sid in [("local.rules", 1000), ("community.rules", 1), ("rules/web.rules", 1)]:
        # The sids that pages use: --sid 1000-1999, --explain SID.
        own = rules.replace("sid:9100001;", f"sid:{sid};").replace("sid:9100003;", "sid:2019401;")
        (files / name).write_text(own.replace("sid:9100002;", "sid:9000001;"))
    squall("attack", "local.rules", "--near-miss", "also")
    copies("attacks.labels.csv", "out.csv", "out.labels.csv", "t.csv", "truth.csv")
    squall("attack", "local.rules", "--labels", "truth.jsonl", "--force")
    alerts(files)

    (files / "users.csv").write_text(
        "user,password\n" + "".join(f"user{i},{i:05}\n" for i in range(1000))
    )
    certificates(files)
    (files / "lab7.pem").symlink_to("/var/lib/squall/cert.pem")
    load = (ROOT / "examples/profiles/imix-both-ways.toml").read_text()
    (files / "load.toml").write_text(load.replace('"loop:0"', '"loop:0,speed=1Gbps"'))
    ports = "--port A=loop:x,virtual --port B=loop:x,virtual --duration 10ms --quiet"
    squall("run", "load.toml", *ports.split(), "--json", "run.json")
    for name, part in [("one", "1/2"), ("two", "2/2")]:
        squall("run", "load.toml", *ports.split(), "--part", part, "--json", f"{name}.json")
    for name in ["rig", "old", "new", "464xlat"]:
        (files / f"{name}.toml").write_text(RIG)
    there, back = RIG.rsplit("ipv4", 1)
    (files / "nat64.toml").write_text(f"{there}ipv6{back}")
    virtual = "--port A=loop:x,virtual,drain=1kpps,buffer=9 --max-rate 2kpps --tests throughput"
    squall("test", "rfc2544", *virtual.split(), "--quick", "--json", "yesterday.json", "--quiet")
    shutil.copytree(ROOT / "examples", files / "examples")
    for page in pages:
        for item in page.items:
            if item.profile and not (files / item.place).exists():
                (files / item.place).write_text(item.text)
    return files


def alerts(files):
    """Return one alert in each form that `squall score` reads."""
    event = {
        "timestamp": "2023-11-14T22:13:20.010000+0000",
        "event_type": "alert",
        "src_ip": "198.18.0.1",
        "src_port": 1024,
        "dest_ip": "10.0.0.1",
        "dest_port": 80,
        "proto": "TCP",
        "alert": {"gid": 1, "signature_id": 1000, "rev": 1, "signature": "EXAMPLE"},
    }
    (files / "eve.json").write_text(json.dumps(event) + "\n")
    (files / "fast.log").write_text(
        "11/14/2023-22:13:20.010000  [**] [1:1000:1] EXAMPLE [**] [Classification: (null)] "
        "[Priority: 3] {TCP} 198.18.0.1:1024 -> 10.0.0.1:80\n"
    )
    (files / "alert_csv.txt").write_text(
        '11/14/23-22:13:20.010000 ,1,1000,1,"EXAMPLE",TCP,198.18.0.1,1024,10.0.0.1,80\n'
    )


def certificates(files):
    """Make a certificate authority, and two certificates signed by it: for the server at 10.0.0.2,
    and for a client."""

    def openssl(*argv):
        subprocess.run(["openssl", *argv], cwd=files, check=True, stderr=subprocess.DEVNULL)

    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split()
    authority = "-keyout ca.key -out ca.pem -subj /CN=lab -days 9".split()
    openssl("req", "-x509", *key, *authority)
    (files / "names").write_text(f"subjectAltName=IP:{SERVER},DNS:www.example.net\n")
    for name in ["server", "me"]:
        out = f"-keyout {name}.key -out {name}.csr -subj /CN={name}".split()
        openssl("req", *key, *out)
        sign = f"-in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -out {name}.pem"
        openssl("x509", "-req", *sign.split(), "-extfile", "names")


# In the namespaces of a page


def ip(*argv):
    subprocess.run(["ip", *argv], check=True)


def network(labs, folder):
    """Make the interfaces of the page, and their peers."""
    (folder / "hosts").write_text(HOSTS)
    for name in ["passwd", "group"]:
        entry = "squall:x:64000:64000::/:/bin/sh\n" if name == "passwd" else "squall:x:64000:\n"
        (folder / name).write_text(pathlib.Path("/etc", name).read_text() + entry)
    for name in ["hosts", "passwd", "group"]:
        subprocess.run(["mount", "--bind", folder / name, f"/etc/{name}"], check=True)
    pathlib.Path("/run/netns").mkdir(exist_ok=True)
    for place in ["/run/netns", "/var/lib"]:
        subprocess.run(["mount", "-t", "tmpfs", "examples", place], check=True)
    ip("netns", "add", "peer")
    for where in [[], ["-n", "peer"]]:
        ip(*where, "link", "set", "lo", "up")
    for which in ["all", "default"]:
        setting = f"net.ipv6.conf.{which}.disable_ipv6=1"
        subprocess.run(["sysctl", "-qw", setting], check=True)
        subprocess.run(["ip", "netns", "exec", "peer", "sysctl", "-qw", setting], check=True)
    ip("-n", "peer", "link", "add", "device", "type", "bridge")
    for number in "123":
        local, remote = f"eth{number}", f"peer{number}"
        peer = ["peer", "name", remote, "netns", "peer"]
        ip("link", "add", local, "mtu", "9000", "type", "veth", *peer)
        ip("-n", "peer", "link", "set", remote, "master", "device", "up", "mtu", "9000")
        ip("link", "set", local, "up")
        # A veth accepts frames from xdp_live only if its peer polls.
        ip("netns", "exec", "peer", "ethtool", "-K", remote, "gro", "on")
    ip("-n", "peer", "link", "set", "device", "up")
    ip("-n", "peer", "addr", "add", f"{SERVER}/16", "brd", "+", "dev", "device")
    if labs:
        ip("link", "add", "veth-a", "up", "type", "veth", "peer", "name", "veth-b")
        ip("link", "set", "veth-b", "up")


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b"welcome\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_GET

    def log_message(self, *_):
        pass


class Servers(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1000

    def handle_error(self, *_):
        pass


def serve(files):
    """Run the servers at 10.0.0.2, and send datagrams from there, until killed."""
    plain, secret = Servers((SERVER, 80), Answers), Servers((SERVER, 443), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "server.pem", files / "server.key")
    secret.socket = context.wrap_socket(
        secret.socket, server_side=True, do_handshake_on_connect=False
    )
    for server in [plain, secret]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    print("ready", flush=True)
    while True:
        for port in [53, 5001]:
            datagrams.sendto(bytes(64), ("10.0.255.255", port))
        time.sleep(0.02)


def programs(folder):
    """Write programs that come first in PATH: Squall, which logs each exit status to $STATUSES,
    sudo and others.
    """
    place = folder / "bin"
    place.mkdir()
    # The trap keeps the shell alive on Ctrl-C: it still has to write the exit status.
    squall = f'trap : INT\n{shlex.quote(str(SQUALL))} "$@"\n'
    texts = {
        "squall": squall + 'status=$?\necho "$status" >> "$STATUSES"\nexit "$status"\n',
        "sudo": 'while [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n',
        "mytool": 'exec tcpdump -Z root "$@"\n',
    }
    for name, text in texts.items():
        (place / name).write_text("#!/bin/sh\n" + text)
        (place / name).chmod(0o755)
    home = folder / "home"
    for name in [
        ".local/share/bash-completion/completions",
        ".local/share/man/man1",
        ".local/state",
        ".zfunc",
        ".config/fish/completions",
    ]:
        (home / name).mkdir(parents=True)
    (home / ".local/state/squall").symlink_to("/var/lib/squall")
    (home / ".curlrc").write_text("fail\nsilent\nshow-error\nmax-time = 20\n")
    kept = {key: os.environ[key] for key in ["LANG", "TMPDIR"] if key in os.environ}
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    return kept | {
        "PATH": f"{place}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(runtime),
        "STATUSES": str(folder / "statuses"),
        "SQUALL_ALLOW_INVALID": "1",
    }


class Runner:
    """Runs the items of a page in its working directory."""

    def __init__(self, page, folder, files):
        self.page, self.files, self.folder = page, files, folder
        self.work = folder / "work"
        self.work.mkdir()
        self.environment = programs(folder)
        self.statuses = folder / "statuses"
        self.daemon = None
        self.failures, self.skipped, self.run, self.log = [], [], 0, []

    def all(self, deadline):
        block = None
        for item in self.page.items:
            if item.block != block or "squall serve" in item.text:
                self.end_daemon()
            block = item.block
            if item.profile:
                (self.work / item.place).write_text(item.text)
                continue
            reason = not_run(item.text)
            if reason is None and deadline and time.monotonic() > deadline:
                reason = "time is up"
            if reason:
                self.skipped.append(reason)
                continue
            self.run += 1
            text = item.text
            for expression, replacement in REPLACED:
                text = re.sub(expression, replacement, text)
            self.provide(text)
            if re.search(r"\bsquall serve\b", text):
                self.start_daemon(item.place, text)
                continue
            if self.daemon is None and re.search(r"^curl |\bsquall (top|hosts show)\b", text):
                self.start_daemon(f"{item.place} (its daemon)", DAEMON)
            self.command(item.place, text)
        self.end_daemon()

    def provide(self, text):
        """Provide files that a command refers to and that no command has made."""
        paths = {path.rstrip("/") for path in re.findall(r"[\w./-]+", text)}
        # Provide a directory if a file in it is named, and a file that matches a shell pattern.
        names = paths | {path.partition("/")[0] for path in paths}
        if "*.pcap.gz" in text:
            names.add("old.pcap.gz")
        for name in sorted(names - {"", ".", ".."}):
            local, remote = self.work / name, self.files / name
            if "/" in name or local.exists() or local.is_symlink():
                continue
            if remote.is_symlink():
                local.symlink_to(remote.readlink())
            elif remote.is_dir():
                shutil.copytree(remote, local)
            elif remote.exists():
                shutil.copy(remote, local)
                if name.endswith(".toml"):
                    self.provide(remote.read_text())

    def start(self, text):
        self.statuses.unlink(missing_ok=True)
        with open(self.folder / "out", "wb") as out, open(self.folder / "err", "wb") as err:
            return subprocess.Popen(
                ["bash", "-o", "pipefail", "-c", text],
                cwd=self.work,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def output(self):
        return [
            (self.folder / name).read_bytes().decode(errors="replace") for name in ["out", "err"]
        ]

    def command(self, place, text, again=True):
        text, timeout_s = self.limited(text)
        timeout_s = timeout_s if again else ENDING_S
        for name in written(text):
            (self.work / name).unlink(missing_ok=True)
        process = self.start(text)
        interrupted = False
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            interrupted = True
            if self.interrupt(process):
                return self.fail(place, text, "did not end within 20 s of SIGINT")
        out, err = self.output()
        quiet = re.search(r"--quiet| -w |\| jq", text)
        if interrupted and not quiet and not out + err:
            if again and timeout_s < ENDING_S:
                # On a busy machine, the command had not started yet.
                return self.command(place, text, again=False)
            return self.fail(place, text, "printed nothing before it was ended by SIGINT")
        self.judge(place, text, process.returncode, interrupted, out + err)

    def limited(self, text):
        """Return the command with a short duration, and how long to wait before SIGINT."""
        counted = re.search(r" (-n|--count|-c|--flows|--limit) ", text)

        def short(match):
            seconds = int(match[2]) * {"ms": 0.001, "m": 60, "h": 3600}.get(match[3], 1)
            return match[0] if seconds <= 1 else f"{match[1]}1{match[3] and 's' or ''}"

        limited = DURATION.sub(short, text) if "squall" in text else text
        if computes(text):
            return limited, COMPUTING_S
        return limited, ENDING_S if counted or DURATION.search(text) else ENDLESS_S

    def interrupt(self, process):
        """Interrupt all foreground processes, like Ctrl-C. Return whether the command failed to
        end."""
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(20)
            return False
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True

    def judge(self, place, text, status, interrupted, output):
        good = {0} | ({130, -signal.SIGINT} if interrupted else set())
        for expression, statuses, _ in EXPECTED:
            if re.search(expression, text):
                good |= set(statuses)
        local = self.statuses.read_text().split() if self.statuses.exists() else []
        self.log.append(f"$ {text}\n{output}{local} {status}")
        bad = [s for s in [*map(int, local), status] if s not in good]
        if bad:
            self.fail(place, text, f"exit status {bad[0]}")
        elif DEFECT.search(output):
            self.fail(place, text, "a defect")

    def fail(self, place, text, what):
        out, err = self.output()
        last = (err.strip() or out.strip()).splitlines()[-5:]
        self.failures.append({"place": place, "text": text, "what": what, "last": last})

    def start_daemon(self, place, text):
        for state in pathlib.Path("/var/lib").glob("squall"):
            shutil.rmtree(state)
        process = self.start(text)
        deadline = time.monotonic() + 20
        # Its first output, as text or as JSON.
        while not re.search(r"squall serves|^\{", self.output()[0], re.MULTILINE):
            if process.poll() is not None or time.monotonic() > deadline:
                if process.poll() is None:
                    self.interrupt(process)
                return self.fail(place, text, f"no daemon, exit status {process.returncode}")
            time.sleep(0.05)
        self.daemon = (place, text, process)
        for name in ["out", "err"]:
            (self.folder / name).rename(self.folder / f"daemon-{name}")

    def end_daemon(self):
        if self.daemon is None:
            return
        place, text, process = self.daemon
        self.daemon = None
        stuck = self.interrupt(process)
        for name in ["out", "err"]:
            (self.folder / f"daemon-{name}").replace(self.folder / name)
        out, err = self.output()
        if stuck:
            self.fail(place, text, "did not end within 20 s of SIGINT")
        elif process.returncode not in (0, 130, -signal.SIGINT):
            self.fail(place, text, f"exit status {process.returncode} after SIGINT")
        elif DEFECT.search(out + err):
            self.fail(place, text, "a defect")


def inside(files, folder, name, left):
    """Run a page in its namespaces. Print the result as JSON."""
    begun = time.monotonic()
    pages = {page.name: page for page in json_pages(files)}
    network(name.endswith("--help"), folder)
    server = ["ip", "netns", "exec", "peer", sys.executable, __file__, "--serve", files]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as serving:
        serving.stdout.readline()
        runner = Runner(pages[name], folder, files)
        runner.all(begun + left if left else None)
        serving.kill()
    (folder / "log").write_text("\n".join(runner.log))
    result = {"run": runner.run, "skipped": runner.skipped, "failures": runner.failures}
    print(json.dumps(result | {"seconds": time.monotonic() - begun}))


def json_pages(files):
    return [
        Page(page["name"], [Item(**item) for item in page["items"]])
        for page in json.loads((files.parent / "pages.json").read_text())
    ]


def as_name(page):
    return re.sub(r"\W+", "-", page.name)


def outside(page, folder, files, deadline):
    """Run a page in private namespaces. When the page is done, they are torn down with all
    processes in them.
    """
    place = folder / as_name(page)
    place.mkdir()
    left = max(1, deadline - time.monotonic()) if deadline else 0
    unshare = ["unshare", "-n", "-m", "-p", "--fork", "--kill-child", "--mount-proc"]
    argv = [__file__, "--inside", files, place, page.name, str(left)]
    failure = {"place": page.name, "text": "", "what": "the test itself failed", "last": []}
    nothing = {"run": 0, "skipped": [], "failures": [failure], "seconds": 0}
    try:
        done = subprocess.run(
            [*unshare, sys.executable, *argv], capture_output=True, text=True, timeout=PAGE_S
        )
    except subprocess.TimeoutExpired:
        failure["what"] = f"did not end within {PAGE_S} s"
        return nothing
    if done.returncode:
        failure["last"] = done.stderr.strip().splitlines()[-5:]
        return nothing
    return json.loads(done.stdout.splitlines()[-1])


def main():
    match sys.argv[1:]:
        case ["--serve", files]:
            return serve(pathlib.Path(files))
        case ["--inside", files, folder, name, left]:
            return inside(pathlib.Path(files), pathlib.Path(folder), name, float(left))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--sample", type=float, default=40, metavar="SECONDS", help="default 40")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default 1)")
    parser.add_argument("--full", action="store_true", help="all pages")
    parser.add_argument("--list", action="store_true", help="print the commands, run none")
    parser.add_argument("--only", metavar="EXPR", help="pages whose name has this expression")
    parser.add_argument("--verbose", action="store_true", help="print what the commands print")
    given = parser.parse_args()
    if os.geteuid() != 0 and not given.list:
        return print("SKIPPED: needs root to make namespaces (as nobody)")
    needed = "ip ethtool unshare sysctl openssl gzip zstd zcat curl jq tcpdump tshark man".split()
    for tool in [] if given.list else needed:
        if shutil.which(tool) is None:
            return print(f"SKIPPED: needs {tool}")
    pages = every = all_pages()
    if given.only:
        pages = [page for page in pages if re.search(given.only, page.name)]
    elif not given.full:
        pages = sample(pages, given.sample, given.seed)
    if given.list:
        for page in pages:
            print(f"{page.name}  about {page.seconds():.0f} s")
            for item in page.items:
                what = "profile" if item.profile else not_run(item.text) or item.text
                print(f"  {item.place}  {what}")
        return 0
    begun = time.monotonic()
    deadline = None if given.full or given.only else begun + given.sample
    with tempfile.TemporaryDirectory(prefix="squall-examples-") as name:
        folder = pathlib.Path(name)
        files = store(folder, every)
        (folder / "pages.json").write_text(json.dumps([dataclasses.asdict(p) for p in every]))
        good = tell(pages, folder, files, deadline, given.verbose)
    print(f"{len(pages)} of {len(every)} pages in {time.monotonic() - begun:.0f} s")
    return 0 if good else 1


def tell(pages, folder, files, deadline, verbose):
    """Run the pages, longest first, and print the result of each."""
    run, skipped, failed = 0, collections.Counter(), 0
    order = sorted(pages, key=Page.seconds, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(LANES) as lanes:
        results = [lanes.submit(outside, page, folder, files, deadline) for page in order]
        for page, result in zip(order, results):
            result = result.result()
            if verbose and result["run"]:
                print((folder / as_name(page) / "log").read_text())
            run += result["run"]
            skipped.update(result["skipped"])
            failed += len(result["failures"])
            kind = "FAILED" if result["failures"] else "ok"
            counts = f"{result['run']} run, {len(result['skipped'])} not run"
            print(f"{kind:7} {page.name}: {counts}, {result['seconds']:.1f} s", flush=True)
            for failure in result["failures"]:
                text = " ".join(failure["text"].replace("\\\n", " ").split())
                print(f"FAILED: {failure['place']}: {failure['what']}: {text[:300]}")
                for line in failure["last"]:
                    print(f"    {line[:200]}")
    for reason, count in sorted(skipped.items()):
        print(f"not run: {count} ({reason})")
    print(f"{run} run, {skipped.total()} not run, {failed} failed")
    return failed == 0


if __name__ == "__main__":
    sys.exit(main())
