"""Plans in checkpoints of the version that trained plain nets by a `task`, as plans of the LightningModules of today."""

import json
from collections.abc import Mapping
from math import prod
from typing import Any

from lockstep.plan import Plan
from lockstep.schemas.plan_json import CLASS, from_json
from lockstep.schemas.target import KEY, PARTIAL
from lockstep.targets.locate import locate, parameters_of

GONE = ("task", "optimizer", "scheduler", "dropout_rng")
NETS = {"linear": "Linear", "mlp": "MLP", "cnn": "CNN", "lenet": "LeNet", "split_cnn": "SplitCNN"}
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
MODELS = {"autoencoding": "Autoencoder", "language_modelling": "LanguageModel", "classification": "Classifier"}
DATA = {
    **{"digits": "Digits", "mnist": "MNIST", "points": "Points", "line": "Line", "cifar10": "CIFAR10"},
    **{"random_regression": "RandomRegression", "image_folder": "ImageFolder", "npz": "NPZ", "text": "Text"},
}
FACTS = {"shape": "sample_shape", "outputs": "num_outputs", "classes": "num_classes", "class_names": "class_names"}
"""Facts about data, as they were called and as they are."""


def plan_of(text: str) -> Plan:
    """Return the plan of a checkpoint; an earlier one has neither loggers and callbacks nor a schedule any more."""
    values: dict[str, Any] = json.loads(text)
    if "task" in values:
        call, facts = _data(values["data"])
        model = {CLASS: "lockstep.schemas.model:Module", **_module(values, facts), "key": "model"}
        data = {
            CLASS: "lockstep.schemas.data:Data",
            "name": values["data"]["name"],
            "key": "data",
            "call": call,
            **facts,
        }
        engine = values["engine"] | ({"fast_loop": True} if values["engine"]["name"] == "lightning" else {})
        values |= {"model": model, "data": data, "engine": engine, "resume": False, "compile": False}
        values |= {"logger": [], "callbacks": []}
        text = json.dumps({name: value for name, value in values.items() if name not in GONE})
    plan: Plan = from_json(text)
    return plan


def _data(old: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the call of a LightningDataModule, and what was known of its samples."""
    kind, path, arguments = str(old[CLASS]).rpartition(":")[2], str(old.get(KEY, "")), {**old.get("arguments", {})}
    facts = {new: old[name] or None for name, new in FACTS.items() if name in old} | {
        "class_names": old.get("class_names", ())
    }
    if kind in ("ModelLoaders", "UserLoaders"):
        return ({KEY: path, **arguments} if path else {}), facts
    sizes = {**old.get("split", {}), **{name: arguments[name] for name in ("val", "test") if name in arguments}}
    named = {f"{name}_size": size for name, size in sizes.items()}
    if "key" in old and not path.startswith("lockstep.data."):
        dataset = {KEY: path, **arguments} if path != "builtins.dict" else arguments
        rest = {name: old[name] for name in ("loader", "num_classes", "input_key", "target_key")}
        return {KEY: "lockstep.datamodules.Datasets", "dataset": dataset, **named, **rest}, facts
    target = f"lockstep.datamodules.{DATA[path.rpartition('.')[2] or str(old['name'])]}"
    cls = locate("data", target)
    options = {**old, **arguments, **named}
    if "key" not in old:  # its class knew them
        shape = {"sample_shape": [old["features"]], "num_outputs": old["outputs"]} if "features" in old else {}
        facts = {name: getattr(cls, name, None) or facts.get(name) for name in FACTS.values()} | shape
    return {KEY: target, **{name: options[name] for name in parameters_of(cls) if name in options}}, facts


def _module(values: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a LightningModule as it is; or one that trains the net by the task."""
    old, task, optimizer = values["model"], values["task"]["name"], values["optimizer"]
    path, arguments, shape = str(old.get(KEY, "")), old.get("arguments", {}), facts.get("sample_shape") or ()
    if str(old[CLASS]).endswith(":UserLightningModule"):
        return {"name": old["name"], "call": {KEY: path, **arguments}, "manual": old["manual"]}
    classes, outputs = facts.get("num_classes"), facts.get("num_outputs")
    outputs = prod(shape) if task == "autoencoding" else outputs
    known = {"sample_shape": shape, "num_outputs": outputs, "shape": shape, "outputs": outputs}
    target = path or f"lockstep.nets.{NETS[old['name']]}"
    options = known | {**old, **arguments}
    parameters = parameters_of(locate(f"model.net.{KEY}", target))
    net = {KEY: target, **arguments, **{name: options[name] for name in parameters if name in options}}
    rate = {name: optimizer[name] for name in ("lr", "weight_decay", "momentum") if name in optimizer}
    step = {
        KEY: optimizer.get(KEY) or f"torch.optim.{OPTIMIZERS[optimizer['name']]}",
        **optimizer.get("arguments", rate),
    }
    name = MODELS.get("classification" if task == "auto" and classes else task, "Regressor")
    model = {"num_classes": classes} if name == "Classifier" else {}
    ignored = {"ignore_index": values["task"]["ignore_index"]} if values["task"].get("ignore_index") is not None else {}
    call = {KEY: f"lockstep.models.{name}", "net": net, "optimizer": {**step, PARTIAL: True}, **model, **ignored}
    return {"name": old["name"], "call": call, "has_net": True}
