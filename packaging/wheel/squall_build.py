"""The build backend of the Python package (PEP 517): maturin's, plus the command ``squall``.

maturin packs a module or a program, not both (docs/adr/0044-command-in-the-wheel.md), so the
program is added to the wheel that maturin made. Both are built by one cargo command, because cargo
unites the features of the packages that it builds together: built one after the other, most crates
would be compiled twice.

As a script: ``squall_build.py WHEEL PROGRAM FOLDER`` writes WHEEL with PROGRAM in it to FOLDER.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import maturin
from maturin import (
    get_requires_for_build_editable as get_requires_for_build_editable,
    get_requires_for_build_sdist as get_requires_for_build_sdist,
    get_requires_for_build_wheel as get_requires_for_build_wheel,
    prepare_metadata_for_build_editable as prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel,
)

ROOT = Path(__file__).resolve().parents[2]
Settings = dict[str, Any] | None


# The names of the parameters are those of PEP 517.
def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return _build(maturin.build_wheel, wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return _build(maturin.build_editable, wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Every file of the repository, as the command needs crates that the module does not."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    with tempfile.TemporaryDirectory() as made:
        metadata = Path(
            made, maturin.prepare_metadata_for_build_wheel(made, config_settings), "METADATA"
        )
        name = "-".join(_fields(metadata.read_text()))
        paths = sorted([(path, ROOT / path) for path in tracked.split("\0") if path])
        made_into = Path(sdist_directory, f"{name}.tar.gz")
        with (
            gzip.GzipFile(made_into, "wb", mtime=_built_at()) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for path, file in [*paths, ("PKG-INFO", metadata)]:
                archive.add(file, f"{name}/{path}", recursive=False, filter=_anonymous)
    return f"{name}.tar.gz"


def _fields(metadata: str) -> tuple[str, str]:
    header = metadata.partition("\n\n")[0].splitlines()
    fields = dict(line.partition(": ")[::2] for line in header)
    return fields["Name"], fields["Version"]


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = _built_at()
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry


def _built_at() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))


def _build(build: Any, folder: str, settings: Settings, metadata: str | None) -> str:
    arguments = maturin.get_maturin_pep517_args(settings)
    profile = arguments[arguments.index("--profile") + 1] if "--profile" in arguments else "release"
    # Without symbols and lines for backtraces the package is smaller, and built in less time.
    for setting, value in [("DEBUG", "false"), ("STRIP", "symbols")]:
        os.environ.setdefault(f"CARGO_PROFILE_{profile.upper()}_{setting}", value)
    os.environ["PATH"] = f"{ROOT / 'scripts/whole'}{os.pathsep}{os.environ['PATH']}"
    os.environ.setdefault("WHOLE", "--package squall-py --package squall-cli --bin squall")
    wheel = Path(folder, build(folder, settings, metadata))
    program = _target() / ("debug" if profile == "dev" else profile) / "squall"
    add_program(wheel, program, Path(folder))
    return wheel.name


def _target() -> Path:
    """Where cargo's results are, in one folder for each profile."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    return Path(json.loads(found)["target_directory"], os.environ.get("CARGO_BUILD_TARGET", ""))


def add_program(wheel: Path, program: Path, folder: Path) -> None:
    """Write `wheel` to `folder`, with `program` as a script that pip installs as ``squall``, and
    with the address of the project, if ``$PROJECT_URL`` has it.
    """
    with zipfile.ZipFile(wheel) as old:
        entries = [(entry, old.read(entry)) for entry in old.infolist()]
    record = next(entry for entry, _ in entries if entry.filename.endswith(".dist-info/RECORD"))
    information = record.filename.removesuffix("/RECORD")
    script = zipfile.ZipInfo(
        f"{information.removesuffix('.dist-info')}.data/scripts/squall", _date()
    )
    script.external_attr = 0o100755 << 16
    script.compress_type = zipfile.ZIP_DEFLATED
    entries.append((script, program.read_bytes()))
    lines = [f"{record.filename},,"]
    whole = folder / f".{wheel.name}"
    with zipfile.ZipFile(whole, "w") as new:
        for entry, content in entries:
            if entry is record:
                continue
            if entry.filename == f"{information}/METADATA":
                content = _with_url(content)
            lines.append(f"{entry.filename},{_digest(content)},{len(content)}")
            new.writestr(entry, content)
        # The last, as the specification of wheels recommends.
        new.writestr(record, "\n".join(sorted(lines)) + "\n")
    whole.replace(folder / wheel.name)


def _with_url(metadata: bytes) -> bytes:
    url = os.environ.get("PROJECT_URL")
    if not url:
        return metadata
    header, gap, description = metadata.partition(b"\n\n")
    return header.rstrip() + f"\nProject-URL: Source, {url}".encode() + (gap or b"\n") + description


def _digest(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"


def _date() -> tuple[int, int, int, int, int, int]:
    # A zip file has no dates before 1980.
    return time.gmtime(max(_built_at(), 315532800))[:6]


if __name__ == "__main__":
    add_program(*map(Path, sys.argv[1:]))
