"""Benchmarks of capture tools."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ._binary import find_binary
from ._errors import PortError, ProfileError
from ._profile import Time, _plain

__all__ = ["compare"]

Several: TypeAlias = str | Iterable[str]


def compare(
    data: Several = "60,mixed,1514",
    *,
    tools: str | None = None,
    tool: Mapping[str, str] | None = None,
    steps: Several | None = None,
    pps: Several | None = None,
    rounds: int | None = None,
    duration: Time | None = None,
    write: Several | None = None,
    search: float | str | None = None,
    html: str | os.PathLike[str] | None = None,
    executable: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Benchmark capture tools: loss and cost of each, per data set and rate.

    Runs ``squall compare captures`` in a separate process: the command enters private namespaces,
    which a process with several threads cannot do.

    Parameters
    ----------
    data : str or iterable of str
        Frame length distributions, and captures: ``"http"``, ``"60"``, ``"office.pcap"``.
    tools : str, optional
        ``"squall,tcpdump:-B 65536"``: names, with arguments after a colon.
    tool : dict, optional
        Additional tools, by name: ``{"mine": "mytool -i {interface} -w {file}"}``.
    steps, pps : str or iterable of str, optional
        Rates: ``"100Mbps,1Gbps,max"``; in frames/s: ``"100k,400k"``.
    rounds : int, optional
        Number of repetitions; the median is reported.
    duration : seconds or str, optional
        Duration of each step.
    write : str or iterable of str, optional
        Where the tools write: ``"null"``, ``"tmpfs"``, ``"disk"``, or a directory.
    search : float or str, optional
        Search for the highest rate with a loss ratio below this.
    html : path, optional
        Also write the result as one HTML file with plots.
    executable : path, optional
        The command line tool. Default: ``$SQUALL``, this installation's command, or ``squall`` on
        the search path.

    Returns
    -------
    dict
        The result, in the form that ``squall compare captures --json`` writes.

    Raises
    ------
    ProfileError
        An argument is invalid.
    PortError
        A tool is missing, or a private lab cannot be created.
    """
    program = executable or find_binary()
    given = {"data": data, "steps": steps, "pps": pps, "write": write}
    command = [os.fspath(program), "compare", "captures", "--quiet", "--json", "-"]
    for option, value in given.items():
        if value is not None:
            texts = [value] if isinstance(value, str) else value
            command.append(f"--{option}={','.join(map(str, texts))}")
    single = {"tools": tools, "rounds": rounds, "duration": _time(duration), "search": search}
    command += [f"--{name}={value}" for name, value in single.items() if value is not None]
    command += [f"--tool={name}={line}" for name, line in (tool or {}).items()]
    if html is not None:
        command.append(f"--report={os.fspath(html)}")
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise PortError(f"cannot run {program}: {error}") from error
    if done.returncode != 0:
        kind = ProfileError if done.returncode == 2 else PortError
        raise kind(done.stderr.strip().removeprefix("squall: ").removeprefix("error: "))
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _time(value: Time | None) -> str | None:
    plain = _plain(value)
    return f"{plain}s" if isinstance(plain, int | float) and not isinstance(plain, bool) else plain
