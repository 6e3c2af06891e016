"""Loading what torch.save has written, of torch's, numpy's and Python's types, without running anybody's code."""

import datetime
import io
import warnings
from pathlib import Path, PosixPath
from typing import IO, Any

import numpy as np
import torch
from omegaconf import OmegaConf

TYPES = (
    *(frozenset, datetime.date, datetime.datetime, datetime.timedelta, PosixPath),
    *(np.ndarray, np.dtype, np.zeros(0).__reduce__()[0], np.float64(0).__reduce__()[0]),
    *(getattr(np.dtypes, name) for name in np.dtypes.__all__ if name != "ObjectDType"),
)


def load(file: Path | IO[bytes], mmap: bool = False) -> Any:
    """Return what a file holds, on the CPU; a damaged file may raise anything."""
    with torch.serialization.safe_globals([*TYPES]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Validating sparse tensor invariants")  # of a sparse buffer
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mmap)


def plain(value: Any) -> Any:
    """Return a state with the lists and mappings of a configuration, as targets get them, replaced by Python's."""
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True)
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def is_loadable(value: object) -> bool:
    """Whether `load` can read what torch.save writes of a value."""
    packed = io.BytesIO()
    try:
        torch.save(value, packed)
        load(io.BytesIO(packed.getvalue()))
    except Exception:
        return False
    return True
