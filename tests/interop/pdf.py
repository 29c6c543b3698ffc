#!/usr/bin/env python3
"""`--pdf` of a report and of a test: a PDF with the page's text and plots, by the browser of this
machine; and an error that names what to install where there is none.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

from methods import Failed, expect

HERE = pathlib.Path(__file__).resolve()
SQUALL = os.environ.get("SQUALL", str(HERE.parents[2] / "target/debug/squall"))

RIG = """
ports.A = "loop:pdf,virtual,drain=10kpps,buffer=50"
[[stream]]
name = "A to A"
packet = "eth/ipv4/udp"
rate = "5kpps"
duration = "100ms"
latency = true
"""


def squall(*arguments, path=None):
    environment = os.environ | ({"PATH": path} if path else {})
    command = [SQUALL, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=200, env=environment, check=False
    )


def drawn(pdf):
    """Pages, and operators of all content: lines (l) and shown text (Tj, TJ)."""
    octets = pdf.read_bytes()
    expect(octets.startswith(b"%PDF"), octets[:20])
    pages = len(re.findall(rb"/Type\s*/Page\b", octets))
    content = b""
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", octets, re.DOTALL):
        try:
            content += zlib.decompress(stream)
        except zlib.error:
            continue
    return pages, len(content)


def reports_and_results_are_printed(folder):
    rig = folder / "rig.toml"
    rig.write_text(RIG)
    report = folder / "run.json"
    done = squall("run", rig, "--json", report, "--quiet", "--allow-invalid")
    expect(done.returncode == 0, done.stderr)
    done = squall("report", report, "--quiet", "--allow-invalid", "--pdf", folder / "run.pdf")
    expect(done.returncode == 0, done.stderr)
    pages, content = drawn(folder / "run.pdf")
    expect(pages >= 1 and content > 1000, f"{pages} pages, {content} octets of content")
    test = ["test", "rfc2544", rig, "--tests", "throughput", "--frame-sizes", "64,128", "--quick"]
    test += ["--max-rate", "20kpps", "--json", folder / "test.json", "--pdf", folder / "test.pdf"]
    done = squall(*test)
    expect(done.returncode == 0, done.stderr)
    pages, content = drawn(folder / "test.pdf")
    expect(pages >= 1 and content > 1000, f"{pages} pages, {content} octets of content")
    expect(json.loads((folder / "test.json").read_text())["figures"], "the other results, too")
    return report


def without_a_browser_it_is_an_error_before_anything_is_sent(folder, report):
    target = folder / "none.pdf"
    done = squall("report", report, "--pdf", target, path=str(folder))
    expect(done.returncode == 3, f"{done.returncode}: {done.stderr}")
    for text in ("cannot write", "no browser", "\n  try ", "chromium"):
        expect(text in done.stderr, f"{text!r}: {done.stderr}")
    expect(not target.exists(), "no file is left")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
            print("SKIPPED: no chromium: scripts/setup browser")
            return
        report = reports_and_results_are_printed(folder)
        without_a_browser_it_is_an_error_before_anything_is_sent(folder, report)
    print("a report and a test result as PDF")


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")
