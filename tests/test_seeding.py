"""Weights are equal on all ranks; random streams and dropout masks differ; evaluations have streams of their own."""

import json
import random
from collections import defaultdict

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.base.random_state import seed_rank
from lockstep.engine.loaders.source import create_module
from lockstep.runs.record.fingerprint import digest
from tests.comparing import require_close, require_identical
from tests.conftest import MakePlan, MakeUserPlan
from tests.test_user_module import DDP, SINGLE, VIRTUAL, by_both, trained


def test_ranks_share_weights_and_nothing_else(make_plan: MakePlan) -> None:
    """Whatever a rank has drawn before its net is created."""
    plan = make_plan("model=lenet")
    streams = defaultdict(set)
    for rank in range(3):
        streams["weights"].add(digest(create_module(plan.model, plan.seed).state_dict()))
        seed_rank(plan.seed, rank)
        streams["masks"].add(str(nn.Dropout(0.5)(torch.ones(64)).tolist()))
        streams["python"].add(str(random.random()))
        streams["numpy"].add(str(np.random.random()))
    counts = {name: len(values) for name, values in streams.items()}
    assert counts == {"weights": 1, "masks": 3, "python": 3, "numpy": 3}


MIXUP = ("model=mixup", "data=blobs_data", "precision=64-true")
"""Its file calls seed_everything; it draws in training and in evaluations."""


@pytest.mark.slow
def test_only_the_runs_seed_counts(make_user_plan: MakeUserPlan) -> None:
    """Neither seed_everything in the module's file nor its variable; ranks in one process evaluate as those of ddp."""
    ddp, virtual = (by_both(make_user_plan(*MIXUP, *world, folder=world[0][9:])) for world in (DDP, VIRTUAL))
    for runs in (ddp, virtual):
        require_identical(*runs)
    require_close(ddp[0], virtual[0])
    metrics = [json.loads((runs[0] / "metrics.json").read_text()) for runs in (ddp, virtual)]
    for name in ("val_loss/dataloader_idx_0", "val_loss/dataloader_idx_1", "test_loss", "prior"):
        assert metrics[0][name] == pytest.approx(metrics[1][name], abs=1e-10)


def test_training_does_not_depend_on_when_it_is_validated(make_user_plan: MakeUserPlan) -> None:
    digests = [
        json.loads((trained(make_user_plan(*MIXUP, *SINGLE, option, folder=option)) / "metrics.json").read_text())
        for option in ("trainer.val_check_interval=1", "trainer.limit_val_batches=0")
    ]
    assert digests[0]["digest"] == digests[1]["digest"]
