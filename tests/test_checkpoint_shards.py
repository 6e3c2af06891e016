"""checkpoint.sharded=true: what ranks have written apart is restored bit for bit in any strategy, also after a kill."""

import io
import pickle
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW

import lockstep
from lockstep.base.config_error import ConfigError
from lockstep.base.structures import tensors_in
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.checkpoint.content import SECTION
from lockstep.runs.checkpoint.files import DamagedCheckpoint, read_checkpoint
from lockstep.runs.checkpoint.saving import save
from lockstep.runs.checkpoint.shards import SHARDS, with_tensors, write_shards
from lockstep.strategies.parallel import tensor_layout
from lockstep.strategies.parallel.divided_optimizer import DividedOptimizer
from tests.conftest import IN_PROCESS
from tests.inspections import plan_here
from tests.rank_helpers import ALONE, run_named
from tests.test_strategies_tensor_parallel import COMMON, JOBS, run_one

pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]


class Small(nn.Module):
    """A layer in channels_last, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last), nn.BatchNorm2d(3)

    def step(self) -> AdamW:
        optimizer = AdamW(self.parameters(), amsgrad=True)
        self.norm(self.conv(torch.rand(4, 2, 5, 5))).square().sum().backward()
        optimizer.step()
        return optimizer


def content_of(module: Small, optimizer: AdamW) -> dict[str, Any]:
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    states = {"state_dict": module.state_dict(), "optimizer_states": [optimizer.state_dict()]}
    return {**states, "global_step": 3, SECTION: {"ranks": [{}]}, SHARDS: {"gradients": {"0": gradients}}}


def saved_in(folder: Path) -> dict[str, Any]:
    """Save a new module to last.ckpt in parts; return the checkpoint as it should be read."""
    module = Small()
    content = content_of(module, module.step())
    save(write_shards(content, folder, module), folder / "last.ckpt")
    gradients = content.pop(SHARDS)["gradients"]["0"]
    return {**content, SECTION: {"ranks": [{"gradients": gradients}]}}


def same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, check_stride=True)


def parts_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{SHARDS}-*/*.distcp"))


def test_one_process_reads_what_it_has_written(tmp_path: Path) -> None:
    """With the strides. A control: two parts that are exchanged are noticed."""
    expected = saved_in(tmp_path)
    same(read_checkpoint(tmp_path / "last.ckpt"), expected)
    on_disk = torch.load(tmp_path / "last.ckpt", weights_only=True)
    parts = on_disk[SHARDS]["parts"]
    first, second = (f"optimizer_states/0/state/0/{name}" for name in ("exp_avg", "exp_avg_sq"))
    parts[first], parts[second] = parts[second], parts[first]
    with pytest.raises(AssertionError, match="not equal"):
        same(with_tensors(on_disk, tmp_path), expected)


def test_a_checkpoint_counts_once_its_file_is_renamed(tmp_path: Path) -> None:
    """Parts without a file are no checkpoint, and the next save removes them; those that a file names stay."""
    first = saved_in(tmp_path)
    module = Small()
    write_shards(content_of(module, module.step()), tmp_path, module)
    assert len(parts_in(tmp_path)) == 2
    same(read_checkpoint(tmp_path / "last.ckpt"), first)
    second = saved_in(tmp_path)
    assert len(parts_in(tmp_path)) == 2
    same(read_checkpoint(tmp_path / "previous.ckpt"), first)
    same(read_checkpoint(tmp_path / "last.ckpt"), second)
    saved_in(tmp_path)
    same(read_checkpoint(tmp_path / "previous.ckpt"), second)


@pytest.mark.parametrize("mmap", [True, False])
def test_damage_is_detected(mmap: bool, tmp_path: Path) -> None:
    saved_in(tmp_path)
    path, [part] = tmp_path / "last.ckpt", parts_in(tmp_path)
    content, on_disk = part.read_bytes(), torch.load(path, weights_only=True)
    weight = with_tensors(on_disk, tmp_path)["state_dict"]["conv.weight"]
    at = content.index(weight.permute(0, 2, 3, 1).numpy().tobytes())
    for wrong in (content[: at + 2] + bytes([content[at + 2] ^ 1]) + content[at + 3 :], content[:at], b""):
        part.write_bytes(wrong)
        with pytest.raises(DamagedCheckpoint, match=r"^it is no complete checkpoint of this project \(BadZipFile\)$"):
            read_checkpoint(path, mmap)
    part.unlink()
    with pytest.raises(DamagedCheckpoint, match=f"^{re.escape(str(part))}: No such file or directory$"):
        read_checkpoint(path, mmap)
    part.write_bytes(content)
    del on_disk[SHARDS]["parts"]["state_dict/norm.bias"]
    with pytest.raises(ValueError, match="parts of tensors are missing"):
        with_tensors(on_disk, tmp_path)


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_no_pickle_of_a_folder_is_executed(tmp_path: Path) -> None:
    """Neither torch's metadata, which are not read, nor a part; a control: unpickling does execute them."""
    expected = saved_in(tmp_path)
    hostile, [part] = Hostile(tmp_path / "executed"), parts_in(tmp_path)
    part.with_name(".metadata").write_bytes(pickle.dumps(hostile))
    same(read_checkpoint(tmp_path / "last.ckpt"), expected)
    on_disk = torch.load(tmp_path / "last.ckpt", weights_only=True)
    with part.open("ab") as file:
        at = file.tell()
        torch.save(hostile, file)
        on_disk[SHARDS]["parts"]["state_dict/norm.bias"] = [((0,), part.name, at, file.tell() - at)]
    torch.save(on_disk, tmp_path / "last.ckpt")
    with pytest.raises(DamagedCheckpoint, match="UnpicklingError"):
        read_checkpoint(tmp_path / "last.ckpt")
    assert not hostile.path.exists()
    pickle.loads(part.with_name(".metadata").read_bytes())
    assert hostile.path.exists()


