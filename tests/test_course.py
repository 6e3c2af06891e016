"""docs/course: the commands of each lesson print what it shows, and the code that it quotes is that of the file.

A lesson is run from top to bottom in one folder, a copy of a checkout. Each fenced block is of one of these kinds:

- `bash`: commands, which bash runs as they stand there. They end with status 0, or with the one of a comment:
  `python train.py devices=0  # exit status 2`.
- no language: consecutive lines that the commands of the last `bash` block printed, to stdout or stderr. Several may
  follow, in the order in which they were printed.
- a language, after a line that ends with a file's name, `` `mine.py`: ``: a file that the reader writes, also in place
  of an earlier one.
- a language, after a line that ends with a link to a file and a colon, `[run.py](../../src/lockstep/raw/run.py):`:
  consecutive lines of that file, which may be indented less.
- `mermaid`: a picture.

In lines that are compared, `…` stands for any text, and alone in a line for any lines: what depends on the machine or
the time is written so. A digit that holds everywhere may stay (`0.9…`).
"""

import re
from collections.abc import Iterator

import pytest

from tests.conftest import MNIST_ROOT, ROOT, Command, copy_conf, free_port
from tests.zygote import zygote

COURSE = ROOT / "docs" / "course"
LESSONS = sorted(path.name for path in COURSE.glob("[0-9]*.md"))


def blocks(lesson: str) -> Iterator[tuple[str, str, str]]:
    """Yield the language of each block, its text, and the line of prose before it."""
    page = (COURSE / lesson).read_text()
    found = re.findall(r"([^\n]*)\n\n?```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert page.count("```") == 2 * len(found), f"{lesson}: a block does not begin in the first column"
    yield from ((language, text, before) for before, language, text in found)


def excerpt(text: str) -> re.Pattern[str]:
    """Return a pattern of consecutive lines, which may be indented more, each by as much; `…` is any text or lines."""
    lines = []
    for line in text.splitlines():
        same = "(?P=indent)" + re.escape(line).replace("…", ".*") if line else ""
        lines.append(r"(?:.*\n)*?" if line.strip() == "…" else rf"{same} *\n")
    return re.compile("^(?P<indent> *)" + "".join(lines).removeprefix("(?P=indent)"), re.MULTILINE)


def file_written(before: str) -> str | None:
    """Return the file that a block's text is to be written to."""
    match = re.search(r"`([\w/]+\.\w+)`:$", before)
    return match[1] if match else None


@pytest.mark.parametrize("lesson", LESSONS)
def test_code_that_a_lesson_quotes_is_in_the_file(lesson: str) -> None:
    for language, text, before in blocks(lesson):
        if language not in ("", "bash", "mermaid") and not file_written(before):
            link = re.search(r"\]\(([^)#]+)\S*\):$", before)
            assert link, f"{lesson}: which file is this of?\n{before}\n{text}"
            assert excerpt(text).search((COURSE / link[1]).read_text()), f"{lesson}: not in {link[1]}:\n{text}"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_prints_what_it_shows(lesson: str, command: Command, request: pytest.FixtureRequest) -> None:
    folder, printed = command.folder, ""
    (folder / "src").mkdir()
    for name in ("train.py", "docs", "src/lockstep", "src/example"):
        (folder / name).symlink_to(ROOT / name)
    copy_conf(folder)
    if "mnist" in (COURSE / lesson).read_text():
        request.getfixturevalue("mnist")
        (folder / "data").symlink_to(MNIST_ROOT)
    for language, text, before in blocks(lesson):
        if language == "bash":
            text = text.replace("29500", str(free_port()))
            ended = command("bash", "-ec", text, timeout=600, PYTHONPATH=str(folder / "src"), **zygote().for_scripts)
            statuses = re.findall(r"# exit status (\d+)", text)
            assert str(ended.status) == (statuses[-1] if statuses else "0"), f"{lesson}: {text}\n{ended.err}"
            printed = f"{ended.out}{ended.err}\n"
        elif not language:
            shown = excerpt(text).search(printed)
            assert shown, f"{lesson}: shows\n{text}\nand there is\n{printed}"
            printed = printed[shown.end() :]
        elif file := file_written(before):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)


def test_an_excerpt_is_of_consecutive_lines() -> None:
    text = "if a:\n    b = 1\n\n    c = 2.125  # three\n    0\n"
    for same in (text, "b = 1\n\nc = 2.1…\n0\n", "if a:\n…\n    0\n"):
        assert excerpt(same).search(text), same
    for other in ("b = 1\nc = 2.1…\n", "if a:\nb = 1\n", "b = \n", "c = …\n…\nb = 1\n", "if a:\n    0\n"):
        assert not excerpt(other).search(text), other
