"""The neural language model of Bengio et al. 2003: look up, compute, output.

b windows, n order, e embedding width, h hidden width, v vocabulary.
"""

import torch
from torch import Tensor, nn

from cloze.models.configs.nnlm import NNLMConfig
from cloze.nn.layers import Dropout

NEVER = -1e4  # score of the begin symbol, which is read and never said: e to it is 0


class NNLM(nn.Module):
    """y = b + W·x + U·tanh(d + H·x), x = [C(w₁); …; C(wₙ₋₁)]; p = softmax(y).

    Bengio et al. 2003, eq. 1; without `direct`, W is 0, which they found to generalise better.
    """

    def __init__(self, config: NNLMConfig) -> None:
        super().__init__()
        self.config = config
        inputs = (config.order - 1) * config.embedding_size
        self.words = nn.Embedding(config.vocab_size, config.embedding_size)
        self.hidden = nn.Linear(inputs, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.vocab_size)
        self.direct = (
            nn.Linear(inputs, config.vocab_size, bias=False) if config.direct_connections else None
        )
        self.dropout = Dropout(config.dropout)

    def forward(self, context: Tensor) -> Tensor:
        """Scores of the word after each context: b (n−1) -> b v."""
        x = self.dropout(self.words(context).flatten(1))  # b ((n−1) e)
        scores: Tensor = self.output(self.dropout(torch.tanh(self.hidden(x))))
        return scores if self.direct is None else scores + self.direct(x)

    def read(self, ids: Tensor) -> Tensor:
        """What is remembered of rows (b t): the words before the next one but one."""
        begin = ids.new_full((len(ids), self.config.order - 1), self.config.bos_id)
        return torch.cat([begin, ids], 1)[:, ids.shape[1] :]  # b (n−1)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the next word (b v) after one more of each row (b)."""
        state = torch.cat([state[:, 1:], tokens[:, None]], 1)
        return self(state).float().log_softmax(-1), state

    def reorder(self, state: Tensor, rows: Tensor) -> Tensor:
        """The state of other rows."""
        return state[rows]

    @torch.no_grad()
    def initialise(self, rng: torch.Generator) -> None:
        """Words and matrices so that tanh is neither flat nor idle; <s> is never said."""
        self.words.weight.normal_(0.0, 1.0, generator=rng)
        for layer in (self.hidden, self.output):
            nn.init.xavier_uniform_(layer.weight, generator=rng)
            layer.bias.zero_()
        if self.direct is not None:
            self.direct.weight.zero_()
        self.output.bias[self.config.bos_id] = NEVER

    @torch.no_grad()
    def expect(self, frequencies: Tensor) -> None:
        """Begin with words as frequent as these (v), which is no longer to be learned then."""
        self.output.bias.copy_((frequencies / frequencies.sum()).log())
        self.output.bias[self.config.bos_id] = NEVER
