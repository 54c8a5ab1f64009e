"""Recurrent sequence-to-sequence models: without attention, with Bahdanau's, with Luong's.

b sentences, s source tokens, t target tokens, d width, e embedding width, v vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from cloze.models.configs.seq2seq import Seq2SeqConfig
from cloze.nn.alignment import (
    INITIAL_SCALE,
    SCORES,
    AdditiveScore,
    AttentionScore,
    CosineScore,
    compute_alignment,
    compute_context,
)
from cloze.nn.layers import Dropout
from cloze.nn.layout import Packed, add_end_tokens
from cloze.nn.recurrent import GATES, Bridge, RecurrentEncoder, StackedCells, State
from cloze.nn.utils import log_softmax


@dataclass(frozen=True, kw_only=True)
class RecurrentState:
    """The decoder's state between steps."""

    encoder_states: Tensor  # b s d
    keys: Tensor  # b s d, projected once for the attention score
    source_mask: Tensor  # b s, False where a row is padded
    hidden: State  # l b d
    attentional_state: Tensor  # b d, Luong's h̃ of the step before
    attention_weights: Tensor  # b s, of the last step


class Seq2Seq(nn.Module):
    """An encoder-decoder in three variants; each computes in the order of its paper."""

    max_positions: int | None = None

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        size, embedding_size = config.hidden_size, config.embedding_size
        luong, bahdanau = config.attention == "luong", config.attention == "bahdanau"
        self.target_embeddings = nn.Embedding(config.vocab_size, embedding_size)
        separate = config.embeddings == "separate"
        self.source_embeddings = (
            nn.Embedding(config.vocab_size, embedding_size) if separate else None
        )
        self.dropout = Dropout(config.dropout)
        self.encoder = RecurrentEncoder(
            config.cell,
            embedding_size,
            size,
            num_layers=config.num_layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )
        feeds_state = bahdanau or (luong and config.input_feeding)
        self.decoder = StackedCells(
            config.cell,
            embedding_size + (size if feeds_state else 0),
            size,
            num_layers=config.num_layers,
            dropout=config.dropout,
        )
        self.bridge = Bridge(size, self.decoder.state_parts)
        self.score: AttentionScore | None = (
            AdditiveScore(size)
            if bahdanau
            else SCORES[config.attention_score](size)
            if luong
            else None
        )
        # Bahdanau's deep output: [s; y; c] through maxout (appendix A.2.2); Luong's [c; h], tanh
        inputs = {"none": size, "luong": 2 * size, "bahdanau": 2 * size + embedding_size}
        outputs = 2 * embedding_size if bahdanau else size if luong else embedding_size
        self.combine = nn.Linear(inputs[config.attention], outputs)
        self.output = nn.Linear(size if luong else embedding_size, config.vocab_size)

    def forward(
        self,
        source: Tensor,
        source_mask: Tensor,
        inputs: Tensor,
        *,
        scheduled_sampling_prob: float | Tensor = 0.0,
        rng: torch.Generator | None = None,
    ) -> Tensor:
        """The inputs of the output layer at every target token (b t d), computed step by step.

        `inputs` are the target tokens shifted by one, beginning with bos (teacher forcing). With
        probability `scheduled_sampling_prob` an input is replaced by the model's own prediction of
        the step before (Bengio et al. 2015), drawn from `rng`. A tensor is not read on the host, so
        that a CUDA graph can be replayed with another value.
        """
        state = self.init_state(source, source_mask)
        embedded = self._embed(inputs).unbind(1)
        is_sampling = isinstance(scheduled_sampling_prob, Tensor) or scheduled_sampling_prob > 0
        vectors: list[Tensor] = []
        for number, token in enumerate(embedded):
            if is_sampling and number:
                predicted = self.logits(vectors[-1].detach()).argmax(-1)
                draw = torch.rand(len(predicted), generator=rng, device=predicted.device)
                is_replaced = (draw < scheduled_sampling_prob)[:, None]
                token = torch.where(is_replaced, self._embed(predicted), token)
            vector, state = self._step(token, state)
            vectors.append(vector)
        return self.dropout(torch.stack(vectors, 1))

    @property
    def num_layers(self) -> int:
        """The number of layers of the encoder."""
        return len(self.encoder.layers)

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Packed,
        token_type_ids: Tensor | None = None,  # noqa: ARG002
    ) -> Iterator[Tensor]:
        """The embeddings, then the output of each encoder layer, as contextual vectors: n d.

        Sentences are read with an end token, as in training, which has no vector here. Layer 0 has
        the embedding size, the others the hidden size.
        """
        ids, packed, kept = add_end_tokens(input_ids, attention_mask, self.config.eos_id)
        table = self.target_embeddings if self.source_embeddings is None else self.source_embeddings
        lengths = torch.tensor(packed.lengths, device=ids.device)
        rows = pad_sequence(ids.split(list(packed.lengths)), batch_first=True)  # b s
        is_token = torch.arange(rows.shape[1], device=ids.device) < lengths[:, None]
        embedded = self.dropout(table(rows))
        yield embedded[is_token][kept]
        for states, _ in self.encoder.iterate_layers(embedded, lengths):
            yield states[is_token][kept]

    def logits(self, vectors: Tensor) -> Tensor:
        """Logits over the vocabulary: … d -> … v."""
        return self.output(vectors)

    def compute_alignment(self, source: Tensor, source_mask: Tensor, inputs: Tensor) -> Tensor:
        """The attention weights of every target token: b t s."""
        state, weights = self.init_state(source, source_mask), []
        for token in self._embed(inputs).unbind(1):
            _, state = self._step(token, state)
            weights.append(state.attention_weights)
        return torch.stack(weights, 1)

    def init_state(self, source: Tensor, source_mask: Tensor) -> RecurrentState:
        """Encode the sentences: the state before the first token."""
        table = self.target_embeddings if self.source_embeddings is None else self.source_embeddings
        states, last_states = self.encoder(self.dropout(table(source)), source_mask.sum(1))
        return RecurrentState(
            encoder_states=states,
            keys=states if self.score is None else self.score.project_keys(states),
            source_mask=source_mask,
            hidden=self.bridge(last_states),
            attentional_state=states.new_zeros(len(states), self.config.hidden_size),
            attention_weights=states.new_zeros(states.shape[:2]),
        )

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Log-probabilities of the next token (b v) after one more (b)."""
        vector, state = self._step(self._embed(tokens), state)
        return log_softmax(self.logits(vector)), state

    def reorder(self, state: RecurrentState, rows: Tensor) -> RecurrentState:
        """The state of these rows, such as the hypotheses that a beam keeps."""
        return RecurrentState(
            encoder_states=state.encoder_states[rows],
            keys=state.keys[rows],
            source_mask=state.source_mask[rows],
            hidden=tuple(part[:, rows] for part in state.hidden),
            attentional_state=state.attentional_state[rows],
            attention_weights=state.attention_weights[rows],
        )

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        """Uniform by Glorot and Bengio 2010, recurrent matrices orthogonal, biases zero.

        Each gate is initialized as a separate matrix, and embeddings are drawn from N(0, 1). The
        forget gate of an LSTM starts open (Jozefowicz et al. 2015).
        """
        for module in self.modules():
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                self._init_gates(module, rng)
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(0.0, 1.0, generator=rng)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=rng)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, CosineScore):
                module.scale.fill_(INITIAL_SCALE)

    def _init_gates(self, module: nn.Module, rng: torch.Generator) -> None:
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

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.target_embeddings(tokens))  # … e

    def _step(self, token: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        step = {
            "none": self._step_plain,
            "bahdanau": self._step_bahdanau,
            "luong": self._step_luong,
        }
        return step[self.config.attention](token, state)

    def _step_plain(self, token: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Without attention: the source is only in the first state.  Sutskever et al. 2014."""
        top, hidden = self.decoder(token, state.hidden)
        return torch.tanh(self.combine(top)), replace(state, hidden=hidden)

    def _step_bahdanau(self, token: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """cᵢ by sᵢ₋₁, then sᵢ = f(sᵢ₋₁, yᵢ₋₁, cᵢ).  Bahdanau et al. 2014, §3.1."""
        weights, context = self._attend(state.hidden[0][-1], state)
        top, hidden = self.decoder(torch.cat([token, context], -1), state.hidden)
        deep = self.combine(torch.cat([top, token, context], -1))
        state = replace(state, hidden=hidden, attention_weights=weights)
        return deep.unflatten(-1, (-1, 2)).amax(-1), state

    def _step_luong(self, token: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """hₜ first, cₜ by hₜ, then h̃ₜ = tanh(W[cₜ; hₜ]).  Luong et al. 2015, §3."""
        fed = state.attentional_state
        inputs = torch.cat([token, fed], -1) if self.config.input_feeding else token
        top, hidden = self.decoder(inputs, state.hidden)
        weights, context = self._attend(top, state)
        attentional = torch.tanh(self.combine(torch.cat([context, top], -1)))
        state = replace(
            state, hidden=hidden, attentional_state=attentional, attention_weights=weights
        )
        return attentional, state

    def _attend(self, query: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor]:
        """Attention weights (b s) and context vector (b d)."""
        assert self.score is not None
        weights = compute_alignment(self.score(query, state.keys), state.source_mask)
        return weights, compute_context(weights, state.encoder_states)
