import importlib.metadata
import pathlib

import squall


def test_the_version_is_that_of_the_installed_package() -> None:
    assert squall.__version__ == importlib.metadata.version("squall")


def test_the_package_says_that_it_is_typed() -> None:
    assert (pathlib.Path(squall.__file__).parent / "py.typed").exists()
