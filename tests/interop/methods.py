#!/usr/bin/env python3
"""`squall test` end to end: methods for switches and multicast against a kernel bridge in a lab,
those for routers against the lab's Linux router and its simulated device, the others against a
device of known rate in virtual time. Times are short and the machine may be busy, so the checks do
not depend on its speed. With --full also every membership protocol, and the simulated device on a
quiet machine.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
PORTS = 3
GROUPS = 16

# One end of each pair is a port of the bridge. Only test frames reach the bridge: the kernel sends
# no ARP and no IPv6. Multicast to groups without members is not flooded while there is a querier;
# the MLD querier sends from the bridge's own IPv6 address.
BRIDGE = f"""
set -e
ip link add br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_query_response_interval 10 \
    mcast_startup_query_interval 100 mcast_last_member_interval 10 mcast_hash_max {GROUPS}
for i in $(seq 0 {PORTS - 1}); do
  ip link add p$i type veth peer name s$i
  echo 1 > /proc/sys/net/ipv6/conf/p$i/disable_ipv6
  echo 1 > /proc/sys/net/ipv6/conf/s$i/disable_ipv6
  ip link set p$i arp off mtu 2000
  ip link set s$i mtu 2000 master br0 up
  ip link set p$i up
done
echo 0 > /proc/sys/net/ipv6/conf/br0/disable_ipv6
echo 0 > /proc/sys/net/ipv6/conf/br0/accept_dad
ip link set br0 mtu 2000 up
sleep 1
ip link set br0 type bridge mcast_querier 0
ip link set br0 type bridge mcast_querier 1
"""


# The ends of two links, between which bridge.py forwards.
LINKS = """
set -e
for i in 0 1; do
  ip link add p$i type veth peer name s$i
  for end in p$i s$i; do
    echo 1 > /proc/sys/net/ipv6/conf/$end/disable_ipv6
    ip link set $end arp off up
  done
