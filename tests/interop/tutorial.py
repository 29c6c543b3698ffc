#!/usr/bin/env python3
"""Runs docs/tutorial.md from its first to its last line in one shell, as a reader would paste it,
and compares its output with that of the page.

The source folder is a temporary one with the program and the examples; or with --source the folder
in which `make demo` was run. Numbers and units
may differ from the page, and so may verdicts: they depend on the machine. Every other word of a
line of the page has to be printed, in the order of the page. Each block ends with exit status 0,
except those in STATUSES.

By default most durations are one second; with --full they are those of the page. The program is
$SQUALL, target/debug/squall unless given. In its own network namespace if root runs it.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = pathlib.Path(os.environ.get("SQUALL", ROOT / "target/debug/squall")).absolute()
PAGE = ROOT / "docs/tutorial.md"
# Blocks whose last command fails as the page explains: a text of the block, exit status.
STATUSES = [("squall plan wrong.toml", 2), ("-m pytest", 1)]
# Lines that depend on the speed of the machine.
VARIES = re.compile(
    r"VALID|exit status|port-bound|^A: |retransmit|%\]|failed.* in |busiest second|not needed by"
)
# Words, and those among them that are units or parts of numbers.
WORD = re.compile(r"[^\W\d_]{2,}")
UNITS = {"pps", "kpps", "Mpps", "kb", "Mb", "Gb", "kB", "MB", "ns", "µs", "ms"}
# Names of commits, and the drawing of the link.
OTHER = re.compile(r"\([0-9a-f]{12}\)|.*──.*|.*Squall sends .*Squall receives")


@dataclasses.dataclass
class Block:
    """Commands, and the lines that the page shows for them."""

    line: int
    commands: str
    shown: list


def blocks(text):
    found, language, block = [], None, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("```"):
            block.append(line)
            continue
        if language == "sh":
            found.append(Block(number - len(block), "\n".join(block), []))
        elif language == "text" and found and not found[-1].shown:
            found[-1].shown = block
        language = line[3:].strip() or None if language is None else None
        block = []
    return found


def words(line):
    """The words that are the same on every machine."""
    return [word for word in WORD.findall(OTHER.sub("", line)) if word not in UNITS]


def differing(shown, printed):
    """The first line of the page that was not printed, in order."""
    lines = iter(printed.splitlines())
    for line in shown:
        wanted = words(line)
        if not wanted or VARIES.search(line):
            continue
        # A line that the page shortens has more words.
        if not any(is_part(wanted, words(found)) for found in lines):
            return line
    return None


def is_part(wanted, found):
    rest = iter(found)
    return all(word in rest for word in wanted)


def short(commands):
    """With durations of a second, except where a receiver waits four for a sender that starts after
    one."""
    commands = re.sub(r"(--duration )[235]s", r"\g<1>1s", commands)
    # A reader sees when a server in the background has started. A busy machine takes longer.
    commands = re.sub(r"(&\nsleep )(\d)", lambda found: f"{found[1]}{3 * int(found[2])}", commands)
    return commands.replace('duration = "3 s"', 'duration = "1 s"')


def script(page, full):
    """The shell's input: a mark after each block, in the output of which it is the end."""
    lines = ["set -m"]
    for index, block in enumerate(page):
        lines += [block.commands if full else short(block.commands)]
        lines += [f"printf '\\n@@ {index} %d\\n' $?"]
    return "\n".join(lines) + "\n"


def source_folder(folder):
    source = folder / "source"
    (source / "target/demo").mkdir(parents=True)
    (source / "target/demo/squall").symlink_to(SQUALL)
    (source / "examples").symlink_to(ROOT / "examples")
    return source


def environment(folder):
    kept = {key: os.environ[key] for key in ["PATH", "LANG", "TMPDIR"] if key in os.environ}
    for name in ["home", "runtime"]:
        (folder / name).mkdir(mode=0o700)
    home = {"HOME": str(folder / "home"), "XDG_RUNTIME_DIR": str(folder / "runtime")}
    # The verdict depends on what else the machine does.
    return kept | home | {"SQUALL_ALLOW_INVALID": "1", "TERM": "dumb"}


def inside(given, folder):
    """Run the page; print what differs."""
    page = blocks(PAGE.read_text())
    if not given.pytest:
        page = [block for block in page if "pytest" not in block.commands]
    source = pathlib.Path(given.source).absolute() if given.source else source_folder(folder)
    with open(folder / "printed", "w+") as printed:
        shell = subprocess.Popen(
            ["bash"],
            cwd=source,
            env=environment(folder),
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            shell.communicate(script(page, given.full), timeout=600)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
        printed.seek(0)
        text = printed.read()
    if given.verbose:
        print(text)
    return judge(page, text)


def judge(page, text):
    failures = 0
    parts = re.split(r"\n@@ (\d+) (\d+)\n", "\n" + text)
    ended = {
        int(i): (output, int(status))
        for output, i, status in zip(parts[::3], parts[1::3], parts[2::3])
    }
    for index, block in enumerate(page):
        output, status = ended.get(index, (parts[-1], None))
        good = next((s for part, s in STATUSES if part in block.commands), 0)
        line = differing(block.shown, output)
        if status == good and line is None:
            continue
        failures += 1
        why = f"exit status {status}" if status != good else f"not printed: {line}"
        print(f"FAILED: docs/tutorial.md:{block.line}: {why}\n{block.commands}\n{output[-2000:]}")
        if status is None:
            break
    print(f"{len(page)} blocks of the tutorial, {failures} failed")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--source", metavar="FOLDER", help="a source folder after make demo")
    parser.add_argument("--full", action="store_true", help="with the durations of the page")
    parser.add_argument("--no-pytest", dest="pytest", action="store_false", help="without Python")
    parser.add_argument("--verbose", action="store_true", help="print all output")
    parser.add_argument("--inside", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        return 1 if inside(given, pathlib.Path(given.inside)) else 0
    for tool in ["ip", "tc", "curl", "unshare"]:
        if shutil.which(tool) is None:
            return print(f"SKIPPED: needs {tool}")
    with tempfile.TemporaryDirectory(prefix="squall-tutorial-") as folder:
        argv = [sys.executable, os.path.abspath(__file__), "--inside", folder, *sys.argv[1:]]
        # In a network namespace, the daemon's ports are free.
        enter = 'ip link set lo up && exec "$@"'
        root = ["unshare", "-n", "-p", "--fork", "--kill-child", "--mount-proc"]
        root += ["sh", "-c", enter, "sh"]
        return subprocess.run([*(root if os.geteuid() == 0 else []), *argv]).returncode


if __name__ == "__main__":
    sys.exit(main())
