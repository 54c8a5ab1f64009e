"""A language model with a linear recurrence.  b rows, t tokens, d width, v vocabulary."""

import torch
from torch import Tensor, nn

from cloze_toy.configs import ToyLanguageModelConfig

BOS_LOGIT = -1e4
State = tuple[Tensor, ...]


class ToyLanguageModel(nn.Module):
    """sₜ = a ⊙ sₜ₋₁ + (1 − a) ⊙ C(wₜ), p(wₜ₊₁) = softmax(U · tanh(W · sₜ) + b)."""

    def __init__(self, config: ToyLanguageModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.decay = nn.Parameter(torch.zeros(config.hidden_size))
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The features at every token (b t d), and the state after the last one."""
        decay, (last,) = self.decay.sigmoid(), state
        states = []
        for embedding in self.embeddings(ids).unbind(1):
            last = decay * last + (1 - decay) * embedding  # 1 b d
            states.append(last[0])
        return torch.tanh(self.transform(torch.stack(states, 1))), (last,)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits over the vocabulary: … d -> … v."""
        return self.output(hidden)

    def init_state(self, batch_size: int) -> State:
        """The state before the first token, 1 b d."""
        return (self.decay.new_zeros(1, batch_size, self.config.hidden_size),)

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
        """Normal embeddings and matrices, biases 0."""
        self.decay.zero_()
        self.embeddings.weight.normal_(0.0, 0.5, generator=rng)
        for layer in (self.transform, self.output):
            layer.weight.normal_(0.0, 0.2, generator=rng)
            layer.bias.zero_()
        self.output.bias[self.config.bos_id] = BOS_LOGIT

    @torch.no_grad()
    def init_output_bias(self, frequencies: Tensor) -> None:
        """Start with the unigram distribution of these frequencies (v)."""
        self.output.bias.copy_((frequencies / frequencies.sum()).log())
        self.output.bias[self.config.bos_id] = BOS_LOGIT
