"""A module, its data and a callback that note each of their hooks as it is called."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel

CALLS: list[str] = []
OTHERWISE = ("on_save_checkpoint", "on_load_checkpoint", "on_before_batch_transfer", "on_after_batch_transfer")
"""Hooks of checkpoints, which an ordinary Trainer saves at other times, and of transfers."""


def noting(name: str, base: Any) -> Any:
    """Return a class derived from `base`, whose hooks are appended to CALLS."""

    def noted(hook: str) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            CALLS.append(f"{name}.{hook}")
            return getattr(super(kind, self), hook)(*arguments, **options)

        return call

    hooks = [hook for hook in dir(base) if hook.startswith("on_") or hook in ("setup", "teardown")]
    kind = type(name, (base,), {hook: noted(hook) for hook in hooks if hook not in OTHERWISE})
    return kind


class Failing(Callback):
    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def on_train_batch_end(self, *_: Any) -> None:
        if self.fails:
            raise ArithmeticError


Module, Data, Hooks = noting("Module", BoringModel), noting("Data", BoringDataModule), noting("Hooks", Failing)
