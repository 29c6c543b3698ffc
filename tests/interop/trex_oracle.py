"""TRex's stock client, its profiles as JSON and captures of its simulator, which are not part of
this project, and a daemon for them. TREX_DATA names a directory with the data (its README lists the
contents), TREX_CLIENT one with the client and the profiles: scripts/ in TRex's repository.
"""

import contextlib
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

from tools import Failed, same

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = os.environ.get("SQUALL", str(ROOT / "target/debug/squall"))
ORACLE = pathlib.Path(os.environ.get("TREX_DATA", ROOT.parent / "shared/oracle/trex-data"))
CLIENT = pathlib.Path(os.environ.get("TREX_CLIENT", ROOT.parent / "shared/oracle/trex"))
LIBRARY = "automation/trex_control_plane/interactive"
SYNC, ASYNC = 24501, 24500
# Substitutes for captures that flow profiles refer to and that the directory lacks: another capture
# of the same application, or the first flow of a golden capture.
LIKE = {
    "citrix_0": "delay_citrix_0",
    "dns_0": "delay_dns_0",
    "exchange_0": "delay_exchange_0",
    "http_get_0": "delay_http_get_0",
    "http_post_0": "delay_http_post_0",
    "https_0": "delay_https_0",
    "mail_pop_0": "delay_email_pop_0",
    "mail_pop_1": "delay_email_pop_1",
    "mail_pop_2": "delay_email_pop_2",
    "oracle_0": "delay_oracle_0",
    "rtp_160k_0": "delay_rtp_160k_1_1_0",
    "rtp_160k_1": "delay_rtp_160k_1_1_1",
    "rtp_250k_0_0": "delay_rtp_250k_0_0",
    "rtp_250k_1_0": "delay_rtp_250k_2_0",
    "rtsp_0": "delay_rtsp_0",
    "smtp_0": "delay_smtp_0",
    "smtp_1": "delay_smtp_1",
    "smtp_2": "delay_smtp_2",
    "video_call_0": "delay_video_call_0",
    "video_call_rtp_0": "delay_video_call_rtp_0",
}
GOLDEN = {"http_browsing_0": "sim_astf-http_simple_limit", "sip_0": "sim_astf-udp_sip"}


# The last output of scripts that do not check their results.
ENDS = {"hlt_udp_simple": "\nDone\n"}


def has_data():
    """Return whether the folder with the data exists; if not, print that the test is skipped."""
    if (ORACLE / "goldens").is_dir():
        return True
    print("SKIPPED: captures of TRex's simulator (not in this project): TREX_DATA names no folder")
    return False


def has_client(quiet=False):
    """Return whether the folder with the client exists; if not, print that the test is skipped."""
    if (CLIENT / LIBRARY / "trex").is_dir():
        return True
    if not quiet:
        print("SKIPPED: TRex's client (not in this project): TREX_CLIENT names no folder with it")
    return False


def unpack(folder):
    """Copy the client, its profiles and the captures that they refer to into `folder`/trex. Return
    the directory of the client's package."""
    trex = folder / "trex"
    trex.mkdir()
    for part in ("automation", "external_libs"):
        (trex / part).symlink_to((CLIENT / part).resolve())
    for part in ("stl", "astf", "avl", "cap2", "exp"):
        if (CLIENT / part).is_dir():
            shutil.copytree(CLIENT / part, trex / part, ignore_dangling_symlinks=True)
    archive = ORACLE / "captures.tar.xz"
    if archive.exists():
        with tarfile.open(archive) as packed:
            packed.extractall(trex, filter="data")
    return trex / LIBRARY


def made_profiles():
    """Return the JSON that the stock client makes from each profile, by the profile's path."""
    with lzma.open(ORACLE / "profiles.json.xz") as file:
        return json.load(file)


def captures(folder, names=LIKE):
    """Make the missing captures of this list; the client's library must be importable already."""
    avl = folder / "trex/avl"
    for name, like in LIKE.items():
        if name in names:
            whole(avl / f"{like}.pcap", avl / f"delay_10_{name}.pcap")
    for name, like in GOLDEN.items():
        whole(ORACLE / f"goldens/astf/{like}.pcap", avl / f"delay_10_{name}.pcap")
    whole(avl / "delay_rtp_160k_1_1_0.pcap", avl / "_rtp_4_pkts.pcap", 4)


