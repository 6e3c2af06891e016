"""What a module gets from its data, by one rule for ours and theirs; and targets by Hydra's rules."""

import functools
from typing import Any

import pytest
from omegaconf import ListConfig
from torch import nn

from lockstep.base.config_error import ConfigError
from lockstep.plan.schemas.target import Data
from lockstep.plan.targets.locate import create, filled

HERE = "tests.test_from_data"
CLASSES = Data("Images", "data", {}, sample_shape=(1, 28, 28), num_outputs=10, num_classes=10)
UNKNOWN = Data("Stream", "data", {})


class Module:
    """It and its net take some of the three arguments."""

    def __init__(self, net: Any, num_classes: int = 2, sample_shape: Any = None, width: int = 1) -> None:
        self.net, self.num_classes, self.sample_shape, self.width = net, num_classes, sample_shape, width


class Net:
    def __init__(self, sample_shape: Any, num_outputs: int | None, depth: int = 1) -> None:
        self.sample_shape, self.num_outputs, self.depth = sample_shape, num_outputs, depth


class Plain:
    def __init__(self, net: Any = None, **options: Any) -> None:
        self.net, self.options = net, options


def target(name: str, **arguments: Any) -> dict[str, Any]:
    return {"_target_": f"{HERE}.{name}", **arguments}


def test_the_module_and_its_net_get_what_their_constructors_name() -> None:
    call = filled(target("Module", net=target("Net", depth=3), width=7), CLASSES)
    net = target("Net", depth=3, sample_shape=[1, 28, 28], num_outputs=10)
    assert call == target("Module", net=net, width=7, num_classes=10, sample_shape=[1, 28, 28])
    module = create("model", call)
    assert (module.num_classes, module.net.num_outputs, [*module.net.sample_shape]) == (10, 10, [1, 28, 28])


def test_the_number_of_classes_stands_for_that_of_the_outputs() -> None:
    for outputs, classes, expected in ((None, 4, 4), (2, 0, 2)):
        data = Data("Theirs", "data", {}, num_outputs=outputs, num_classes=classes)
        assert filled(target("Net", sample_shape=[3]), data)["num_outputs"] == expected


def test_what_is_given_stays_and_so_does_an_explicit_null() -> None:
    net = target("Net", sample_shape=[3], num_outputs=None)
    call = target("Module", net=net, num_classes=None, sample_shape=())
    assert filled(call, CLASSES) == call


def test_what_is_left_alone() -> None:
    """`**options` may mean something else, an argument by place is given, and a net in a net is its own affair."""
    assert filled(target("Plain"), CLASSES) == target("Plain")
    assert filled(target("Net", _args_=[[3]]), CLASSES) == target("Net", _args_=[[3]], num_outputs=10)
    inner = target("Module", net=target("Module", net=target("Plain")))
    assert filled(inner, CLASSES)["net"]["net"] == target("Plain")
    assert filled(target("Plain", encoder=target("Net")), CLASSES) == target("Plain", encoder=target("Net"))


def test_what_the_data_does_not_tell_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^model.net.num_outputs is missing, and the data does not tell it; write "):
        filled(target("Module", net=target("Net", sample_shape=[3])), UNKNOWN)
    assert filled(target("Module", net=target("Plain")), UNKNOWN) == target("Module", net=target("Plain"))


def made(**options: Any) -> Any:
    return create("model", target("Plain", **options))


def test_targets_are_called_as_hydra_calls_them() -> None:
    """Partials, arguments by place, targets in lists and mappings, mappings with attributes unless converted."""
    layer = {"_target_": "torch.nn.Linear", "_args_": [3, 2], "bias": False}
    module = made(net={**layer, "_partial_": True}, parts=[layer, {"deep": layer}], cfg={"hidden": [1, 2]})
    assert isinstance(module.net, functools.partial)
    assert (module.net.func, module.net.args, module.net.keywords) == (nn.Linear, (3, 2), {"bias": False})
    assert isinstance(module.options["parts"][0], nn.Linear)
    assert isinstance(module.options["parts"][1].deep, nn.Linear)
    assert isinstance(module.options["cfg"].hidden, ListConfig)
    assert type(made(cfg={"hidden": [1]}, _convert_="all").options["cfg"]) is dict
    assert made(net=layer, _recursive_=False).net == layer


class Flexible:
    """A constructor that takes any keywords, behind another signature, as transformers' configurations have."""

    def __init__(self, **options: int) -> None:
        self.options = options

    __init__.__wrapped__ = lambda self: None  # type: ignore[attr-defined]  # noqa: ARG005


def test_a_constructor_takes_more_keywords_than_it_shows() -> None:
    assert create("model.config", target("Flexible", num_labels=2)).options == {"num_labels": 2}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (target("Net", sample_shape=[3]), r"^model.num_outputs is missing: Net needs it; write model.num_ou"),
        (target("Module", net=target("Net", _args_=[1, 2], dept=1)), r"^model.net.dept=1: Net takes no such argum"),
        (target("Module", net={"_target_": f"{HERE}.Nte"}), r"^model.net._target_=tests.test_from_data.Nte: tests.te"),
        (target("Module", net=None, width="wide"), r"^model.width=wide: Module takes a number; write model.width="),
    ],
)
def test_invalid_calls_are_refused_by_their_keys(call: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        create("model", call)
    assert "\n" not in str(refused.value)
