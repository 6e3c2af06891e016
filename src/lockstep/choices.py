"""The options of every config group, typed: what one may choose, and the bounds of each value.

No torch here: a wrong value is refused before anything heavy is imported.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from lockstep.refusal import require


def positive(key: str, value: float) -> None:
    require(value > 0, key, value, "it must be above 0", f"{key}=0.01, say")


def not_negative(key: str, value: float) -> None:
    require(value >= 0, key, value, "it must be 0 or more", f"{key}=0")


def fraction(key: str, value: float) -> None:
    require(0 <= value < 1, key, value, "it must be at least 0 and below 1", f"{key}=0.5, say")


@dataclass(frozen=True)
class Lightning:
    name: Literal["lightning"]


@dataclass(frozen=True)
class Raw:
    """Plain torch.distributed; or both engines, one after the other, then compared."""

    name: Literal["raw", "both"]
    gradient_sync: Literal["ddp", "all_reduce", "bucket", "ring", "reduce_broadcast"]


Engine = Lightning | Raw


@dataclass(frozen=True)
class Single:
    """How processes start × how the net is wrapped; the world comes from `devices` and `num_nodes`."""

    name: Literal["single"]
    start: ClassVar[Literal["spawn"]] = "spawn"
    wrap: ClassVar[Literal["none"]] = "none"


@dataclass(frozen=True)
class DDP:
    """A process a device. `share_device` puts several on each GPU in turn, where there are fewer GPUs."""

    name: Literal["ddp", "ddp_spawn"]
    share_device: bool
    wrap: ClassVar[Literal["ddp"]] = "ddp"

    @property
    def start(self) -> Literal["elastic", "spawn"]:
        return "elastic" if self.name == "ddp" else "spawn"


@dataclass(frozen=True)
class DP:
    """One process, a replica of the net on every device."""

    name: Literal["dp"]
    start: ClassVar[Literal["spawn"]] = "spawn"
    wrap: ClassVar[Literal["dp"]] = "dp"


@dataclass(frozen=True)
class ModelParallel:
    """One process, the net's stages on the devices in turn; a batch goes through them in so many micro-batches."""

    name: Literal["model_parallel"]
    micro_batches: int
    start: ClassVar[Literal["spawn"]] = "spawn"
    wrap: ClassVar[Literal["stages"]] = "stages"

    def __post_init__(self) -> None:
        key, value = "strategy.micro_batches", self.micro_batches
        require(value >= 1, key, value, "it must be 1 or more", f"{key}=1 for the whole batch at once")


Strategy = Single | DDP | DP | ModelParallel


@dataclass(frozen=True)
class Linear:
    name: Literal["linear"]
    images_only: ClassVar[bool] = False
    stages: ClassVar[int] = 0


@dataclass(frozen=True)
class MLP:
    name: Literal["mlp"]
    hidden: tuple[int, ...]
    images_only: ClassVar[bool] = False
    stages: ClassVar[int] = 0

    def __post_init__(self) -> None:
        sizes_fit = len(self.hidden) > 0 and min(self.hidden) > 0
        require(
            sizes_fit, "model.hidden", self.hidden, "it lists layer sizes of 1 or more", "model.hidden=[30,20], say"
        )


@dataclass(frozen=True)
class CNN:
    name: Literal["cnn"]
    norm: Literal["batch", "none"]
    images_only: ClassVar[bool] = True
    stages: ClassVar[int] = 0


@dataclass(frozen=True)
class LeNet:
    name: Literal["lenet"]
    dropout: float
    images_only: ClassVar[bool] = True
    stages: ClassVar[int] = 0

    def __post_init__(self) -> None:
        fraction("model.dropout", self.dropout)


@dataclass(frozen=True)
class SplitCNN:
    name: Literal["split_cnn"]
    images_only: ClassVar[bool] = True
    stages: ClassVar[int] = 4


Model = Linear | MLP | CNN | LeNet | SplitCNN


