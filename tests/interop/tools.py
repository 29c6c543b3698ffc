"""Functions shared by several of these scripts."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


# Most scripts do not need a machine that is quiet enough for a valid run.
os.environ.setdefault("SQUALL_ALLOW_INVALID", "1")


class Failed(Exception):
    pass


def run(*argv, ok=(0,), **options):
    # Only a command that hangs takes this long, even where a compiler has most of the CPUs.
    done = subprocess.run(
        [str(a) for a in argv], capture_output=True, text=True, timeout=300, **options
    )
    if done.returncode not in ok:
        raise Failed(f"{' '.join(map(str, argv))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


# Tshark's filter for malformed frames. Not for those in which TCP sends octets again with other
# boundaries, as Linux does when the other end had no CPU for some milliseconds: tshark's reassembly
# does not expect that.
MALFORMED = (
    "(_ws.malformed and not (_ws.malformed.reassembly"
    " and (tcp.analysis.retransmission or tcp.analysis.out_of_order)))"
)


def same(what, found, expected):
    if found != expected:
        raise Failed(f"{what}: found {found}, expected {expected}")


# A list of numbers, and the time to parse it on the reference machine of the time limits.
WORK, WORK_S = "[" + "7919," * 400_000 + "0]", 0.045


def slowness(clock=time.monotonic):
    """Return the factor by which this machine is slower than the reference machine, at least 1.
    Time limits are multiples of this factor, measured close to the time that they limit. The
    default clock includes the CPU time taken by other programs; limits on CPU time use
    `time.thread_time`.
    """
    since = clock()
    json.loads(WORK)
    return max(1.0, (clock() - since) / WORK_S)


def wait_idle(process, seconds=60):
    """Wait until a process that reads its input sleeps: it has then read all of it. A process that
    waits for a CPU does not count as asleep."""
    until, asleep = time.monotonic() + seconds, 0
    while asleep < 5:
        if time.monotonic() > until:
            raise Failed(f"{process.args[0]} is still busy after {seconds} s")
        stat = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
        asleep = asleep + 1 if stat.rpartition(")")[2].split()[0] == "S" else 0
        time.sleep(0.02)


@contextlib.contextmanager
def background(argv, **options):
    """Start a process that ends by itself or at the end of the block. If the block fails, the
    process is killed: `with Popen` would wait for it."""
    process = subprocess.Popen([str(a) for a in argv], **options)
    try:
        yield process
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        process.wait(10)


def in_a_lab(squall, script, inside):
    """Run `inside(FOLDER, ARGV)` of the script in a private lab and a temporary directory. Return
    the exit status."""
    if sys.argv[1:2] == ["--inside"]:
        return inside(pathlib.Path(sys.argv[2]), sys.argv[3:])
    what = os.path.splitext(os.path.basename(script))[0]
    name = f"{what}-{os.getpid()}"
    up = subprocess.run([squall, "lab", "up", name], capture_output=True, text=True, timeout=60)
    if up.returncode == 3:
        print(f"SKIPPED: no lab: {up.stderr.strip()}")
        return 0
    if up.returncode:
        print(f"FAILED: lab up: {up.stderr}")
        return 1
    try:
        with tempfile.TemporaryDirectory(prefix=f"squall-{what}-") as folder:
            inside = [squall, "lab", "exec", name, "--"]
            return subprocess.run(
                [
                    *inside,
                    sys.executable,
                    os.path.abspath(script),
                    "--inside",
                    folder,
                    *sys.argv[1:],
                ],
                timeout=480,
            ).returncode
    finally:
        subprocess.run([squall, "lab", "down", name], capture_output=True, timeout=60)
