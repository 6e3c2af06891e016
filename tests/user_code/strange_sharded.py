"""LightningModules that use weights outside of `net` and of any forward, for shards of all of them."""

from typing import Any

import torch
from strange_weights import Teacher  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional as F


class Pupil(Teacher):  # type: ignore[misc]
    """Changes weights in hooks alone."""

    def follow(self) -> None:
        """Its step leaves them."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().follow()


class Experts(Pupil):
    """Each sample has its expert, so ranks use others in a step; nobody takes the last one, and all decay."""

    def __init__(self) -> None:
        super().__init__()
        self.experts: Any = nn.ModuleList(nn.Linear(4, 1) for _ in range(4))
        self.scales = nn.ParameterList(torch.ones(()) for _ in range(4))
        for weight in self.experts.parameters():
            weight.is_expert = True  # type: ignore[attr-defined]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        chosen = (x[:, 0] > -0.6).long() + (x[:, 0] > 0.5)
        parts = [
            expert.weight[0] * x[chosen == n] * scale
            for n, (expert, scale) in enumerate(zip(self.experts, self.scales, strict=True))
            if bool((chosen == n).any())
        ]
        targets = [y[chosen == n] for n in range(4)]
        predicted: Tensor = torch.cat(parts).sum(1, keepdim=True)
        return F.mse_loss(predicted, torch.cat(targets))

    def configure_optimizers(self) -> Any:
        experts: Any = [weight for weight in self.parameters() if getattr(weight, "is_expert", False)]
        rest: Any = [weight for weight in self.parameters() if not getattr(weight, "is_expert", False)]
        return torch.optim.AdamW([{"params": experts, "weight_decay": 0.5}, {"params": rest}], lr=0.05)


class Clamping(Pupil):
    """Clamps a weight in its step, in place."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        with torch.no_grad():
            self.head.weight.clamp_(-0.5, 0.5)
        return super().training_step(batch, batch_idx)


class Freezing(Pupil):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.unused.requires_grad_(False)
        return super().training_step(batch, batch_idx)


class Validating(Pupil):
    """Writes into a weight in a validation."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.slow[0].bias.data.zero_()
        super().validation_step(batch, batch_idx)


class Listing(Pupil):
    """Has a list of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = [self.head.weight]


class Hooked(Pupil):
    def __init__(self) -> None:
        super().__init__()
        self.head.weight.register_hook(lambda gradient: 2 * gradient)


class Computing(Pupil):
    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        self.body(torch.ones(1, 4, dtype=torch.float64))


class Factored(Pupil):
    def configure_optimizers(self) -> Any:
        return torch.optim.Adafactor(self.parameters())
