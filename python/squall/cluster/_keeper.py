"""Runs a command that must end with the process that started it, even if that process is killed.

``python -I -S _keeper.py [--kill] [--remove FOLDER] COMMAND...``: standard output and error are
those of the command. Standard input is a pipe from the parent: end of file means that the parent
has exited, crashed or been killed. The command then gets SIGTERM, and SIGKILL after some seconds
(at once with ``--kill``), and the directory is removed, even if the command has ended before. The
keeper is a process of its own because the kernel clears ``PR_SET_PDEATHSIG`` on execution of a
program with file capabilities.

It uses only the standard library, which keeps its start fast: each node starts one.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading

PR_SET_PDEATHSIG = 1
#: A daemon takes at most two seconds to end.
TIMEOUT_S = 4


def _dies_with_parent() -> None:
    # For the case that the keeper itself is killed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> int:
    # In a session of its own: at Ctrl-C in the terminal, the parent decides how to end.
    os.setsid()
    words = sys.argv[1:]
    at_once = words[0] == "--kill"
    if at_once:
        del words[0]
    folder = None
    if words[0] == "--remove":
        folder = words[1]
        del words[:2]
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        preexec_fn=_dies_with_parent,
    )
    orphaned = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    threading.Thread(
        target=_until_parent_ends, args=(child, at_once, orphaned), daemon=True
    ).start()
    status = child.wait()
    if folder is not None:
        _remove(folder, orphaned)
    return status if status >= 0 else 128 - status


def _remove(folder: str, orphaned: threading.Event) -> None:
    """Remove the directory now, or once the parent has ended. The parent first reads the log there,
    and must see the command's end without waiting for the removal."""
    if not orphaned.is_set():
        if os.fork():
            return
        # The parent waits for the end of the command's output, so close it.
        os.close(1)
        os.close(2)
        _wait_for_end_of_parent()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)
    shutil.rmtree(folder, ignore_errors=True)


def _wait_for_end_of_parent() -> None:
    while os.read(0, 4096):
        pass


def _until_parent_ends(
    child: "subprocess.Popen[bytes]", at_once: bool, orphaned: threading.Event
) -> None:
    _wait_for_end_of_parent()
    orphaned.set()
    if at_once:
        return child.kill()
    # A stopped process (SIGSTOP) handles no signal until it continues.
    for number in (signal.SIGTERM, signal.SIGCONT):
        child.send_signal(number)
    try:
        child.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    sys.exit(main())
