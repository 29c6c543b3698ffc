import os
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
    "score",
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
def score(labels: str, alerts: list[str], shift_s: float) -> tuple[str, str, str]: ...

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
    def frames(self, count: int) -> list[tuple[int, int, int, bytes, str]]: ...

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
    def __new__(
        cls,
        profile: Profile,
        *,
        cores: int | None,
        cpus: list[int] | None,
        mult: str | None,
        virtual_time: bool | None,
        fingerprint: bool,
        receive: bool,
        linger_s: float,
        gap_bins: tuple[int, int] | None,
        labels: str | None,
    ) -> Session: ...
    @staticmethod
    def listen(
        ports: list[str],
        *,
        filter: str | None,
        by: str,
        flows: int,
        sequence: str,
        interval_ns: int,
        burst_gap_ns: int,
        cores: int | None,
        cpus: list[int] | None,
        gap_bins: tuple[int, int] | None,
    ) -> Session: ...
    @staticmethod
    def replay(
        ports: list[tuple[str, str]],
        files: list[str],
        *,
        merge: bool,
        preload: bool,
        speed: str,
        speed_text: str,
        together: int,
        loops: int,
        loop_delay_ns: int,
        limit: int | None,
        duration_ns: int | None,
        longest_gap_ns: int | None,
        unique: int | None,
        count_flows: bool,
        flow_expiry_ns: int | None,
        split: tuple[str, str] | None,
        reverse: bool,
        filter: str | None,
        include: str | None,
        exclude: str | None,
        too_long: str,
        edits: list[tuple[str, str]],
        cpus: list[int] | None,
        virtual_time: bool | None,
        fingerprint: bool,
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
