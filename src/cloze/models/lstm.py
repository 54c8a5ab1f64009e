"""The recurrent language model: stacked layers, LSTMs at best, that read one long line of text.

b rows, t tokens, l layers, d width, e embedding width, v vocabulary.
"""

import torch
from torch import Tensor, nn

from cloze.models.configs.lstm import LSTMConfig
from cloze.nn.recurrent import Stack, State

NEVER = -1e4  # score of the begin symbol, which the text does not hold: e to it is 0
_SPREAD = 0.1  # of the words, at first


class LSTM(nn.Module):
    """hₜ = LSTM(C(wₜ), hₜ₋₁), p(wₜ₊₁) = softmax(U·hₜ + b).  Zaremba et al. 2014, §3.

    Or a GRU (Cho et al. 2014), or the plain net that forgets within a few words (Elman 1990).
    """

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocab_size, config.embedding_size)
        self.stack = Stack(
            config.cell,
            config.embedding_size,
            config.hidden_size,
            layers=config.num_layers,
            dropout=config.dropout,
            variational=config.variational_dropout,
        )
        self.output = (
            None
            if config.tie_embeddings
            else nn.Linear(config.hidden_size, config.vocab_size, False)
        )
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """What the output reads at every token (b t d), and the state after the last one."""
        vectors, after = self.stack(self.words(ids), state)
        return vectors, after

    def logits(self, vectors: Tensor) -> Tensor:
        """Scores of the vocabulary: … d -> … v."""
        table = self.words.weight if self.output is None else self.output.weight
        return nn.functional.linear(vectors, table, self.bias)

    def start(self, rows: int) -> State:
        """Nothing is read yet: what so many rows hold, l b d each; an LSTM has a memory too."""
        size = (self.config.num_layers, rows, self.config.hidden_size)
        return tuple(self.bias.new_zeros(size) for _ in range(self.stack.parts))

    def read(self, ids: Tensor) -> State:
        """What is remembered of rows (b t)."""
        state = self.start(len(ids))
        return self(ids, state)[1] if ids.shape[1] else state

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log-probabilities of the next word (b v) after one more of each row (b)."""
        vectors, state = self(tokens[:, None], state)
        return self.logits(vectors[:, 0]).float().log_softmax(-1), state

    def reorder(self, state: State, rows: Tensor) -> State:
        """The state of other rows."""
        return tuple(part[:, rows] for part in state)

    @torch.no_grad()
    def initialise(self, rng: torch.Generator) -> None:
        """Uniform, as Zaremba et al. begin; forget gates open (Jozefowicz et al. 2015)."""
        self.words.weight.uniform_(-_SPREAD, _SPREAD, generator=rng)
        if self.output is not None:
            self.output.weight.uniform_(-_SPREAD, _SPREAD, generator=rng)
        self.bias.zero_()
        self.bias[self.config.bos_id] = NEVER
        most = self.config.hidden_size**-0.5
        for name, weight in self.stack.named_parameters():
            if "bias" in name:
                weight.zero_()
            else:
                weight.uniform_(-most, most, generator=rng)
            if self.config.cell == "lstm" and "bias_ih" in name:
                weight.chunk(4)[1].fill_(1.0)  # torch's order: input, forget, cell, output

    @torch.no_grad()
    def expect(self, frequencies: Tensor) -> None:
        """Begin with words as frequent as these (v), which is no longer to be learned then."""
        self.bias.copy_((frequencies / frequencies.sum()).log())
        self.bias[self.config.bos_id] = NEVER
