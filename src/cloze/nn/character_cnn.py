"""Words from their characters: filters of several widths, max-pooling, highway layers.

n words, c characters of each, d width of a character, f filters, p width of a word.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from cloze.text.word_characters import NUM_CHARACTERS, PADDING

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}
CARRY_BIAS = -2.0  # at first a highway layer passes on most of its input
INIT_RANGE = 0.05  # of the uniform distribution of initial filters


def look_up_rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table (u p) at indices of any shape: … -> … p.

    As `F.embedding`, whose gradient cannot be captured in a CUDA graph if there are thousands of
    indices. The gradients of a row are added in float32 at least.
    """
    wide = table.to(torch.promote_types(table.dtype, torch.float32))
    rows = wide.index_select(0, index.flatten()).to(table.dtype)
    return rows.unflatten(0, index.shape)


class Highway(nn.Module):
    """y = g·relu(W·x + b) + (1 − g)·x,  g = σ(W_g·x + b_g).  Srivastava et al. 2015, eq. 3."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return torch.lerp(x, torch.relu(self.transform(x)), torch.sigmoid(self.gate(x)))


class CharacterCNN(nn.Module):
    """The vector of a word from its characters.  Kim et al. 2016, §3; Jozefowicz et al. 2016, §3.2.

    Each filter is convolved with the character embeddings, padding included, and its maximum over
    the word is taken; then come an activation, highway layers and a projection.
    """

    def __init__(
        self,
        filters: Sequence[tuple[int, int]],
        *,
        embedding_size: int,
        output_size: int,
        num_highway_layers: int,
        activation: str,
    ) -> None:
        super().__init__()
        total = sum(count for _, count in filters)
        self.embeddings = nn.Embedding(NUM_CHARACTERS, embedding_size)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(embedding_size, count, width) for width, count in filters
        )
        self.highways = nn.ModuleList(Highway(total) for _ in range(num_highway_layers))
        self.projection = nn.Linear(total, output_size)
        self.activation = ACTIVATIONS[activation]
        self.max_width = max(width for width, _ in filters)

    def forward(self, characters: Tensor) -> Tensor:
        """Rows of character ids to word vectors: n c -> n p."""
        x = self._embed(characters).transpose(1, 2)  # n c d -> n d c
        pooled = [convolution(x).amax(-1) for convolution in self.convolutions]
        x = self.activation(torch.cat(pooled, -1))  # n f
        for highway in self.highways:
            x = highway(x)
        projected: Tensor = self.projection(x)
        return projected

    def _embed(self, characters: Tensor) -> Tensor:
        """The embeddings of the characters: n c -> n c d."""
        if characters.is_cuda and torch.is_grad_enabled():
            return self.embed_one_hot(characters)
        embedded: Tensor = self.embeddings(characters.long())
        return embedded

    def embed_one_hot(self, characters: Tensor) -> Tensor:
        """The same as a product of matrices, whose gradient is one too.

        That of an embedding adds 100,000 vectors of padding to one row, and it cannot be captured
        in a CUDA graph.
        """
        ids = torch.arange(NUM_CHARACTERS, device=characters.device, dtype=characters.dtype)
        weight = self.embeddings.weight
        return (characters[..., None] == ids).to(weight.dtype) @ weight

    def count_columns(self, longest: int, most: int) -> int:
        """How many columns of the rows matter if no word has more than `longest` characters.

        All windows beyond a word contain only padding, so one of each width is enough.
        """
        return min(most, longest + self.max_width)

    def trim(self, characters: Tensor) -> Tensor:
        """The rows without columns that change nothing: n 50 -> n c."""
        longest = int((characters != PADDING).sum(-1).max()) if len(characters) else 0
        return characters[:, : self.count_columns(longest, characters.shape[-1])]

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        """As the published code does."""
        self.embeddings.weight.uniform_(-1, 1, generator=rng)
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            assert convolution.bias is not None
            convolution.weight.uniform_(-INIT_RANGE, INIT_RANGE, generator=rng)
            convolution.bias.zero_()
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(0, module.in_features**-0.5, generator=rng)
                module.bias.fill_(CARRY_BIAS if name.endswith("gate") else 0.0)