@dataclass(frozen=True)
class Digits:
    name: Literal["digits"]
    val_size: int
    test_size: int
    images: ClassVar[bool] = True
    classes: ClassVar[int] = 10
    total: ClassVar[int] = 1797

    def __post_init__(self) -> None:
        not_negative("data.val_size", self.val_size)
        require(self.test_size > 0, "data.test_size", self.test_size, "it must be 1 or more", "data.test_size=360")
        spare = self.total - self.test_size
        why = f"it leaves nothing of the {self.total} digits to train on"
        require(spare > 0, "data.test_size", self.test_size, why, "data.test_size=360")
        why = f"with data.test_size={self.test_size} {why}"
        require(self.val_size < spare, "data.val_size", self.val_size, why, f"data.val_size={spare // 8}")

    @property
    def train_samples(self) -> int:
        return self.total - self.val_size - self.test_size


@dataclass(frozen=True)
class MNIST:
    name: Literal["mnist"]
    root: str
    val_size: int
    mean: float
    std: float
    images: ClassVar[bool] = True
    classes: ClassVar[int] = 10
    total: ClassVar[int] = 60_000

    def __post_init__(self) -> None:
        not_negative("data.val_size", self.val_size)
        positive("data.std", self.std)
        why = f"it leaves nothing of the {self.total} images to train on"
        require(self.val_size < self.total, "data.val_size", self.val_size, why, "data.val_size=5000")

    @property
    def train_samples(self) -> int:
        return self.total - self.val_size


@dataclass(frozen=True)
class Points:
    name: Literal["points"]
    samples: int | None
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 2
    val_size: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.samples is not None:
            why, instead = "it must be 2 or more", "data.samples=1000, or data.samples=null for the seven points"
            require(self.samples >= 2, "data.samples", self.samples, why, instead)

    @property
    def train_samples(self) -> int:
        return self.samples or 5


@dataclass(frozen=True)
class Line:
    name: Literal["line"]
    slope: float
    intercept: float
    noise: float
    samples: int
    val_size: int
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 0

    def __post_init__(self) -> None:
        not_negative("data.noise", self.noise)
        not_negative("data.val_size", self.val_size)
        require(self.samples > 0, "data.samples", self.samples, "it must be 1 or more", "data.samples=10000")

    @property
    def train_samples(self) -> int:
        return self.samples


Data = Digits | MNIST | Points | Line


@dataclass(frozen=True)
class SGD:
    name: Literal["sgd"]
    lr: float
    momentum: float
    weight_decay: float

    def __post_init__(self) -> None:
        positive("optimizer.lr", self.lr)
        fraction("optimizer.momentum", self.momentum)
        not_negative("optimizer.weight_decay", self.weight_decay)


@dataclass(frozen=True)
class Adam:
    """Adam, or AdamW by its name: the same numbers, the decay coupled or decoupled."""

    name: Literal["adam", "adamw"]
    lr: float
    weight_decay: float

    def __post_init__(self) -> None:
        positive("optimizer.lr", self.lr)
        not_negative("optimizer.weight_decay", self.weight_decay)


Optimizer = SGD | Adam


@dataclass(frozen=True)
class Constant:
    name: Literal["none"]


@dataclass(frozen=True)
class OneCycle:
    name: Literal["onecycle"]
    warmup_fraction: float

    def __post_init__(self) -> None:
        fraction("scheduler.warmup_fraction", self.warmup_fraction)


@dataclass(frozen=True)
class WarmupLinear:
    name: Literal["warmup_linear"]
    warmup_steps: int

    def __post_init__(self) -> None:
        not_negative("scheduler.warmup_steps", self.warmup_steps)


Scheduler = Constant | OneCycle | WarmupLinear


@dataclass(frozen=True)
class Logger:
    name: Literal["tensorboard", "csv", "none"]


GROUPS: dict[str, dict[str, type]] = {
    "engine": {"lightning": Lightning, "raw": Raw, "both": Raw},
    "strategy": {"single": Single, "ddp": DDP, "ddp_spawn": DDP, "dp": DP, "model_parallel": ModelParallel},
    "model": {"linear": Linear, "mlp": MLP, "cnn": CNN, "lenet": LeNet, "split_cnn": SplitCNN},
    "data": {"digits": Digits, "mnist": MNIST, "points": Points, "line": Line},
    "optimizer": {"sgd": SGD, "adam": Adam, "adamw": Adam},
    "scheduler": {"none": Constant, "onecycle": OneCycle, "warmup_linear": WarmupLinear},
    "logger": {"tensorboard": Logger, "csv": Logger, "none": Logger},
}
