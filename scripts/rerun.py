#!/usr/bin/env python3
"""Reruns failed tests, each on its own, if they are listed in tests/rerun.txt.

    scripts/rerun.py check                    is the list correct?
    scripts/rerun.py keep NAME COUNT LOG STATUS FAILED
                                              keep the failures of step NAME for `run`; prints how many
    scripts/rerun.py run                      run them; prints "PASSED FAILED" as its last line

COUNT is the function of scripts/test that counted FAILED tests in LOG. A failure is kept only if
the list has its test, every failure in the test matches the listed pattern, and nothing in `NEVER`
appears. If a step has failures that cannot be assigned to tests (a crash, a hang, a failed build),
none of its tests is kept.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LIST = pathlib.Path("tests/rerun.txt")
LOGS = pathlib.Path("target/test")
KEPT = LOGS / "rerun.jsonl"
# If more tests fail and then pass, that is no longer a coincidence.
MOST_FLAKY = 3
TIMEOUT_S = 900
# Defects even if they occur only once: passing in a rerun is no excuse.
NEVER = [
    (
        "unequal values",
        r"assertion `left [!=]= right`|found .*, expected |: \S+, expected \S+$|"
        r"^E +assert (?:[-\d\[{]|b['\"]|\([^ ]*, ).* == ",
    ),
    ("a panic", r"panicked at (?!\S*/tests/|\S*/tests\.rs:)|PanicException"),
    ("a crash", r"SIG[A-Z]+\b.*\bcore|FAILED \((?:Ok\(None\)|signal)"),
    ("a hang", r"^stopped: it took more than|TimeoutExpired|^Timeout \(|took more than \d+ s$"),
    ("a wrong verdict", r"false VALID|is VALID|\bVALID, and "),
]


class Wrong(Exception):
    pass


def listed():
    """Return the list as {test: (pattern, reason)}."""
    entries, test = {}, None
    for number, line in enumerate(LIST.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, colon, value = line.strip().partition(": ")
        if not line.startswith(" "):
            test = line.strip()
            if test in entries:
                raise Wrong(f"{LIST}:{number}: {test} is listed twice")
            entries[test] = {}
        elif test and colon and key in ("failure", "why") and key not in entries[test]:
            entries[test][key] = value
        else:
            raise Wrong(
                f"{LIST}:{number}: found {line!r}, expected `failure: REGEX` or `why: TEXT`"
            )
    for test, entry in entries.items():
        if set(entry) != {"failure", "why"}:
            raise Wrong(f"{LIST}: {test} needs `failure: REGEX` and `why: TEXT`")
        try:
            re.compile(entry["failure"])
        except re.error as error:
            raise Wrong(f"{LIST}: {test}: failure: {error}") from None
    return entries


def check():
    wrong = []
    for test in listed():
        path, *names = test.split("::")
        file, name = pathlib.Path(path), names[-1] if names else ""
        if not file.is_file():
            wrong.append(f"{test}: no such file")
        elif file.suffix == ".rs":
            # A module of a test binary has its own file in the same directory.
            sources = file.parent.rglob("*.rs") if len(names) > 1 else [file]
            if not any(re.search(rf"\bfn {name}\(", source.read_text()) for source in sources):
                wrong.append(f"{test}: no test {name} in {file.parent}")
        elif names and not re.search(rf"^ *def {name}\(", file.read_text(), re.MULTILINE):
            wrong.append(f"{test}: no test {name} in this file")
        elif not names and not os.access(file, os.X_OK):
            wrong.append(f"{test}: not a script")
    if wrong:
        raise Wrong(
            "".join(f"{LIST}: {line}\n" for line in wrong) + "correct or remove these lines"
        )
    print(f"{len(listed())} tests may run again")


def unknown(source, executable):
    """Return the listed tests of a Rust test binary (given by its main source) that do not exist in
    it."""
    tests = [test.partition("::") for test in listed()]
    wanted = [name for path, _, name in tests if path == source]
    if not wanted:
        return []
    found = subprocess.run([executable, "--list"], capture_output=True, text=True, check=True)
    return [name for name in wanted if f"{name}: test" not in found.stdout.splitlines()]


# Failures: (test, command that runs it alone, its output).


def rust_failures(log):
    for run in re.split(r"^ +Running (?=\S+ \()", log, flags=re.MULTILINE)[1:]:
        source, command, folder = re.match(r"(\S+) \((.+)\), [0-9.]+ s in (.+)\n", run).groups()
        texts = dict(captured(run) if "\nfailures:\n" in run else uncaptured(run))
        for test in re.findall(
            r"^test (\S+)(?: - should panic| \(.*\))? \.\.\. FAILED", run, re.MULTILINE
        ):
            how = {"command": [command, "--exact", test, "--show-output"], "folder": folder}
            yield f"{source}::{test}", how, texts.get(test, run)


def captured(run):
    """Return the output of each failed test, as the standard test harness prints it."""
    failures = run.split("\nfailures:\n", 1)[1]
    parts = re.split(r"^---- (\S+) stdout ----$", failures, flags=re.MULTILINE)
    for test, text in zip(parts[1::2], parts[2::2], strict=True):
        yield test, text.split("\nfailures:\n")[0]


def uncaptured(run):
    """As `captured`, for harnesses that start a process for each test
    (crates/squall/tests/harness): the output of a test precedes the line with its name; further
    lines are indented after it.
    """
    parts = re.split(r"^test (\S+)(.*)\n((?:  .*\n)*)", run, flags=re.MULTILINE)
    for before, test, how, after in zip(*(parts[i::4] for i in range(4)), strict=False):
        yield test, f"{before}{how}\n{after}"


def pytest_failures(log, command):
    sections = re.split(r"^_{3,} (.+?) _{3,}$", log, flags=re.MULTILINE)
    texts = dict(zip(sections[1::2], sections[2::2]))
    for node in re.findall(r"^FAILED (\S+(?:\[.*?\])?)(?: - .*)?$", log, re.MULTILINE):
        name = node.partition("::")[2].replace("::", ".")
        yield node, {"command": [*command, node]}, texts.get(name, log)


def otg_failures(log):
    parts = re.split(r"^== snappi (\S+)$", log, flags=re.MULTILINE)
    for version, text in zip(parts[1::2], parts[2::2]):
        for test, how, output in pytest_failures(text, ["tests/otg/run"]):
            yield test, how | {"environment": {"OTG_VERSIONS": version}}, output


def failures(name, count, log, status):
    """Return all failures of a step; none if some of them do not belong to tests."""
    if count == "rust_counts" and name == "rust":
        # 101: tests failed. Any other status is a crash.
        if re.search(r"^error: (?!.*: exit status 101$)", log, re.MULTILINE):
            return []
        return list(rust_failures(log))
    if name == "otg":
        return [] if "the daemon ended with" in log else list(otg_failures(log))
    if count == "pytest_counts":
        return list(pytest_failures(log, [sys.executable, "-m", "pytest", "-q", "-rsfE"]))
    if count == "one" and (script := pathlib.Path("tests/interop") / name).is_file():
        return [(str(script), {"command": [str(script)]}, log)]
    return []


def statements(test, text):
    """Return the individual failures in the output of a test."""
    if ".rs" in test.partition("::")[0]:
        panics = re.findall(
            r"panicked at [^\n]*:\n(.*?)(?=\nthread '|\nnote: run with|\nstack backtrace|\Z)",
            text,
            re.DOTALL,
        )
        name = re.escape(test.rpartition("::")[2])
        lines = re.findall(rf"^(?:Error|{name}): .*", text, re.MULTILINE)
        return panics + lines or re.findall(r"^  \S.*", text, re.MULTILINE)
    if "::" in test:
        # The first line of the exception; the following ones explain it.
        return re.findall(r"(?<!^E)^E {3,}(?! )(.*)", text, re.MULTILINE)[:1]
    # Further failures of a step are indented below its first one.
    lines = [line for line in text.splitlines() if line.strip()]
    return [line for line in lines if re.match(r"(?:.*FAILED| {8}\S)", line)] or lines[-1:]


def keep(name, count, log, status, failed):
    text = pathlib.Path(log).read_text(errors="replace")
    found = failures(name, count, text, status) if status == "1" else []
    kept, entries = [], listed()
    for test, how, output in found if len(found) == int(failed) else []:
        entry = entries.get(re.sub(r"\[.*\]$", "", test))
        never = [why for why, pattern in NEVER if re.search(pattern, output, re.MULTILINE)]
        messages = statements(test, output)
        if (
            entry
            and messages
            and not never
            and all(re.search(entry["failure"], s) for s in messages)
        ):
            kept.append({"test": test, **how, "log": output[-20_000:], "step": name})
    with KEPT.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in kept)
    print(len(kept))


def run():
    kept = [json.loads(line) for line in KEPT.open()] if KEPT.exists() else []
    flaky, failed = [], 0
    for one in kept:
        test, output = one["test"], again(one)
        if output is None:
            flaky.append(test)
            print(f"FLAKY   {test}: passed when it ran again, alone. It failed with:")
            print(indented(one["log"]))
        else:
            failed += 1
            print(f"FAILED  {test}: failed twice. First:\n{indented(one['log'])}")
            print(f"  then, alone:\n{indented(output)}")
    if flaky:
        print(f"{len(flaky)} flaky: {', '.join(flaky)}")
    if len(flaky) > MOST_FLAKY:
        print(f"more than {MOST_FLAKY} flaky tests: they count as failed")
        flaky, failed = [], len(kept)
    print(len(flaky), failed)


def again(one):
    """Run a test. Return its output if it fails."""
    # A file instead of a pipe, which a daemon that outlives the test would keep open.
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        status = subprocess.run(
            ["timeout", "--kill-after=10", str(TIMEOUT_S), *one["command"]],
            cwd=one.get("folder"),
            env={**os.environ, **environment(one)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
        file.seek(0)
        output = file.read()
    if status == 124:
        output += f"\nstopped: it took more than {TIMEOUT_S} s"
    # A test that is now skipped or missing has not passed.
    skipped = [line for line in output.splitlines() if "SKIPPED" in line and line not in one["log"]]
    passed = status == 0 and not skipped
    if "::" in one["test"]:
        passed = passed and re.search(r"\b[1-9]\d* passed", output)
    return None if passed else output


def environment(one):
    if "folder" in one:
        return {"CARGO_MANIFEST_DIR": one["folder"]}
    # The environment that scripts/test sets for this step.
    if one["step"] != "pytest":
        return {"SQUALL_ALLOW_INVALID": "1", **one.get("environment", {})}
    return {}


def indented(text):
    return "\n".join(f"  | {line}" for line in text.splitlines()[-100:])


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or ["check"]
    try:
        {"check": check, "keep": keep, "run": run}[command](*arguments)
    except Wrong as error:
        sys.exit(str(error))
