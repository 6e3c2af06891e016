"""Plans in checkpoints of the version that trained nets by a `task`: the LightningModule, and facts of the data."""

import json
from collections.abc import Mapping
from math import prod
from typing import Any

from lockstep.base.config_error import require
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.plan_json import CLASS, from_json
from lockstep.plan.schemas.target import KEY, PARTIAL
from lockstep.plan.targets.locate import locate, parameters_of

GONE = ("task", "optimizer", "scheduler", "dropout_rng", "max_time", "num_sanity_val_steps", "barebones")
PARTS = {  # classes by the names of options
    **{"linear": "Linear", "mlp": "MLP", "cnn": "CNN", "lenet": "LeNet", "split_cnn": "SplitCNN"},
    **{"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"},
    **{"autoencoding": "Autoencoder", "language_modelling": "LanguageModel"},
    **{"classification": "Classifier", "regression": "Regressor"},
    **{"digits": "Digits", "mnist": "MNIST", "points": "Points", "line": "Line", "cifar10": "CIFAR10"},
}
FACTS = {"shape": "sample_shape", "outputs": "num_outputs", "classes": "num_classes"}  # as they were called, and are


def plan_of(text: str) -> Plan:
    """Return the plan of a checkpoint; of an earlier one without data, loggers, callbacks and schedule."""
    values: dict[str, Any] = json.loads(text)
    if "task" in values:
        facts, engine = _facts(values["data"]), {"fast_loop": True} if values["engine"]["name"] == "lightning" else {}
        data = {CLASS: "lockstep.plan.schemas.target:Data", "name": values["data"]["name"], "key": "data", "call": {}}
        model = {CLASS: "lockstep.plan.schemas.target:Module", "name": values["model"]["name"], "key": "model"}
        values |= {"data": data | facts, "model": model | _module(values, facts), "engine": values["engine"] | engine}
        values |= {"logger": [], "callbacks": [], "resume": False, "compile": False}
        values["trainer"] = {name: value for name, value in values["trainer"].items() if name not in GONE}
        text = json.dumps({name: value for name, value in values.items() if name not in GONE})
    plan: Plan = from_json(text)
    return plan


def _facts(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was known of the samples; of built-in data sets their classes know it."""
    facts = {new: old.get(name) or None for name, new in FACTS.items()} | {"class_names": old.get("class_names", ())}
    if KEY not in old and old["name"] in PARTS:
        known = vars(locate("data", f"lockstep.datamodules.{PARTS[old['name']]}"))
        facts |= {name: known[name] for name in facts if known.get(name)}
    return facts | ({"sample_shape": [old["features"]]} if "features" in old else {})


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
