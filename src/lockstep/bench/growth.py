"""How cost grows: with the samples of the line, and, at a thread a rank, with the ranks that train an MLP on digits."""

from functools import partial

from lockstep.bench.row import Row, alternated
from lockstep.bench.setting import Setting

SAMPLES = (10**3, 10**4, 10**5, 10**6)
RANKS = (1, 2, 4, 8)
OVER_SAMPLES, OVER_RANKS = "growth_samples", "growth_ranks"
ENOUGH = 10**5
"""Samples that are trained on at least, over several epochs where there are fewer."""


def growth(setting: Setting) -> list[Row]:
    rounds = setting.dear_rounds
    ways = {f"{size:,}": partial(per_thousand, setting, size) for size in SAMPLES}
    values = alternated(ways, rounds, setting.say)
    found = [
        Row(OVER_SAMPLES, f"{name} samples", "ms per 1,000", own, size=size)
        for size, (name, own) in zip(SAMPLES, values.items(), strict=True)
    ]
    ways = {f"{ranks} rank{'s' if ranks > 1 else ''}": partial(throughput, setting, ranks) for ranks in RANKS}
    values = alternated(ways, rounds, setting.say)
    for ranks, (name, own) in zip(RANKS, values.items(), strict=True):
        alone = ("", ()) if ranks == 1 else ("1 rank", values["1 rank"])
        found.append(Row(OVER_RANKS, name, "samples/s", own, *alone, size=ranks))
    return found


def per_thousand(setting: Setting, samples: int) -> float:
    epochs = max(1, ENOUGH // samples)
    own = ("batch_size_per_device=null", "batch_size=1000", f"data.samples={samples}", f"max_epochs={epochs}")
    metrics = setting.trained("engine=raw", "experiment=linear_regression", *own, "data.val_size=0", "test=false")
    return 1e6 * float(metrics["train_seconds"]) / (epochs * samples)


def throughput(setting: Setting, ranks: int) -> float:
    world = ("strategy=ddp", f"devices={ranks}", "threads=1", "accelerator=cpu")
    part = ("data=digits", "data.val_size=0", "batch_size=256", "max_epochs=10", "test=false")
    return float(setting.trained("engine=raw", *world, *part)["samples_per_second"])
