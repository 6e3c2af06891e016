"""The page of `--help`: the groups with their options, and the keys, as conf/ itself explains them."""

from pathlib import Path
from textwrap import indent

from lockstep.config_error import typed_command
from lockstep.schemas.groups import SEVERAL

PAGE = """Lockstep trains a net under any parallel strategy:  {command} strategy=ddp devices=2

Write KEY=VALUE behind the command. Several values and -m run a sweep:  {command} -m devices=1,2

Groups (GROUP=OPTION; an option's own keys are GROUP.KEY=VALUE)
Of {several} several may be chosen: {first}=[OPTION,OPTION], with {first}.OPTION.KEY=VALUE
{groups}

Keys
{keys}

{command} --cfg job shows the whole configuration that a command would run.
"""


def help_page(conf: Path) -> str:
    """Every option's first comment line, and the commented keys of train.yaml."""
    defaults, keys, *_ = (conf / "train.yaml").read_text().split("\n\n")
    groups = [path for path in sorted(conf.iterdir()) if path.is_dir() and path.name != "hydra"]
    page = PAGE.format(
        command=typed_command(),
        several=" and ".join(SEVERAL),
        first=SEVERAL[0],
        groups="\n".join(_group(path, defaults) for path in groups),
        keys=indent(keys, "  "),
    )
    return page.replace("$", "$$")  # Hydra fills the page in as a string.Template


def _group(folder: Path, defaults: str) -> str:
    options = sorted(folder.glob("*.yaml"))
    width = max(len(path.stem) for path in options)
    lines = [f"    {path.stem:<{width}}  {_about(path, defaults)}" for path in options]
    return "\n".join([f"  {folder.name}", *lines])


def _about(path: Path, defaults: str) -> str:
    """What the option is, whether it is the default, and the keys of its own."""
    lines = path.read_text().splitlines()
    about = next(line.lstrip("# ") for line in lines if line.startswith("#") and "@package" not in line)
    mark = "; the default" if f"- {path.parent.name}: {path.stem}\n" in defaults else ""
    own = [
        line.split("#")[0].strip()
        for line in lines
        if line and line[0] not in "# -" and not line.startswith(("name:", "_target_:"))
    ]
    is_part = path.parent.name != "experiment"  # an experiment sets keys of other groups
    return f"{about}{mark}" + (f"  ({', '.join(own)})" if own and is_part else "")
