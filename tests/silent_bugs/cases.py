"""The table of all cases."""

import importlib
from dataclasses import dataclass, field
from typing import Any

BASE = "tests.silent_bugs"
MODEL, DATA = f"{BASE}.base.Regression", f"{BASE}.base.Points"


@dataclass(frozen=True)
class Case:
    """A mistake and where it shows.

    name: the class (of a script the function) with the mistake, in the module `file`; the twin has "Correct" before it.
    entry: the number of its kind; 0 for one of a kind of its own.
    source: where it was reported.
    layout: what has to be compared for it to show (see LAYOUTS).
    signal: the quantity that parts first there, or that parts alone.
    cause: what a detector should name.
    corrected: whether Lockstep corrects or refuses it, so that only a stock Trainer, or a loop by hand, has it.
    arguments: those of the data module beside its batch size. trainer: those of the stock Trainer.
    other, other_arguments: model of a data module, data of a model.
    """

    name: str
    file: str
    entry: int
    source: str
    layout: str
    signal: str
    cause: str
    corrected: bool = False
    kind: str = "model"
    other: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return f"{BASE}.{self.file}.{self.name}"

    @property
    def twin(self) -> str:
        return f"{BASE}.{self.file}.{'correct_' if self.kind == 'script' else 'Correct'}{self.name}"

    @property
    def model(self) -> str:
        return self.module if self.kind == "model" else self.other or MODEL

    @property
    def data(self) -> str:
        return self.module if self.kind == "data" else self.other or DATA


LAYOUTS = {
    "ddp": "one process and two ranks, on the same global batches; the two ranks with each other",
    "accumulation": "batches of 8, and twice as many of 4 with accumulate_grad_batches=2",
    "resume": "a run of two epochs, and one resumed from a checkpoint after the first",
    "resume ddp": "the same on two ranks",
    "epochs": "the samples of two epochs, which must not come in the same order",
    "workers": "the samples of one epoch by two workers, none of which may come twice",
    "workers, epochs": "the same over two epochs, for samples drawn anew in each",
    "validation": "training with and without validation",
    "noise": "the generators of two ranks, which must differ where noise is drawn",
    "source": "none: what hangs, or is wrong in every layout, is seen in the source alone",
}


