import importlib.metadata
import inspect
import json
import pathlib
import pydoc
import traceback

import pytest
import squall
from squall._values import read


def test_the_version_is_that_of_the_installed_package() -> None:
    assert squall.__version__ == importlib.metadata.version("squall")


def test_the_package_says_that_it_is_typed() -> None:
    assert (pathlib.Path(squall.__file__).parent / "py.typed").exists()


def test_help_names_every_function() -> None:
    functions = [
        name for name in dir(squall) if inspect.isfunction(getattr(squall, name)) and name[0] != "_"
    ]
    assert "run" in functions
    text = squall.__doc__ or ""
    assert [name for name in functions if f"`{name}`" not in text] == []
    assert all(inspect.getdoc(getattr(squall, name)) for name in functions)


def test_help_has_an_entry_for_each_public_name() -> None:
    text = pydoc.plain(pydoc.render_doc(squall))
    for entry in ["    send(", "    run(", "    class Profile(", "    class Report("]:
        assert f"\n{entry}" in text, entry
    assert "run" in vars(squall)["__all__"]
    assert not {"annotations", "Edits"} & set(vars(squall)["__all__"])


def test_a_native_part_of_another_version_is_named() -> None:
    with pytest.raises(
        squall.Error, match=r"is missing; the Python files .* different versions"
    ) as raised:
        read(squall.Interface, {})
    assert isinstance(raised.value.__context__, KeyError)


def test_what_is_printed_steers_no_terminal() -> None:
    evil = "a\x1b]0;owned\x07\x9b31m\r\u202eb"
    steers = set(evil) - {"a", "b", "0", ";", "]", "o", "w", "n", "e", "d", "3", "1", "m"}
    kinds = [
        squall.Error(evil),
        squall.ProfileError(evil),
        squall.PortError(evil),
        squall.ServerError(evil, 0, "x"),
    ]
    for error in kinds:
        assert not steers & set(str(error)) and "\u241b]0;owned\u2407" in str(error)
        assert error.args[0] == evil
        assert not steers & set("".join(traceback.format_exception(error)))
    assert str(squall.Error("two\n\tlines")) == "two\n\tlines"
    with pytest.raises(FileNotFoundError) as found:
        squall.info(evil)
    assert not steers & set(str(found.value)) and found.value.filename == evil
    with pytest.raises(IsADirectoryError):
        squall.info("/")
    stream = squall.Stream(name="s", packet="eth/ipv4/udp", rate="1 kpps", mode={"burst": 3})
    report = squall.run(squall.Profile(ports={"A": "null:"}, streams=[stream])).to_json()
    changed = json.loads(report)
    changed["notes"], changed["command"] = [evil], evil
    changed["verdict"]["reasons"] = [{"code": "starved", "text": evil, "hint": evil}]
    printed = squall.Report.from_json(json.dumps(changed))
    for text in [str(printed), repr(printed), printed.summary(color=True)]:
        assert not (steers - {"\x1b"}) & set(text) and "\x1b]" not in text
