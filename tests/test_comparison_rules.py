"""The comparison rules know everything that a run leaves, and each change of it is found."""

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import lockstep
from lockstep.checkpoint.files import LAST
from lockstep.compare import compare
from lockstep.compare.comparison_rules import EXPECTED, UNKNOWN, rule_of
from lockstep.compare.recorded_run import flattened
from lockstep.compare.values import furthest
from lockstep.config_error import ConfigError

JOB = (
    *("strategy=ddp", "devices=2", "accelerator=cpu", "threads=1", "model.hidden=[4]", "logger=csv"),
    *("data.test_size=1755", "data.val_size=6", "batch_size=12", "max_epochs=2", "scheduler=onecycle"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One real run by both engines: 36 digits in 3 batches."""
    folder = tmp_path_factory.mktemp("run")
    lockstep.run(["engine=both", *JOB, f"hydra.run.dir={folder}"])
    return folder


def keys_of(folder: Path) -> Iterator[str]:
    """Yield every file, JSON key, field of a record's line and checkpoint key."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        yield f"{str(path.relative_to(folder)).removeprefix('checkpoints/')}:"
    yield from (f"config.yaml:{key}" for key, _ in flattened(yaml.safe_load((folder / "config.yaml").read_text())))
    yield from (f"metrics.json:{key}" for key in json.loads((folder / "metrics.json").read_text()))
    for line in map(json.loads, (folder / "record.jsonl").read_text().splitlines()):
        yield from (f"record.jsonl:{kind}.{key}" for kind, fields in line.items() for key in fields)
    checkpoint = torch.load(folder / "checkpoints" / LAST, weights_only=True)
    yield from (f"{LAST}:{key}" for key, _ in flattened(checkpoint))
    yield "confusion.csv:true 3, predicted 4"


@pytest.mark.parametrize("engine", ["lightning", "raw"])
def test_rules_know_all_that_a_run_leaves(engine: str, run: Path) -> None:
    unknown = {key for key in keys_of(run / engine) if rule_of(key).quantity == UNKNOWN}
    assert not unknown
    (run / engine / "notes.txt").write_text("mine")
    try:
        left_out = compare(run / "lightning", run / "raw").left_out
        assert left_out[UNKNOWN] == {"notes.txt:"}, "what it does not know it says"
    finally:
        (run / engine / "notes.txt").unlink()


def test_engines_leave_the_same(run: Path) -> None:
    comparison = compare(run / "lightning", run / "raw")
    assert comparison.verdict == "identical", comparison.text()
    assert {
        "fingerprints",
        "optimizer state",
        "schedule",
        "state of each rank",
        "digest",
    } <= comparison.quantities.keys()


def test_each_change_is_found(run: Path, tmp_path: Path) -> None:
    """One key of each file and rule is changed in a copy; what is not compared is listed."""
    keys = {(key.partition(":")[0], *rule_of(key)[:2]): key for key in reversed([*keys_of(run / "raw")])}
    checked = set()
    for (_, how, quantity), key in keys.items():
        copy = Path(shutil.copytree(run / "raw", tmp_path / "copy"))
        tamper(copy, key)
        try:
            comparison = compare(run / "raw", copy)
        except ConfigError:  # two validations of an epoch, say
            assert how != "not", key
        else:
            pattern = rule_of(key).pattern
            if how == "not":
                is_expected = comparison.within_tolerance or quantity == EXPECTED
                assert is_expected, f"{key}: {comparison.text()}"
                assert any(pattern in left for left in comparison.left_out.values()), key
            else:
                name = tensor_of(run / "raw") if pattern == "record.jsonl:tensor.*" else quantity
                assert comparison.quantities[name].first is not None, key
                assert not comparison.within_tolerance
                checked.add(name)
        shutil.rmtree(copy)
    quantities = "train,test,steps,digest,confusion matrix,optimizer state,schedule,position,weights saved,results"
    assert {*quantities.split(","), "metrics.json", "configuration"} <= checked


def test_damaged_checkpoint_is_named(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run / "raw", tmp_path / "copy"))
    (copy / "checkpoints" / LAST).write_bytes(b"half a file")
    comparison = compare(run / "raw", copy)
    assert comparison.quantities[LAST].first == f"last.ckpt: 'there' against 'damaged in {copy}'"


@pytest.mark.parametrize(
    ("a", "b", "furthest_apart"),
    [
        ([2**62 + 1, 3], [2**62, 3], (2**62 + 1, 2**62)),
        ([2**62 + 1, 3], [2**62, 4], (3, 4)),
        ([True, False], [True, True], (False, True)),
    ],
)
def test_integers_are_compared_exactly(a: list[int], b: list[int], furthest_apart: tuple[int, int]) -> None:
    assert furthest(torch.tensor(a), torch.tensor(b)) == furthest_apart
    assert furthest(torch.tensor(a), torch.tensor(a)) == (0, 0)


def tensor_of(folder: Path) -> str:
    lines = map(json.loads, (folder / "record.jsonl").read_text().splitlines())
    return str(next(line["tensor"]["name"] for line in lines if "tensor" in line))


def tamper(folder: Path, key: str) -> None:
    """Change the value of a key."""
    name, _, path = key.partition(":")
    file = folder / ("checkpoints" if name.endswith(".ckpt") else "") / name
    if not path:
        file.unlink()
    elif name.endswith(".ckpt"):
        checkpoint = torch.load(file, weights_only=True)
        change(checkpoint, path)
        torch.save(checkpoint, file)
    elif name == "config.yaml":
        config = yaml.safe_load(file.read_text())
        change(config, path)
        file.write_text(yaml.safe_dump(config))
    elif name == "metrics.json":
        metrics = json.loads(file.read_text())
        file.write_text(json.dumps({**metrics, path: changed(metrics[path])}))
    elif name == "record.jsonl":
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        kind, field = path.split(".", 1)
        fields = next(line[kind] for line in lines if kind in line)
        fields[field] = "ddp_spawn" if field == "strategy" else changed(fields[field])
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    else:
        rows = [*csv.reader(file.read_text().splitlines())]
        rows[4][5] = str(int(rows[4][5]) + 1)
        file.write_text("".join(f"{','.join(row)}\n" for row in rows))


def change(tree: Any, path: str) -> None:
    """Change the leaf at a dotted path, whose keys may themselves have dots; `model` is `model.name`."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in [*items]:
        if path == str(key):
            if isinstance(value, dict) and "name" in value:
                value["name"] = changed(value["name"])
            elif isinstance(tree, tuple):
                raise TypeError(path)
            else:
                tree[key] = changed(value)
            return
        if path.startswith(f"{key}.") and isinstance(value, dict | list | tuple):
            if isinstance(value, tuple):
                value = tree[key] = [*value]
            change(value, path.removeprefix(f"{key}."))
            return
    raise KeyError(path)


def changed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.ones_like(value) - value
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value[:-1], "changed"]
    return {"changed": 1} if isinstance(value, dict) else f"changed {value}"
