"""The README and docs/*.md: commands are valid, links resolve, and figures are those of the code.

Each command of `train.py` makes a plan. Those of the README, and of other programs, run as they stand there. Commands
whose row, or whose paragraph, says *needs …* are left out. test_course.py runs those of the lessons in docs/course.
"""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from lockstep.base.config_error import ConfigError
from lockstep.command.compose import without_plus
from lockstep.command.hydra_errors import planning
from lockstep.engine.loaders.source import create_module
from lockstep.runs.compare.tolerance import tolerance_between
from lockstep.runs.record import run_metadata
from tests.comparing import metrics_in
from tests.conftest import MNIST_ROOT, ROOT, Command, MakePlan, copy_conf
from tests.test_layers import FILES

DOCS = ROOT / "docs"
PAGES = {path.name: path.read_text() for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))}
LESSONS = {f"course/{path.name}": path.read_text() for path in sorted((DOCS / "course").glob("*.md"))}
README = PAGES["README.md"]
PROGRAMS = ("python ", "lockstep ", "torchrun ", "srun ", "tensorboard ", "pip ")
SETUP = ["pip install -e . && python train.py strategy=ddp devices=2", "pip install -e '.[dev]' && pytest"]
"""The README's two, which .ci/run types in a fresh environment."""


def commands(page: str) -> Iterator[str]:
    """Yield commands in backticks and in blocks of a shell, unless their line, or the one before, says *needs …*."""
    for block, language, code, prose in re.findall(r"(```(\w*)\n(.*?)```)|((?:(?!```).)+)", page, re.DOTALL):
        if prose:
            before = prose.strip().split("\n\n")[-1]
            lines = [line for line in prose.splitlines() if "*(needs " not in line and "*needs " not in line]
            yield from (span for line in lines for span in re.findall(r"`([^`]+)`", line) if span.startswith(PROGRAMS))
        elif block and language in ("sh", "bash") and "*needs " not in before:
            yield from code.replace("\\\n", "").splitlines()


YOUR_OWN = " mine|=mine"
"""In commands with the files of your_own.md, which a test below runs; CHANGELOG.md names old ones."""
ALL = dict.fromkeys(
    words
    for name, page in (PAGES | LESSONS).items()
    if name not in ("your_own.md", "recorder.md", "CHANGELOG.md")
    for words in commands(page if name in PAGES else re.sub("```.*?```", "", page, flags=re.DOTALL))
    if not re.search(YOUR_OWN, words) and words not in SETUP and not words.startswith("pip ")
)
PLANNED = [words for words in ALL if re.match(r"python train\.py(?! -m|.*(--|…|RUN|resume|ckpt_path|=pict))", words)]
ELSEWHERE = {
    "python train.py -m strategy=single,ddp,dp devices=1,2 max_epochs=5": "test_sweep.py",
    "python train.py engine=both strategy=ddp devices=2": "test_both.py",
    "python -m lockstep.collectives devices=4": "test_collectives.py",
    "python train.py --help": "test_train.py",
    "python -m lockstep.check model=mlp data=digits": "test_check.py",
    "python -m lockstep.check": "test_check.py",
    "python train.py strategy=ddp devices=2": "test_train.py",
    "python train.py": "test_sweep.py",
    "python train.py resume=true": "test_resume.py",
    "python train.py --config-dir RUN --config-name config optimizer.lr=0.1": "test_config_file.py",
    "python -m lockstep.compare RUN_A RUN_B": "test_paths.py",
    "lockstep strategy=ddp devices=2": "test_wheel.py",
    "torchrun --nproc_per_node=2 train.py strategy=ddp devices=2": "test_both.py",
}
"""Commands that another file of tests runs."""
RUN = [
    words
    for words in ALL
    if words not in ELSEWHERE
    and (words in README or (words not in PLANNED and not re.search(" -m |ckpt_path|draw_", words)))
]
"""Other tests prove what the other commands do: sweeps, checkpoints, the tour of collectives, pictures of docs/."""


def overrides(words: str, request: pytest.FixtureRequest) -> list[str]:
    """Return the overrides of a command; of MNIST where its files are."""
    typed = shlex.split(words)
    if re.search("(data|experiment)=mnist", words):
        request.getfixturevalue("mnist")
        typed.append(f"data.root='{MNIST_ROOT}'")
    return typed


def test_the_pages_hold_commands() -> None:
    assert len(PLANNED) >= 40
    assert len(RUN) >= 3
    assert ALL.keys() >= ELSEWHERE.keys()


@pytest.mark.parametrize(
    "words", [pytest.param(words, marks=[pytest.mark.slow] * (words not in README)) for words in PLANNED]
)
def test_a_command_makes_a_plan(words: str, make_plan: MakePlan, request: pytest.FixtureRequest) -> None:
    make_plan(*overrides(words.removeprefix("python train.py"), request))