done
"""

# Frames/s that the lab's simulated device forwards in each direction, and the frames in its buffer.
CAPACITY, BUFFER = 2_000, 20


class Failed(Exception):
    pass


def expect(good, what):
    if not good:
        raise Failed(what)


class Lab:
    """A lab with a device, or one made by a script, which is up inside a with block."""

    def __init__(self, squall, *device, script=BRIDGE):
        self.squall, self.name, self.device = squall, f"methods-{os.getpid()}", device
        self.script = script

    def run(self, *arguments, timeout=60):
        command = [self.squall, "lab", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def exec(self, *command, timeout=60):
        return self.run("exec", self.name, "--", *command, timeout=timeout)

    def __enter__(self):
        what = self.device[1] if self.device else "the bridge"
        up = self.run("up", self.name, *self.device)
        if up.returncode == 3:
            print(f"SKIPPED: {what}: {up.stderr.strip()}")
            return None
        expect(up.returncode == 0, f"lab up: {up.stderr}")
        if self.device:
            return self
        made = self.exec("sh", "-c", self.script)
        if made.returncode != 0:
            self.run("down", self.name)
            print(f"SKIPPED: the bridge: {made.stderr.strip()}")
            return None
        return self

    def __exit__(self, *_):
        self.run("down", self.name)


def outcome(run, *arguments):
    """Return the result of a test. Status 4: the generator set the limit, as on a busy machine."""
    done = run(*arguments, "--quick", "--rest", "0.05", "--json", "-")
    expect(done.returncode in (0, 4), f"{arguments}: {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def figure(outcome, name):
    figures = {one["name"]: one for one in outcome["figures"]}
    expect(name in figures, f"{name}: {list(figures)}, {outcome['notes']}")
    return figures[name]


def device(squall, folder):
    """Test a device that forwards 10,000 frames/s and buffers 50 frames."""
    profile = folder / "rig.toml"
    streams = "".join(
        f'[[stream]]\nname = "{ip}"\npacket = "eth/{ip}/udp"\nrate = 1\n' for ip in ("ipv4", "ipv6")
    )
    profile.write_text(f'ports.A = "loop:methods,virtual,drain=10kpps,buffer=50"\n{streams}')

    def run(method, *arguments):
        command = [squall, "test", method, profile, "--max-rate", "100kpps", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    return run


def throughput_is_that_of_the_device(run):
    for method in ("tst009", "rfc8219"):
        found = outcome(run, method, "--frame-sizes", "84,512")
        for size in (84, 512):
            value = figure(found, f"throughput/{size}")["value"]
            expect(9_950 < value <= 10_000, f"{method}: {value} frames/s of 10,000")
    # The port takes 1/10,000 s per frame, and two streams send at the rate of the device, so a
    # frame waits at most for one frame of the other stream.
    for name in ("typical_latency/84", "worst_case_latency/84"):
        value = figure(found, name)["value"]
        expect(100_000 <= value <= 201_000, f"{name}: {value} ns")
    longer = {lane["frame_size"] for lane in found["trials"][0]["trial"]["lanes"]}
    expect(longer == {84, 104}, f"frames of IPv6 are 20 octets longer: {longer}")
    refused = run("rfc8219", "--tests", "pdv", "--setup", "nothing")
    expect(refused.returncode == 2, f"{refused.returncode}: {refused.stderr}")


def a_soak_passes_below_the_rate_and_fails_above(run):
    low = outcome(run, "soak", "--load", "0.05", "--max-loss", "0", "--max-drift-us", "1")
    expect(low["verdict"]["status"] == "passed", low["verdict"])
    expect(figure(low, "latency_drift")["value"] == 0, "the device does not drift")
    done = run("soak", "--load", "0.5", "--max-loss", "0.1", "--quick", "--json", "-")
    expect(done.returncode == 1, f"80 % are lost: {done.returncode} {done.stderr}")
    lost = figure(json.loads(done.stdout), "loss")["value"]
    expect(0.79 < lost < 0.81, f"lost {lost} of 0.8")


def bridge(squall, lab):
    ports = [f"--port={chr(ord('A') + i)}=af_packet:p{i}" for i in range(PORTS)]
    common = [*ports, "--max-rate", "100pps", "--resolution", "0.4", "--trial-s", "0.3"]
    common += ["--linger", "100ms", "--repeats", "1", "--frame-sizes", "128"]

    def run(method, *arguments):
        return lab.exec(squall, "test", method, *common, *arguments, timeout=300)

    return run


def a_bridge_forwards_learns_and_floods(run):
    flush = "ip link set br0 type bridge fdb_flush"
    found = outcome(
        run,
        "rfc2889",
        *("--tests", "full-mesh,address-capacity,errored-frames,broadcast,congestion"),
        *("--initial-addresses", "30", "--max-addresses", "60", "--address-rate", "200"),
        *("--flush-command", flush),
    )
    capacity = figure(found, "address_capacity")
    expect(capacity["value"] == 60, f"a bridge has room for more than 60: {capacity}")
    # The device forwards frames of any length that veth accepts.
    for kind in ("undersize", "oversize"):
        part = figure(found, f"forwarded.{kind}")["value"]
        expect(part > 0.99, f"{kind}: {part}")
    meshed = [t for t in found["trials"] if t["trial"]["label"].startswith("full-mesh")]
    expect(meshed, "no trial of the mesh")
    for trial in meshed:
        for lane in trial["measured"]["lanes"]:
            expect(lane["lost"] == 0, f"the bridge carries 100 frames/s: {lane}")
    broadcast = [t for t in found["trials"] if t["trial"]["label"].startswith("broadcast")]
    for trial in broadcast:
        (lane,) = trial["measured"]["lanes"]
        expect(lane["received"] == (PORTS - 1) * lane["sent"], f"to all ports: {lane}")
    expect(any("4 ports" in note for note in found["notes"]), found["notes"])


def options_win_over_quick(run):
    found = outcome(
        run, "rfc2544", "--tests", "throughput", "--trial-s", "2", "--frame-sizes", "84"
    )
    lasted = {one["trial"]["duration_s"] for one in found["trials"]}
    expect(lasted == {2}, f"trials of 2 s: {lasted}")


def a_comparison_takes_its_ports_from_the_command_line(squall, folder):
    profile = str(folder / "rig.toml")
    command = [squall, "test", "ab", "--a", profile, "--b", profile, "--pairs", "6"]
    command += ["--port", "A=loop:methods-ab,virtual", "--duration", "100ms", "--rest", "0"]
    done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, check=False)
    expect(done.returncode == 0, done.stderr)
    expect(json.loads(done.stdout)["figures"], done.stdout)


def versions_share_a_port(squall):
    """Check that without a profile, one frame in four is IPv6."""

    def run(*arguments):
        command = [squall, "test", *arguments, "--port", "A=loop:methods-versions,virtual"]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    settings = ("--tests", "throughput", "--frame-sizes", "128", "--max-rate", "10kpps")
    found = outcome(run, "rfc2544", *settings, "--ipv6", "0.25")
    lanes = found["trials"][0]["measured"]["lanes"]
    sent = {lane["name"].partition(", ")[2]: lane["received"] for lane in lanes}
    expect(sent == {"IPv4": 7500, "IPv6": 2500}, sent)


def settings_that_contradict_each_other_are_refused(run):
    done = run("rfc2889", "--initial-addresses", "10", "--max-addresses", "5", "--json", "-")
    expect(done.returncode == 2, done.stderr)
    expect("initial_addresses" in done.stderr, done.stderr)


def a_bridge_snoops(run, memberships):
    for membership in memberships:
        found = outcome(
            run,
            "rfc3918",
            *("--membership", membership, "--tests", "aggregated,latency,join-delay,leave-delay"),
            *("--latency-s", "0.5"),
            *("--groups", "4", "--probe-rate", "200", "--delay-s", "1", "--join-rate", "100"),
        )
        data = [
            lane
            for trial in found["trials"]
            for lane in trial["measured"]["lanes"]
            if lane["name"] == "multicast"
        ]
        expect(data, "no trial with multicast")
        for lane in data:
            received = (PORTS - 1) * lane["sent"]
            expect(lane["received"] == received, f"{membership}: to both members: {lane}")
            delays = [receiver["delay"] for receiver in lane["receivers"]]
            expect(len(delays) == PORTS - 1 and all(delays), f"{membership}: of each: {lane}")
        probes = [
            (trial["trial"]["label"], lane)
            for trial in found["trials"]
            for lane in trial["measured"]["lanes"]
            if lane["name"] == "probe"
        ]
        for label, lane in probes:
            # No frames arrive in the half second before the join, nor after the leave.
            expect(0 < lane["received"] < lane["sent"], f"{membership}: {label}: {lane}")
    # The bridge holds at most GROUPS groups, including its own, and then stops snooping.
    again = (
        "ip link set br0 type bridge mcast_snooping 0; ip link set br0 type bridge mcast_snooping 1"
    )
    found = outcome(
        run,
        "rfc3918",
        *("--tests", "group-capacity", "--groups", "8", "--max-groups", "64"),
        *("--join-rate", "100", "--flush-command", again),
    )
    capacity = figure(found, "group_capacity")
    least = 0 if capacity["limit"] == "generator" else GROUPS - 4
    expect(least <= capacity["value"] <= GROUPS, f"group capacity: {capacity} of {GROUPS}")


def through(lab, profile):
    """Run tests in the lab of a device, with the profile that `lab up` has written."""

    def run(method, *arguments):
        command = [
            lab.squall,
            "test",
            method,
            profile,
            "--linger",
            "100ms",
            "--repeats",
            "1",
            *arguments,
        ]
        return lab.exec(*command, timeout=300)

    return run


def no_result_exceeds_the_capacity_of_the_device(run):
    arguments = ["--max-rate", "4kpps", "--frame-sizes", "128", "--tests", "throughput,frame-loss"]
    arguments += ["--resolution", "0.02", "--loss-step", "0.5", "--trial-s", "0.5"]
    found = outcome(run, "rfc2544", *arguments)
    throughput = figure(found, "throughput/128")
    # The capacity of both directions. Frames drained from the buffer do not count as throughput.
    most = 2 * CAPACITY
    expect(throughput["value"] <= most * 1.005, f"{throughput} of {most}")
    if throughput["limit"] == "device":
        expect(throughput["value"] >= most * 0.9, f"{throughput} of {most}")
    for row in found["figures"]:
        if row["name"] == "loss@100%/128":
            # The offered load is twice the capacity, so half of the frames are lost, apart from
            # those in the buffer.
            expect(abs(row["value"] - 0.5) < 0.02, f"loss at twice the capacity: {row}")


@contextlib.contextmanager
def a_loaded_machine():
    """Run two busy loops during the with block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def a_loaded_machine_gives_no_wrong_figure(run):
    with a_loaded_machine():
        no_result_exceeds_the_capacity_of_the_device(run)