def whole(source, target, most=None):
    """Write the first flow of a capture with all its octets in order, from SYN to FINs."""
    if target.exists():
        return
    from scapy.all import IP, TCP, UDP, Ether, rdpcap, wrpcap

    packets = [packet for packet in rdpcap(str(source)) if IP in packet]
    opens = [p for p in packets if UDP in p or (TCP in p and p[TCP].flags == 2)]
    kind = TCP if TCP in opens[0] else UDP
    client = (opens[0][IP].src, opens[0][kind].sport)
    server = (opens[0][IP].dst, opens[0][kind].dport)
    out, now, last = [], 0.0, opens[0].time
    following, early = {}, {client: {}, server: {}}

    def put(source, to, gap, flags=0, data=b""):
        nonlocal now
        now += gap
        ports = {"sport": source[1], "dport": to[1]}
        if kind is TCP:
            ack = following[to] if flags & 16 else 0
            head = TCP(seq=following[source], ack=ack, flags=flags, window=32768, **ports)
            following[source] = (following[source] + len(data) + (flags & 3 > 0)) % 2**32
        else:
            head = UDP(**ports)
        macs = ["00:00:00:01:00:00", "00:00:00:02:00:00"][:: 1 if source == client else -1]
        packet = (
            Ether(src=macs[0], dst=macs[1]) / IP(src=source[0], dst=to[0], ttl=64) / head / data
        )
        packet.time = now
        out.append(packet)

    if kind is TCP:
        answer = next(p for p in packets if TCP in p and p[TCP].flags == 18)
        following = {client: opens[0][TCP].seq, server: answer[TCP].seq}
        put(client, server, 0, 2)
        put(server, client, 0.01, 18)
        put(client, server, 0.01, 16)
    for packet in packets[:most]:
        if kind not in packet:
            continue
        ends = [(packet[IP].src, packet[kind].sport), (packet[IP].dst, packet[kind].dport)]
        if set(ends) != {client, server}:
            continue
        gap, last = min(max(float(packet.time - last), 0.0), 0.2), packet.time
        head = packet[IP].ihl * 4 + (packet[TCP].dataofs * 4 if kind is TCP else 8)
        data = bytes(packet[kind].payload)[: packet[IP].len - head]
        if kind is UDP:
            put(*ends, gap, data=data)
            continue
        waiting = early[ends[0]]
        if data:
            waiting[packet[TCP].seq] = data
        for seq in sorted(waiting, key=lambda seq: (seq - following[ends[0]] + 2**31) % 2**32):
            over = (following[ends[0]] - seq) % 2**32
            if over < 2**31:
                rest = waiting.pop(seq)[over:]
                if rest:
                    put(*ends, gap, 24, rest)
                    gap = 0
    if kind is TCP:
        put(client, server, 0.01, 17)
        put(server, client, 0.01, 17)
        put(client, server, 0, 16)
    wrpcap(str(target), out)


@contextlib.contextmanager
def daemon(folder, mode="stl", payload="squall", at=(SYNC, ASYNC)):
    argv = [SQUALL, "serve", "--listen", "127.0.0.1:0", "--grpc", "off", "--json"]
    argv += ["--data", str(folder / "data"), "--trex", "af_packet:veth-a,af_packet:veth-b"]
    argv += ["--trex-payload", payload]
    argv += ["--trex-mode", mode, "--trex-sync", str(at[0]), "--trex-async", str(at[1])]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        line = process.stdout.readline()
        if not line:
            raise Failed(f"squall serve: {(folder / 'log').read_text()}")
        same("where TRex is served", json.loads(line)["trex"]["sync"], f"127.0.0.1:{at[0]}")
        yield process
        same("the daemon goes on", process.poll(), None)
    finally:
        process.terminate()
        process.wait(30)


def run_examples(folder, mode, commands):
    """Run TRex's example scripts, unchanged, which connect to TRex's standard ports. Each prints
    that it has passed or that it has ended."""
    library = folder / "trex/automation/trex_control_plane/interactive"
    with daemon(folder, mode, at=(4501, 4500)):
        for name, *words in commands:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", f"{name}.py", *words],
                cwd=library / "trex/examples" / mode,
                env={**os.environ, "PYTHONPATH": str(library)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=180,
            )
            output = done.stdout + done.stderr
            if done.returncode or ENDS.get(name, "passed") not in output:
                raise Failed(f"{name}: {done.returncode}: {output[-2000:]}")
    print(f"TRex's example scripts: {', '.join(name for name, *_ in commands)}")


def run_console(folder, lines, typed=()):
    """Run TRex's console with these lines in batch mode, and with `typed` as keyboard input."""
    batch = folder / "batch"
    batch.write_text("\n".join([*lines, *([] if typed else ["quit"]), ""]))
    argv = [sys.executable, "-W", "ignore", "-m", "trex.console.trex_console", "-s", "127.0.0.1"]
    argv += ["-p", str(SYNC), "--async_port", str(ASYNC), "--batch", str(batch), "-f"]
    library = folder / "trex/automation/trex_control_plane/interactive"
    done = subprocess.run(
        argv,
        input="\n".join([*typed, "quit", ""]),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder / "trex",
        env={**os.environ, "PYTHONPATH": str(library), "TERM": "xterm"},
    )
    output = done.stdout + done.stderr
    for bad in ("Traceback", "[FAILED]", "Syntax"):
        if bad in output:
            raise Failed(f"console: {output[-2000:]}")
    if done.returncode:
        raise Failed(f"console: {done.returncode}: {output[-2000:]}")
    return output
