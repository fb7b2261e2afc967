"""What is installed is what lies in the folders: setuptools takes only what pyproject.toml names."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from importlib import metadata
from typing import Any

NO_CODE = ("tests", "docs", "benchmarks", ".ci")


def _top(path: str) -> str:
    return path.partition("/")[0]


def test_every_folder_of_code_is_a_package(house: Any) -> None:
    """Each folder that holds modules is named in `packages`, and each package is a folder."""
    folders = {
        source_path.rpartition("/")[0]
        for source_path in house.files
        if source_path.endswith(".py") and _top(source_path) not in NO_CODE and "/" in source_path
    }
    mapped = house.folders
    problems = [f"{folder}: not in package-dir" for folder in sorted(folders - set(mapped.values()))]
    problems += [
        f"{package}: its folder {folder} holds no modules"
        for package, folder in mapped.items()
        if folder not in folders
    ]
    packages = set(house.settings["tool"]["setuptools"]["packages"])
    problems += [
        f"{name}: in only one of packages and package-dir" for name in sorted(packages ^ set(mapped))
    ]
    problems += [
        f"{folder}: no __init__.py"
        for folder in sorted(folders)
        if f"{folder}/__init__.py" not in house.files
    ]
    house.demand_none(problems)


def test_subpackages_lie_where_their_names_say(house: Any) -> None:
    """`callboard.a.b` is the folder `a/b`, or `api/a/b` for what belongs to the public face."""
    problems = []
    for package, folder in house.folders.items():
        inner = package.removeprefix("callboard").strip(".").replace(".", "/")
        if folder not in {inner or "api", f"api/{inner}"}:
            problems.append(f"{package}: {folder}")
    house.demand_none(problems)


def test_every_other_file_is_package_data(house: Any) -> None:
    """Each file beside the modules that is not Python is named by `package-data`, or it would not be installed."""
    data = house.settings["tool"]["setuptools"]["package-data"]
    by_folder = {folder: package for package, folder in house.folders.items()}
    problems = []
    for path in house.files:
        folder, _, name = path.rpartition("/")
        if _top(path) in {_top(folder) for folder in by_folder} and not name.endswith(".py"):
            owner = folder
            while owner not in by_folder:
                owner = owner.rpartition("/")[0]
            inner = path.removeprefix(f"{owner}/")
            if not any(fnmatch(inner, pattern) for pattern in data.get(by_folder[owner], [])):
                problems.append(path)
    house.demand_none(problems)


def test_the_installed_package_has_every_module(house: Any) -> None:
    """What the tests run against holds exactly the modules of the folders, nothing stale and nothing missing."""
    installed = {str(path) for path in metadata.files("callboard") or []}
    if not any(path.startswith("callboard/") for path in installed):
        return  # an editable install, for development: its modules are the folders themselves
    there = {path for path in installed if path.startswith("callboard/") and path.endswith(".py")}
    here = {
        f"{source.module.replace('.', '/')}/__init__.py"
        if source.is_package
        else f"{source.module.replace('.', '/')}.py"
        for source in house.sources
    }
    assert sorted(there ^ here) == []


def test_no_folder_is_called_callboard(house: Any) -> None:
    """A folder of that name would shadow the installed package in the working directory."""
    assert [path for path in house.files if "callboard" in path.split("/")[:-1]] == []


def test_constraints_are_names_and_versions(house: Any) -> None:
    """Every line of constraints.txt pins one version and names no place to fetch it from."""
    lines = (house.root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []


def test_constraints_cover_every_dependency(house: Any) -> None:
    """What the project and its extras need is pinned."""
    project = house.settings["project"]
    wanted = [*project["dependencies"], *house.settings["build-system"]["requires"]]
    wanted += [name for extra in project["optional-dependencies"].values() for name in extra]
    lines = (house.root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {_normal(line.partition("==")[0]) for line in lines if "==" in line}
    names = {_normal(re.split(r"[\[<>=!~; ]", name, maxsplit=1)[0]) for name in wanted} - {"callboard"}
    assert sorted(names - pinned) == []


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
