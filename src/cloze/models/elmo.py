"""ELMo: a forward and a backward language model over words that are read by their characters.

n words of a flat row, b rows, t tokens, c characters of a word, l layers, p width of one direction,
h units of an LSTM, u distinct words, v vocabulary.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cloze.models.configs.elmo import ElmoConfig
from cloze.nn.character_cnn import CharacterCNN, look_up_rows
from cloze.nn.layers import Dropout
from cloze.nn.layout import AttentionLayout, Packed
from cloze.nn.projected_lstm import ProjectedLSTM

State = tuple[Tensor, ...]
"""Outputs (l b p) and cells (l b h) of the forward layers, then of the backward layers."""


class WordInputs(NamedTuple):
    """The words that the two directions read, each in its own order."""

    characters: Tensor  # u c: the distinct words
    forward: Tensor  # b t: which of them the forward direction reads
    backward: Tensor  # b t


class SoftmaxOutput(nn.Module):
    """logits = W·h + b, with a vector for each word."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.projection_size))
        self.bias = nn.Parameter(torch.empty(config.vocab_size))

    def forward(self, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Vectors and biases of words, or of the whole vocabulary: v p, v."""
        if ids is None:
            return self.weight, self.bias
        return look_up_rows(self.weight, ids), self.bias.index_select(0, ids)

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        self.weight.normal_(0, self.weight.shape[1] ** -0.5, generator=rng)
        self.bias.zero_()


class CharacterOutput(nn.Module):
    """The vector of a word is CNN(its characters) + M·(its correction).

    Jozefowicz et al. 2016, §3.3: far fewer parameters than a vector for each word; the correction
    tells apart words that are spelled alike. The CNN is not that of the input.
    """

    characters: Tensor | None

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.cnn = _make_cnn(config)
        self.correction = nn.Embedding(config.vocab_size, config.correction_size)
        self.correction_projection = nn.Linear(
            config.correction_size, config.projection_size, bias=False
        )
        self.bias = nn.Parameter(torch.empty(config.vocab_size))
        # v c, set by `set_vocabulary`: it follows from the tokenizer
        self.register_buffer("characters", None, persistent=False)

    def forward(self, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Vectors and biases of words, or of the whole vocabulary: v p, v."""
        assert self.characters is not None, "set_vocabulary was not called"
        if ids is None:
            ids = torch.arange(len(self.bias), device=self.bias.device)
        vectors = self.cnn(self.characters[ids])
        correction = self.correction_projection(look_up_rows(self.correction.weight, ids))
        return vectors + correction, self.bias.index_select(0, ids)

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        self.cnn.init_weights(rng)
        self.correction.weight.normal_(0, 1, generator=rng)
        self.correction_projection.weight.normal_(
            0, self.correction.embedding_dim**-0.5, generator=rng
        )
        self.bias.zero_()


OUTPUTS: dict[str, type[SoftmaxOutput] | type[CharacterOutput]] = {
    "softmax": SoftmaxOutput,
    "cnn": CharacterOutput,
}


def _make_cnn(config: ElmoConfig) -> CharacterCNN:
    return CharacterCNN(
        list(zip(config.filter_widths, config.filter_counts, strict=True)),
        embedding_size=config.char_embedding_size,
        output_size=config.projection_size,
        num_highway_layers=config.num_highway_layers,
        activation=config.activation,
    )


class Elmo(nn.Module):
    """A bidirectional language model.  Peters et al. 2018, §3.

    x = CharacterCNN(word);  →h¹ = LSTMP(x),  →h² = LSTMP(→h¹) + →h¹, and ←h likewise on the
    reversed text. Both directions share the CNN and the output layer, and neither reads the other.
    """

    is_causal = False

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = _make_cnn(config)
        self.forward_layers = _make_layers(config)
        self.backward_layers = _make_layers(config)
        self.dropout = Dropout(config.dropout)
        self.output: SoftmaxOutput | CharacterOutput | None = None
        if config.output != "none":
            self.output = OUTPUTS[config.output](config)
        self._carried: State | None = None

    @property
    def num_layers(self) -> int:
        """The number of layers above the word vectors."""
        return len(self.forward_layers)

    @property
    def task_heads(self) -> tuple[str, ...]:
        """`lm` if there is an output layer; published models have none."""
        return ("lm",) if self.output is not None else ()

    # Vectors of words in context.

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: AttentionLayout = None,
        token_type_ids: Tensor | None = None,  # noqa: ARG002 - ELMo has no types
    ) -> Iterator[Tensor]:
        """Layer 0, [x; x], then [→h; ←h] of each layer: n 2p, or b t 2p.

        `input_ids` are rows of characters: n c with `Packed`, else b t c with a mask b t or None.
        """
        rows = input_ids.flatten(0, -2)
        words = self.embeddings(self.embeddings.trim(rows))  # n p
        if isinstance(attention_mask, Packed):
            lengths = torch.tensor(attention_mask.lengths, device=rows.device)
            positions = _number_tokens(lengths, attention_mask.max_seqlen)  # b t
            real = positions >= 0
            positions = positions.clamp(min=0)
        else:
            size = input_ids.shape[:2]
            positions = torch.arange(len(rows), device=rows.device).view(size)
            real = torch.ones(size, dtype=torch.bool, device=rows.device)
            if isinstance(attention_mask, Tensor):
                real = attention_mask.bool()
            lengths = real.sum(1)
        x = look_up_rows(words, positions)  # b t p
        reverse = _reverse_index(lengths, x.shape[1])  # b t
        flat = isinstance(attention_mask, Packed)
        for layer in self._read_both(x, reverse):
            yield layer[real] if flat else layer

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: AttentionLayout = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """The last layer: n 2p, or b t 2p."""
        *_, last = self.hidden_states(input_ids, attention_mask, token_type_ids)
        return last

    def _read_both(self, x: Tensor, reverse: Tensor) -> Iterator[Tensor]:
        """The layers of padded rows: b t p -> b t 2p each."""
        yield torch.cat([x, x], -1)
        index = reverse[..., None].expand_as(x)
        state = self._start(len(x))
        carried = None if self._carried is None else self.init_state(len(x))
        self._carried = carried
        ahead, back = x, x.gather(1, index)
        for number, layers in enumerate(
            zip(self.forward_layers, self.backward_layers, strict=True)
        ):
            ahead, *first = self._step_layer(layers[0], number, ahead, state[:2])
            back, *second = self._step_layer(layers[1], number, back, state[2:])
            if carried is not None:  # before `yield`: a caller may not read the layers above
                for part, after in zip(carried, (*first, *second), strict=True):
                    part[number] = after[0].detach()
            yield torch.cat([ahead, back.gather(1, index)], -1)

    def _step_layer(
        self, layer: nn.Module, number: int, x: Tensor, state: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One layer of one direction, with a residual above the first: outputs, state after."""
        before = tuple(part[number : number + 1].to(x.dtype) for part in state)
        found, (output, cell) = layer(self.dropout(x), before)
        return (found + x if number else found), output, cell

    def _start(self, rows: int) -> State:
        """The states before the first token: zeros, or the last of each row if carried."""
        state = self.init_state(rows)
        if self._carried is not None:
            for part, carried in zip(state, self._carried, strict=True):
                count = min(rows, carried.shape[1])
                part[:, :count] = carried[:, :count]
        return state

    @contextmanager
    def carry_states(self) -> Iterator[None]:
        """With `carry_state`, each row continues the same row of the call before it inside.

        The first call starts from zeros, and so does a layer that the call before did not read.
        """
        self._carried = self.init_state(0) if self.config.carry_state else None
        try:
            yield
        finally:
            self._carried = None

    # The language models.

    def read(self, inputs: WordInputs, state: State) -> tuple[Tensor, State]:
        """The top layer of both directions (2 b t p), each in its own order; the states after."""
        words = self.embeddings(inputs.characters)  # u p
        tops, states = [], []
        for layers, index, before in (
            (self.forward_layers, inputs.forward, state[:2]),
            (self.backward_layers, inputs.backward, state[2:]),
        ):
            top, after = self.read_direction(layers, look_up_rows(words, index), before)
            tops.append(top)
            states += after
        return torch.stack(tops), tuple(states)

    def read_direction(
        self, layers: nn.ModuleList, x: Tensor, state: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """The top layer of one direction, b t p -> b t p, and the states after: l b p, l b h."""
        after = []
        for number, layer in enumerate(layers):
            x, *last = self._step_layer(layer, number, x, state)
            after.append(last)
        return self.dropout(x), [torch.cat(part) for part in zip(*after, strict=True)]

    def init_state(self, batch_size: int) -> State:
        """The states before the first token: zeros."""
        config, weight = self.config, self.embeddings.projection.weight
        sizes = (config.projection_size, config.cell_size) * 2
        return tuple(weight.new_zeros(config.num_layers, batch_size, size) for size in sizes)

    @property
    def needs_vocabulary(self) -> bool:
        """Whether the output layer waits for `set_vocabulary`."""
        return isinstance(self.output, CharacterOutput) and self.output.characters is None

    def set_vocabulary(self, characters: Tensor) -> None:
        """The rows of all words (v c), for an output layer that computes vectors from them."""
        if isinstance(self.output, CharacterOutput):
            device = self.output.bias.device
            self.output.characters = self.output.cnn.trim(characters).to(device)

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        """As the published code does; the forget gates start open."""
        for module in (self.embeddings, *self.forward_layers, *self.backward_layers, self.output):
            if module is not None:
                module.init_weights(rng)

    @torch.no_grad()
    def init_output_bias(self, frequencies: Tensor) -> None:
        """Start with the unigram distribution of these frequencies (v)."""
        assert self.output is not None
        self.output.bias.copy_((frequencies / frequencies.sum()).log())


def _make_layers(config: ElmoConfig) -> nn.ModuleList:
    return nn.ModuleList(
        ProjectedLSTM(
            config.projection_size,
            config.cell_size,
            config.projection_size,
            cell_clip=config.cell_clip,
            output_clip=config.projection_clip,
        )
        for _ in range(config.num_layers)
    )


def _number_tokens(lengths: Tensor, longest: int) -> Tensor:
    """The index in the flat row of each token of padded rows: b t; −1 is padding."""
    position = torch.arange(longest, device=lengths.device)
    starts = lengths.cumsum(0) - lengths
    return torch.where(position < lengths[:, None], starts[:, None] + position, -1)


def _reverse_index(lengths: Tensor, longest: int) -> Tensor:
    """Where each token is when its row is reversed within its length: b t."""
    position, last = torch.arange(longest, device=lengths.device), (lengths - 1)[:, None]
    return torch.where(position <= last, last - position, position)
