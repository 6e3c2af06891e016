"""The README and docs/*.md: every command runs as it stands there, links resolve, and figures are those of the code.

A command whose row, or whose paragraph, says *needs …* is not run; its test is skipped with that reason.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.command.compose import without_plus
from lockstep.command.hydra_errors import planning
from lockstep.engine.loaders.source import create_module
from lockstep.runs.compare.tolerance import tolerance_between
from lockstep.runs.record import run_metadata
from tests.comparing import metrics_in
from tests.conftest import MNIST_ROOT, ROOT, Command, MakePlan
from tests.test_layers import FILES, imports, room

PAGES = {path.name: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
README = PAGES["README.md"]
PROGRAMS = ("python ", "lockstep ", "torchrun ", "srun ", "tensorboard ", "pip ")
NEEDS = re.compile(r"\*(needs [^*]+)\*")
SETUP = ["pip install -e . && python train.py strategy=ddp devices=2", "pip install -e '.[dev]' && pytest"]
"""The README's two, which .ci/run types in a fresh environment."""


class Line(NamedTuple):
    """A command as a page has it, and why it cannot run everywhere, if so."""

    words: str
    needs: str


def commands(page: str) -> Iterator[Line]:
    """Commands in backticks and in blocks of a shell; `needs` comes from the same line, or the lines before a block."""
    for block, language, code, prose in re.findall(r"(```(\w*)\n(.*?)```)|((?:(?!```).)+)", page, re.DOTALL):
        if prose:
            before = prose.strip().split("\n\n")[-1]
            for line in prose.splitlines():
                spans = re.findall(r"`([^`]+)`", line)
                yield from (Line(span, needs(line)) for span in spans if span.startswith(PROGRAMS))
        elif block and language in ("sh", "bash"):
            yield from (Line(line, needs(before)) for line in code.replace("\\\n", "").splitlines())


def needs(text: str) -> str:
    match = NEEDS.search(text)
    return match[1] if match else ""


NOT_RUN_HERE = ("your_own.md", "CHANGELOG.md")
"""A test below runs the commands of the first; the second names old ones."""
FEW_IMAGES = ("data.samples=1000", "data.val_size=1000", "test=false", "precision=bf16-mixed")
YOUR_OWN = " mine|=mine"
"""In commands with the files of your_own.md."""
ALL = dict.fromkeys(
    line
    for name, page in PAGES.items()
    if name not in NOT_RUN_HERE
    for line in commands(page)
    if not re.search(YOUR_OWN, line.words)
)
"""In the order of the pages, each once."""
README_LINES = {
    part for line in commands(README) if not re.search(YOUR_OWN, line.words) for part in line.words.split(" && ")
}
LONG = re.compile("torchrun|engine=both|tensorboard|resume|collectives|train.py -m |strategy=ddp")
"""The README's commands that `pytest` leaves to `pytest -m slow`: other tests prove their parts."""


def parameters() -> Iterator[object]:
    for line in ALL:
        if line.words in SETUP:
            continue
        is_there = line.needs == "needs Optuna" and find_spec("optuna") is not None
        marks = [pytest.mark.skip(reason=line.needs)] if line.needs and not is_there else []
        quick = line.words in README_LINES and not LONG.search(line.words)
        marks += [] if quick else [pytest.mark.slow]
        yield pytest.param(line.words, marks=marks)


def test_the_pages_hold_commands() -> None:
    assert len(README_LINES) >= 10
    assert len(ALL) >= 35
    assert sum(bool(line.needs) for line in ALL) <= len(ALL) / 5, "most of them run"


