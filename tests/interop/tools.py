"""What several of these scripts use."""

import subprocess


class Failed(Exception):
    pass


def run(*argv, ok=(0,), **options):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120, **options)
    if done.returncode not in ok:
        raise Failed(f"{' '.join(map(str, argv))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def same(what, found, expected):
    if found != expected:
        raise Failed(f"{what}: found {found}, expected {expected}")