@pytest.mark.slow
@pytest.mark.timeout(660)
@pytest.mark.parametrize("words", RUN)
def test_a_command_runs_as_it_stands_there(words: str, command: Command) -> None:
    """Train for one epoch, whatever number the page says."""
    program, *arguments = shlex.split(words)
    for name in ("train.py", "conf", "src", "docs"):
        (command.folder / name).symlink_to(ROOT / name)
    for picture in ("cat/1.png", "cat/2.png", "cat/3.png", "dog/1.png", "dog/2.png", "dog/3.png"):
        (command.folder / "pictures" / picture).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80, 60)).save(command.folder / "pictures" / picture)
    if "RUN" in arguments:
        command.train("max_epochs=1", "logger=none", "hydra.run.dir=RUN")
    start = {
        "python": [sys.executable],
        "tensorboard": [sys.executable, "-m", "tensorboard.main", "--version_tb"],  # it serves until it is killed
    }[program]
    if "train.py" in words:
        arguments.append("max_epochs=1")
    ended = command(*start, *arguments, timeout=600)
    assert ended.status == 0, ended.err
    if program == "python" and "-m" not in arguments:
        assert ended.err == "", "a command that works complains of nothing"


def test_the_two_commands_are_those_of_a_fresh_clone() -> None:
    assert re.findall(r"```bash\n(.*?)\n```", README, re.DOTALL) == SETUP
    script = (ROOT / ".ci" / "run").read_text()
    for line in (*SETUP, "pytest -m slow", "python -m tests.mutations"):
        assert line.replace("pip install", "pip install -q") in script


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
    copy_conf(command.folder)
    steps = page[: page.index("Invalid input exits")]
    shown = re.findall(r"```bash\n(.*?)\n```\n\n```\n(.*?)```", steps, re.DOTALL)
    lines = [*commands(steps)]
    assert [words for words, _ in shown] == lines
    assert {words for words in commands(README) if re.search(YOUR_OWN, words)} == {lines[0], lines[2]}
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


@pytest.mark.slow
@pytest.mark.parametrize(("there", "here"), [row for row in FROM_TEMPLATE if row[0] != row[1]])
def test_words_of_the_template_are_understood(
    there: str, here: str, make_plan: MakePlan, request: pytest.FixtureRequest
) -> None:
    """Those here make a plan; those there do too, or are refused with other words to write."""
    for column in (there, here):
        for span in re.findall(r"`([^`]+)`", column):
            if all(re.match(r"[+\w.]+=", word) for word in shlex.split(span)) and span != "accelerator=gpu":
                typed, refusal = [*map(without_plus, overrides(span, request))], ""
                try:
                    with planning(typed):
                        make_plan(*typed)
                except ConfigError as error:
                    refusal = str(error)
                assert not refusal or (column == there and "--help" not in refusal)


def test_the_readme_is_read_in_three_minutes() -> None:
    assert len(README.split()) <= 900


@pytest.mark.parametrize("name", [*PAGES, *LESSONS])
def test_links_resolve_and_files_are_there(name: str) -> None:
    page, home = (PAGES | LESSONS)[name], ROOT if name == "README.md" else (DOCS / name).parent
    for link in re.findall(r"\]\(([^)\s]+)\)", page):
        path, _, anchor = link.partition("#")
        target = (home / path).resolve() if path else home / Path(name).name
        assert target.exists(), link
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if anchor else []
        names = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in names, link
    homes = (ROOT, ROOT / "src" / "lockstep", *(ROOT / "src" / "lockstep").glob("*/"))
    for path in re.findall(r"`((?:conf/[\w/]+|[\w/]+\.py))`", page):
        if not re.search("NAME|mine/|^old.py|^port.py", path) and f"`{path}`:\n" not in page:  # that a reader would add
            assert any((home / path).exists() for home in homes), path
    assert name == "README.md" or f"(docs/{name}" in README or name in LESSONS


def test_the_glossary_is_in_order() -> None:
    terms = re.findall(r"^### (.*)$", PAGES["glossary.md"], re.MULTILINE)
    assert terms == sorted({*terms})


@pytest.mark.parametrize(("name", "rows"), [("README.md", 5), pytest.param("agreement.md", 23, marks=pytest.mark.slow)])
def test_expected_agreement_is_what_compare_expects(name: str, rows: int, make_plan: MakePlan) -> None:
    """Rows have overrides of the one run and the other, of both, and what is expected."""
    row = r"^\| `([^`]*)` and `([^`]*)`(?:, with `([^`]*)`)? \| ([^|]*) \|"
    agreements = re.findall(row, PAGES[name], re.MULTILINE)
    assert len(agreements) == rows
    for one, other, both, expected in agreements:
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
