"""Which data set, and how many samples of it train, validate and test."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from lockstep.config_error import not_negative, positive, require
from lockstep.schemas.own_data import ModelLoaders, OwnData, OwnLoaders
from lockstep.schemas.target import BuiltIn


@dataclass(frozen=True)
class Digits(BuiltIn):
    path: ClassVar[str] = "lockstep.data.digits.load"
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
        reason = f"it leaves nothing of the {self.total} digits to train on"
        require(spare > 0, "data.test_size", self.test_size, reason, "data.test_size=360")
        reason = f"with data.test_size={self.test_size} {reason}"
        require(self.val_size < spare, "data.val_size", self.val_size, reason, f"data.val_size={spare // 8}")

    @property
    def train_samples(self) -> int:
        return self.total - self.val_size - self.test_size


@dataclass(frozen=True)
class MNIST(BuiltIn):
    path: ClassVar[str] = "lockstep.data.mnist.load"
    name: Literal["mnist"]
    root: str
    samples: int | None
    val_size: int
    mean: float
    std: float
    images: ClassVar[bool] = True
    classes: ClassVar[int] = 10
    total: ClassVar[int] = 60_000

    def __post_init__(self) -> None:
        not_negative("data.val_size", self.val_size)
        positive("data.std", self.std)
        reason = f"it leaves nothing of the {self.total} images to train on"
        require(self.val_size < self.total, "data.val_size", self.val_size, reason, "data.val_size=5000")
        if self.samples is not None:
            most = self.total - self.val_size
            reason, hint = f"with data.val_size={self.val_size} there are 1 to {most}", f"data.samples={most}"
            require(0 < self.samples <= most, "data.samples", self.samples, reason, hint)

    @property
    def train_samples(self) -> int:
        return self.samples or self.total - self.val_size


@dataclass(frozen=True)
class Points(BuiltIn):
    path: ClassVar[str] = "lockstep.data.points.load"
    name: Literal["points"]
    samples: int | None
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 2
    val_size: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.samples is not None:
            reason, hint = "it must be 2 or more", "data.samples=1000, or data.samples=null for the seven points"
            require(self.samples >= 2, "data.samples", self.samples, reason, hint)

    @property
    def train_samples(self) -> int:
        return self.samples or 5


@dataclass(frozen=True)
class Line(BuiltIn):
    path: ClassVar[str] = "lockstep.data.line.load"
    name: Literal["line"]
    slope: float
    intercept: float
    noise: float
    samples: int
    inputs: tuple[float, ...]
    val_size: int
    predict: tuple[float, ...]
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 0

    def __post_init__(self) -> None:
        not_negative("data.noise", self.noise)
        not_negative("data.val_size", self.val_size)
        require(self.samples > 0, "data.samples", self.samples, "it must be 1 or more", "data.samples=10000")

    @property
    def train_samples(self) -> int:
        return len(self.inputs) or self.samples

    @property
    def call(self) -> dict[str, Any]:
        """Without `predict`, which is for the end of a run."""
        arguments = {**super().call, "samples": self.train_samples}
        del arguments["predict"]
        return arguments


@dataclass(frozen=True)
class RandomRegression(BuiltIn):
    path: ClassVar[str] = "lockstep.data.random_regression.load"
    name: Literal["random_regression"]
    features: int
    outputs: int
    noise: float
    samples: int
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 0
    val_size: ClassVar[int] = 0

    def __post_init__(self) -> None:
        not_negative("data.noise", self.noise)
        for key, hint in (("features", 5), ("outputs", 2), ("samples", 90)):
            value = getattr(self, key)
            require(value > 0, f"data.{key}", value, "it must be 1 or more", f"data.{key}={hint}")

    @property
    def train_samples(self) -> int:
        return self.samples


Data = Digits | MNIST | Points | Line | RandomRegression | OwnData | OwnLoaders | ModelLoaders