def a_router_is_measured_and_a_service_through_it(run):
    arguments = ["--max-rate", "2kpps", "--frame-sizes", "128", "--tests", "throughput,latency"]
    found = outcome(run, "rfc2544", *arguments, "--trial-s", "0.5", "--latency-s", "1")
    if figure(found, "throughput/128")["limit"] == "offered":
        latency = [one["value"] for one in found["figures"] if one["name"].startswith("latency")]
        if latency:
            expect(1_000 < latency[0] < 1e9, f"latency {latency} ns")
        else:
            # On a busy machine no trial of the device is valid.
            expect(found["verdict"]["status"] == "generator_bound", found["verdict"])
    service = "stream=A to B ipv4,cir_bps=1Mbps,flr=0.5,policed=false"
    lengths = ["--step-s", "0.5", "--performance-s", "0"]
    done = run("y1564", "--service", service, "--quick", *lengths, "--json", "-")
    expect(done.returncode in (0, 1, 4), f"y1564: {done.returncode} {done.stderr}")
    expect(json.loads(done.stdout)["tables"], "a table of the steps")


class Device:
    """bridge.py between the two links of a lab (LINKS). After the with block, `ways` has its
    counters in both directions, `counters` those of frames from s0.
    """

    def __init__(self, lab, *arguments):
        bridge = [sys.executable, str(HERE.parent / "bridge.py"), "s0", "s1", *arguments]
        command = [lab.squall, "lab", "exec", lab.name, "--", *bridge]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        expect(self.process.stdout.readline() == "ready\n", "the bridge does not start")
        self.ways = self.counters = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        counters, _ = self.process.communicate(timeout=10)
        self.ways = json.loads(counters) if counters else None
        self.counters = self.ways and self.ways["a"]

    def periods(self, trial):
        """Return (first lost frame, frames) for each loss period of a trial."""
        every = self.counters["loss_periods"]
        return [(one["from"], one["frames"]) for one in every if one["trial"] == trial]


