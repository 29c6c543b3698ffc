"""Requests that a session refuses."""


class Refused(Exception):
    """``code``, ``kind`` and ``errors`` as in snappi's ``Error``."""

    def __init__(self, code: int, kind: str, errors: list[str]) -> None:
        super().__init__(code, kind, errors)
        self.code, self.kind, self.errors = code, kind, errors
