"""`python -m lockstep.new NAME [FOLDER]`: write a package for code of your own, its configs and a test, ready to run.

They are the example's files (`src/example/`), under another name.
"""

import importlib.util
import keyword
import re
import sys
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path

from lockstep.conf import CONF
from lockstep.config_error import ConfigError, require

CARRIED = Path(__file__).parent / "template"
TEMPLATE = CARRIED if CARRIED.is_dir() else Path(__file__).resolve().parents[2]
"""Where the example lies: in the package of a wheel, else in the checkout."""
FILES = ("src/example/*.py", "conf/*/example*.yaml", "tests/test_example.py")
WORDS = ("null", "true", "false", "yes", "no", "on", "off", "none", "example")
"""What YAML takes for a value, and the name that is taken."""


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0: written; 2: nothing is written."""
    parser = ArgumentParser(prog="python -m lockstep.new", description="Write a package for code of your own.")
    parser.add_argument("name", help="of the package, and of its options: model=NAME data=NAME")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="where train.py is, or any (.)")
    given = parser.parse_args(arguments)
    try:
        written = write(given.name, given.folder)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(map(str, written)))
    print(f"\n{command(given.name, given.folder)}")
    return 0


def write(name: str, folder: Path) -> list[Path]:
    """The files that were written: a package below `src` beside `lockstep`, else in the folder itself.

    Raises:
        ConfigError: the name cannot be taken, or a file cannot be written; then none is.
    """
    _require_free(name)
    texts = {folder / path: text for path, text in _renamed(name, is_checkout(folder)).items()}
    for path in texts:
        there = path if path.exists() else path.parent
        taken = path.exists() or (there.name == name and there.exists())
        require(not taken, "NAME", name, f"{there} is there already", "another name")
    new = {path for text in texts for path in (text, *text.parents) if not path.exists()}
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        for path in sorted(new, reverse=True):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        reason = f"it cannot be written there ({error.strerror})"
        raise ConfigError(f"{error.filename}: {reason}; write another folder.") from None
    return [*texts]


def is_checkout(folder: Path) -> bool:
    return (folder / "src" / "lockstep").is_dir()


def command(name: str, folder: Path) -> str:
    """What trains it."""
    program = "python train.py" if (folder / "train.py").is_file() else "lockstep"
    configs = "" if is_checkout(folder) else "--config-dir conf "
    there = "" if folder == Path() else f"cd {folder} && "
    return f"{there}{program} {configs}model={name} data={name} strategy=ddp devices=2 engine=both"


def _require_free(name: str) -> None:
    mended = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_")
    fits = re.fullmatch(r"[a-z][a-z0-9_]*", name) and not keyword.iskeyword(name) and name not in WORDS
    hint = mended if mended[:1].isalpha() and mended not in WORDS and not keyword.iskeyword(mended) else "mine"
    require(bool(fits), "NAME", name, "a package has a name of small letters, digits and _", f"{hint}, say")
    module = importlib.util.find_spec(name)
    there = (module.origin or "without a file") if module is not None else ""
    require(module is None, "NAME", name, f"there is a module of this name already ({there})", "another name")
    for group in ("model", "data"):
        is_new = not (CONF / group / f"{name}.yaml").exists()
        require(is_new, "NAME", name, f"{group}={name} is there already", "another name")


def _renamed(name: str, checkout: bool) -> dict[str, str]:
    """The texts of the new files, by their paths.

    Raises:
        ConfigError: the example has been removed.
    """
    package = f"src/{name}" if checkout else name
    renamed = {}
    for pattern in FILES:
        paths = sorted(TEMPLATE.glob(pattern))
        if not paths:
            raise ConfigError(f"{TEMPLATE / pattern}: the example to copy is gone; write it again (git checkout).")
        for path in paths:
            own, text = (
                re.sub(r"(\b|_)example(\b|_)", rf"\g<1>{name}\g<2>", words.replace("src/example", package))
                for words in (path.relative_to(TEMPLATE).as_posix(), path.read_text())
            )
            renamed[own] = text
    return renamed


if __name__ == "__main__":
    raise SystemExit(main())