def test_raw_refuses_it(tmp_path: Path) -> None:
    sentence = "checkpoint.sharded=true: engine=raw only repeats a training, from its first weights to its last; write"
    with pytest.raises(ConfigError, match=f"^{sentence} checkpoint.sharded=false, or engine=lightning"):
        plan_here(["engine=raw", "checkpoint.sharded=true", "accelerator=cpu"], tmp_path)


LAYOUTS: dict[str, Sequence[str]] = {
    "single": ("devices=1",),
    "virtual": ("devices=2",),
    "ddp": ("devices=2",),
    "zero1": ("devices=2",),
    "pipeline": ("devices=2",),
    "tensor_parallel": ("devices=2",),
    "fsdp": ("devices=2",),
    "mesh": ("devices=4", "strategy.shard=2", "strategy.tensor=2"),
}
CROSSINGS = (
    *(("transformer", "fsdp", "single"), ("transformer", "single", "tensor_parallel")),
    *(("mlp", "tensor_parallel", "pipeline"), ("transformer", "pipeline", "zero1")),
    *(("mlp", "zero1", "mesh"), ("mlp", "mesh", "fsdp"), ("mlp", "ddp", "virtual")),
)
"""A job, the layout that saves it, the one that goes on: those that divide weights save one net, restore the other."""
SAVE = Trainer.save_checkpoint
HOW = {"whole": "checkpoint.sharded=false", "sharded": "checkpoint.sharded=true"}
DIVIDING = ("zero1", "pipeline", "fsdp")


def start(folder: Path, runs: dict[str, tuple[str, str, str]]) -> None:
    """Run jobs by strategies, each with another word, in the folder of its name; one start for each world."""
    plans: dict[int, dict[str, Plan]] = {}
    for name, (job, strategy, word) in runs.items():
        (folder / name).mkdir()
        words = [*JOBS[job], *COMMON, f"strategy={strategy}", *LAYOUTS[strategy], word]
        plan = plan_here(words, folder / name)
        plans.setdefault(plan.world_size, {})[name] = plan
    for named in plans.values():
        run_named(named, folder, run_watched)


def run_watched(name: str, plan: Plan, context: RankContext) -> None:
    """On a rank: run a plan; what is called watched may gather nothing when it saves, which whole files do."""
    is_watched = name.startswith("watched")
    gathers = pytest.raises(AssertionError, match="gathered") if name.startswith("watched whole") else nullcontext()
    with patch.object(Trainer, "save_checkpoint", save_apart) if is_watched else nullcontext(), gathers:
        run_one(name.removeprefix("watched whole ").removeprefix("watched sharded "), plan, context)


def save_apart(trainer: Any, path: Any, *arguments: Any) -> None:
    """Save a checkpoint, or raise where a whole tensor, or the state of all ranks, is gathered."""

    def gather(*_: Any) -> None:
        raise AssertionError("gathered")

    with ExitStack() as stack:
        gathering = ((DTensor, "full_tensor"), (tensor_layout, "_of_owner"), (DividedOptimizer, "_of_this_rank"))
        for owner, name in gathering:
            stack.enter_context(patch.object(owner, name, gather))
        SAVE(trainer, path, *arguments)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    jobs = [(job, strategy, how) for job, strategy, _ in CROSSINGS for how in HOW]
    start(folder, {f"stopped {job} {strategy} {how}": (job, strategy, HOW[how]) for job, strategy, how in jobs})
    again = {
        f"saved again {job} {first} {how} {other}": (
            *(job, other),
            f"ckpt_path='{folder}/stopped {job} {first} {how}/checkpoints/last.ckpt'",
        )
        for job, first, other in CROSSINGS
        for how in HOW
    }
    start(folder, again)
    return folder


