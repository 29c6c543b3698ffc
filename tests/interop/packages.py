#!/usr/bin/env python3
"""The packages: their files, and whether their binary runs on a minimal system.

The Debian package of this build is unpacked into an empty directory, with only the libraries that
the package depends on. The demo, `squall doctor` and `squall --version` run there. `make install`
is tried in a directory. scripts/dist-check, which takes longer, tests the published packages.
"""

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
SQUALL = os.environ["SQUALL"]
#: Runs in a mount namespace, so /proc and /dev disappear with the process.
ENTER = """
mkdir -p "$0/proc" "$0/dev" "$0/tmp"
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "${@}"
"""


def expect(good, what):
    if not good:
        sys.exit(f"FAILED: {what}")


def output(*command, **more):
    # Stripping and compressing a debug build takes long while other scripts and a compiler run.
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, **more)
    expect(done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def in_root(root, *command):
    enter = ["unshare", "--mount", "--pid", "--fork", "bash", "-c", ENTER, root]
    return output(*map(str, [*enter, *command]))


def libraries(binary, root):
    """Copy the libraries that a binary is linked to, to where the C library's package would install
    them."""
    for word in output("ldd", binary).split():
        if word.startswith("/"):
            target = root / word.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, target)


def package(folder):
    environment = {**os.environ, "DIST": str(folder), "DIST_BINARY": SQUALL}
    output(ROOT / "scripts/dist", "packages", env=environment)
    [deb], [rpm] = folder.glob("*.deb"), folder.glob("*.rpm")
    expect(rpm.stat().st_size > 1 << 20, f"{rpm} is small")
    sums = output("sha256sum", "--check", "SHA256SUMS", cwd=folder)
    expect(sums.count(": OK") == 2, sums)
    return deb


def fields(deb):
    text = output("dpkg-deb", "--field", str(deb))
    found = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    expect(found["Package"] == "squall" and "libc6" in found["Depends"], text)
    return found


def unpacked(deb, root):
    output("dpkg-deb", "--extract", str(deb), str(root))
    there = {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}
    for file in [
        "usr/bin/squall",
        "usr/lib/systemd/system/squall.service",
        "usr/share/bash-completion/completions/squall",
        "usr/share/zsh/vendor-completions/_squall",
        "usr/share/fish/vendor_completions.d/squall.fish",
        "usr/share/doc/squall/copyright",
        "usr/share/doc/squall/README.Debian",
        "usr/share/man/man1/squall-run.1.gz",
    ]:
        expect(file in there, f"{file} is not in {sorted(there)}")
    page = gzip.decompress((root / "usr/share/man/man1/squall-run.1.gz").read_bytes())
    expect(b"\n.SH" in page, page[:200])
    output("bash", "-n", str(root / "usr/share/bash-completion/completions/squall"))


def runs(root):
    binary = root / "usr/bin/squall"
    libraries(binary, root)
    expect(in_root(root, "/usr/bin/squall", "--version").startswith("squall "), "--version")
    file = "/tmp/report"
    demo = f"demo --duration 1s --quiet --report {file}.html --json {file}.json".split()
    in_root(root, "/usr/bin/squall", *demo)
    report = json.loads((root / "tmp/report.json").read_text())
    counts = [(port["tx"]["packets"], port["rx"]["packets"]) for port in report["ports"]]
    # The counts depend on other load on the machine.
    expect(counts[0][0] == counts[1][1] > 0 and counts[1][0] == counts[0][1] > 0, counts)
    expect((root / "tmp/report.html").stat().st_size > 10_000, "the report is small")
    doctor = json.loads(in_root(root, "/usr/bin/squall", "doctor", "--json", "-"))
    states = {finding["name"]: finding["state"] for finding in doctor["findings"]}
    for kind in ["af_packet", "loop", "null", "pcap"]:
        expect(states[kind] == "ok", doctor)


def installs(folder):
    output(ROOT / "scripts/install", "/opt/squall", str(folder))
    prefix = folder / "opt/squall"
    expect(os.access(prefix / "bin/squall", os.X_OK), "no binary")
    unit = (prefix / "lib/systemd/system/squall.service").read_text()
    expect("ExecStart=/opt/squall/bin/squall serve" in unit, unit)
    pages = len(list((prefix / "share/man/man1").glob("squall*.1")))
    expect(pages > 10, f"{pages} manual pages")


def main():
    if os.geteuid() != 0:
        print("SKIPPED: needs root for a change of the root folder (as nobody)")
        return
    for tool in ["nfpm", "dpkg-deb", "objcopy"]:
        if shutil.which(tool) is None:
            print(f"SKIPPED: {tool} is not installed, try scripts/setup python system")
            return
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "root").mkdir()
        deb = package(folder / "dist")
        version = fields(deb)["Version"]
        unpacked(deb, folder / "root")
        runs(folder / "root")
        installs(folder / "installed")
        print(f"squall {version}: packages hold what they should, and run in an empty root")


if __name__ == "__main__":
    main()
