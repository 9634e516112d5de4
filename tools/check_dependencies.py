"""Fails when a distribution of the workspace declares other packages than those that its code imports."""

import ast
import functools
import itertools
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import files, packages_distributions
from pathlib import Path, PurePath

ROOT = Path(__file__).resolve().parent.parent
MEMBERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
DISTRIBUTIONS = [path.parent for member in MEMBERS for path in ROOT.glob(f"{member}/pyproject.toml")]
PROVIDERS = packages_distributions()


def normal(name: str) -> str:
    """Returns a distribution's name in the form that compares."""
    return re.sub(r"[-_.]+", "-", name).lower()


def modules(source: Path) -> Iterator[str]:
    """Yields the full name of every module that code imports, relative ones apart."""
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module


@functools.cache
def provider(module: tuple[str, ...]) -> str:
    """Returns the distribution that has a module, given its name's parts; "" for the standard library."""
    top = module[0]
    if top in sys.stdlib_module_names:
        return ""
    for distribution in DISTRIBUTIONS:
        if (distribution / "src" / top).is_dir():
            return f"hippovault-{distribution.name}"
    names = sorted(set(PROVIDERS.get(top, ["something that is not installed"])))
    if len(names) > 1:  # Such as google.protobuf and google.rpc.
        names = [name for name in names if any(_is(file, module) for file in files(name) or ())]
    return normal(names[0])


def _is(file: PurePath, module: tuple[str, ...]) -> bool:
    return file.parts[: len(module)] == module or file.with_suffix("").parts == module


def problems(distribution: Path) -> Iterator[str]:
    """Yields what is imported and not declared, and the reverse."""
    project = tomllib.loads((distribution / "pyproject.toml").read_text())["project"]
    optional = itertools.chain.from_iterable(project.get("optional-dependencies", {}).values())
    declared = {normal(re.split(r"[^\w.-]", text)[0]) for text in (*project["dependencies"], *optional)}
    imported = {provider(tuple(module.split("."))) for module in modules(distribution / "src")}
    imported -= {"", project["name"]}
    yield from (f"{project['name']} imports {name}, which it does not declare" for name in sorted(imported - declared))
    yield from (f"{project['name']} declares {name}, which it does not import" for name in sorted(declared - imported))


if __name__ == "__main__":
    sys.exit("\n".join(problem for distribution in DISTRIBUTIONS for problem in problems(distribution)) or 0)
