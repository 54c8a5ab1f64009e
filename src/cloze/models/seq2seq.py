"""Recurrent sequence to sequence: without attention, with Bahdanau's, with Luong's.

b sentences, s source tokens, t target tokens, d width, e embedding width, v vocabulary.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from cloze.models.configs.seq2seq import Seq2SeqConfig
from cloze.nn.alignment import SCORES, SHARP, Additive, Cosine, Score, align, context
from cloze.nn.layers import Dropout
from cloze.nn.precise import log_softmax
from cloze.nn.recurrent import GATES, Bridge, Cells, RecurrentEncoder, State


@dataclass(frozen=True, kw_only=True)
class RecurrentState:
    """All that the next step needs."""

    memory: Tensor  # b s d, the encoder's states
    keys: Tensor  # b s d, what the score makes of them once
    real: Tensor  # b s
    hidden: State  # l b d
    feed: Tensor  # b d, Luong's attentional state of the step before
    weights: Tensor  # b s, of the last step


class Seq2Seq(nn.Module):
    """One decoder in three manners; each computes in the order of its paper."""

    limit: int | None = None

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        width, embedding = config.hidden_size, config.embedding_size
        luong, bahdanau = config.attention == "luong", config.attention == "bahdanau"
        self.target = nn.Embedding(config.vocab_size, embedding)
        separate = config.embeddings == "separate"
        self.source = nn.Embedding(config.vocab_size, embedding) if separate else None
        self.dropout = Dropout(config.dropout)
        self.encoder = RecurrentEncoder(
            config.cell,
            embedding,
            width,
            layers=config.num_layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )
        fed = embedding + (width if bahdanau or (luong and config.input_feeding) else 0)
        self.cells = Cells(
            config.cell, fed, width, layers=config.num_layers, dropout=config.dropout
        )
        self.bridge = Bridge(width, self.cells.parts)
        self.score: Score | None = (
            Additive(width)
            if bahdanau
            else SCORES[config.attention_score](width)
            if luong
            else None
        )
        # Bahdanau's deep output: [s; y; c] through maxout (appendix A.2.2); Luong's [c; h], tanh
        mixed = {"none": width, "luong": 2 * width, "bahdanau": 2 * width + embedding}
        outer = 2 * embedding if bahdanau else width if luong else embedding
        self.mix = nn.Linear(mixed[config.attention], outer)
        self.output = nn.Linear(width if luong else embedding, config.vocab_size)

    def forward(
        self,
        source: Tensor,
        real: Tensor,
        inputs: Tensor,
        *,
        own: float | Tensor = 0.0,
        rng: torch.Generator | None = None,
    ) -> Tensor:
        """What the output reads at every target token (b t d), step after step.

        `inputs` are the right words shifted by one, beginning with bos (teacher forcing). With
        `own`, that share of them is what the model itself said in the step before (scheduled
        sampling, Bengio et al. 2015), drawn from `rng`. A tensor is not looked at: a GPU that
        records a step finds another share in it when it repeats the step.
        """
        state = self.start(source, real)
        words = self._words(inputs).unbind(1)
        mixing = isinstance(own, Tensor) or own > 0
        vectors: list[Tensor] = []
        for number_, word in enumerate(words):
            if mixing and number_:
                said = self.logits(vectors[-1].detach()).argmax(-1)
                draw = torch.rand(len(said), generator=rng, device=said.device)
                word = torch.where((draw < own)[:, None], self._words(said), word)
            vector, state = self._step(word, state)
            vectors.append(vector)
        return self.dropout(torch.stack(vectors, 1))

    def logits(self, vectors: Tensor) -> Tensor:
        """Scores of the vocabulary, before any softmax: … d -> … v."""
        return self.output(vectors)

    def alignment(self, source: Tensor, real: Tensor, inputs: Tensor) -> Tensor:
        """How much of each source token each target token took: b t s."""
        state, weights = self.start(source, real), []
        for word in self._words(inputs).unbind(1):
            _, state = self._step(word, state)
            weights.append(state.weights)
        return torch.stack(weights, 1)

    def start(self, source: Tensor, real: Tensor) -> RecurrentState:
        """Read the sentences; nothing is said yet."""
        table = self.target if self.source is None else self.source
        memory, ends = self.encoder(self.dropout(table(source)), real.sum(1))
        return RecurrentState(
            memory=memory,
            keys=memory if self.score is None else self.score.keys(memory),
            real=real,
            hidden=self.bridge(ends),
            feed=memory.new_zeros(len(memory), self.config.hidden_size),
            weights=memory.new_zeros(memory.shape[:2]),
        )

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Log-probabilities of the next token (b v) after one more (b)."""
        vector, state = self._step(self._words(tokens), state)
        return log_softmax(self.logits(vector)), state

    def reorder(self, state: RecurrentState, rows: Tensor) -> RecurrentState:
        """The state of other rows: hypotheses that survive, once or several times."""
        return RecurrentState(
            memory=state.memory[rows],
            keys=state.keys[rows],
            real=state.real[rows],
            hidden=tuple(part[:, rows] for part in state.hidden),
            feed=state.feed[rows],
            weights=state.weights[rows],
        )

    @torch.no_grad()
    def initialise(self, rng: torch.Generator) -> None:
        """Uniform by Glorot and Bengio 2010, recurrent matrices orthogonal, biases zero.

        Each gate counts as a matrix, and words come from N(0, 1), as such matrices expect them. An
        LSTM's forget gate begins open (Jozefowicz et al. 2015).
        """
        for module in self.modules():
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                self._initialise_gates(module, rng)
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(0.0, 1.0, generator=rng)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=rng)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, Cosine):
                module.sharpness.fill_(SHARP)

    def _initialise_gates(self, module: nn.Module, rng: torch.Generator) -> None:
        for name, weight in module.named_parameters():
            gates = weight.chunk(GATES[self.config.cell])
            for gate in gates:
                if "bias" in name:
                    gate.zero_()
                elif "weight_hh" in name:
                    nn.init.orthogonal_(gate, generator=rng)
                else:
                    nn.init.xavier_uniform_(gate, generator=rng)
            if self.config.cell == "lstm" and "bias_ih" in name:
                gates[1].fill_(1.0)  # torch's order: input, forget, cell, output

    def _words(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.target(tokens))  # … e

    def _step(self, word: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        manner = {"none": self._plain, "bahdanau": self._bahdanau, "luong": self._luong}
        return manner[self.config.attention](word, state)

    def _plain(self, word: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """The source is in the first state and nowhere else.  Sutskever et al. 2014."""
        top, hidden = self.cells(word, state.hidden)
        return torch.tanh(self.mix(top)), replace(state, hidden=hidden)

    def _bahdanau(self, word: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """cᵢ by sᵢ₋₁, then sᵢ = f(sᵢ₋₁, yᵢ₋₁, cᵢ).  Bahdanau et al. 2014, §3.1."""
        before = state.hidden[0][-1]
        weights, taken = self._look(before, state)
        top, hidden = self.cells(torch.cat([word, taken], -1), state.hidden)
        deep = self.mix(torch.cat([top, word, taken], -1))
        return deep.unflatten(-1, (-1, 2)).amax(-1), replace(state, hidden=hidden, weights=weights)

    def _luong(self, word: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """hₜ first, cₜ by hₜ, then h̃ₜ = tanh(W[cₜ; hₜ]).  Luong et al. 2015, §3."""
        fed = torch.cat([word, state.feed], -1) if self.config.input_feeding else word
        top, hidden = self.cells(fed, state.hidden)
        weights, taken = self._look(top, state)
        attentional = torch.tanh(self.mix(torch.cat([taken, top], -1)))
        return attentional, replace(state, hidden=hidden, feed=attentional, weights=weights)

    def _look(self, query: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor]:
        assert self.score is not None
        weights = align(self.score(query, state.keys), state.real)
        return weights, context(weights, state.memory)
