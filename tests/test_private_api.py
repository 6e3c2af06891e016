"""A version of a library without the private names that are used here: runs go on another way, to the same numbers."""

import ast
import signal
from dataclasses import replace
from pathlib import Path

import lightning
import lightning.pytorch as pl
import pytest
from lightning.pytorch.callbacks import Callback

from lockstep.base.private_api import lightning as private_lightning
from lockstep.engine import run
from lockstep.plan.plan import Plan
from tests.conftest import IN_PROCESS, MakePlan
from tests.rank_helpers import ALONE

SRC = Path(__file__).parents[1] / "src" / "lockstep"
SMALL = ("data=line", "data.samples=20", "data.val_size=5", "model=regression", "batch_size=5", "max_epochs=2")
PUBLIC = {"_exit", "_fields", "_replace", "_target_"}
"""Names that are documented in spite of the underscore: of os, of a named tuple, of Hydra."""

pytestmark = IN_PROCESS


def private_names(source: str) -> set[str]:
    """Names with one leading underscore: imported, taken from anything but `self` and `cls`, or by getattr."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            names |= set() if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") else {node.attr}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names} | set((node.module or "").split("."))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("attr"):
            names |= {
                each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
            }
    return {name for name in names if name.startswith("_") and not name.startswith("__")} - PUBLIC


def test_private_names_stand_in_private_api_alone() -> None:
    files = {path.relative_to(SRC): private_names(path.read_text()) for path in SRC.rglob("*.py")}
    outside = {str(path): names for path, names in files.items() if names and path.parts[1] != "private_api"}
    assert not outside


def result(plan: Plan, folder: Path) -> tuple[str, str, bytes]:
    """Digest, the loss of the test split, and the record's lines of steps and validation."""
    folder.mkdir()
    metrics = run(replace(plan, run_dir=str(folder)), ALONE)
    lines = (folder / "record.jsonl").read_bytes().splitlines(keepends=True)
    return str(metrics["digest"]), str(metrics["test/loss"]), b"".join(lines[1:])


def test_an_untested_lightning_trains_to_the_same_digest(
    make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(*SMALL, "accelerator=cpu", "accumulate_grad_batches=2")
    fast = result(plan, tmp_path / "fast")
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(lightning, "__version__", "2.7.0")
    assert result(plan, tmp_path / "version") == fast
    rest = "its own loop trains, which is slower and computes the same\n"
    assert capfd.readouterr().err == f"Lightning 2.7.0 is not tested: {rest}"


class Handler(Callback):
    """What SIGTERM does while training runs."""

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        self.handler = signal.getsignal(signal.SIGTERM)


@pytest.mark.parametrize("disabled", [True, False])
def test_lightning_sets_no_handler_of_sigterm(
    disabled: bool, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not disabled:  # the control: Lightning's own would be there
        monkeypatch.setattr(private_lightning, "disable_signal_handlers", lambda _: None)
    default, handler = signal.getsignal(signal.SIGTERM), Handler()
    monkeypatch.setattr("lockstep.engine.create_callbacks", lambda _: [handler])
    run(make_plan(*SMALL, "accelerator=cpu", "logger=none"), ALONE)
    assert (handler.handler == default) is disabled
