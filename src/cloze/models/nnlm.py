"""The feed-forward neural language model of Bengio et al. 2003.

b contexts, n order, e embedding width, h hidden width, v vocabulary.
"""

import torch
from torch import Tensor, nn

from cloze.models.configs.nnlm import NNLMConfig
from cloze.nn.layers import Dropout

BOS_LOGIT = -1e4  # bias of the begin symbol, which is never predicted


class NNLM(nn.Module):
    """y = b + W·x + U·tanh(d + H·x), x = [C(w₁); …; C(wₙ₋₁)]; p = softmax(y).

    Bengio et al. 2003, eq. 1. Without direct connections W is 0, which they found to generalize
    better.
    """

    def __init__(self, config: NNLMConfig) -> None:
        super().__init__()
        self.config = config
        inputs = (config.order - 1) * config.embedding_size
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        self.hidden = nn.Linear(inputs, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.vocab_size)
        self.direct = (
            nn.Linear(inputs, config.vocab_size, bias=False) if config.direct_connections else None
        )
        self.dropout = Dropout(config.dropout)

    def forward(self, context: Tensor) -> Tensor:
        """Logits of the token after each context: b (n−1) -> b v."""
        return self.compute_logits(self.embeddings(context).flatten(1))

    def compute_logits(self, vectors: Tensor) -> Tensor:
        """The same for embedded contexts: b ((n−1) e) -> b v."""
        x = self.dropout(vectors)
        logits: Tensor = self.output(self.dropout(torch.tanh(self.hidden(x))))
        return logits if self.direct is None else logits + self.direct(x)

    def compute_state(self, ids: Tensor) -> Tensor:
        """The last n−1 tokens of rows (b t), padded with the begin symbol: b (n−1)."""
        begin = ids.new_full((len(ids), self.config.order - 1), self.config.bos_id)
        return torch.cat([begin, ids], 1)[:, ids.shape[1] :]

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the next token (b v) after one more of each row (b)."""
        state = torch.cat([state[:, 1:], tokens[:, None]], 1)
        return self(state).float().log_softmax(-1), state

    def reorder(self, state: Tensor, rows: Tensor) -> Tensor:
        """The state of other rows."""
        return state[rows]

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        """Embeddings from N(0, 1), matrices by Glorot and Bengio 2010, no direct connections."""
        self.embeddings.weight.normal_(0.0, 1.0, generator=rng)
        for layer in (self.hidden, self.output):
            nn.init.xavier_uniform_(layer.weight, generator=rng)
            layer.bias.zero_()
        if self.direct is not None:
            self.direct.weight.zero_()
        self.output.bias[self.config.bos_id] = BOS_LOGIT

    @torch.no_grad()
    def init_output_bias(self, frequencies: Tensor) -> None:
        """Start with the unigram distribution of these frequencies (v)."""
        self.output.bias.copy_((frequencies / frequencies.sum()).log())
        self.output.bias[self.config.bos_id] = BOS_LOGIT