@pytest.mark.timeout(660)
@pytest.mark.parametrize("words", [*parameters()])
def test_a_command_runs_as_it_stands_there(words: str, command: Command, request: pytest.FixtureRequest) -> None:
    """Train for one epoch, or to the second from a checkpoint, whatever number the page says."""
    program, *arguments = shlex.split(words)
    for name in ("train.py", "conf", "src", "docs"):
        (command.folder / name).symlink_to(ROOT / name)
    if "mnist" in words:
        request.getfixturevalue("mnist")
        (command.folder / "data").symlink_to(MNIST_ROOT)
        arguments += FEW_IMAGES
    if {"resume=true", "ckpt_path=last", "ckpt_path=best"} & {*arguments} or "…" in words:
        [best] = command.train("max_epochs=1").folder.glob("logs/train/*/checkpoints/best.ckpt")
        arguments = [f"ckpt_path={best}" if "…" in argument else argument for argument in arguments]
    for name in {"RUN", "RUN_A", "RUN_B"} & {*arguments}:
        command.train("max_epochs=1", "logger=none", f"hydra.run.dir={name}")
    if program == "tensorboard":
        arguments = ["--version_tb"]  # it serves until it is killed
    start = {
        "python": [sys.executable],
        "lockstep": [sys.executable, "-m", "lockstep"],
        "torchrun": [sys.executable, "-m", "torch.distributed.run"],
        "tensorboard": [sys.executable, "-m", "tensorboard.main"],
    }[program]
    if "strategy" in words or "train.py" in words.split(" -m ")[0]:
        arguments.append("max_epochs=2" if re.search("resume|ckpt_path", words) else "max_epochs=1")
    if "amp_recipe" in words:
        arguments.append("scheduler.warmup_steps=1")  # of 100, more than an epoch has
    ended = command(*start, *arguments, timeout=600)
    assert ended.status == 0, ended.err
    if program == "python" and "-m" not in arguments:
        assert ended.err == "", "a command that works complains of nothing"


def test_the_two_commands_are_those_of_a_fresh_clone() -> None:
    assert re.findall(r"```bash\n(.*?)\n```", README, re.DOTALL) == SETUP
    script = (ROOT / ".ci" / "run").read_text()
    for line in SETUP:
        assert line.replace("pip install", "pip install -q") in script
    for long in ("pytest -m slow", "python -m tests.mutations"):
        assert long in script
        assert f"`{long}`" in PAGES["commands.md"]


@pytest.mark.slow
def test_from_python_as_it_stands_there(command: Command) -> None:
    code, *_ = re.findall(r"```python\n(.*?)```", PAGES["commands.md"], re.DOTALL)  # tests/test_inference.py has others
    (command.folder / "script.py").write_text(f"{code}\nprint('DIGEST', result['digest'])")
    ended = command(sys.executable, "script.py")
    assert ended.out.count("DIGEST") == 1, "ranks do not import the script, which has no guard"
    assert metrics_in(ended.run_dir)["digest"] in ended.out.split("DIGEST")[1]


@pytest.mark.slow
def test_your_code_as_it_stands_there(command: Command) -> None:
    """The page's commands, in a checkout, with the files and the outputs that it shows."""
    page = PAGES["your_own.md"]
    (command.folder / "src").mkdir()
    for name in ("train.py", "src/lockstep"):
        (command.folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "conf", command.folder / "conf")
    steps = page[: page.index("Invalid input exits")]
    shown = re.findall(r"```bash\n(.*?)\n```\n\n```\n(.*?)```", steps, re.DOTALL)
    lines = [line.words for line in commands(steps)]
    assert [words for words, _ in shown] == lines
    assert len(lines) == 5
    assert {line.words for line in commands(README) if re.search(YOUR_OWN, line.words)} == {lines[0], lines[2]}
    for words, output in shown:
        ended = command(sys.executable, *words.split()[1:], PYTHONPATH=str(command.folder / "src"))
        assert ended.status == 0, ended.err
        assert output in ended.out
    files = re.findall(r"`((?:src|conf)/[\w/]+\.\w+)`:\n\n```\w+\n(.*?)```", page, re.DOTALL)
    assert len(files) == 7
    assert [content for _, content in files] == [(command.folder / name).read_text() for name, _ in files]
    wrong = command(sys.executable, *lines[1].split()[1:], "+model.net.widht=8", PYTHONPATH=str(command.folder / "src"))
    assert (wrong.status, wrong.err.strip() in page) == (2, True), wrong.err


FROM_TEMPLATE = re.findall(r"^\| (`.*) \| (.*) \|$", PAGES["coming_from_lightning_hydra_template.md"], re.MULTILINE)