def locate(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def load(case: Case, correct: bool, **arguments: Any) -> Any:
    """Return the model and the data module, or the generator of a script, with the mistake or without it."""
    planted = locate(case.twin if correct else case.module)
    if case.kind == "script":
        return planted()
    model = planted if case.kind == "model" else locate(case.model)
    data = planted if case.kind == "data" else locate(case.data)
    return model(), data(**arguments, **case.arguments)


def data(name: str, entry: int, source: str, layout: str, signal: str, cause: str, **more: Any) -> Case:
    return Case(name, more.pop("file", "data"), entry, source, layout, signal, cause, kind="data", **more)


def gradient(name: str, entry: int, source: str, layout: str, signal: str, cause: str, **more: Any) -> Case:
    return Case(name, more.pop("file", "gradients"), entry, source, layout, signal, cause, **more)


def metric(name: str, entry: int, source: str, signal: str, cause: str, **more: Any) -> Case:
    return Case(name, "metrics", entry, source, "ddp", signal, cause, **more)


def collective(name: str, entry: int, source: str, signal: str, cause: str) -> Case:
    return Case(name, "collectives", entry, source, "ddp", signal, cause)


def script(name: str, entry: int, source: str, layout: str, signal: str, cause: str) -> Case:
    return Case(name, "loops", entry, source, layout, signal, cause, corrected=True, kind="script")


RAGGED = {"arguments": {"samples": 30}}
RAGGED_STEP = "ragged accumulation"
EVERY_ERROR = f"{BASE}.metrics.EveryError"
CASES = (
    data(
        *("ForgottenEpoch", 1, "transformers#4398", "epochs", "samples", "set_epoch not called"),
        trainer={"use_distributed_sampler": False},
    ),
    data("ShuffledAnyway", 2, "lightning#10170", "ddp", "samples", "shuffled for ddp", corrected=True),
    data("ReplacedSampler", 2, "lightning#21447", "ddp", "samples", "sampler replaced", corrected=True),
    data("OrderOfEachRank", 2, "many samplers by hand", "ddp", "samples", "order of each rank"),
    data("StreamOnEveryRank", 3, "lightning#15734", "ddp", "samples", "stream repeated on ranks", corrected=True),
    data("StreamInEveryWorker", 3, "datasets#5360", "workers", "samples", "stream repeated in workers"),
    data(
        *("PaddedValidation", 4, "pytorch#25162", "ddp", "validation", "padded samples counted"),
        corrected=True,
        other=EVERY_ERROR,
        arguments={"val_samples": 15},
    ),
    gradient("MeanOfCounted", 5, "transformers PR 34191, #35203", "ddp", "loss", "mean of means"),
    gradient("CountOfAllRanks", 5, "transformers#35203", "ddp", "loss", "count of all ranks"),
    gradient("RaggedBatch", 5, "lightning#19987", "accumulation", "loss", RAGGED_STEP, corrected=True, **RAGGED),
    metric("FlooredWeights", 6, "lightning#21859", "validation", "weights rounded down", corrected=True),
    metric("LocalMonitor", 7, "lightning#19072", "validation", "sync_dist missing", corrected=True),
    metric(
        *("LocalPlateau", 7, "lightning#19045", "rate", "sync_dist missing"),
        corrected=True,
        trainer={"max_epochs": 4},
    ),
    metric("ScoreOfShare", 7, "many", "validation", "score of a share"),
    script("past_ddp", 8, "several", "ddp", "gradient", "DDP.forward not called"),
    gradient("HiddenLayer", 8, "several", "ddp", "loss", "layer not registered", corrected=True),
    gradient("PlainBackward", 9, "lightning#9237", "ddp", "gradient", "manual_backward not called", corrected=True),
    gradient("StepsOfRank", 9, "many loops", "ddp", "samples", "decided by rank"),
    gradient("LateUnfreezing", 10, "lightning#20340", "ddp", "gradient", "unfrozen after wrapping", corrected=True),
    script("unsent_weights", 11, "OLMo-core PR 319", "ddp", "parameters", "other initial weights"),
    collective("DrawnAfterWrapping", 11, "OLMo-core PR 319", "parameters", "other initial weights"),
    collective("ReducedLoss", 12, "several", "gradient", "reduced outside autograd"),
    gradient("AveragedTwice", 12, "many", "ddp", "loss", "scaled by world"),
    collective("GatherWithoutGradient", 13, "vissl PR 123", "gradient", "gather without gradient"),
    collective("NegativesOfOneRank", 13, "lightly#1977", "loss", "loss across samples"),
    collective("SummedBuckets", 14, "pytorch#162338", "gradient", "sum, not mean"),
    gradient("UndividedMicroBatches", 15, "torchtitan#2972", "ddp", "loss", "micro-batches not divided"),
    collective("ReducedTwice", 16, "pytorch#160285", "gradient", "gradients reduced twice"),
    gradient("ScheduleOfWorld", 17, "accelerate#2926", "ddp", "rate", "schedule stepped per rank", file="rates"),
    gradient("ScheduleOfDataset", 17, "many", "ddp", "rate", "schedule too long", file="rates"),
    gradient("LocalClipping", 18, "DeepSpeed PR 1801", "ddp", "gradient", "clipped before reduction"),
    gradient("ClippedEveryBatch", 18, "pytorch#72548", "accumulation", "gradient", "clipped each batch"),
    script("scale_of_rank", 19, "pytorch#136009", "ddp", "gradient", "loss scales differ"),
    Case("LocalBatchNorm", "normalisation", 20, "pytorch#13711", "ddp", "loss", "BatchNorm per rank"),
    Case("LocalCodebook", "normalisation", 21, "espnet PR 6284", "ddp", "buffers", "local buffer update"),
    Case("MeanInAttribute", "normalisation", 21, "pytorch#63916", "ddp", "loss", "state in attribute"),
    collective("LocalWeight", 21, "pytorch#63916", "parameters", "local state update"),
    collective("ShadowOfRankZero", 22, "miles-credit PR 394", "parameters", "rank 0 alone"),
    Case("SeededAlike", "random_numbers", 23, "lightning#16166", "noise", "random", "equal seeds", corrected=True),
    Case("GeneratorsAlike", "random_numbers", 23, "threestudio#195", "noise", "random", "equal seeds"),
    data("DatasetsAlike", 23, "threestudio#195", "noise", "random", "equal seeds", file="random_numbers"),
    Case("GradientNoiseOfRank", "random_numbers", 23, "many loops", "ddp", "parameters", "changed on each rank"),
    data(
        *("CopiedGenerator", 24, "pytorch#5059", "workers, epochs", "samples", "workers draw alike"),
        file="random_numbers",
    ),
    data(
        *("SameEveryEpoch", 24, "lightning#20412", "workers, epochs", "samples", "worker seeds repeated"),
        file="random_numbers",
        corrected=True,
    ),
    Case("ShardOfRankZero", "state", 25, "lightning#17702", "resume ddp", "loss", "rank 0's shard saved"),
    gradient("RateScaledTwice", 26, "many", "ddp", "rate", "rate times world", file="rates"),
    gradient("SummedLoss", 27, "many", "ddp", "loss", "loss is summed"),
    gradient("PenaltyOfBatch", 27, "many", "ddp", "loss", "term per batch"),
    Case("SlimCheckpoint", "state", 28, "many", "resume", "parameters", "optimizer not restored"),
    Case("AttributeLost", "state", 28, "many", "resume", "loss", "attribute not saved"),
    Case("PassingBuffer", "state", 28, "many", "resume", "loss", "state not restored"),
    Case("HiddenOptimizer", "state", 28, "many", "resume", "parameters", "optimizer of its own"),
    Case("DisturbedNoise", "random_numbers", 0, "many loops", "validation", "loss", "validation draws", corrected=True),
    Case("EvalForgotten", "normalisation", 0, "many loops", "validation", "buffers", "eval not called"),
    script("forgotten_set_epoch", 1, "pytorch#31771", "epochs", "samples", "set_epoch not called"),
    script("reduced_by_rank_0", 0, "composer#239", "source", "source", "rank 0 alone"),
    script("train_forgotten", 0, "vsepp#4, clevr-iep PR 22", "source", "source", "train not called"),
    script("eval_forgotten", 0, "pytorch-3dunet#53", "source", "source", "eval not called"),
    Case("SyncedByRankZero", "metrics", 0, "modelforge PR 313", "source", "source", "rank 0 alone"),
)

NOT_SHOWN = {
    "14 pytorch#162338": "torch 2.14.1: gloo averages in reduce_scatter_tensor; the case is a hook of DDP",
    "16 pytorch#160285": "needs FSDP; the case reduces gradients again that DDP has reduced",
    "19 pytorch#136009": "needs FSDP and float16; the case has a loss scale for each rank of a loop by hand",
    "24 pytorch#5059": "torch 2.14.1 seeds numpy and random in workers; the case has a generator of its own",
    "24 lightning#20412": "Lightning 2.6.6: seeds of seed_everything(workers=True) differ; the case seeds by number",
    "25 lightning#17702": "needs FSDP; the case shards a running mean by hand",
}
"""Mistakes as they were reported that do not show on CPUs, or no longer, and what stands for them."""
