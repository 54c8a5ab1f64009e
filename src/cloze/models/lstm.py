"""The recurrent language model: an LSTM, GRU or plain RNN that reads one continuous text.

b rows, t tokens, l layers, d width, e embedding width, v vocabulary.
"""

import torch
from torch import Tensor, nn

from cloze.models.configs.lstm import LSTMConfig
from cloze.models.model_parts import build_rnn
from cloze.nn.recurrent import State, embed_with_dropout, init_recurrent_weights

BOS_LOGIT = -1e4  # bias of the begin symbol, which is never predicted
INIT_RANGE = 0.1  # of the uniform distribution of initial embeddings


class LSTM(nn.Module):
    """hₜ = LSTM(C(wₜ), hₜ₋₁), p(wₜ₊₁) = softmax(U·hₜ + b).  Zaremba et al. 2014, §3.

    Or a GRU (Cho et al. 2014), or a plain RNN (Elman 1990). With the dropouts of the configuration
    and a last layer of the size of the embeddings it is an AWD-LSTM (Merity et al. 2018).
    """

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        self.rnn = build_rnn(config)
        self.output = (
            None
            if config.tie_embeddings
            else nn.Linear(config.hidden_size, config.vocab_size, False)
        )
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The top layer at every token (b t d), and the state after the last one."""
        hidden, after = self.read(ids, state)
        return self.rnn.output_dropout(hidden), after

    def read(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The same without dropout of the top layer."""
        vectors = embed_with_dropout(self.embeddings, ids, self.config.embedding_dropout)
        hidden, after = self.rnn.read(vectors, state)
        return hidden, after

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits over the vocabulary: … d -> … v."""
        return nn.functional.linear(*self.lm_head_operands(hidden))

    def lm_head_operands(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors, weight and bias whose product are the logits."""
        table = self.embeddings.weight if self.output is None else self.output.weight
        return hidden, table, self.bias

    def init_state(self, batch_size: int) -> State:
        """The state before the first token: zeros, l b d; of an LSTM the cell states too."""
        size = (self.config.num_layers, batch_size, self.rnn.state_size)
        return tuple(self.bias.new_zeros(size) for _ in range(self.rnn.state_parts))

    def compute_state(self, ids: Tensor) -> State:
        """The state after rows of tokens (b t)."""
        state = self.init_state(len(ids))
        return self(ids, state)[1] if ids.shape[1] else state

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log-probabilities of the next token (b v) after one more of each row (b)."""
        hidden, state = self(tokens[:, None], state)
        return self.logits(hidden[:, 0]).float().log_softmax(-1), state

    def reorder(self, state: State, rows: Tensor) -> State:
        """The state of other rows."""
        return tuple(part[:, rows] for part in state)

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        """Uniform as in Zaremba et al. 2014; forget gates start open (Jozefowicz et al. 2015)."""
        self.embeddings.weight.uniform_(-INIT_RANGE, INIT_RANGE, generator=rng)
        if self.output is not None:
            self.output.weight.uniform_(-INIT_RANGE, INIT_RANGE, generator=rng)
        self.bias.zero_()
        self.bias[self.config.bos_id] = BOS_LOGIT
        init_recurrent_weights(self.rnn, rng)

    @torch.no_grad()
    def init_output_bias(self, frequencies: Tensor) -> None:
        """Start with the unigram distribution of these frequencies (v)."""
        self.bias.copy_((frequencies / frequencies.sum()).log())
        self.bias[self.config.bos_id] = BOS_LOGIT
