"""A user's LightningModule and data, unmodified: both loops and all worlds compute the same numbers."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Sampler

from lockstep.command.job import for_ranks
from lockstep.engine.loaders import RankSlice
from lockstep.engine.loaders.map_loader import MapLoader, epoch_order
from lockstep.launch.start import start_ranks
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.run import ENGINES
from lockstep.runs.compare import compare
from tests.checkpoints import net_state
from tests.comparing import lines, metrics_in, require_close, require_identical
from tests.conftest import MakeUserPlan
from tests.rank_helpers import LOOPS, by_loops, on_ranks

MODULES = {
    "classifier": ("model=classifier", "data=blobs_data"),
    "gan": ("model=gan", "data=blobs_data"),
    "autoencoder": ("model=auto_encoder", "data=blobs", "batch_size=12"),
    "stream": ("model=regressor", "data=stream"),
    "late": ("model=late", "data=none"),
}
PLAIN = {"classifier": ("+model.norm=false",)}
"""Without BatchNorm per rank the number of ranks changes nothing."""
SINGLE, DDP = ("strategy=single",), ("strategy=ddp", "devices=2")
VIRTUAL = ("strategy=virtual", "devices=2", "strategy.in_process=false")


def trained(plan: Plan) -> Path:
    metrics = start_ranks(for_ranks(plan), ENGINES[plan.engine.name])
    (Path(plan.run_dir) / "metrics.json").write_text(json.dumps(metrics))
    return Path(plan.run_dir)


def by_both(plan: Plan) -> list[Path]:
    """Run the plan by the fast loop and by Lightning's own on the same ranks, and return the folders."""
    on_ranks(plan, by_loops)
    return [Path(plan.run_dir) / name for name in LOOPS]


def in_both_worlds(make_user_plan: MakeUserPlan, *job: str, single: Sequence[str] = SINGLE) -> list[Path]:
    """Return the runs of one process and of two ranks, after checking that both loops are identical in each."""
    runs_by_world = []
    for world, overrides in (("single", single), ("ddp", DDP)):
        runs = by_both(make_user_plan(*job, *overrides, folder=world))
        require_identical(runs[0], runs[1])
        runs_by_world.append(runs[1])
    return runs_by_world


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classifier", "gan", "autoencoder", "stream"])
def test_loops_and_worlds_agree(name: str, make_user_plan: MakeUserPlan) -> None:
    """Loops are bit-equal; in float64 two ranks equal one process to 1e-10; another seed gives another run."""
    job = (*MODULES[name], *PLAIN.get(name, ()), "precision=64-true")
    single, ddp = in_both_worlds(make_user_plan, *job)
    require_close(single, ddp)
    if name != "classifier":
        return
    other = trained(make_user_plan(*job, "seed=1", *SINGLE, folder="other"))
    assert not compare(single, other).within_tolerance


def test_virtual_ranks_equal_ddp(make_user_plan: MakeUserPlan) -> None:
    """With dropout and BatchNorm per rank."""
    job = (*MODULES["classifier"], "+model.dropout=0.3", "precision=64-true")
    ddp = trained(make_user_plan(*job, *DDP, folder="ddp"))
    require_close(ddp, trained(make_user_plan(*job, *VIRTUAL, folder="virtual")))


def test_unequal_shares_are_weighted_and_step_values_are_reduced(make_user_plan: MakeUserPlan) -> None:
    """Ranks without a sample, batches of a dataclass, a schedule that steps by the loss of each batch."""
    job = ("model=uneven", "data=uneven_data", "precision=64-true", "logger=csv", "log_every_n_steps=1")
    worlds = {"single": SINGLE, "ddp": DDP, "virtual": VIRTUAL}
    runs = {name: trained(make_user_plan(*job, *overrides, folder=name)) for name, overrides in worlds.items()}
    for name in ("ddp", "virtual"):
        require_close(runs["single"], runs[name])
    steps = lines(runs["ddp"], "step")
    assert [step["logged"]["count_step"] for step in steps] == [5, 1, 3, 2, 5] * 2
    assert steps[3]["logged"]["least"] == pytest.approx(-1 + 2 / 63 * 36, rel=1e-6)
    assert all(step["logged"]["synced"] == step["logged"]["alone"] for step in steps)
    with next(runs["ddp"].glob("csv/**/metrics.csv")).open() as file:
        curve = [float(row["synced"]) for row in csv.DictReader(file) if row["synced"]]
    assert curve == pytest.approx([step["logged"]["synced"] for step in steps], rel=1e-12)


THAWING = ("model=thawing", "data=blobs_data", "+data.samples=57", "precision=64-true")
"""The last of 33 samples in batches of 8 leaves the second rank without samples."""


