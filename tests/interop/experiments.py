#!/usr/bin/env python3
"""squall experiment, for real: NTG with two tools, in a private lab. It checks counts and lengths,
not speeds: rates match the interface's counters, frames have the requested length, tshark finds
them valid, and CSV and JSON agree. An interrupted experiment has the steps completed before.

  --full  also the short form of every experiment, like `make campaign`
"""

import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import papers
from tools import Failed

FRAME = 512
SHORT_FORM_S = 120
# Allowance for slow starts, ends and captures on a busy machine.
BUSY_S = 120


def expect(good, what):
    if not good:
        raise Failed(what)


def run(squall, *arguments, timeout_s=60 + BUSY_S):
    command = [squall, "experiment", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode == 3 and "no lab" in done.stderr:
        print(f"SKIPPED: no lab: {' '.join(done.stderr.split())}")
        sys.exit(0)
    expect(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
    return done.stdout


def table(result, name):
    """Return the rows of a table, each as a dict by column."""
    (found,) = [t for t in result["tables"] if t["id"] == name]
    names = [column["name"] for column in found["columns"]]
    return [dict(zip(names, row["cells"])) for row in found["rows"]]


def ntg_counts_what_arrives(squall, folder):
    tools = [tool for tool in ["squall", "tcpreplay"] if tool == "squall" or shutil.which(tool)]
    page = folder / "ntg.html"
    files = ["--json", "-", "--html", str(page), "--csv", str(folder / "csv"), "--quiet"]
    asked = ["--tools", ",".join([*tools, "trex"]), "--duration", "500ms"]
    result = json.loads(run(squall, "ntg", *asked, *files))
    expect(result["schema"] == "squall-experiment/1" and not result["full"], result["schema"])
    # On a busy machine, squall reports its own delays.
    notes = [note for note in result["notes"] if "NOT VALID by its report" not in note]
    expect(not result["interrupted"] and notes == [], notes)
    speed = table(result, "speed")
    expect([row["Generator"] for row in speed] == tools, speed)
    costs = table(result, "costs")
    steps = [(row["Generator"], row["Asked, KB/s"]) for row in costs]
    expect(steps == [(t, kb) for kb in (500, 7500) for t in tools], steps)
    for row in costs:
        # Lengths are exact; on a busy machine, rates are at most those requested.
        length = 1000 * row["Actual, KB/s"] / row["Packets/s"]
        expect(abs(length - FRAME) < 1, f"frames of {length} octets: {row}")
        expect(0 < row["Actual, KB/s"] < 1.1 * row["Asked, KB/s"], row)
        expect(1 < row["Memory max, MB"] < 4000 and row["CPU max, %"] <= 210, row)
    if shutil.which("tshark") and shutil.which("tcpdump") and shutil.which("ethtool"):
        for row in table(result, "validity"):
            expect(row["Frames"] > 50 and row["Malformed"] == 0, row)
            expect(row["Wrong IPv4 checksum"] == row["Wrong UDP or TCP checksum"] == 0, row)
    missing = {m["what"]: m["why"] for m in result["missing"]}
    expect("trex" in missing, missing)
    for found in result["tables"]:
        rows = list(csv.reader((folder / "csv" / f"ntg-table-{found['id']}.csv").open()))
        expect(len(rows) == len(found["rows"]) + 1, f"{found['id']}: {rows}")
        for row, made in zip(rows[1:], found["rows"]):
            numbers = [c for c in made["cells"] if isinstance(c, float)]
            expect([float(c) for c in row if is_number(c)] == numbers, f"{row}: {made}")
    text = page.read_text()
    for expected in ["Figures", "CPU against rate", "Missing: trex"]:
        expect(expected in text, f"the page has no {expected}")


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def ctrl_c_ends_it_with_what_was_measured(squall, folder):
    out = folder / "partly.json"
    command = [squall, "experiment", "ntg", "--tools", "squall", "--duration", "300ms"]
    process = subprocess.Popen(
        [*command, "--json", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if "full speed:" in line:
            process.send_signal(signal.SIGINT)
            break
    process.stderr.read()
    expect(process.wait(30) == 0, f"exit status {process.returncode}")
    result = json.loads(out.read_text())
    expect(result["interrupted"] and len(table(result, "speed")) == 1, result["tables"])
    groups = [p for p in pathlib.Path("/sys/fs/cgroup").glob(f"*/squall-experiment-{process.pid}")]
    expect(not groups, f"{groups} were left")


def every_short_form_takes_two_minutes(squall, folder):
    names = [line for line in run(squall, "--list").splitlines() if line and line[0] != " "]
    expect("ntg" in names and "trex" in names, names)
    for name in names:
        began = time.monotonic()
        arguments = [name, "--json", "-", "--quiet", "--html", str(folder / f"{name}.html")]
        result = json.loads(run(squall, *arguments, timeout_s=SHORT_FORM_S + BUSY_S))
        took_s = time.monotonic() - began
        tables = {t["id"]: len(t["rows"]) for t in result["tables"]}
        print(f"        {name}: {took_s:.0f} s, tables {tables}, {len(result['figures'])} figures")
        expect(all(tables.values()) and result["figures"], f"{name}: {tables}")
        papers.CHECKS.get(name, lambda _: None)(result)


def main():
    squall = os.path.abspath(os.environ.get("SQUALL", "target/debug/squall"))
    tests = [ntg_counts_what_arrives, ctrl_c_ends_it_with_what_was_measured]
    if "--full" in sys.argv[1:]:
        tests.append(every_short_form_takes_two_minutes)
    # The nginx that scripts/setup unpacks: an installed package would start its service.
    tools = pathlib.Path("target/tools/usr/sbin").resolve()
    os.environ["PATH"] += f":{tools}"
    failed = 0
    for test in tests:
        with tempfile.TemporaryDirectory(prefix="squall-experiment-test-") as temporary:
            try:
                test(squall, pathlib.Path(temporary))
                print(f"ok      {test.__name__}")
            except (Failed, subprocess.SubprocessError) as error:
                failed += 1
                print(f"FAILED  {test.__name__}: {error}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
