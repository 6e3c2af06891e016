"""Plans in checkpoints of the version that trained plain nets by a `task`, as plans of LightningModules."""

import json
from collections.abc import Mapping
from math import prod
from typing import Any

from lockstep.base.config_error import require
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.plan_json import CLASS, from_json
from lockstep.plan.schemas.target import KEY, PARTIAL
from lockstep.plan.targets.locate import locate, parameters_of

GONE = ("task", "optimizer", "scheduler", "dropout_rng")
PARTS = {  # classes of nets, optimizers, modules and data modules, by the names of options
    **{"linear": "Linear", "mlp": "MLP", "cnn": "CNN", "lenet": "LeNet", "split_cnn": "SplitCNN"},
    **{"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"},
    **{"autoencoding": "Autoencoder", "language_modelling": "LanguageModel"},
    **{"classification": "Classifier", "regression": "Regressor"},
    **{"digits": "Digits", "mnist": "MNIST", "points": "Points", "line": "Line", "cifar10": "CIFAR10"},
    **{"random_regression": "RandomRegression", "image_folder": "ImageFolder", "npz": "NPZ", "text": "Text"},
}
FACTS = {"shape": "sample_shape", "outputs": "num_outputs", "classes": "num_classes"}  # as they were called, and are


def plan_of(text: str) -> Plan:
    """Return the plan of a checkpoint; an earlier one has neither loggers and callbacks nor a schedule any more."""
    values: dict[str, Any] = json.loads(text)
    if "task" in values:
        call, facts = _data(values["data"])
        data = {CLASS: "lockstep.plan.schemas.target:Data", "name": values["data"]["name"], "key": "data", "call": call}
        model = {CLASS: "lockstep.plan.schemas.target:Module", "name": values["model"]["name"], "key": "model"}
        engine = values["engine"] | ({"fast_loop": True} if values["engine"]["name"] == "lightning" else {})
        values |= {"data": data | facts, "model": model | _module(values, facts), "engine": engine}
        values |= {"logger": [], "callbacks": [], "resume": False, "compile": False}
        text = json.dumps({name: value for name, value in values.items() if name not in GONE})
    plan: Plan = from_json(text)
    return plan


def _data(old: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the call of a LightningDataModule, and what was known of its samples."""
    path, arguments = str(old.get(KEY, "")), {**old.get("arguments", {})}
    facts = {new: old.get(name) or None for name, new in FACTS.items()} | {"class_names": old.get("class_names", ())}
    if str(old[CLASS]).endswith("Loaders"):
        return ({KEY: path, **arguments} if path else {}), facts
    sizes = {**old.get("split", {}), **{name: arguments[name] for name in ("val", "test") if name in arguments}}
    named = {f"{name}_size": size for name, size in sizes.items()}
    if path and not path.startswith("lockstep.data."):
        dataset = {KEY: path, **arguments} if path != "builtins.dict" else arguments
        rest = {name: old[name] for name in ("loader", "num_classes", "input_key", "target_key")}
        return {KEY: "lockstep.datamodules.Datasets", "dataset": dataset, **named, **rest}, facts
    target = f"lockstep.datamodules.{PARTS[path.rpartition('.')[2] or str(old['name'])]}"
    cls, options = locate("data", target), {**old, **arguments, **named}
    if not path:  # its class knew them
        facts = {name: getattr(cls, name, None) or fact for name, fact in facts.items()}
        facts |= {"sample_shape": [old["features"]]} if "features" in old else {}
    return {KEY: target, **{name: options[name] for name in parameters_of(cls) if name in options}}, facts


def _module(values: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a LightningModule as it was; or one that trains the net by the task."""
    old, task, optimizer = values["model"], values["task"], values["optimizer"]
    path, arguments, shape = str(old.get(KEY, "")), old.get("arguments", {}), facts["sample_shape"] or ()
    if str(old[CLASS]).endswith(":UserLightningModule"):
        return {"call": {KEY: path, **arguments}, "manual": old["manual"]}
    name, classes = task["name"], facts["num_classes"]
    name = name if name != "auto" else "classification" if classes else "regression"
    require(name in PARTS, "task", name, "an earlier version took losses of your own", "one in a LightningModule")
    outputs = prod(shape) if name == "autoencoding" else facts["num_outputs"]
    known = {"sample_shape": shape, "num_outputs": outputs, "shape": shape, "outputs": outputs}
    target, options = path or f"lockstep.nets.{PARTS[old['name']]}", known | ({} if path else old) | arguments
    parameters = parameters_of(locate(f"model.net.{KEY}", target))
    net = {KEY: target, **arguments, **{name: options[name] for name in parameters if name in options}}
    rates = {name: optimizer[name] for name in ("lr", "weight_decay", "momentum") if name in optimizer}
    step = {KEY: optimizer.get(KEY) or f"torch.optim.{PARTS[optimizer['name']]}", **optimizer.get("arguments", rates)}
    counts = {"num_classes": classes} if name == "classification" else {}
    counts |= {"ignore_index": task["ignore_index"]} if task.get("ignore_index") is not None else {}
    model = {KEY: f"lockstep.models.{PARTS[name]}", "net": net, "optimizer": {**step, PARTIAL: True}, **counts}
    return {"call": model, "has_net": True}
