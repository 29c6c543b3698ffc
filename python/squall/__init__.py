"""Generate and measure network traffic from Python.

The Rust engine does all the work; this package converts its inputs and results.

>>> import squall
>>> profile = squall.Profile(ports={"A": "loop:squall,virtual"})
>>> profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 Mpps", mode={"burst": 1000}, latency=True))
>>> report = squall.run(profile)
>>> report.ports["A"].tx.packets, report.streams["web"].rx.lost
(1000, 0)

The parts, each with its own ``help()``:

- Send: `run` a profile, `send` frames of one kind, `replay` captures, `attack` from rules.
- Receive: `recv` measures, `capture` writes a file.
- Profiles: `Profile` with `Stream`, `Template`, `Replay`, `Attack`, `Pool`; `vary` makes a field
  program. `plan` shows what a profile would send. `RunOptions` has the options of a run, and
  `Session` starts one that is changed while it runs (`Run`).
- Results: `Report`, with `Report.plot`; `whole` unites those of several machines; `score` compares
  an engine's alerts with the attacks.
- Captures: `info`, `edit`, `prep`; `compare` benchmarks capture tools.
- The machine: `ports`. Errors: `Error` and its subclasses.

`connect` offers the same functions on a daemon (`squall serve`) on another machine. `squall.aio` is
for asyncio, `squall.trex` has TRex's API, and a pytest plugin provides the fixture ``squall``.

A packet can be a scapy packet, or any other object whose ``bytes()`` is a frame. Histograms and
series are numpy arrays.
"""

# For type checkers, names imported as themselves, or by a star, are exported (PEP 484).
from ._attack import (
    Score as Score,
    attack as attack,
    score as score,
)
from ._capture import capture as capture
from ._compare import compare as compare
from ._errors import (
    Diagnostic as Diagnostic,
    Error as Error,
    PortError as PortError,
    ProfileError as ProfileError,
    ServerError as ServerError,
    UnknownStream as UnknownStream,
)
from ._generated import *  # noqa: F403
from ._info import (
    Info as Info,
    info as info,
)
from ._native import __version__ as __version__
from ._options import (
    CaptureOptions as CaptureOptions,
    FlowOptions as FlowOptions,
    RunOptions as RunOptions,
)
from ._plan import (
    Plan as Plan,
    PlanFrame as PlanFrame,
    PlanPort as PlanPort,
    PlanStream as PlanStream,
    PlanWorker as PlanWorker,
)
from ._ports import (
    Interface as Interface,
    ports as ports,
)
from ._prep import (
    Prepared as Prepared,
    prep as prep,
)
from ._profile import (
    Attack as Attack,
    HostGroup as HostGroup,
    Pool as Pool,
    Profile as Profile,
    Replay as Replay,
    Router as Router,
    Stream as Stream,
    Template as Template,
    Vary as Vary,
    vary as vary,
)
from ._report import (
    Report as Report,
    Series as Series,
    whole as whole,
)
from ._edit import (
    Edits as Edits,
    edit as edit,
)
from ._session import (
    Interrupted as Interrupted,
    Run as Run,
    Session as Session,
    plan as plan,
    recv as recv,
    replay as replay,
    run as run,
    send as send,
)
from ._values import ByName as ByName
from .remote import (
    Client as Client,
    connect as connect,
)

from . import _keywords

# Add the keyword check to all public functions and classes in one place.
globals().update(_keywords.name_the_nearest(globals(), "squall."))

# `help()` shows the functions and classes of other modules only if they are listed. Type checkers
# cannot evaluate the list, and find the names by the imports.
globals()["__all__"] = [
    name
    for name, value in globals().items()
    if not name.startswith("_") and getattr(value, "__module__", "").startswith("squall.")
]
