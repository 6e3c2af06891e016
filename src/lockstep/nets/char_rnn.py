"""A recurrent net over tokens: embedded, through gated recurrent units, to logits of the next token at each place."""

from torch import Tensor, nn


class CharRNN(nn.Module):
    """Int64 tokens (batch, length) → (batch, length, num_outputs)."""

    def __init__(self, num_outputs: int, width: int = 128, layers: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_outputs, width)
        self.recurrent = nn.GRU(width, width, layers, batch_first=True)
        self.affine = nn.Linear(width, num_outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.recurrent(self.embedding(tokens))
        return self.affine(hidden)  # type: ignore[no-any-return]
