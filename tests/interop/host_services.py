#!/usr/bin/env python3
"""Hosts of squall that authenticate, speak LLDP and CDP and join groups, against hostapd, lldpd and a Linux
bridge over a veth pair: hostapd accepts hosts with the password or certificate, lldpd's neighbors are the
speakers, the bridge's groups are the memberships, and tshark finds nothing malformed.

With --full also against FreeRADIUS, whose log has the hosts that the report has.

Needs root and ip; parts need hostapd, lldpd, openssl, tcpdump and tshark, --full freeradius; $SQUALL is
target/debug/squall unless set.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from flows import LOCAL, REMOTE, SQUALL, V4, inside, network, wait
from hosts import captured, server
from tools import Failed, run, same

# Octets at the start of a capture.
PCAP_HEADER = 24


@contextlib.contextmanager
def running(folder, text, seconds=60):
    """Run a profile; the dictionary gets its groups at the end."""
    profile, report = folder / "profile.toml", folder / "report.json"
    profile.write_text(f'duration = "{seconds} s"\n[ports]\nA = "af_packet:va"\n{text}')
    report.unlink(missing_ok=True)
    argv = inside(LOCAL, SQUALL, "run", profile, "-q", "--json", report)
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    groups = {}
    try:
        yield process, groups
    finally:
        process.terminate()
        process.wait(30)
    groups.update({group["name"]: group for group in json.loads(report.read_text())["hosts"]})


def certificate(folder, name, authority=None):
    """Make a key and a certificate, by an authority or for one."""
    by = ["-CA", folder / f"{authority}.pem", "-CAkey", folder / f"{authority}.key"]
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    argv += ["-nodes", "-days", 2, "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    argv += ["-extensions", "v3_req", *by] if authority else []
    run(*argv, "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")


# Groups of hosts by their method: identities with "{}", further keys, and what becomes of them.
ACCEPTED = {
    "md5": 'auth = "md5"\npassword = "secret{}"',
    "tls": 'auth = "tls"\ntls = { ca = "ca.pem", certificate = "host.pem", key = "host.key" }',
    "peap": 'auth = "peap"\npassword = "secret{}"\nanonymous_identity = "anonymous"\n'
    'tls = { ca = "ca.pem", server_name = "radius.test" }',
    "ttls-pap": 'auth = "ttls-pap"\npassword = "secret{}"\nanonymous_identity = "anonymous"\n'
    'tls = { ca = "ca.pem" }',
    "ttls-mschapv2": 'auth = "ttls-mschapv2"\npassword = "secret{}"\ntls = { ca = "ca.pem" }\n'
    'anonymous_identity = "anonymous"',
}
# Hosts that are refused, and the reasons. Hostapd sends no alert for a foreign certificate.
REFUSED = {
    "wrong for md5": 'auth = "md5"\nidentity = "md5-1"\npassword = "wrong"',
    "stranger": 'auth = "md5"\nidentity = "stranger"\npassword = "secret1"',
    "other method": 'auth = "peap"\nidentity = "md5-1"\npassword = "secret1"',
    "wrong for peap": 'auth = "peap"\nidentity = "peap-1"\npassword = "wrong"\n'
    'anonymous_identity = "anonymous"\ntls = { ca = "ca.pem" }',
    "other authority": 'auth = "peap"\nidentity = "peap-1"\npassword = "secret1"\n'
    'anonymous_identity = "anonymous"\ntls = { ca = "other.pem" }',
    "foreign certificate": 'auth = "tls"\nidentity = "tls-1"\n'
    'tls = { ca = "ca.pem", certificate = "foreign.pem", key = "foreign.key" }',
}
REASONS = {
    "wrong for md5": "rejected",
    "stranger": "identity_refused",
    "other method": "no_common_method",
    "wrong for peap": "wrong_password",
    "other authority": "untrusted_certificate",
    "foreign certificate": "rejected",
}
HOSTS = 4
WIRED = (
    "interface=vb\ndriver=wired\nieee8021x=1\neapol_version=2\n"
    "logger_stdout=-1\nlogger_stdout_level=1\n"
)


def certificates(folder):
    """Make the authorities, and the certificates of a server and of hosts."""
    certificate(folder, "ca")
    certificate(folder, "other")
    for name, authority in [("radius.test", "ca"), ("host", "ca"), ("foreign", "other")]:
        certificate(folder, name, authority)


def groups_of(hosts, refused):
    """The groups of accepted hosts, and one host for each reason. Return them with the text."""
    groups = [(name, hosts, f'{keys}\nidentity = "{name}-{{}}"') for name, keys in ACCEPTED.items()]
    groups += [(name, 1, f"{REFUSED[name]}\nauth_tries = 1") for name in refused]
    return groups, "\n".join(
        f'[[host]]\nname = "{name}"\ncount = {count}\nrelease = true\n'
        f'ipv4 = "10.77.{number}.1/16"\n{keys}'
        for number, (name, count, keys) in enumerate(groups, 8)
    )


def outcome(report, hosts, refused):
    """Check what became of the hosts of each group."""
    for name in ACCEPTED:
        auth = report[name]["auth"]
        found = (auth["authenticated"], auth["sent"].get("logoff"), report[name]["bound"])
        same(f"{name}: authenticated, logged off, with an address", found, (hosts,) * 3)
        same(f"{name}: times", auth["time_ns"]["count"], hosts)
    for name, reason in refused.items():
        same(f"{name}: failed", report[name]["failed"], {reason: 1})


def authentication(folder, hostapd, environment):
    """Hosts with the password or certificate are authenticated, and only these send anything else."""
    certificates(folder)
    users, config, log = folder / "users", folder / "hostapd.conf", folder / "hostapd.log"
    inside_tls = {"peap": "MSCHAPV2", "ttls-pap": "TTLS-PAP", "ttls-mschapv2": "TTLS-MSCHAPV2"}
    lines = ['"anonymous" PEAP,TTLS', *(f'"tls-{i + 1}" TLS' for i in range(HOSTS))]
    for name, method in [("md5", "MD5"), *inside_tls.items()]:
        second = " [2]" if name in inside_tls else ""
        lines += [f'"{name}-{i + 1}" {method} "secret{i + 1}"{second}' for i in range(HOSTS)]
    users.write_text("\n".join(lines) + "\n")
    config.write_text(
        f"{WIRED}eap_server=1\neap_user_file={users}\nfragment_size=400\n"
        f"ca_cert={folder}/ca.pem\nserver_cert={folder}/radius.test.pem\n"
        f"private_key={folder}/radius.test.key\n"
    )
    _, text = groups_of(HOSTS, REFUSED)
    frames = folder / "dot1x.pcap"
    all_accepted = HOSTS * len(ACCEPTED)
    # Hostapd's output to a file is buffered otherwise.
    argv = ["stdbuf", "-oL", hostapd, config]
    started = server(argv, log, lambda: "AP-ENABLED" in log.read_text(), env=environment)
    with started, captured(frames, "ether proto 0x888e or ether[6:2] = 0x0253"):
        with running(folder, text) as (process, report):

            def events(result):
                return len(re.findall(f"CTRL-EVENT-EAP-{result}", log.read_text()))

            wait(
                "hostapd accepts the hosts",
                lambda: process.poll() is not None or events("SUCCESS") >= all_accepted,
            )
            wait("hostapd refuses the others", lambda: events("FAILURE") >= len(REFUSED))
            wait("accepted hosts send", lambda: len(senders(frames)) >= all_accepted)
        authenticated = sum(group["auth"]["authenticated"] for group in report.values())
        same("accepted by hostapd", events("SUCCESS"), authenticated)
        wait("tcpdump has all frames", lambda: complete(frames))
    outcome(report, HOSTS, REASONS)
    same("hosts that sent other frames", len(opened(frames)), all_accepted)


# A FreeRADIUS that has only EAP. The server inside is for PEAP and EAP-TTLS.
RADIUS = """
libdir = {root}/lib/freeradius
raddbdir = {folder}
logdir = {folder}
run_dir = {folder}
pidfile = {folder}/radius.pid
security {{ allow_vulnerable_openssl = yes }}
log {{
  destination = stdout
  auth = yes
}}
client wired {{
  ipaddr = 127.0.0.1
  secret = between
}}
modules {{
  files {{ filename = {folder}/radius.users }}
  pap {{ }}
  mschap {{ }}
  eap {{
    default_eap_type = md5
    max_sessions = 10000
    md5 {{ }}
    mschapv2 {{ }}
    tls-config both {{
      certificate_file = {folder}/radius.test.pem
      private_key_file = {folder}/radius.test.key
      ca_file = {folder}/ca.pem
      tls_min_version = "{version}"
      tls_max_version = "{version}"
    }}
    tls {{ tls = both }}
    ttls {{
      tls = both
      virtual_server = inside
      default_eap_type = md5
    }}
    peap {{
      tls = both
      virtual_server = inside
      default_eap_type = mschapv2
    }}
  }}
}}
server outside {{
  listen {{
    type = auth
    ipaddr = 127.0.0.1
    port = 1812
  }}
  authorize {{
    files
    eap {{
      ok = return
    }}
  }}
  authenticate {{
    eap
  }}
}}
server inside {{
  authorize {{
    files
    mschap
    eap {{
      ok = return
    }}
    pap
  }}
  authenticate {{
    Auth-Type PAP {{
      pap
    }}
    Auth-Type MS-CHAP {{
      mschap
    }}
    eap
  }}
}}
"""


def radius(folder, hostapd, freeradius, version, hosts=50):
    """FreeRADIUS, with hostapd as its client, accepts the hosts that the report has, one for one."""
    (hostapd, environment), (freeradius, libraries) = hostapd, freeradius
    certificates(folder)
    root = pathlib.Path(freeradius).parents[1]
    users = [name for name in ACCEPTED if name != "tls"]
    (folder / "radius.users").write_text(
        "".join(
            f'{name}-{i + 1} Cleartext-Password := "secret{i + 1}"\n'
            for name in users
            for i in range(hosts)
        )
    )
    (folder / "radiusd.conf").write_text(RADIUS.format(folder=folder, root=root, version=version))
    (folder / "dictionary").write_text(f"$INCLUDE {root}/share/freeradius/dictionary\n")
    config, log = folder / "hostapd.conf", folder / "hostapd.log"
    config.write_text(
        f"{WIRED}own_ip_addr=127.0.0.1\nnas_identifier=lab\nauth_server_addr=127.0.0.1\n"
        "auth_server_port=1812\nauth_server_shared_secret=between\n"
    )
    # It refuses no identity before a method, has all methods for all users, and hides in PEAP why it
    # refuses one.
    refused = {**REASONS, "wrong for peap": "rejected"}
    del refused["stranger"], refused["other method"]
    groups, text = groups_of(hosts, refused)
    text = text.replace("release = true", 'release = true\nsetup = "20/s"')
    radius_log = folder / "radius.log"
    libraries = {"LD_LIBRARY_PATH": f"{libraries['LD_LIBRARY_PATH']}:{root}/lib/freeradius"}
    argv = [freeradius, "-f", "-l", "stdout", "-d", folder, "-D", root / "share/freeradius"]
    argv += ["-n", "radiusd"]
    ready = server(
        argv, radius_log, lambda: "Ready to process" in radius_log.read_text(), libraries
    )
    argv = ["stdbuf", "-oL", hostapd, config]
    started = server(argv, log, lambda: "AP-ENABLED" in log.read_text(), env=environment)
    frames = folder / "radius.pcap"
    with ready, started, captured(frames, "ether proto 0x888e or ether[6:2] = 0x0253"):

        def macs(result):
            found = re.findall(rf"Login {result}.* cli ([0-9A-Fa-f-]+)\)", radius_log.read_text())
            return {mac.lower().replace("-", ":") for mac in found}

        with running(folder, text, 120) as (process, report):
            wait(
                "FreeRADIUS accepts the hosts",
                lambda: process.poll() is not None or len(macs("OK")) >= hosts * len(ACCEPTED),
                90,
            )
            wait("FreeRADIUS refuses the others", lambda: len(macs("incorrect")) >= len(refused))
            wait("accepted hosts send", lambda: len(senders(frames)) >= hosts * len(ACCEPTED))
        wait("tcpdump has all frames", lambda: complete(frames))
    outcome(report, hosts, refused)
    expected = {
        f"02:53:{number:02x}:00:{(i + 1) >> 8:02x}:{(i + 1) & 255:02x}"
        for number, (name, _, _) in enumerate(groups)
        if name in ACCEPTED
        for i in range(hosts)
    }
    same("hosts accepted by FreeRADIUS", macs("OK"), expected)
    same("hosts that sent other frames", opened(frames), expected)


def complete(frames):
    """Whether a capture has frames, and does not grow any more."""
    size = frames.stat().st_size
    time.sleep(0.3)
    return frames.stat().st_size == size > PCAP_HEADER


def senders(frames):
    """Hosts with other frames than EAPOL in a capture that is still being written."""
    argv = ["tcpdump", "-nne", "-r", frames, "not ether proto 0x888e"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    return {line.split()[1] for line in lines}


def opened(frames):
    """Hosts with other frames than EAPOL in a capture, which has their EAP-Success before."""
    fields = [
        "-T",
        "fields",
        "-e",
        "eth.src",
        "-e",
        "eth.dst",
        "-e",
        "eapol.type",
        "-e",
        "eap.code",
    ]
    accepted, others = set(), set()
    for row in run("tshark", "-r", frames, *fields).stdout.splitlines():
        source, destination, eapol, code = row.split("\t")
        if code == "3":
            accepted.add(destination)
        elif not eapol:
            others.add(source)
            same(f"{source}: other frames before it was accepted", source in accepted, True)
    return others


@contextlib.contextmanager
def neighbor_daemon(folder, lldpd, environment):
    """Lldpd in the peer's namespace, which sends once a second. Yields a function that asks it."""
    passwd, group, log = folder / "passwd", folder / "group", folder / "lldpd.log"
    # Lldpd gives up its rights to a user that its package makes.
    user = "_lldpd:x:64999:64999::/run/lldpd:/usr/sbin/nologin\n"
    passwd.write_text(pathlib.Path("/etc/passwd").read_text() + user)
    group.write_text(pathlib.Path("/etc/group").read_text() + "_lldpd:x:64999:\n")
    client = pathlib.Path(lldpd).with_name("lldpcli")
    script = f"""
        mount --bind {passwd} /etc/passwd && mount --bind {group} /etc/group &&
        mount -t tmpfs none /run && mkdir -p /run/lldpd &&
        exec {lldpd} -d -c -H 0 -I vb -L {client} -u {folder}/lldpd.sock
    """

    def ask(*what):
        argv = [client, "-u", f"{folder}/lldpd.sock", "-f", "json", *what]
        return json.loads(run(*argv, env=environment, ok=(0, 1)).stdout or "{}")

    argv = ["unshare", "-m", "--propagation", "private", "sh", "-c", script]
    with server(argv, log, lambda: "libevent" in log.read_text(), env=environment):
        ask("resume")
        ask("configure", "lldp", "tx-interval", "1")
        yield ask


