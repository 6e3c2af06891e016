"""A net: any nn.Module, from inputs (batch, …) to outputs (batch, num_outputs)."""

from torch import Tensor, nn


class Net(nn.Module):
    """Two layers, for points (batch, 2). `num_outputs` is filled in from the data."""

    def __init__(self, width: int, num_outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, num_outputs))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y