def states(path: Path) -> dict[str, Any]:
    """Return the weights, the optimizer states and the gradients of each rank in a checkpoint."""
    checkpoint = read_checkpoint(path)
    gradients = [rank["gradients"] for rank in checkpoint[SECTION]["ranks"]]
    assert any(gradients), "it is stopped within a step"
    return {"gradients": gradients} | {key: checkpoint[key] for key in ("state_dict", "optimizer_states")}


@pytest.mark.slow
@pytest.mark.parametrize(("job", "first", "other"), CROSSINGS)
def test_any_layout_goes_on_with_the_bits_of_another(job: str, first: str, other: str, runs: Path) -> None:
    """As with one whole file, which knows nothing of parts: what is read, what is restored, and the end.

    The control: after one more step they differ.
    """
    whole, sharded = (runs / f"stopped {job} {first} {how}" / "checkpoints" / "last.ckpt" for how in HOW)
    assert SHARDS in torch.load(sharded, weights_only=True, mmap=True)
    same(states(sharded), states(whole))
    same(lockstep.load(sharded.parents[1]).state_dict(), lockstep.load(whole.parents[1]).state_dict())
    again = [runs / f"saved again {job} {first} {how} {other}" / "checkpoints" for how in HOW]
    restored, expected = (states(folder / "again.ckpt") for folder in again)
    same(restored, expected)
    torch.testing.assert_close(restored["state_dict"], states(sharded)["state_dict"], rtol=0, atol=0)
    ends = [read_checkpoint(folder / "last.ckpt") for folder in again]
    for key in ("state_dict", "optimizer_states"):
        same(ends[1][key], ends[0][key])
        with pytest.raises(AssertionError):
            same(ends[0][key], restored[key])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", DIVIDING)
def test_each_rank_writes_its_part_and_none_gathers_the_others(strategy: str, tmp_path: Path) -> None:
    """All is written once; of an equal division each rank has its share. The control: whole files do gather."""
    kinds = {"stopped whole": "whole", "watched sharded stopped": "sharded", "watched whole stopped": "whole"}
    start(tmp_path, {name: ("mlp", strategy, HOW[how]) for name, how in kinds.items()})
    folder = tmp_path / "watched sharded stopped" / "checkpoints"
    sizes: Counter[str] = Counter()
    on_disk = torch.load(folder / "last.ckpt", weights_only=True)
    for _, name, start_at, length in (part for parts in on_disk[SHARDS]["parts"].values() for part in parts):
        content = (folder / on_disk[SHARDS]["folder"] / name).read_bytes()[start_at : start_at + length]
        sizes[name] += torch.load(io.BytesIO(content), weights_only=True).numel()
    expected = states(tmp_path / "stopped whole" / "checkpoints" / "last.ckpt")
    same(states(folder / "last.ckpt"), expected)
    if strategy != "zero1":  # there each rank has gradients of all parameters
        expected["gradients"] = expected["gradients"][:1]
    assert sizes.total() == sum(tensor.numel() for tensor in tensors_in(expected))
    assert len(sizes) == 2
    if strategy == "fsdp":  # by the others the largest layer is one rank's
        assert max(sizes.values()) < 1.1 / 2 * sizes.total()


@pytest.mark.slow
def test_weights_that_the_end_of_fit_leaves(tmp_path: Path) -> None:
    """They are saved as one whole file, beside those to go on training with."""
    for how, word in HOW.items():
        (tmp_path / how).mkdir()
        words = [*JOBS["mlp"], *COMMON, "devices=1", "callbacks=swa", "max_epochs=3", word]
        run_one(how, plan_here(words, tmp_path / how), ALONE)
    ends = [read_checkpoint(tmp_path / how / "checkpoints" / "last.ckpt") for how in HOW]
    for whole, sharded in zip(*([end["state_dict"], end[SECTION]["state_dict"]] for end in ends), strict=True):
        torch.testing.assert_close(sharded, whole, rtol=0, atol=0)
    same(ends[1]["optimizer_states"], ends[0]["optimizer_states"])
