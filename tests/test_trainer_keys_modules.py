"""Arguments of Lightning's Trainer with a LightningModule: both loops agree, and resume bit for bit."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.plan.plan import Plan
from lockstep.runs.checkpoint.reading import check_checkpoint
from lockstep.runs.record.step_lines import id_digests
from tests.comparing import lines, metrics_in, require_close, require_identical
from tests.conftest import MakeUserPlan
from tests.resuming import record, same_after_kill, start, untimed
from tests.test_user_module import DDP, MODULES, SINGLE, trained
from tests.test_user_module import by_both as runs_by_both


def by_both(make: MakeUserPlan, *job: str) -> Path:
    """Run both loops, check that they agree, and return the folder of Lightning's own."""
    runs = runs_by_both(make(*job, folder=f"both-{len(job)}"))
    require_identical(runs[0], runs[1])
    metrics = [metrics_in(run) for run in runs]
    assert untimed(metrics[0]) == untimed(metrics[1])
    return runs[1]


@pytest.mark.slow
def test_max_steps_counts_what_optimizers_step(make_user_plan: MakeUserPlan) -> None:
    """5 batches an epoch; of the GAN's two optimizers one steps in each, one in every other. No part is validated."""
    job, steps = (*MODULES["gan"], *DDP, "precision=64-true"), 12
    unlimited = by_both(make_user_plan, *job)
    cut = by_both(make_user_plan, *job, "max_epochs=9", f"trainer.max_steps={steps}")
    assert lines(cut, "step") == lines(unlimited, "step")[:8]
    assert [line["epoch"] for line in lines(cut, "validation")] == [1]
    saved = torch.load(cut / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] >= steps > saved["global_step"] - 2


@pytest.mark.slow
def test_a_limited_run_resumes_as_an_unlimited_one(make_user_plan: MakeUserPlan, tmp_path: Path) -> None:
    """Killed, resumed to the limit, then continued without it: the same as a run that never had a limit."""
    job = (*MODULES["classifier"], *SINGLE, "max_epochs=4")
    plan = make_user_plan(*job, "checkpoint.every_n_steps=2", "trainer.max_steps=12")
    expected = start(plan)
    resumed = same_after_kill(plan, 6, expected=expected)
    again = replace(resumed, ckpt_path=str(Path(resumed.run_dir) / "checkpoints" / "last.ckpt"))
    assert start(again)["digest"] == expected["digest"]  # what was left is the test
    (Path(resumed.run_dir) / "metrics.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"max_steps=12: .*last.ckpt: it has trained to epoch .* steps already"):
        check_checkpoint(again)
    longer = [with_bound(again, most) for most in (15, -1)]  # of the classifier 15 steps are three epochs
    further = [untimed(start(bounded)) for bounded in longer][-1]
    unbound = replace(with_bound(plan, -1), run_dir=str(tmp_path / "unbound"))
    Path(unbound.run_dir).mkdir()
    assert further == untimed(start(unbound))
    assert record(resumed) == record(unbound)


def with_bound(plan: Plan, most: int) -> Plan:
    return replace(plan, trainer=replace(plan.trainer, max_steps=most))


@pytest.mark.slow
def test_overfitting_takes_the_same_batches_in_each_epoch(make_user_plan: MakeUserPlan) -> None:
    """The first of the data in their order, in a loader that shuffles, too."""
    folder = by_both(make_user_plan, *MODULES["classifier"], *DDP, "trainer.overfit_batches=2")
    digests, size = [line["ids"] for line in lines(folder, "step")], lines(folder, "step")[0]["samples"]
    assert digests == digests[:2] * 2
    assert digests[0] == f"{int(id_digests([torch.arange(size)], 0, size, 0, 1)) % 2**64:016x}"


EARLY = ("model=early", "data=none", "precision=64-true", "max_epochs=3")
RELOADED = "trainer.reload_dataloaders_every_n_epochs"


@pytest.mark.slow
def test_validation_by_the_batches_of_the_run(make_user_plan: MakeUserPlan) -> None:
    """2 batches an epoch, validated after 3 and 6, also if it is killed between; and as raw does."""
    job = (*EARLY, "model._target_=strange_early.Sparse", *SINGLE)
    words = (*job, "trainer.check_val_every_n_epoch=null", "trainer.val_check_interval=3")
    plan = make_user_plan(*words, "max_epochs=4", "checkpoint.every_n_steps=1")
    same_after_kill(plan, 5)
    validations = lines(Path(plan.run_dir), "validation")
    validated = [(line["epoch"], line.get("after_batch")) for line in validations if "val_loss" in str(line)]
    assert validated == [(2, 1), (3, None)]
    raw = trained(make_user_plan(*words, "max_epochs=4", "engine=raw", folder="raw"))
    assert lines(raw, "validation") == validations


@pytest.mark.slow
def test_loaders_that_depend_on_the_epoch(make_user_plan: MakeUserPlan) -> None:
    """The module reads the trainer's epoch and loaders. New loaders grow: 2, 4 and 6 batches, on ranks and resumed."""
    plan = make_user_plan(*EARLY, *SINGLE, f"{RELOADED}=1", "checkpoint.every_n_steps=1")
    same_after_kill(plan, 4)
    assert [line["epoch"] for line in lines(Path(plan.run_dir), "step")] == [1] * 2 + [2] * 4 + [3] * 6
    assert len(lines(Path(plan.run_dir), "validation")) == 3
    runs = {
        len(world): trained(make_user_plan(*EARLY, *world, f"{RELOADED}=1", folder=world[0])) for world in (SINGLE, DDP)
    }
    require_close(*runs.values())
