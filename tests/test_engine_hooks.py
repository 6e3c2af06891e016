"""The methods that follow a hook of a module: after its own code, in their order, with its arguments."""

from typing import Any

import lightning.pytorch as pl

from lockstep.engine.hooks import call_after


class Logging(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> int:  # type: ignore[override]
        self.calls.append("module")
        return -1


def test_methods_follow_a_hook_in_their_order_and_with_its_arguments() -> None:
    module = Logging()
    call_after(
        module,
        "on_train_batch_end",
        (lambda *given: module.calls.append(given), lambda *_: module.calls.append("last")),
    )
    assert module.on_train_batch_end(1, 2, 3) == -1
    assert module.calls == ["module", (1, 2, 3), "last"]
