"""What a module gets from its data, by one rule for ours and theirs; and targets by Hydra's rules."""

import functools
from dataclasses import dataclass
from typing import Any

import pytest
from omegaconf import DictConfig, ListConfig
from torch import nn

from lockstep.base.config_error import ConfigError
from lockstep.plan.schemas.target import Data
from lockstep.plan.targets.locate import create, filled

HERE = "tests.test_from_data"
CLASSES = Data("Images", "data", {}, sample_shape=(1, 28, 28), num_outputs=10, num_classes=10)
NUMBERS = Data("Rows", "data", {}, sample_shape=(5,), num_outputs=2, num_classes=0)
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
    assert call == target(
        "Module",
        net=target("Net", depth=3, sample_shape=[1, 28, 28], num_outputs=10),
        width=7,
        num_classes=10,
        sample_shape=[1, 28, 28],
    )
    module = create("model", call)
    assert (module.num_classes, module.net.num_outputs, [*module.net.sample_shape]) == (10, 10, [1, 28, 28])


def test_data_of_real_numbers_has_outputs_and_no_classes() -> None:
    call = filled(target("Module", net=target("Net")), NUMBERS)
    assert (call["num_classes"], call["net"]["num_outputs"]) == (0, 2)


def test_the_number_of_classes_stands_for_that_of_the_outputs() -> None:
    data = Data("Theirs", "data", {}, num_classes=4)
    assert filled(target("Net", sample_shape=[3]), data)["num_outputs"] == 4


def test_what_is_given_stays_and_so_does_an_explicit_null() -> None:
    given = target("Net", sample_shape=[3], num_outputs=None)
    assert filled(target("Module", net=given, num_classes=None, sample_shape=()), CLASSES) == target(
        "Module", net=given, num_classes=None, sample_shape=()
    )


def test_any_keywords_are_no_names() -> None:
    """`**options` may mean something else."""
    assert filled(target("Plain"), CLASSES) == target("Plain")


def test_an_argument_by_place_is_given() -> None:
    assert filled(target("Net", _args_=[[3]]), CLASSES) == target("Net", _args_=[[3]], num_outputs=10)


def test_another_nested_target_is_left_alone() -> None:
    """The rule is of `net`; a net in a net is its own affair."""
    inner = target("Module", net=target("Module", net=target("Plain")))
    assert filled(inner, CLASSES)["net"]["net"] == target("Plain")
    assert filled(target("Plain", encoder=target("Net")), CLASSES) == target("Plain", encoder=target("Net"))


def test_what_the_data_does_not_tell_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^model.net.num_outputs is missing, and the data does not tell it; write "):
        filled(target("Module", net=target("Net", sample_shape=[3])), UNKNOWN)
    assert filled(target("Module", net=target("Plain")), UNKNOWN) == target("Module", net=target("Plain"))


def made(**options: Any) -> Any:
    return create("model", target("Plain", **options))


def test_partial_and_positional_arguments() -> None:
    call = made(net={"_target_": "torch.nn.Linear", "_args_": [3, 2], "_partial_": True, "bias": False})
    assert isinstance(call.net, functools.partial)
    assert (call.net.func, call.net.args, call.net.keywords) == (nn.Linear, (3, 2), {"bias": False})
    outer = create("optimizer", {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.5})
    assert outer([nn.Parameter(nn.Linear(1, 1).weight)]).param_groups[0]["lr"] == 0.5


def test_targets_are_called_from_within_in_lists_and_mappings() -> None:
    layer = {"_target_": "torch.nn.Linear", "in_features": 3, "out_features": 2}
    module = made(net=layer, parts=[layer, {"deep": layer}])
    assert [type(each) for each in (module.net, module.options["parts"][0], module.options["parts"][1].deep)] == [
        nn.Linear
    ] * 3


def test_without_recursion_nothing_within_is_called() -> None:
    module = made(net={"_target_": "torch.nn.Linear", "in_features": 3}, _recursive_=False)
    assert module.net == {"_target_": "torch.nn.Linear", "in_features": 3}


def test_mappings_have_attributes_unless_converted() -> None:
    """As a class expects that reads `cfg.hidden`, and as Hydra's `_convert_` says."""
    given = {"cfg": {"hidden": [1, 2], "deep": {"width": 3}}}
    options = made(**given).options
    assert isinstance(options["cfg"], DictConfig)
    assert isinstance(options["cfg"].hidden, ListConfig)
    assert options["cfg"].deep.width == 3
    for convert in ("all", "partial"):
        assert type(made(**given, _convert_=convert).options["cfg"]) is dict


@dataclass
class Sizes:
    hidden: int


def test_objects_made_within_are_passed_as_they_are() -> None:
    assert made(net=target("Sizes", hidden=4)).net == Sizes(4)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            target("Net", sample_shape=[3]),
            r"^model.num_outputs is missing: Net needs it; write model.num_ou",
        ),
        (
            target("Module", net=target("Net", _args_=[1, 2], dept=1)),
            r"^model.net.dept=1: Net takes no such argum",
        ),
        (
            target("Module", net={"_target_": f"{HERE}.Nte"}),
            r"^model.net._target_=tests.test_from_data.Nte: tests.te",
        ),
        (target("Module", net=None, width="wide"), r"^model.width=wide: Module takes a number; write model.width="),
    ],
)
def test_invalid_calls_are_refused_by_their_keys(call: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        create("model", call)
    assert "\n" not in str(refused.value)
