#!/usr/bin/env python3
"""The documentation site, from a directory and without a network: tests/gui/site.mjs searches it in
Chromium and checks its code blocks."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    mkdocs, node, chromium = (
        ROOT / ".venv/bin/mkdocs",
        shutil.which("node"),
        shutil.which("chromium"),
    )
    if not mkdocs.exists():
        return print("SKIPPED: needs mkdocs: scripts/setup python")
    if not node or not (ROOT / "ui/node_modules/playwright-core").exists():
        return print("SKIPPED: no Node.js with playwright-core: scripts/setup node && scripts/ui")
    if not chromium:
        return print("SKIPPED: no chromium: scripts/setup browser")
    with tempfile.TemporaryDirectory(prefix="squall-site-") as folder:
        build = [mkdocs, "build", "--quiet", "--site-dir", folder]
        # Suppress a notice of the theme about its successor.
        quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        subprocess.run(build, cwd=ROOT, env=quiet, check=True, timeout=300)
        script = [node, ROOT / "tests/gui/site.mjs", folder, chromium, *sys.argv[1:]]
        return subprocess.run(script, check=False, timeout=300).returncode


if __name__ == "__main__":
    sys.exit(main())