def live(squall, folder, full):
    """Test each kind of device in the lab."""
    reference = f"reference,drain={CAPACITY}pps,buffer={BUFFER}"
    checks = [(reference, a_loaded_machine_gives_no_wrong_figure)]
    if full:
        checks += [(reference, no_result_exceeds_the_capacity_of_the_device)]
    checks += [("router", a_router_is_measured_and_a_service_through_it)]
    for kind, check in checks:
        profile = folder / f"{kind.partition(',')[0]}.toml"
        with Lab(squall, "--device", kind, "--profile", str(profile)) as lab:
            if lab is not None:
                check(through(lab, profile))
                print(f"live: {check.__name__.replace('_', ' ')}")


def main():
    full = "--full" in sys.argv[1:]
    squall = os.environ.get("SQUALL") or str(HERE.parents[2] / "target/debug/squall")
    with tempfile.TemporaryDirectory() as folder:
        run = device(squall, pathlib.Path(folder))
        throughput_is_that_of_the_device(run)
        options_win_over_quick(run)
        a_comparison_takes_its_ports_from_the_command_line(squall, pathlib.Path(folder))
        versions_share_a_port(squall)
        a_soak_passes_below_the_rate_and_fails_above(run)
        print("virtual time: tst009, rfc8219 and soak find the device")
        live(squall, pathlib.Path(folder), full)
    with Lab(squall) as lab:
        if lab is None:
            return
        run = bridge(squall, lab)
        settings_that_contradict_each_other_are_refused(run)
        a_bridge_forwards_learns_and_floods(run)
        print("bridge: rfc2889")
        a_bridge_snoops(run, ("mldv1", "igmpv2", "igmpv3") if full else ("igmpv3",))
        print("bridge: rfc3918")


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")
