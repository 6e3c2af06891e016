"""One page about a run, a sweep or a comparison: report.html, a file that needs no other and no network.

Python reads what was recorded and writes the text and the tables, so that they are there without JavaScript; charts.js
draws the curves. Everything in a page is escaped by jinja2, which torch needs too.
"""

import html
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.base.config_error import ConfigError, config_error, is_number
from lockstep.base.files import save_text
from lockstep.base.streams import notice
from lockstep.runs.report.jobs import jobs_page
from lockstep.runs.report.pages import FOLDERS, both_page, pair_page, run_page
from lockstep.runs.run_files import COMPARISON, CONFIG, METRICS, RECORD, REPORT
from lockstep.runs.sweep.jobs import SweepJob, jobs_of


def render(content: Mapping[str, Any], template: str = "page.html") -> str:
    """Return the HTML of a page."""
    page: str = _templates().get_template(template).render(**content, written=time.strftime("%Y-%m-%d %H:%M:%S"))
    return page


def save_page(path: Path, content: Mapping[str, Any]) -> None:
    """Write the HTML of a page; raise a ConfigError if the file cannot be written."""
    try:
        save_text(path, render(content))
    except OSError as error:
        hint = "write a file in a folder that you can write to"
        raise ConfigError(f"{path} cannot be written: {error.strerror}; {hint}.") from None


@cache
def _templates() -> Any:
    from jinja2 import Environment, FileSystemLoader

    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["figures"] = figures
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment


def figures(value: object) -> str:
    """Return four significant figures of a number, all digits of a count or a large number, and a text as it is."""
    if not is_number(value):
        return "–" if value is None else str(value)
    number = float(str(value))
    if isinstance(value, int) or 1000 <= abs(number) < 1e9:
        return f"{number:,.0f}".replace(",", "\u202f" if abs(number) >= 10_000 else "")
    return f"{number:.4g}"


def page_of(folder: Path, reason: str = "") -> dict[str, Any]:
    """Return the content of the page of a run, of `engine=both` or of a sweep. `reason`: what ended a run early."""
    if (folder / COMPARISON).is_file() or (folder / FOLDERS[0] / RECORD).is_file():
        return both_page(folder, reason)
    if (folder / RECORD).is_file() or (folder / METRICS).is_file():
        return run_page(folder, reason)
    if folder.is_dir() and (jobs := jobs_of(folder, 0.0)):
        return jobs_page(folder, jobs)
    raise config_error("FOLDER", folder, f"it has neither {RECORD} nor runs in it", "the folder of a run, logs/train/…")


def page_of_several(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the content of the page of several runs side by side; of two the differences too."""
    if len(folders) == 2:
        return pair_page(folders[0], folders[1])
    top = Path(os.path.commonpath([folder.resolve() for folder in folders]))
    for folder in folders:
        if not (folder / CONFIG).is_file():
            raise config_error("FOLDER", folder, f"it has no {CONFIG}", "the folder of a run, logs/train/…")
    return jobs_page(top, [SweepJob(folder.resolve(), top) for folder in folders], "runs")


def report(run_dir: Path, reason: str = "", content: Callable[[], Mapping[str, Any]] | None = None) -> None:
    """Write report.html in the folder of a run or sweep. Whatever goes wrong is a notice: the run goes on.

    content: returns that of the page, where it is not read from the folder.
    """
    is_of_both = run_dir.name == FOLDERS[0] and (run_dir.parent / CONFIG).is_file()
    folder = run_dir.parent if is_of_both else run_dir  # one page for both engines
    try:
        save_text(folder / REPORT, render(content() if content else page_of(folder, reason)))
    except OSError:
        pass  # a full disk is told by what the run needs
    except Exception as error:
        notice(f"{folder / REPORT} was not written: {type(error).__name__}: {' '.join(str(error).split())}")


@contextmanager
def reported(run_dir: Path) -> Iterator[None]:
    """Write report.html when a run ends; if it fails after a step, with the reason."""
    try:
        yield
    except BaseException as error:
        if any((run_dir / name / RECORD).is_file() for name in ("", FOLDERS[0])):
            lines = str(error).strip().splitlines() if isinstance(error, Exception) else []
            report(run_dir, lines[-1] if lines else "")
        raise
    report(run_dir)


def in_notebook(content: Mapping[str, Any]) -> str:
    """Return the page as Jupyter shows it: in a frame, so that styles of neither reach the other."""
    style = "width:100%;height:760px;border:1px solid #8884;border-radius:6px"
    return f'<iframe style="{style}" title="report" srcdoc="{html.escape(render(content))}"></iframe>'
