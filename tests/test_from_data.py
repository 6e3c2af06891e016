"""Arguments of a module and of its net that come from the data."""

from typing import Any

from torch import nn

from lockstep.schemas.data import Data
from lockstep.targets.from_data import filled

DATA = Data("Points", "data", {}, sample_shape=(2, 3), num_classes=4)


class Net(nn.Module):
    """It asks for all that the data tells."""

    def __init__(self, sample_shape: Any, num_outputs: int | None, num_classes: int = 9) -> None:
        super().__init__()


class Module(nn.Module):
    """It asks for one fact."""

    def __init__(self, net: nn.Module, num_classes: int, width: int = 1) -> None:
        super().__init__()


def call(**net: Any) -> dict[str, Any]:
    return {"_target_": f"{__name__}.Module", "net": {"_target_": f"{__name__}.Net", **net}}


def test_arguments_that_are_absent_come_from_the_data() -> None:
    """A net has an output for each class, unless the data has another number of outputs."""
    facts = {"sample_shape": [2, 3], "num_classes": 4}
    assert filled(call(), DATA) == {**call(**facts, num_outputs=4), "num_classes": 4}
    real = Data("Line", "data", {}, sample_shape=(1,), num_outputs=7)
    assert filled(call(), real) == call(sample_shape=[1], num_outputs=7)


def test_what_is_given_stays() -> None:
    """A null, too; a net that is no target is left alone."""
    given = {"sample_shape": [9], "num_outputs": None, "num_classes": 2}
    assert filled(call(**given), DATA) == {**call(**given), "num_classes": 4}
    assert filled({**call(), "net": "a net", "num_classes": 3}, DATA) == {**call(), "net": "a net", "num_classes": 3}
