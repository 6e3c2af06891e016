"""`python -m lockstep.new NAME`: write a package for your own code, its YAML files and a test, ready to run.

They are the files of the example (`src/example/`) under another name; outside a checkout also those of a project.
"""

import importlib.util
import keyword
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lockstep.base.config_error import ConfigError, require
from lockstep.base.files import CONF
from lockstep.command.entry_point import arguments, run_command

PACKAGED = Path(__file__).parent / "template"
TEMPLATE = PACKAGED if PACKAGED.is_dir() else Path(__file__).resolve().parents[2]
"""Where the example is: in the package of a wheel, else in the checkout."""
FILES = ("src/example/*.py", "conf/*/example*.yaml", "tests/test_example.py")
PROJECT = {
    ".gitignore": "/logs/\n/curves/\n/data/\n\n.venv/\n*.egg-info/\n__pycache__/\n.pytest_cache/\nbuild/\n",
    "pyproject.toml": """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "example"
version = "0.1.0"
dependencies = []  # and Lockstep, from its checkout or wheel: the package of this name on PyPI is another one

[project.optional-dependencies]
dev = ["pytest"]

[tool.setuptools.packages.find]
namespaces = false  # packages have an __init__.py; conf, tests and logs are none
""",
    "README.md": """# example

With Lockstep installed, run the tests, and train by both engines on two ranks:

```bash
pip install -e '.[dev]' && pytest
lockstep model=example data=example strategy=ddp devices=2 engine=both
```

The code is in `example/`, its arguments are in `conf/`. Runs are in `logs/train/`, each with a `report.html`.
""",
}
"""The files of a project of its own. Those that a folder has already are left as they are."""
INVALID = {"null", "true", "false", "yes", "no", "on", "off", "none", "example", *keyword.kwlist}
"""Names that YAML reads as values, keywords of Python, and the example's own name."""


USAGE = "python -m lockstep.new NAME"
HELP = f"""Write a package for your own code, its YAML files and a test:  {USAGE}

NAME is that of the package, and of its options: model=NAME data=NAME.
A key, typed as KEY=VALUE:

  folder: .   a checkout, or any folder
"""


@dataclass(frozen=True)
class Options:
    name: str
    folder: str = "."


def show(words: Sequence[str]) -> int:
    typed = arguments(Options, words, USAGE)
    folder = Path(typed.folder)
    print(*write(typed.name, folder), "", command(typed.name, folder), sep="\n")
    return 0


main = partial(run_command, show, help_page=HELP, has_ranks=False)


def write(name: str, folder: Path) -> list[Path]:
    """Write the files, and return their paths: in `src` of a checkout, else in the folder itself, with a project's."""
    is_valid = re.fullmatch(r"[a-z][a-z0-9_]*", name) is not None and name not in INVALID
    require(is_valid, "NAME", name, "a package has a name of small letters, digits and _", "my_net, say")
    exists = importlib.util.find_spec(name) is not None or bool([*CONF.glob(f"*/{name}.yaml")])
    require(not exists, "NAME", name, "there is a module or an option of this name already", "another name")
    in_checkout = (folder / "src" / "lockstep").is_dir()
    package = f"src/{name}" if in_checkout else name

    def renamed(text: str) -> str:
        return re.sub(r"(\b|_)example(\b|_)", rf"\g<1>{name}\g<2>", text.replace("src/example", package))

    sources = [path for pattern in FILES for path in sorted(TEMPLATE.glob(pattern))]
    require(bool(sources), "NAME", name, f"the example is no longer in {TEMPLATE}", "git checkout to restore it")
    targets = {folder / renamed(path.relative_to(TEMPLATE).as_posix()): path for path in sources}
    for path in targets:
        existing = path.parent if path.parent.name == name else path
        require(not existing.exists(), "NAME", name, f"{existing} exists already", "another name")
    project = {} if in_checkout else {folder / file: text for file, text in PROJECT.items()}
    try:
        texts = {path: source.read_text() for path, source in targets.items()}
        texts |= {path: text for path, text in project.items() if not path.exists()}
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(renamed(text))
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be written ({error.strerror}); write another folder.") from None
    return [*texts]


def command(name: str, folder: Path) -> str:
    """Return the command that trains the package's net on its data."""
    program = "python train.py" if (folder / "train.py").is_file() else "lockstep"
    change_folder = "" if folder == Path() else f"cd {folder} && "
    return f"{change_folder}{program} model={name} data={name} strategy=ddp devices=2 engine=both"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
