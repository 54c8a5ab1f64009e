"""A recurrent language model as an encoder of texts, with a classifier on top (ULMFiT).

b texts, t tokens of the longest, n tokens of a packed row, l layers, d width of the last layer,
c labels.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.models.configs.ulmfit import ULMFiTConfig
from cloze.models.model_parts import build_rnn
from cloze.nn.heads import LinearHead, PooledClassificationHead
from cloze.nn.layout import AttentionLayout, Packed, Varlen
from cloze.nn.recurrent import State, embed_with_dropout, init_recurrent_weights

INIT_RANGE = 0.1  # of the uniform distribution of initial embeddings
PARTS = 3  # last state, maximum and mean


class DropoutEmbeddings(nn.Module):
    """Word embeddings with dropout of whole words."""

    def __init__(self, vocab_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, size)
        self.p = dropout

    def forward(self, ids: Tensor) -> Tensor:
        return embed_with_dropout(self.word, ids, self.p)  # b t e


class ULMFiT(nn.Module):
    """[h_T; max h_t; mean h_t] → classifier, h_t = LSTM(C(w_t), h_t−1).

    Howard & Ruder 2018, §3.3. The layers are those of the language model (`models/lstm.py`); the
    ids are the tokenizer's.
    """

    TASK_HEADS: ClassVar[tuple[str, ...]] = ULMFiTConfig.TASK_HEADS
    is_causal = True  # a state depends on the tokens before it only

    def __init__(self, config: ULMFiTConfig, task_heads: Iterable[str] = ()) -> None:
        super().__init__()
        self.config = config
        self.max_positions = config.max_positions
        self.embeddings = DropoutEmbeddings(
            config.vocab_size, config.embedding_size, config.embedding_dropout
        )
        self.rnn = build_rnn(config)
        self.task_heads = nn.ModuleDict(
            {
                one_of("head", name, self.TASK_HEADS): _build_head(name, config)
                for name in task_heads
            }
        )

    @property
    def num_layers(self) -> int:
        """The number of recurrent layers."""
        return len(self.rnn.layers)

    @property
    def blocks(self) -> nn.ModuleList:
        """The recurrent layers, from the lowest to the highest."""
        return self.rnn.layers

    @property
    def lm_head(self) -> None:
        """It has no head that predicts tokens."""
        return

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: AttentionLayout = None,
        token_type_ids: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """The last layer, b t d; of a `Packed` row n d.

        In training a text is read in slices of `bptt_length` tokens: the state is carried from
        slice to slice, without its gradient, and slices that end more than `gradient_length`
        tokens before the end of the longest text have no gradient at all. Pooling reads the states
        of all slices. This is BPT3C (§3.3) with bounded memory.
        """
        ids, mask = _to_rows(input_ids, attention_mask)
        length = ids.shape[1]
        if not self.training:
            return _from_rows(self._read(ids, self._init_state(len(ids)))[0], mask, attention_mask)
        state, slices = self._init_state(len(ids)), []
        for start in range(0, length, self.config.bptt_length):
            part = ids[:, start : start + self.config.bptt_length]
            has_gradient = start + part.shape[1] > length - self.config.gradient_length
            with torch.set_grad_enabled(has_gradient and torch.is_grad_enabled()):
                hidden, after = self._read(part, state)
            slices.append(hidden)
            state = tuple(one.detach() for one in after)
        return _from_rows(torch.cat(slices, 1), mask, attention_mask)

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: AttentionLayout = None,
        token_type_ids: Tensor | None = None,  # noqa: ARG002
    ) -> Iterator[Tensor]:
        """The embeddings, then the states of each layer; layers may differ in size."""
        ids, mask = _to_rows(input_ids, attention_mask)
        x = self.embeddings(ids)
        yield _from_rows(x, mask, attention_mask)
        *layers, _ = self.rnn.iterate_layers(x, self._init_state(len(ids)))
        for hidden in layers:
            yield _from_rows(hidden, mask, attention_mask)

    def uses_pooler(self, head: str) -> bool:
        """Whether a head reads one pooled vector per sequence, instead of every token."""
        return bool(self.task_heads[head].uses_pooler)

    def head_inputs(
        self,
        head: str,
        hidden: Tensor,
        indices: Tensor,
        attention_mask: AttentionLayout,
    ) -> Tensor:
        """The vectors that a head reads: of token the states at `indices`, m d.

        Of sequence the pooled states of each text, b (3 d): last, maximum, mean; or the last only,
        b d. The indices are those of the first tokens, which have read nothing.
        """
        if not self.uses_pooler(head):
            return hidden.flatten(0, -2).index_select(0, indices)
        rows, mask = _to_rows(hidden, attention_mask)
        lengths = mask.sum(1, keepdim=True)[..., None]  # b 1 1
        last = rows.take_along_dim(lengths - 1, 1)[:, 0]
        if not self.config.concat_pooling:
            return last
        is_token = mask[..., None]
        highest = rows.masked_fill(~is_token, -torch.inf).amax(1)
        mean = rows.masked_fill(~is_token, 0.0).sum(1) / lengths[:, 0]
        return torch.cat([last, highest, mean.to(last.dtype)], -1)

    def logits(self, head: str, vectors: Tensor) -> Tensor:
        """Logits of a head from the vectors that it reads: b (3 d) -> b c, or m d -> m c."""
        one_of("head", head, self.task_heads)
        logits: Tensor = self.task_heads[head](vectors)
        return logits

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        """As a new language model; classifiers start with norms of 1 and uniform weights."""
        self.embeddings.word.weight.uniform_(-INIT_RANGE, INIT_RANGE, generator=rng)
        init_recurrent_weights(self.rnn, rng)
        for head in self.task_heads.values():
            assert isinstance(head, PooledClassificationHead | LinearHead)
            init_head_weights(head, rng)

    def _read(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        hidden, after = self.rnn(self.embeddings(ids), state)
        return hidden, after

    def _init_state(self, rows: int) -> State:
        size = (self.num_layers, rows, self.rnn.state_size)
        weight = self.embeddings.word.weight
        return tuple(weight.new_zeros(size) for _ in range(self.rnn.state_parts))


def _build_head(name: str, config: ULMFiTConfig) -> nn.Module:
    if name == "token":
        return LinearHead(
            config.output_size,
            len(config.labels),
            dropout=config.classifier_dropout,
            uses_pooler=False,
        )
    return PooledClassificationHead(
        (PARTS if config.concat_pooling else 1) * config.output_size,
        config.classifier_size,
        len(config.labels),
        dropout=config.classifier_dropout,
        hidden_dropout=config.classifier_hidden_dropout,
    )


@torch.no_grad()
def init_head_weights(head: nn.Module, rng: torch.Generator) -> None:
    """Norms of 1 without statistics; weights uniform up to 1/√inputs, biases 0."""
    for module in head.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.weight.fill_(1.0)
            module.bias.zero_()
            for name, value in (("mean", 0.0), ("var", 1.0)):
                module.get_buffer(f"running_{name}").fill_(value)
        elif isinstance(module, nn.Linear):
            bound = module.in_features**-0.5
            module.weight.uniform_(-bound, bound, generator=rng)
            module.bias.zero_()


def _to_rows(x: Tensor, attention_mask: AttentionLayout) -> tuple[Tensor, Tensor]:
    """A batch as padded rows (b t …), and which of their tokens are real (b t)."""
    assert not isinstance(attention_mask, Varlen), "recurrent layers do not support Varlen rows"
    if not isinstance(attention_mask, Packed):
        is_token = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return x, is_token if attention_mask is None else attention_mask.bool()
    lengths = torch.tensor(attention_mask.lengths, device=x.device)[:, None]
    position = torch.arange(attention_mask.max_seqlen, device=x.device)
    starts = attention_mask.starts.to(x.device)[:, None]
    return x[starts + torch.minimum(position, lengths - 1)], position < lengths


def _from_rows(rows: Tensor, mask: Tensor, attention_mask: AttentionLayout) -> Tensor:
    """Padded rows in the layout of the batch: b t d, or for a `Packed` row n d."""
    return rows[mask] if isinstance(attention_mask, Packed) else rows
