"""A decoder-only transformer over tokens: each place sees those before it, and has the logits of the next token."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from lockstep.base.config_error import require


class Transformer(nn.Module):
    """Int64 tokens (batch, length) → (batch, length, num_outputs), for lengths up to that of the data's samples.

    Layers are normalised before they compute, positions are learned, and the output layer has the weights of the
    embedding.
    """

    def __init__(
        self,
        sample_shape: Sequence[int],
        num_outputs: int,
        width: int = 128,
        layers: int = 4,
        heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        fits = heads >= 1 and width >= 1 and width % heads == 0
        require(fits, "model.net.heads", heads, f"heads divide the width, {width}", "model.net.heads=4")
        hint = "model.net.dropout=0.1"
        require(0 <= dropout < 1, "model.net.dropout", dropout, "it must be at least 0 and below 1", hint)
        reason = f"it takes sequences of tokens, and the data has samples of shape {(*sample_shape,)}"
        require(len(sample_shape) == 1, "model.net", "Transformer", reason, "data=text")
        self.heads = heads
        self.embedded = Embedded(num_outputs, sample_shape[0], width, dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, num_outputs, bias=False))
        self.head[1].weight = self.embedded.tokens.weight
        self.apply(_initialize)

    @property
    def stages(self) -> tuple[nn.Module, ...]:
        return self.embedded, *self.blocks, self.head

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = tokens
        for stage in self.stages:
            hidden = stage(hidden)
        return hidden

    def tensor_parallel_plan(self, ranks: int) -> dict[str, str]:
        """Return how strategy=tensor_parallel divides the layers: heads, and hidden numbers, over ranks."""
        require(self.heads % ranks == 0, "model.net.heads", self.heads, f"{ranks} ranks do not divide it", "devices=1")
        styles = dict.fromkeys(("query", "key", "value", "hidden"), "colwise") | {"attention": "heads"}
        styles |= dict.fromkeys(("mixed", "output"), "rowwise")
        return {f"blocks.*.{name}": style for name, style in styles.items()}


class Embedded(nn.Module):
    """Tokens (batch, length) → (batch, length, width), each with its place."""

    def __init__(self, vocabulary: int, length: int, width: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.dropout(self.tokens(tokens) + self.positions(places))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention to the places before, then two layers at each place; both are added to their input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.head_width, self.dropout, self.attention = width // heads, nn.Dropout(dropout), Attention(dropout)
        self.norm_attention, self.norm_hidden = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.mixed = nn.Linear(width, width)
        self.hidden, self.output = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attend(self.norm_attention(x)))
        return x + self.dropout(self.output(gelu(self.hidden(self.norm_hidden(x)))))  # type: ignore[no-any-return]

    def attend(self, x: Tensor) -> Tensor:
        """Return the attention (batch, length, width) of each place to itself and those before."""
        query, key, value = (
            layer(x).unflatten(2, (-1, self.head_width)).transpose(1, 2)  # (batch, heads, length, width of a head)
            for layer in (self.query, self.key, self.value)
        )
        heads = self.attention(query, key, value)
        return self.mixed(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Query, key and value, (batch, heads, length, width of a head) each, → the same shape, causal."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        return scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)


def _initialize(layer: nn.Module) -> None:
    """Draw small weights, as GPT-2 does: the embedding is the output layer, too."""
    if isinstance(layer, nn.Linear | nn.Embedding):
        nn.init.normal_(layer.weight, std=0.02)
    if isinstance(layer, nn.Linear) and layer.bias is not None:
        nn.init.zeros_(layer.bias)