def neighbor_discovery(folder, lldpd, environment):
    """Lldpd lists the speakers until they end, and the report has lldpd."""

    def names():
        found = ask("show", "neighbors").get("lldp", {}).get("interface", [])
        entries = found if isinstance(found, list) else [found]
        return {name for entry in entries for of in entry.values() for name in of["chassis"]}

    text = """
        [[host]]
        name = "speakers"
        count = 5
        ipv4 = "none"
        lldp = "30 s"
        lldp_name = "squall-{}"

        [[host]]
        name = "phones"
        count = 3
        ipv4 = "10.77.8.1/16"
        cdp = "1 s"
        cdp_hold = "3 s"
        cdp_name = "phone-{}"
    """
    kinds, frames = ["ether proto 0x88cc", "ether dst 01:00:0c:cc:cc:cc"], folder / "lldp.pcap"

    def sent():
        """The numbers of frames that lldpd has sent, by LLDP and by CDP."""
        found = []
        for kind in kinds:
            argv = ["tcpdump", "-nn", "-r", frames, f"{kind} and not ether[6:2] = 0x0253"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            found.append(len(done.stdout.splitlines()))
        return found

    started = neighbor_daemon(folder, lldpd, environment)
    with captured(frames, " or ".join(kinds)), started as ask:
        with running(folder, text) as (process, groups):
            expected = {f"squall-{i + 1}" for i in range(5)}
            expected |= {f"phone-{i + 1}" for i in range(3)}
            wait(
                "lldpd has the speakers", lambda: process.poll() is not None or names() == expected
            )
            before = sent()
            # lldpd sends once a second. The counts below show whether the frames arrived.
            with contextlib.suppress(Failed):
                twice = lambda: all(now >= old + 2 for now, old in zip(sent(), before))
                wait("lldpd announces itself", lambda: process.poll() is not None or twice(), 10)
        wait("lldpd forgets them", lambda: not names())
    lldp = groups["speakers"]["lldp"]
    same("announcements of the end", lldp["shutdowns"], 5)
    same("neighbors of the speakers", len(lldp["neighbors"]), 1)
    cdp = groups["phones"]["cdp"]
    same("last announcements by CDP", cdp["shutdowns"], 3)
    same("neighbors by CDP", len(cdp["neighbors"]), 1)
    wrong = "cdp.checksum.status == 0"
    same("checksums", run("tshark", "-r", frames, "-Y", wrong).stdout, "")


def snooping(folder):
    """The bridge's groups are the memberships, and it forwards these groups alone."""
    v4, v6, members = 20, 5, 3
    timers = (
        "mcast_startup_query_interval 100 mcast_query_interval 300 mcast_query_response_interval 50"
    )
    # The bridge floods unknown groups for a response time after it has become a querier, so its timers
    # are set before.
    for command in [
        f"link add br0 type bridge mcast_igmp_version 3 mcast_mld_version 2 {timers}",
        "link set br0 type bridge mcast_snooping 1 mcast_querier 1",
        "addr flush dev vb",
        "link set vb master br0",
        f"addr add {V4}/16 dev br0",
        "link set br0 up",
    ]:
        run("ip", "-n", REMOTE, *command.split())
    text = f"""
        [[host]]
        name = "v4"
        count = {members}
        ipv4 = "10.77.9.1/16"
        join = "239.9.0.1-239.9.0.{v4}"
        join_rate = 500
        release = true

        [[host]]
        name = "v6"
        ipv4 = "none"
        join = "ff3e::1-ff3e::{v6}"
        release = true
    """
    expected = {f"239.9.0.{i + 1}" for i in range(v4)} | {f"ff3e::{i + 1}" for i in range(v6)}

    def groups_of_bridge():
        rows = json.loads(
            run("bridge", "-n", REMOTE, "-j", "mdb", "show", "dev", "br0").stdout or "[]"
        )
        entries = [entry for row in rows for entry in row["mdb"] if entry["port"] == "vb"]
        return {entry["grp"] for entry in entries if entry["grp"].startswith(("239.9.", "ff3e:"))}

    send = "import socket; s = socket.socket(2, 2)\n"
    send += f"s.setsockopt(0, 32, socket.inet_aton('{V4}'))\n"
    targets = [f"239.9.0.{i + 1}" for i in range(v4)] + ["239.9.9.9"]
    send += f"for group in {targets}: s.sendto(b'?', (group, 9))"
    queries = "igmp or icmp6"
    with captured(folder / "groups.pcap", queries):
        with running(folder, text) as (process, groups):
            done = process.poll
            wait(
                "the bridge has the groups",
                lambda: done() is not None or groups_of_bridge() == expected,
            )
            # Answers to a general query of the bridge.
            time.sleep(4)
            same("groups of the bridge", groups_of_bridge(), expected)
            run(*inside(REMOTE, sys.executable, "-c", send))
            # For Squall to receive these frames, also on a busy machine.
            time.sleep(2)
        wait("the bridge forgets the groups", lambda: not groups_of_bridge())
    one, other = groups["v4"]["multicast"], groups["v6"]["multicast"]
    same("memberships", (one["joined"], one["left"]), (v4 * members, v4 * members))
    same("groups with a frame", (one["groups_received"], one["frames"]), (v4, v4))
    same("frames of other groups", one["unexpected"], 0)
    for of in [one, other]:
        if of["received"].get("general_query", 0) < 1 or of["sent"].get("v3_report", 0) < 2:
            raise Failed(f"{of}: no general query of the bridge, or no answer")
    same("ignored", (one["ignored"], other["ignored"]), ({}, {}))


def unpacked(name):
    """A server that is installed or unpacked, and the environment for its libraries."""
    found = shutil.which(name)
    if found is None:
        return None, {}
    libraries = pathlib.Path(found).parents[1].glob("lib/*-linux-gnu")
    return found, {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}


def radius_servers(folder):
    """The versions of TLS that FreeRADIUS has."""
    programs = unpacked("hostapd"), unpacked("freeradius")
    if any(binary is None for binary, _ in programs):
        print("SKIPPED: hostapd or freeradius is not installed (scripts/setup system)")
        return
    for version in ["1.2", "1.3"]:
        radius(folder, *programs, version)


def main():
    if os.geteuid() != 0:
        print("SKIPPED: needs root for network namespaces")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            network()
            for program, test in [("hostapd", authentication), ("lldpd", neighbor_discovery)]:
                binary, environment = unpacked(program)
                if binary is None:
                    print(f"SKIPPED: {program} is not installed (scripts/setup system)")
                else:
                    test(folder, binary, environment)
            if "--full" in sys.argv[1:]:
                radius_servers(folder)
            snooping(folder)
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("hosts: users, neighbors and groups as the peers have them")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(f"FAILED: {error}")
        sys.exit(1)
