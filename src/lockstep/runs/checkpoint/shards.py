"""Sharded checkpoints: each rank writes the tensors and the shards that it stores, by torch.distributed.checkpoint.

The checkpoint file keeps their shapes, as tensors on the meta device, and under SHARDS the `folder` beside it and where
in its files the `parts` of each tensor are. So a new checkpoint counts once its file has replaced the old one. torch's
`.metadata` in the folder is for other tools: it is a pickle, which can run any code, and is never read here.
"""

import io
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.base.files import disk_error, sync_folder
from lockstep.base.messages import all_gather_json, gather_values
from lockstep.base.safe_loading import load
from lockstep.runs.checkpoint.content import SECTION
from lockstep.strategies.parallel.tensor_layout import is_sharded

SHARDS = "shards"
"""The key in a checkpoint: `gradients` of an unfinished optimizer step, by "all" or a share of a batch; where tensors
are. Names of folders begin with it."""
DIVIDED = ("state_dict", "optimizer_states", SHARDS)


def write_shards(checkpoint: Mapping[str, Any], parent: Path, module: nn.Module) -> dict[str, Any]:
    """Write the tensors of all ranks to a new folder, and return the checkpoint without them; all ranks must call it.

    Tensors that are the same on several ranks are written by one of them; the buffers are rank 0's.
    """
    rank = dist.get_rank() if dist.is_initialized() else 0
    parameters = {f"state_dict/{name}" for name, _ in module.named_parameters(remove_duplicate=False)}
    tensors: dict[str, Tensor] = {}

    def take(key: str, tensor: Tensor) -> Tensor:
        if tensor.layout != torch.strided:
            return tensor
        is_buffer = key.startswith("state_dict/") and key not in parameters and not is_sharded(tensor)
        if not tensor.is_meta and (rank == 0 or not is_buffer):
            tensors[key] = tensor
        return torch.empty_like(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"))

    rest = _map_named(take, {key: checkpoint[key] for key in DIVIDED if key in checkpoint})
    folder = parent / all_gather_json(f"{SHARDS}-{uuid4().hex[:8]}")[0]
    parts = _save(tensors, folder)
    states = [state.get("state", {}) for state in rest.get("optimizer_states", ())]
    ranks = gather_values([*states, rest[SHARDS]["gradients"]])
    for n, state in enumerate((*states, rest[SHARDS]["gradients"])):  # some ranks have no state of some parameters
        for key, entry in ((key, entry) for each in ranks for key, entry in each[n].items()):
            state[key] = {**entry, **state.get(key, {})} if isinstance(entry, dict) else entry
    if rank == 0:
        for path in (folder, parent):
            sync_folder(path)
    return {**checkpoint, **rest, SHARDS: {**rest[SHARDS], "folder": folder.name, "parts": parts}}


def _save(tensors: Mapping[str, Tensor], folder: Path) -> dict[str, list[tuple[Sequence[int], str, int, int]]]:
    """Write tensors; on rank 0 return by key the offsets of each part in the tensor, its file, and its place there."""
    from torch.distributed.checkpoint.api import CheckpointException  # slow to import
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    parts: dict[str, list[tuple[Sequence[int], str, int, int]]] = {}

    class Writer(FileSystemWriter):
        """A writer that notes where each part is: the metadata that `save` returns lacks it in torch 2.11."""

        def finish(self, metadata: Any, results: Any) -> None:
            super().finish(metadata, results)
            for written in (each for rank in results for each in rank):
                at, place = written.index, written.storage_data
                parts.setdefault(at.fqn, []).append((tuple(at.offset), place.relative_path, place.offset, place.length))

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # a single process may save, too
            save({**tensors}, storage_writer=Writer(folder), no_dist=not dist.is_initialized())
    except CheckpointException as failed:
        shutil.rmtree(folder, ignore_errors=True)
        error = next(error for error, _ in failed.failures.values())
        raise disk_error(error, folder) from None
    return parts


def with_tensors(checkpoint: Mapping[str, Any], parent: Path, keys: Sequence[str] = DIVIDED) -> dict[str, Any]:
    """Return a checkpoint with its tensors, or those below some of its keys; a damaged part may raise anything."""
    tensors: dict[str, Tensor] = {}

    def create(key: str, tensor: Tensor) -> Tensor:
        if tensor.is_meta:
            tensor = tensors[key] = torch.empty_like(tensor, device="cpu")
        return tensor

    filled = _map_named(create, {key: checkpoint[key] for key in keys if key in checkpoint})
    missing = {key: tensor.numel() for key, tensor in tensors.items()}
    for key, offsets, content in checked_parts(checkpoint, parent, tensors.keys()):
        part, target = load(content), tensors[key]
        for dim, offset in enumerate(offsets):
            target = target.narrow(dim, offset, part.shape[dim])
        target.copy_(part)
        missing[key] -= part.numel()
    if any(missing.values()):
        raise ValueError("parts of tensors are missing")
    gradients = filled.pop(SHARDS, {}).get("gradients", {})
    for n, state in enumerate(checkpoint.get(SECTION, {}).get("ranks", ())):
        state["gradients"] = gradients.get("all", gradients.get(str(n), {}))
    return {key: value for key, value in {**checkpoint, **filled}.items() if key != SHARDS}


def checked_parts(
    checkpoint: Mapping[str, Any], parent: Path, keys: Any = None
) -> Iterator[tuple[str, Sequence[int], io.BytesIO]]:
    """Yield the key, the offsets and the file of each part, after checking its checksums."""
    shards = checkpoint[SHARDS]
    for key, parts in shards["parts"].items():
        for offsets, name, start, length in parts if keys is None or key in keys else ():
            with (parent / shards["folder"] / name).open("rb") as file:
                file.seek(start)
                content = io.BytesIO(file.read(length))
            with zipfile.ZipFile(content) as archive:
                if archive.testzip() is not None:
                    raise zipfile.BadZipFile(name)
            content.seek(0)
            yield key, offsets, content


def remove_unused(parent: Path) -> None:
    """Remove the folders that no checkpoint names; none if one cannot be read."""
    if not (folders := [*parent.glob(f"{SHARDS}-*")]):
        return
    with suppress(Exception):
        used = {load(path, mmap=True).get(SHARDS, {}).get("folder") for path in parent.glob("*.ckpt")}
        for folder in folders:
            if folder.name not in used:
                shutil.rmtree(folder, ignore_errors=True)


def _map_named(function: Callable[[str, Tensor], Tensor], value: Any, key: str = "") -> Any:
    """Return a structure with each tensor replaced by the function of its key, `state_dict/net.weight`, and itself."""
    if isinstance(value, Tensor):
        return function(key, value)
    if isinstance(value, Mapping):
        return {name: _map_named(function, item, f"{key}/{name}".lstrip("/")) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_map_named(function, item, f"{key}/{n}") for n, item in enumerate(value))
    return value