@pytest.mark.slow
def test_layers_thawed_later(make_user_plan: MakeUserPlan) -> None:
    """DDP averages no gradients of parameters that were frozen at its start; extra state of a layer is saved."""
    single, ddp = in_both_worlds(make_user_plan, *THAWING)
    require_close(single, ddp)
    weights = torch.load(ddp / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert weights["net.5._extra_state"] == {"calls": 10}


TUNED = ("model=tuned", "data=sizes", "max_epochs=3")


@pytest.mark.slow
def test_evaluations_have_a_separate_batch_size(make_user_plan: MakeUserPlan) -> None:
    """Ranks share validation batches of 12 samples, whatever the batch size of training; rates are numpy numbers.

    The loader drops the last batch of training, 6 of 38 samples.
    """
    for world, shares in ((SINGLE, 12), (DDP, 6)):
        runs = by_both(make_user_plan(*TUNED, "+model.cosine=true", *world, folder=f"shares of {shares}"))
        require_identical(runs[0], runs[1])
        assert metrics_in(runs[0])["val_size"] == shares
        assert [step["samples"] for step in lines(runs[0], "step")] == [8] * 4 * 3
    larger = trained(make_user_plan(*TUNED, *SINGLE, "batch_size=19", folder="larger"))
    assert [step["samples"] for step in lines(larger, "step")][:2] == [19, 19]
    assert metrics_in(larger)["val_size"] == 12


@pytest.mark.slow
def test_a_rank_without_samples_draws_nothing(make_user_plan: MakeUserPlan) -> None:
    job = (*THAWING, "+model.dropout=0.3", "+model.counts=false")
    ddp, virtual = (trained(make_user_plan(*job, *world, folder=world[0][9:])) for world in (DDP, VIRTUAL))
    require_close(ddp, virtual)


class Drawn(Sampler[int]):
    """A sampler with a generator that is never seeded again."""

    def __init__(self) -> None:
        self.generator_within = np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        return iter(self.generator_within.permutation(9).tolist())

    def __len__(self) -> int:
        return 9


def test_a_sampler_with_a_generator_within_it_is_drawn_once_an_epoch() -> None:
    """Regardless of how often batches are requested, and from which epoch."""
    loaders: Any = [DataLoader(list(range(9)), 4, sampler=Drawn()) for _ in range(2)]  # type: ignore[arg-type]
    again, resumed = (MapLoader(loader, RankSlice(0, 1), 0, training=True, batch_size=None) for loader in loaders)
    orders = []
    for epoch in range(3):
        orders.append(again.order(epoch).tolist())
        assert again.order(epoch).tolist() == orders[-1]
    assert resumed.order(2).tolist() == orders[2] != orders[1]


def test_epochs_ended_early(make_user_plan: MakeUserPlan) -> None:
    """Both loops end them as Lightning does; the checkpoint can be tested."""
    job = ("model=short", "data=none", *SINGLE)
    runs = by_both(make_user_plan(*job, folder="both"))
    require_identical(runs[0], runs[1])
    metrics = [metrics_in(run) for run in runs]
    assert [values["steps"] for values in metrics] == [4, 4]
    last = f"ckpt_path={runs[0] / 'checkpoints' / 'last.ckpt'}"
    again = trained(make_user_plan(*job, "train=false", last, folder="tested"))
    assert metrics_in(again)["test_loss"] == metrics[0]["test_loss"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_ordinary_trainer_computes_the_same(make_user_plan: MakeUserPlan, tmp_path: Path) -> None:
    """Compare weights and logged values with an ordinary Trainer in the same order."""
    folder = trained(make_user_plan(*MODULES["classifier"], *SINGLE, "seed=7", "+data.noise=0", folder="single"))
    import strange_loaders  # type: ignore[import-not-found]
    import strange_modules  # type: ignore[import-not-found]

    torch.manual_seed(7)
    module = strange_modules.Classifier()
    torch.manual_seed(7)
    data = strange_loaders.BlobsData(noise=0.0)
    data.setup("fit")

    class Ordered:
        """Batches in the order of an epoch here."""

        epoch = 0

        def __iter__(self) -> Any:
            order = epoch_order(len(data.train), 7, Ordered.epoch)
            Ordered.epoch += 1
            return iter(torch.split(order, 8))

        def __len__(self) -> int:
            return -(-len(data.train) // 8)

    trainer = pl.Trainer(
        max_epochs=2, logger=False, enable_checkpointing=False, num_sanity_val_steps=0, default_root_dir=tmp_path,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
    )  # fmt: skip
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as on the ranks: more add in another order
    trainer.fit(module, DataLoader(data.train, batch_sampler=Ordered()), data.val_dataloader())
    torch.set_num_threads(threads)
    weights = net_state(folder / "checkpoints" / "last.ckpt")
    assert {name: tensor.tolist() for name, tensor in module.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in weights.items()
    }
    loaded = strange_modules.Classifier.load_from_checkpoint(folder / "checkpoints" / "last.ckpt")
    torch.testing.assert_close(loaded.state_dict(), module.state_dict(), rtol=0, atol=0)
    metrics = metrics_in(folder)
    logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    wanted = {name: value for name, value in logged.items() if not name.endswith("_step") and name in metrics}
    assert {"train_loss_epoch", "train_acc_epoch", "largest", "val_f1/dataloader_idx_1"} <= wanted.keys()
    for name, value in wanted.items():
        assert metrics[name] == pytest.approx(value, rel=1e-6), name
