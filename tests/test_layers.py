"""Imports go one way, so that each part can be read without the ones above it."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "lockstep"

LAYERS = [
    {"base"},
    {"nets", "models", "datamodules"},
    {"strategies"},
    {"plan"},
    {"launch"},
    {"runs"},
    {"engine", "raw"},
    {"command"},
    {"check", "collectives", "compare", "generate", "new", "predict", "report", "__main__"},
]
FLOOR = {name: floor for floor, names in enumerate(LAYERS) for name in names}
LIBRARIES = {
    "lightning torchmetrics": "check models datamodules engine raw strategies runs/loggers base/private_api",
    "hydra omegaconf": "check command raw plan/targets runs/sweep base/private_api base/safe_loading",
}
"""Libraries, and the only parts that import them."""


def room(path: Path) -> str:
    """The part of Lockstep that a file belongs to."""
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def forbidden(importer: str, name: str) -> bool:
    """Whether a part, a path below `src/lockstep`, may not import a module."""
    top, *below = name.split(".")
    part = importer.split("/")[0].removesuffix(".py")
    if top == "lockstep":
        return bool(below) and below[0] != part and FLOOR[below[0]] >= FLOOR[part]
    places = next((allowed.split() for libraries, allowed in LIBRARIES.items() if top in libraries.split()), None)
    return (places is not None and not importer.startswith((*places,))) or (
        part == "nets" and bool({"distributed", "os", "logging"} & {top, *below})
    )


@cache
def imports(source: str, with_types: bool = True) -> set[str]:
    """Return the full names that a file imports, wherever in it, with those under TYPE_CHECKING or without.

    `from a.b import c` depends on `a.b` and on a file `a.b.c`; `import a.b.c` on the last one alone. A Plan that is
    only a type does not count.
    """
    tree, names = ast.parse(source), set()
    for branch in [node for node in ast.walk(tree) if isinstance(node, ast.If)]:
        if ast.unparse(branch.test) == "TYPE_CHECKING":
            types = [node for node in branch.body if ast.unparse(node) != "from lockstep.plan.plan import Plan"]
            branch.body = types if with_types else []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


FILES = sorted(path for path in SRC.rglob("*.py") if path != SRC / "__init__.py")


def test_every_file_has_a_floor() -> None:
    assert {room(path) for path in FILES} == FLOOR.keys()


def test_a_file_imports_from_below_or_from_its_room() -> None:
    pairs = [(path, name) for path in FILES for name in imports(path.read_text())]
    assert not [(str(path), name) for path, name in pairs if forbidden(str(path.relative_to(SRC)), name)]


def test_no_circle_of_imports() -> None:
    names = {path: ".".join(path.relative_to(SRC.parent).with_suffix("").parts) for path in SRC.rglob("*.py")}
    sources = {name.removesuffix(".__init__"): path.read_text() for path, name in names.items()}
    graph = {name: imports(source, with_types=False) & sources.keys() - {name} for name, source in sources.items()}
    TopologicalSorter(graph).prepare()  # which raises, and names a circle


def test_the_diagram_leads_from_each_part_to_all_that_it_imports() -> None:
    page = (SRC.parents[1] / "docs" / "architecture.md").read_text()
    arrows = set(re.findall(r"^  (\w+) --> (\w+)$", page, re.MULTILINE))
    names = [(room(path), name) for path in FILES for name in imports(path.read_text())]
    pairs = {(part, name.split(".")[1]) for part, name in names if name.startswith("lockstep.")}
    leads = {part: {below for above, below in arrows if above == part} for part in FLOOR}
    for layer in LAYERS:
        for part in layer:
            leads[part] |= {further for below in leads[part] for further in leads[below]}
    assert arrows <= pairs
    assert not [(part, below) for part, below in pairs if below not in leads[part] | {part}]


EXTRAS = {"torchvision", "sklearn", "scipy", "matplotlib", "tensorboard"}
NO_TORCH = {"torch", "lightning", "hydra", "omegaconf", "numpy"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("lockstep, lockstep.__main__, lockstep.plan.plan, lockstep.compare", NO_TORCH),
        ("lockstep.command.cli", {"torch", "lightning", "numpy"}),
        ("lockstep.runs.recorder", {"lightning", "hydra"}),
        (
            "lockstep.nets, lockstep.models.schedulers, lockstep.launch.ranks",
            {"lightning", "torchmetrics", "hydra"} | EXTRAS,
        ),
    ],
)
def test_importing_brings_no_more_than_it_needs(modules: str, absent: set[str]) -> None:
    code = f"import sys; import {modules}; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180).stdout
    assert not absent & set(out.split())


def test_no_rank_unpickles_what_another_sent() -> None:
    """torch's collectives of objects would run the code of whoever gets into a connection."""
    called = {name for path in FILES for name in re.findall(r"\.(\w+)", path.read_text())}
    assert "all_gather" in called
    assert not [name for name in called if re.search("(gather|scatter|broadcast|send|recv)_object", name)]


def test_files_and_classes_are_small() -> None:
    for path in [*SRC.parent.rglob("*.py"), *Path(__file__).parent.rglob("*.py")]:
        text = path.read_text()
        assert text.count("\n") <= 300, path
        for body in re.split("^(?=\\w)", text, flags=re.MULTILINE):
            assert not body.startswith("class ") or len(re.findall("^    def ", body, re.MULTILINE)) <= 20, (path, body)


@pytest.mark.parametrize("package", ["models", "datamodules", "nets"])
def test_what_one_copies_imports_none_of_the_engines(package: str) -> None:
    """A file of them works in another project after its errors are replaced."""
    allowed = {"base.config_error", "base.files", "base.lazy", "models", "datamodules", "nets"}
    imported = set()
    for file in (SRC / package).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported |= {name.removeprefix("lockstep.") for name in names if name.startswith("lockstep.")}
    assert {name if name.startswith("base.") else name.split(".")[0] for name in imported} <= allowed