@pytest.mark.parametrize(("there", "here"), [row for row in FROM_TEMPLATE if row[0] != row[1]])
def test_words_of_the_template_are_understood(
    there: str, here: str, make_plan: MakePlan, request: pytest.FixtureRequest
) -> None:
    """Those here make a plan; those there do too, or are refused with other words to write."""
    for column in (there, here):
        spans = [shlex.split(span) for span in re.findall(r"`([^`]+)`", column)]
        for words in spans:
            if all(re.match(r"[+\w.]+=", word) for word in words) and words != ["accelerator=gpu"]:
                typed = [*map(without_plus, words)]
                if "data=mnist" in typed:
                    request.getfixturevalue("mnist")
                    typed[-1] = f"data.root='{MNIST_ROOT}'"
                refusal = ""
                try:
                    with planning(typed):
                        make_plan(*typed)
                except ConfigError as error:
                    refusal = str(error)
                assert not refusal or (column == there and "--help" not in refusal)


def test_the_readme_is_read_in_three_minutes() -> None:
    assert len(README.split()) <= 900


@pytest.mark.parametrize("name", PAGES)
def test_links_resolve(name: str) -> None:
    home = ROOT if name == "README.md" else ROOT / "docs"
    for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[name]):
        path, _, anchor = link.partition("#")
        target = (home / path).resolve() if path else home / name
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text()), link


def anchors(page: str) -> set[str]:
    """The names by which headings are linked to."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_linked_from_the_readme() -> None:
    assert [name for name in PAGES if name != "README.md" and f"(docs/{name}" not in README] == []


def agreements(page: str) -> list[tuple[str, str, str, str]]:
    """Rows of a table of agreement: overrides of the one run and the other, of both, and what is expected."""
    row = r"^\| `([^`]*)` and `([^`]*)`(?:, with `([^`]*)`)? \| ([^|]*) \|"
    return re.findall(row, page, re.MULTILINE)


AGREEMENTS = {name: agreements(PAGES[name]) for name in ("README.md", "agreement.md")}


@pytest.mark.parametrize(("name", "rows"), [("README.md", 5), ("agreement.md", 18)])
def test_expected_agreement_is_what_compare_expects(name: str, rows: int, make_plan: MakePlan) -> None:
    assert len(AGREEMENTS[name]) == rows
    for one, other, both, expected in AGREEMENTS[name]:
        plans = [make_plan(*words.split(), *both.split()) for words in (one, other)]
        a, b = (run_metadata(plan, create_module(plan.model, plan.seed)) for plan in plans)
        assert str(tolerance_between(a, b)) == expected, (one, other, both)


def test_each_strategy_net_and_data_set_has_a_row() -> None:
    for group, page in (("strategy", "commands.md"), ("model", "commands.md"), ("data", "data.md")):
        for path in (ROOT / "conf" / group).glob("*.yaml"):
            row = rf"^\| `{path.stem}` \|" if group != "strategy" else rf"^\| `python train.py strategy={path.stem}\b"
            assert re.search(row, PAGES[page], re.MULTILINE), f"{group}={path.stem} has no row in docs/{page}"


def test_the_maps_name_every_folder() -> None:
    [groups] = re.findall(r"^conf/ .* groups: (.*)$", README, re.MULTILINE)
    assert groups.split() == sorted({path.name for path in (ROOT / "conf").iterdir() if path.is_dir()} - {"hydra"})
    rows = re.findall(r"^\| ((?:`\w+/` ?)+)\|", PAGES["architecture.md"], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)/`", row)}
    assert named == {path.parent.name for path in FILES if path.parent.name != "lockstep"}


def test_every_arrow_of_the_picture_is_an_import() -> None:
    [picture] = re.findall(r"```mermaid\n(.*?)```", PAGES["architecture.md"], re.DOTALL)
    arrows = re.findall(r"^  (\w+) --> (\w+)$", picture, re.MULTILINE)
    assert len(arrows) >= 18
    assert len(set(re.findall(r"\w+", picture)) - {"flowchart", "TD"}) <= 20
    imported = {
        (room(path), name.split(".")[1])
        for path in FILES
        for name in imports(path.read_text())
        if name.startswith("lockstep.")
    }
    assert [arrow for arrow in arrows if arrow not in imported] == []


@pytest.mark.parametrize("name", PAGES)
def test_files_that_a_page_names_are_there(name: str) -> None:
    homes = (ROOT, ROOT / "src" / "lockstep", *(ROOT / "src" / "lockstep").glob("*/"))
    for path in re.findall(r"`((?:conf/[\w/]+|[\w/]+\.py))`", PAGES[name]):
        if not re.search("NAME|mine/", path):  # that a reader would add
            assert any((home / path).exists() for home in homes), path
