"""What a session refuses."""


class Refused(Exception):
    """``code``, ``kind`` and ``errors`` as snappi's ``Error`` has them."""

    def __init__(self, code: int, kind: str, errors: list[str]) -> None:
        super().__init__(code, kind, errors)
        self.code, self.kind, self.errors = code, kind, errors
