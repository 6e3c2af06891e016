"""The page of `python train.py --help`: the groups with their options, and the keys, as conf/ itself explains them."""

from pathlib import Path

PAGE = """Lockstep trains a net under any parallel strategy:  python train.py strategy=ddp devices=2

Write KEY=VALUE behind the command. Several values and -m run a sweep:  python train.py -m devices=1,2

Groups (GROUP=OPTION; an option's own keys are GROUP.KEY=VALUE)
{groups}

Keys
{keys}

python train.py --cfg job shows the whole configuration that a command would run.
"""


def help_page(conf: Path) -> str:
    """Every option's first comment line, and the commented keys of train.yaml."""
    groups = [path for path in sorted(conf.iterdir()) if path.is_dir() and path.name != "hydra"]
    _, keys, *_ = (conf / "train.yaml").read_text().split("\n\n")
    page = PAGE.format(groups="\n".join(map(_group, groups)), keys=_indented(keys))
    return page.replace("$", "$$")  # Hydra fills the page in as a string.Template


def _group(folder: Path) -> str:
    options = sorted(folder.glob("*.yaml"))
    return "\n".join([f"  {folder.name}", *(_option(path) for path in options)])


def _option(path: Path) -> str:
    lines = path.read_text().splitlines()
    about = next(line.lstrip("# ") for line in lines if line.startswith("#") and "@package" not in line)
    own = [
        line.split("#")[0].strip() for line in lines if line and line[0] not in "# -" and not line.startswith("name:")
    ]
    keys = f"  ({', '.join(own)})" if own and folder_has_keys(path) else ""
    return f"    {path.stem:<14} {about}{keys}"


def folder_has_keys(path: Path) -> bool:
    """Experiments set keys of other groups, and a strategy's are its definition: neither has keys of its own."""
    return path.parent.name not in ("experiment", "strategy")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())
