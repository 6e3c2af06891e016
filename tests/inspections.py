"""Cache what the inspection of user code returns: the plans of a test use the same code in several worlds."""

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lockstep.command.build import plan_from
from lockstep.command.compose import compose_job
from lockstep.launch import child
from lockstep.plan.plan import Plan

CHANGING = ("PYTEST_CURRENT_TEST",)
"""Variables of the environment that user code does not read."""
ASK = child.in_child
KNOWN: dict[bytes, bytes] = {}


def asked_here(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in this process, once for the same arguments: for Lockstep's modules and data."""
    from lockstep.base.random_state import preserve_generators

    key = pickle.dumps((function, arguments))
    if key not in KNOWN:
        with preserve_generators():
            KNOWN[key] = pickle.dumps(function(*arguments))
    return pickle.loads(KNOWN[key])


def asked_once(folder: Path) -> Callable[..., Any]:
    """Return an `in_child` that makes the same call once while no file in this folder changes."""

    def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
        files = sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*.py"))
        environment = {name: value for name, value in os.environ.items() if name not in CHANGING}
        key = pickle.dumps((function, arguments, sys.path, environment, files))
        if key not in KNOWN:
            KNOWN[key] = pickle.dumps(ASK(function, *arguments))
        return pickle.loads(KNOWN[key])

    return in_child


def plan_here(overrides: Sequence[str], folder: Path) -> Plan:
    """Return the plan of overrides, inspected in this process: for Lockstep's modules and data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockstep.launch.child.in_child", asked_here)
        return plan_from(compose_job([*overrides])[0], folder)
