"""Conversion of JSON to immutable values. Arrays are of uint64."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic, Protocol, TypeVar, overload

import numpy as np

from . import _notebook
from ._errors import Error, UnknownStream

__all__ = ["ByName"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class _Core(Protocol):
    def to_json(self) -> str: ...
    def to_html(self) -> str: ...


C = TypeVar("C", bound=_Core)
F = TypeVar("F", bound="Figures[Any]")
N = TypeVar("N", bound=_Named)
T = TypeVar("T")


class Figures(Generic[C]):
    """Figures that can be converted to JSON, to plain values and to an HTML page."""

    _inner: C
    #: The corresponding class of the Rust library.
    _core: ClassVar[Any]

    @classmethod
    def _from(cls, native: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def from_json(cls: type[F], text: str) -> F:
        """Load the figures from the JSON of `to_json` or of the command line.

        Raises
        ------
        ValueError
            The text is not JSON of this kind, or of another version.
        """
        figures: F = cls._from(cls._core.from_json(text))
        return figures

    def to_json(self) -> str:
        """Return the figures as JSON, in the form that the option ``--json`` writes."""
        return self._inner.to_json()

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, including those that are computed on demand."""
        table: dict[str, Any] = json.loads(self.to_json())
        return table

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the figures to a self-contained HTML file with plots.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        pathlib.Path(path).write_text(self._inner.to_html(), encoding="utf-8")

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of `to_json`."""
        schema: dict[str, Any] = json.loads(cls._core.schema())
        return schema


# Not a Sequence, although it has all its methods: type checkers would reject `"web" in streams`,
# which is a lookup by name.
class ByName(Generic[N]):
    """A sequence whose items can also be looked up by name.

    If two items have the same name (a stream that was removed and added again during a run), the
    lookup returns the later one.

    Examples
    --------
    >>> import squall
    >>> report = squall.send("loop:by-name,virtual", "eth/ipv4/udp", rate="1 kpps", count=3)
    >>> report.ports[0] is report.ports["A"], "B" in report.ports, report.ports.names
    (True, False, ('A',))
    """

    def __init__(self, items: Iterable[N]) -> None:
        self._items = tuple(items)
        self._index = {item.name: i for i, item in enumerate(self._items)}

    @property
    def names(self) -> tuple[str, ...]:
        """The items' names, in order."""
        return tuple(item.name for item in self._items)

    @overload
    def __getitem__(self, key: int | str) -> N: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[N, ...]: ...
    def __getitem__(self, key: int | str | slice) -> N | tuple[N, ...]:
        if isinstance(key, str):
            if key not in self._index:
                self._unknown(key)
            key = self._index[key]
        return self._items[key]

    def _unknown(self, name: str) -> typing.NoReturn:
        raise KeyError(
            f"nothing is called {name!r}: there is {', '.join(map(repr, self._index)) or 'nothing'}"
        )

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[N]:
        return iter(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._index if isinstance(key, str) else key in self._items

    def __eq__(self, other: object) -> bool:
        return self._items == other._items if isinstance(other, ByName) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._items)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with one row per item, indexed by name; columns are named
        like ``rx.latency_ns.p99``.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        return _notebook.frame(self)

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with the columns of `to_pandas`.

        Raises
        ------
        ImportError
            pyarrow is not installed.
        """
        return _notebook.arrow(self)

    def _repr_html_(self) -> str:
        return _notebook.items_html(self[:])

    def __repr__(self) -> str:
        return repr(self._items)


class Streams(ByName[N]):
    """Like `ByName`, but raises `UnknownStream` if there is no stream with a name."""

    def _unknown(self, name: str) -> typing.NoReturn:
        raise UnknownStream(name, self._index)


class Arrays:
    """Dataclasses with arrays: equal if all fields are equal."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(np.array_equal(a, vars(other)[name]) for name, a in vars(self).items())

    __hash__ = None  # type: ignore[assignment]


def read(kind: type[T], value: dict[str, Any]) -> T:
    """Convert a JSON object, with one key per field, to the dataclass `kind`.

    Raises
    ------
    Error
        A key is missing: the native part of the package, or the daemon, is of another version.
    """
    try:
        return kind(**{name: convert(value[name]) for name, convert in _converters(kind)})
    except KeyError as error:
        raise Error(
            f"cannot read {kind.__name__}: {error} is missing; the Python files of squall and its"
            " native part, or the daemon, are of different versions\n"
            "  try pip install . in the source folder"
        ) from None


_known: dict[type, list[tuple[str, Callable[[Any], Any]]]] = {}


def _converters(kind: type) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return the converter of each field of `kind`. Cached, because thousands of values are
    converted."""
    if kind not in _known:
        hints = typing.get_type_hints(kind)
        _known[kind] = [
            (f.name, _converter(hints[f.name])) for f in dataclasses.fields(kind) if f.init
        ]
    return _known[kind]


def _converter(hint: Any) -> Callable[[Any], Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        [inner] = (_converter(arg) for arg in args if arg is not types.NoneType)
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        inner = _converter(args[0]) if args[1:] == (...,) else _same
        return lambda value: tuple(map(inner, value))
    if isinstance(origin, type) and issubclass(origin, ByName):
        inner, sequence = _converter(args[0]), origin
        return lambda value: sequence(map(inner, value))
    if origin is dict:
        inner = _converter(args[1])
        return lambda value: {key: inner(item) for key, item in value.items()}
    if origin is np.ndarray:
        return lambda value: np.asarray(value, np.uint64)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return functools.partial(read, hint)
    return _same


def _same(value: T) -> T:
    return value
