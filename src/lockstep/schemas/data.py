"""The group `data`: a LightningDataModule, by its path, and the facts about it that a plan needs."""

from dataclasses import dataclass, field

from lockstep.schemas.target import Target

BATCH_SIZE = 64  # the global batch size if neither the plan nor a DataLoader has one


@dataclass(frozen=True)
class Data(Target):
    """A LightningDataModule, or the loaders of the LightningModule (without a target). Facts come from the inspection.

    train_samples, val_size, test_size: of each split; 0 if there is none, or if the number is unknown.
    train_batches: batches of an epoch, 0 if unknown. regular: whether all but the last have the same size.
    val_batch_sizes, test_batch_sizes: the batch size of each loader, 0 if it varies.
    sample_shape, num_outputs, num_classes, class_names: the attributes of these names, if it has them.
    """

    train_samples: int = 0
    val_size: int = 0
    test_size: int = 0
    train_batches: int = 0
    regular: bool = True
    val_batch_sizes: tuple[int, ...] = ()
    test_batch_sizes: tuple[int, ...] = ()
    sample_shape: tuple[int, ...] | None = None
    num_outputs: int | None = None
    num_classes: int | None = None
    class_names: tuple[str, ...] = field(default=())

    @property
    def is_module(self) -> bool:
        """Whether there is a LightningDataModule; otherwise the LightningModule has the loaders."""
        return bool(self.call)


OF_MODULE = Data("module", "data", {})
