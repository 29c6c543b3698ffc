import os
from collections.abc import Callable
from typing import final

__all__ = [
    "Info",
    "Otg",
    "Plan",
    "Profile",
    "Report",
    "Run",
    "Session",
    "__version__",
    "capture",
    "edit",
    "info",
    "ports",
    "prep",
    "render_test",
    "run_ab",
    "run_test",
    "score",
    "trex_factor",
    "trex_streams",
    "whole",
]

__version__: str

def capture(
    ports: list[str],
    file: str,
    *,
    filter: str | None,
    duration_s: float | None,
    count: int | None,
    snaplen: int | None,
    format: str,
    compress: str | None,
    rotate_octets: int | None,
    rotate_s: float | None,
    rotate_count: int | None,
    ring_files: int | None,
    buffer: int,
    on_full: str,
    force: bool,
) -> Report: ...
def edit(
    inputs: list[str],
    out: str,
    *,
    edits: list[tuple[str, str]],
    merge: bool,
    split_count: int | None,
    split_time_ns: int | None,
    split_flows: bool,
    cache: str | None,
    force: bool,
) -> str: ...
def info(
    files: list[str],
    *,
    filter: str | None,
    bins: str,
    flow_expiry_s: float | None,
    max_flows: int,
    top: int,
    checksums: bool,
    duplicates: int,
    hash: bool,
) -> Info: ...
def ports(interface: str | None) -> str: ...
def prep(
    file: str,
    cache: str,
    *,
    split: tuple[str, str],
    reverse: bool,
    non_ip: bool,
    include: str | None,
    exclude: str | None,
    comment: str,
) -> tuple[int, int, int, str | None]: ...
def score(labels: str, alerts: list[str], shift_s: float) -> tuple[str, str, str]: ...
def run_test(
    method: str,
    profile: Profile,
    *,
    options: str,
    max_rate: str | None,
    quick: bool,
    repeats: int,
    rest_s: float,
    journal: str | None,
    progress: Callable[[str], object] | None,
    controller: list[str] | None,
) -> str: ...
def run_ab(
    a: Profile,
    b: Profile,
    *,
    settings: str,
    options: str,
    repeats: int,
    progress: Callable[[str], object] | None,
    controller: list[str] | None,
) -> str: ...
def render_test(outcome: str, kind: str, *, against: str | None, tolerance: float) -> str: ...

@final
class Info:
    @staticmethod
    def from_json(text: str) -> Info: ...
    def to_json(self) -> str: ...
    def to_html(self) -> str: ...
    def summary(self) -> str: ...
    def table(self) -> str: ...
    @staticmethod
    def schema() -> str: ...

@final
class Profile:
    @staticmethod
    def load(path: str | os.PathLike[str]) -> Profile: ...
    @staticmethod
    def parse(text: str, origin: str, format: str) -> Profile: ...
    @staticmethod
    def from_json(table: str, origin: str) -> Profile: ...
    def to_json(self) -> str: ...
    def to_toml(self) -> str: ...
    def to_python(self) -> str: ...
    @staticmethod
    def schema() -> str: ...

@final
class Otg:
    def __new__(cls) -> Otg: ...
    def set_config(self, message: str) -> str: ...
    def get_config(self) -> str: ...
    def append_config(self, message: str) -> str: ...
    def update_config(self, message: str) -> str: ...
    def delete_config(self, message: str) -> str: ...
    def set_control_state(self, message: str) -> str: ...
    def set_control_action(self, message: str) -> str: ...
    def get_metrics(self, message: str) -> str: ...
    def get_states(self, message: str) -> str: ...
    def get_capture(self, message: str) -> bytes: ...
    def get_version(self) -> str: ...

@final
class Plan:
    def to_json(self) -> str: ...
    def summary(self, frames: int, hex: bool) -> str: ...
    def frames(self, count: int) -> list[tuple[int, int, int, bytes, str]]: ...

def whole(reports: list[tuple[str, Report]]) -> Report: ...

@final
class Report:
    @staticmethod
    def from_json(text: str) -> Report: ...
    def to_json(self) -> str: ...
    def parts(self) -> tuple[str, bytes]: ...
    def series(
        self,
    ) -> tuple[
        bytes,
        list[tuple[str, str, bytes]],
        list[tuple[str, str, bytes]],
        list[tuple[str, str, bytes]],
        list[tuple[str, str, bytes]],
    ]: ...
    def to_html(self) -> str: ...
    def summary(self, width: int, color: bool) -> str: ...
    @staticmethod
    def schema() -> str: ...

@final
class Session:
    def __new__(cls, profile: Profile, options: str) -> Session: ...
    @staticmethod
    def listen(
        ports: list[str],
        *,
        by: str,
        flows: int,
        sequence: str,
        interval_ns: int,
        burst_gap_ns: int,
        options: str,
    ) -> Session: ...
    def plan(self) -> Plan: ...
    def start(self) -> Run: ...

@final
class Run:
    @property
    def virtual_time(self) -> bool: ...
    @property
    def elapsed_s(self) -> float: ...
    @property
    def received(self) -> int: ...
    def sample(self) -> tuple[str, Report]: ...
    def pause(self, stream: str | None) -> None: ...
    def resume(self, stream: str | None) -> None: ...
    def change(self, profile: Profile) -> None: ...
    def multiply(self, by: str) -> None: ...
    def set_load(
        self,
        template: str | None,
        *,
        cps: float | None,
        active: int | None,
        bandwidth: str | None,
        users: int | None,
        weight: int | None,
    ) -> None: ...
    def stop(self) -> None: ...
    def wait(self, timeout: float | None) -> bool: ...
    def finish(self) -> Report: ...

def trex_factor(streams: str, unit: str, value: float, speed: float | None) -> float: ...
def trex_streams(
    streams: str, names: str, port: str, factor: float, speed: float | None, groups: str
) -> str: ...
