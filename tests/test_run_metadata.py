"""Dropout and BatchNorm are recognized by the types of a net's layers."""

from torch import nn

from lockstep.runs.record import depends_on_world, has_rank_buffers, run_metadata
from lockstep.strategies.parallel.sync_batchnorm import convert_batchnorm
from tests.conftest import MakePlan


class Own(nn.Module):
    """A net that the configuration, model=mlp, knows nothing of: its parts are called what they like."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(4, 4), nn.ModuleDict({"part": part})


def test_by_the_types_of_modules(make_plan: MakePlan) -> None:
    plan, single = make_plan("strategy=ddp", "devices=2"), make_plan()
    for part, drops, normalises in (
        (nn.LayerNorm(4), False, False),
        (nn.Dropout(0.1), True, False),
        (nn.Dropout(0.0), False, False),
        (nn.LSTM(4, 4, num_layers=2, dropout=0.1), True, False),
        (nn.MultiheadAttention(4, 1), False, False),
        (nn.TransformerEncoderLayer(4, 1, 4, dropout=0.1), True, False),
        (nn.BatchNorm1d(4), False, True),
        (nn.BatchNorm1d(4, track_running_stats=False), False, True),
    ):
        net = Own(part)
        assert depends_on_world(plan, net) == (drops or normalises), part
        assert run_metadata(plan, net) == {**plan.summary(), "dropout_rng": "per_rank" if drops else "none"}
        assert has_rank_buffers(plan, net) == (normalises and bool(part.track_running_stats))
        assert not has_rank_buffers(single, net)


def test_what_all_ranks_share_does_not_depend_on_them(make_plan: MakePlan) -> None:
    """As converted: one mean over the global batch."""
    plan = make_plan("strategy=ddp", "devices=2", "sync_batchnorm=true")
    net = convert_batchnorm(Own(nn.BatchNorm1d(4)))
    assert not depends_on_world(plan, net)
    assert not has_rank_buffers(plan, net)
