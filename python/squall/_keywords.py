"""Errors for unknown keyword arguments that suggest the most similar name."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

#: Attribute of functions whose keywords are already checked.
_MARK = "__names_the_nearest__"


def near(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap `function` so that errors suggest the most similar keyword, unless it has ``**kwargs``.

    Python itself does so from 3.13 on; earlier versions only report an unexpected keyword.
    """
    parameters = inspect.signature(function).parameters.values()
    # A function with ``**kwargs`` reports wrong keywords itself.
    if any(p.kind is p.VAR_KEYWORD for p in parameters) or hasattr(function, _MARK):
        return function
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    taken = frozenset(known)

    @functools.wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        if not taken.issuperset(keywords):
            raise TypeError(unknown(name, keywords, known))
        return function(*args, **keywords)

    # Keep the wrapper a coroutine function, which callers inspect.
    @functools.wraps(function)
    async def awaited(*args: Any, **keywords: Any) -> Any:
        return await checked(*args, **keywords)

    found = awaited if inspect.iscoroutinefunction(function) else checked
    setattr(found, _MARK, True)
    return found


def unknown(name: str, keywords: Mapping[str, Any], known: list[str]) -> str:
    """Return the text that lists the unknown `keywords`, each with the most similar one in
    `known`."""
    wrong = next(keyword for keyword in keywords if keyword not in known)
    names = [keyword for keyword in known if keyword != "self"]
    close = difflib.get_close_matches(wrong, names, 1)
    if close:
        there_is = f"did you mean {close[0]!r}?"
    else:
        there_is = f"expected {', '.join(names)}" if names else "it takes none"
    return f"{name}() got an unexpected keyword argument {wrong!r}: {there_is}"


def name_the_nearest(public: Mapping[str, Any], package: str) -> dict[str, Any]:
    """Return the functions of `public` that belong to `package`, wrapped. Its classes are changed
    in place: their constructors and public methods.
    """
    changed = {}
    for name, value in public.items():
        if name.startswith("_") or not getattr(value, "__module__", "").startswith(package):
            continue
        if inspect.isfunction(value):
            changed[name] = near(value, name)
        elif inspect.isclass(value) and not _is_result(value):
            for method, function in list(vars(value).items()):
                if method != "__init__" and method.startswith("_"):
                    continue
                shown = name if method == "__init__" else f"{name}.{method}"
                if inspect.isfunction(function):
                    setattr(value, method, near(function, shown))
                elif isinstance(function, (classmethod, staticmethod)):
                    setattr(value, method, type(function)(near(function.__func__, shown)))
    return changed


def _is_result(kind: type) -> bool:
    """Return whether `kind` is a class of report values. Those are created by this package alone,
    thousands at a time, so they are not checked."""
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)
