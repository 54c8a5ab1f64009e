"""A causal model, a GPT or a BERT with `is_decoder`, as a language model.

Its LM head predicts the next token (`objectives/pretraining.py`).
b rows, t tokens, k cached tokens; n tokens of a packed batch, m of them scored; d width,
v vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, islice
from typing import Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cloze.data.batch import batch_by_tokens
from cloze.errors import InputError
from cloze.models.language import LoadedModel, batches
from cloze.nn.attention import KVCache, is_identity
from cloze.nn.context import AttentionContext
from cloze.nn.graph_step import MIN_STEPS, GraphRows, get_graph_steps
from cloze.nn.layout import Packed
from cloze.nn.packed import CACHE_DTYPE, get_packed_step
from cloze.nn.utils import eval_mode, log_softmax
from cloze.text.alignment import count_removed_chars

BATCH_TOKENS = 2048  # of whole texts that are read together
_LOGITS_BATCH = 512  # tokens whose logits (over the whole vocabulary) are in memory together
Floats: TypeAlias = NDArray[np.float32]
Window: TypeAlias = tuple[list[int], int]  # ids, and the index of the first one to score


@dataclass(frozen=True, kw_only=True)
class CausalEncoderState:
    """The tokens of each row so far and, while every row fits into the model, their KV cache."""

    contexts: tuple[tuple[int, ...], ...]  # b
    pending: tuple[Tensor, ...] = ()  # b each: later tokens, which are not on the host yet
    caches: tuple[KVCache, ...] = ()  # by layer, b k h d; empty: nothing is cached here
    graph_rows: GraphRows | None = None  # the cache in the buffers of a CUDA graph
    mask: Tensor | None = None  # b k, False where a row is padded; None: no row is
    new_tokens: int | None = None  # to be generated at most, if that is known
    log_normalizer: Tensor | None = None  # b 1, of the last step: logits minus log-probabilities

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each row."""
        return [len(context) + len(self.pending) for context in self.contexts]

    def find_real_tokens(self) -> Tensor:
        """The indices of the tokens of each row in the cache, then of padding (b k)."""
        longest = max(self.lengths)
        if self.mask is None:
            device = self.caches[0].past.key.device if self.caches[0].past else None
            return torch.arange(longest, device=device).expand(len(self.contexts), -1)
        return (~self.mask).byte().argsort(dim=1, stable=True)[:, :longest]

    def read_pending(self) -> Self:
        """The same state with all tokens in `contexts`."""
        if not self.pending:
            return self
        new = torch.stack(self.pending, 1).tolist()
        contexts = zip(self.contexts, new, strict=True)
        return replace(self, contexts=tuple((*old, *ids) for old, ids in contexts), pending=())


@dataclass(frozen=True, kw_only=True)
class CausalEncoder:
    """A causal encoder as a `LanguageModel`: ids of its tokenizer, from bos to eos.

    These are [CLS] and [SEP] of a BERT; both are <|endoftext|> of a GPT-2.

    A context that is longer than the model's maximum is truncated to its first token and its last
    ones. A long text is scored in windows; each starts with bos and repeats half of the one before.
    """

    model: LoadedModel
    bos_id: int | None  # None: the vocabulary of the first GPT has neither
    eos_id: int | None

    @property
    def kind(self) -> str:
        return f"{self.model.config.family}, causal"

    @property
    def module(self) -> nn.Module:
        return self.model.module

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @cached_property
    def vocabulary(self) -> Sequence[str]:
        backend, size = self.model.tokenizer.backend, self.model.tokenizer.vocab_size
        return [backend.id_to_token(id_) or "" for id_ in range(size)]

    @cached_property
    def _adds_bos(self) -> bool:
        return self.bos_id is not None and self.bos_id in self.model.tokenizer.encode("").ids

    @property
    def unk_id(self) -> int | None:
        """The id of the unknown token; None if it is eos, as in the tokenizer of GPT-2."""
        unk_id = self.model.tokenizer.unk_id
        return None if unk_id == self.eos_id else unk_id

    def encode_prompt(self, text: str) -> list[int]:
        """The tokens of a prompt, after bos if the tokenizer adds it or the prompt is empty."""
        tokenizer = self.model.tokenizer
        end = tokenizer.take_tail(text, self.model.max_length + 1)  # what is read of it
        (ids,) = tokenizer.encode_ids([end], add_special_tokens=False)
        if len(end) < len(text) and not self._adds_bos:  # the first token is always read
            ids = [*tokenizer.encode_ids([text], add_special_tokens=False, limit=1)[0][:1], *ids]
        if not self._adds_bos and ids:
            return list(ids)
        if self.bos_id is None:
            raise InputError(
                "the prompt is empty, and the vocabulary of this model has no token that begins a "
                "text",
                fix="give a prompt",
            )
        return [self.bos_id, *ids]

    @property
    def max_length(self) -> int:
        """The maximum number of tokens of a context."""
        length: int = self.model.max_length
        return length

    def count_unread_chars(self, text: str) -> int:
        """The number of characters of a prompt that are left out because it is too long."""
        extra = len(self.encode_prompt(text)) - self.max_length
        if extra <= 0:
            return 0
        end = self.model.tokenizer.take_tail(text, self.max_length + 1)
        offsets = self.model.tokenizer.encode(end, add_special_tokens=False).offsets
        # the first token of a context is always read: bos, or that of the whole text
        is_cut = len(end) < len(text)
        first = 0 if self._adds_bos or is_cut else 1
        kept = [range(first), range(first + extra, len(offsets))]
        return len(text) - len(end) + count_removed_chars(offsets, kept)

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Bos, the tokens and eos of each text."""
        bos_id, eos_id = self.border_ids
        encoded = self.model.tokenizer.encode_ids(texts, add_special_tokens=False)
        return [[bos_id, *ids, eos_id] for ids in encoded]

    @property
    def border_ids(self) -> tuple[int, int]:
        """Bos and eos; raises if the vocabulary lacks one of them."""
        if self.bos_id is None or self.eos_id is None:
            raise InputError(
                "the vocabulary of this model has no tokens that begin and end a text, such as "
                "[CLS] and [SEP], so whole texts have no probability",
                fix="use a model whose tokenizer has both; this one can continue texts (generate, "
                "suggest)",
            )
        return self.bos_id, self.eos_id

    def decode_token(self, id: int) -> str:
        """One token as readable text; ## marks a subword that continues a word."""
        text = self.model.tokenizer.decode([id], skip_special_tokens=False)
        return text.strip() or text  # a space is a token of its own in some vocabularies

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without bos and eos; unknown tokens stay [UNK]."""
        inside = [id_ for id_ in ids if id_ not in (self.bos_id, self.eos_id)]
        return self.model.tokenizer.decode(inside, skip_special_tokens=False)

    def next_log_probs(self, context: Sequence[int]) -> Floats:
        """Log p(w | context) for every token, v; −∞ for special tokens other than eos."""
        log_probs, _ = self.step(*self.start([context]))
        return log_probs[0].cpu().numpy()

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, CausalEncoderState]:
        """The last token of each prompt (b), and the tokens before it, which are not read yet."""
        tokens = torch.tensor([prompt[-1] for prompt in prompts], device=self.device)
        return tokens, CausalEncoderState(contexts=tuple(tuple(one[:-1]) for one in prompts))

    def reserve(self, state: CausalEncoderState, new_tokens: int) -> CausalEncoderState:
        """The state with memory for so many new tokens of each row, which need not be used up."""
        return replace(state, new_tokens=new_tokens)

    @torch.inference_mode()
    def step(self, tokens: Tensor, state: CausalEncoderState) -> tuple[Tensor, CausalEncoderState]:
        """Log-probabilities of the next token (b v) after one more token of each row (b).

        The first step reads the prompts, later ones the new tokens alone. If a row is longer than
        the model's maximum, positions shift with every token, and each step reads all rows again.
        """
        state = replace(state, pending=(*state.pending, tokens))
        if max(state.lengths) > self.model.max_length:
            state = replace(state.read_pending(), caches=(), mask=None, graph_rows=None)
            with eval_mode(self.module):
                logits = self._read_windows(state.contexts)
        else:
            logits, state = (
                self._replay_graph(tokens, state)
                or self._read_tokens(tokens, state)
                or self._read_contexts(state)
            )
        log_probs = log_softmax(logits)[:, : self.model.tokenizer.vocab_size]
        state = replace(state, log_normalizer=logits[:, :1] - log_probs[:, :1])
        return log_probs.index_fill_(-1, self._banned_ids, -torch.inf), state

    @cached_property
    def _banned_ids(self) -> Tensor:
        """Special tokens other than eos and unk."""
        banned = self.model.tokenizer.special_ids - {self.eos_id, self.unk_id}
        return torch.tensor(sorted(banned), dtype=torch.long, device=self.device)

    def reorder(self, state: CausalEncoderState, indices: Tensor) -> CausalEncoderState:
        """The state of the rows at `indices`."""
        rows = indices.tolist()
        if rows == list(range(len(state.contexts))):
            return state
        state = state.read_pending()
        graph_rows = state.graph_rows
        return replace(
            state,
            contexts=tuple(state.contexts[row] for row in rows),
            caches=tuple(cache.reorder(indices) for cache in state.caches),
            graph_rows=graph_rows and graph_rows.graph.reorder(graph_rows, indices),
            mask=None if state.mask is None else state.mask[indices],
        )

    def merge(self, states: Sequence[CausalEncoderState]) -> CausalEncoderState:
        """One state with the rows of several, without padding between the tokens of a row.

        If a state has no cache here (a CUDA graph has it, or a row is too long), the next step
        reads all tokens again.
        """
        states = [state.read_pending() for state in states]
        contexts = tuple(context for state in states for context in state.contexts)
        new_tokens = max((state.new_tokens or 0 for state in states), default=0) or None
        merged = CausalEncoderState(contexts=contexts, new_tokens=new_tokens)
        if not all(state.caches for state in states):
            return merged
        lengths = torch.tensor([len(context) for context in contexts], device=self.device)
        longest = int(lengths.max())
        capacity = longest + min(new_tokens or 1, max(1, self.model.max_length - longest))
        indices = [state.find_real_tokens() for state in states]
        caches = (
            KVCache.merge(
                [
                    cache.select_tokens(some, capacity)
                    for cache, some in zip(of_layer, indices, strict=True)
                ],
                longest,
            )
            for of_layer in zip(*(state.caches for state in states), strict=True)
        )
        mask = torch.arange(longest, device=self.device) < lengths[:, None]  # b k
        is_padded = len(set(map(len, contexts))) > 1
        return replace(merged, caches=tuple(caches), mask=mask if is_padded else None)

    def _replay_graph(
        self, tokens: Tensor, state: CausalEncoderState
    ) -> tuple[Tensor, CausalEncoderState] | None:
        """Logits after one more token of each row (b v) by a CUDA graph, if there can be one."""
        rows = state.graph_rows
        if rows is None and state.caches and (state.new_tokens or MIN_STEPS) >= MIN_STEPS:
            graphs = get_graph_steps(self.model.module)
            capacity = state.caches[0].length + (state.new_tokens or max(state.lengths))
            if graphs is not None:
                rows = graphs.load(self.model.module, state.caches, state.mask, capacity)
        found = rows and rows.graph.step(tokens, rows)
        if not found:
            return None
        return found[0], replace(state, caches=(), mask=None, graph_rows=found[1])

    def _read_contexts(self, state: CausalEncoderState) -> tuple[Tensor, CausalEncoderState]:
        """Logits after each context (b v), and a cache of all tokens.

        Contexts are padded on the right; no real token attends to padding. Rows with the same
        context, such as several samples of a prompt, are computed once.
        """
        state = state.read_pending()
        numbers = {context: n for n, context in enumerate(dict.fromkeys(state.contexts))}
        lengths = torch.tensor([len(context) for context in numbers], device=self.device)
        longest = max(map(len, numbers))
        ids = torch.tensor(
            [[*context, *[0] * (longest - len(context))] for context in numbers],
            device=self.device,
        )
        module = self.model.module
        room = longest + (state.new_tokens or 1) - 1  # the last token is not read
        caches = tuple(KVCache(reserve=min(room, self.model.max_length)) for _ in module.blocks)
        with eval_mode(module):
            x, context = module.embeddings(ids), module.make_context(ids, None)
            for block, cache in zip(module.blocks, caches, strict=True):
                x = block(x, context, cache)
            last = x[torch.arange(len(ids), device=self.device), lengths - 1]
            logits = module.logits(module.lm_head, module.norm(last))
        mask = torch.arange(longest, device=self.device) < lengths[:, None]
        rows = torch.tensor([numbers[context] for context in state.contexts], device=self.device)
        if not is_identity(rows, len(ids)):
            caches = tuple(cache.reorder(rows) for cache in caches)
            logits, mask = logits[rows], mask[rows]
        is_padded = min(map(len, numbers)) < longest
        state = replace(state, caches=caches, graph_rows=None, mask=mask if is_padded else None)
        return logits, state

    def _read_tokens(
        self, tokens: Tensor, state: CausalEncoderState
    ) -> tuple[Tensor, CausalEncoderState] | None:
        """Logits after one more token of each row (b v), and the cache with that token."""
        if not state.caches:
            return None
        mask, module = state.mask, self.model.module
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones(len(tokens), 1)], 1)
        position_ids = torch.tensor([[n - 1] for n in state.lengths], device=self.device)
        length = state.caches[0].length + 1
        context = AttentionContext(
            mask, max_seqlen=length, device=self.device, position_ids=position_ids
        )
        packed = get_packed_step(module, steps=state.new_tokens)
        dtype = CACHE_DTYPE if packed else module.embeddings.word.weight.dtype
        # the state itself is not changed
        caches = tuple(replace(cache.convert(dtype)) for cache in state.caches)
        with eval_mode(module):
            x = module.embeddings(tokens[:, None], None, position_ids)  # b 1 d
            if packed:
                logits = packed(module, x[:, 0], context, caches)
            else:
                for block, cache in zip(module.blocks, caches, strict=True):
                    x = block(x, context, cache)
                logits = module.logits(module.lm_head, module.norm(x[:, 0]))
        return logits, replace(state, caches=caches, mask=mask)

    def _read_windows(self, contexts: Sequence[Sequence[int]]) -> Tensor:
        """Logits after each context (b v), truncated to the model's maximum."""
        room = self.model.max_length - 1
        windows = [[context[0], *context[1:][-room:]] for context in contexts]
        lengths, module = [len(ids) for ids in windows], self.model.module
        hidden: dict[int, Tensor] = {}
        for numbers in batch_by_tokens(lengths, BATCH_TOKENS):
            flat = torch.tensor([id_ for n in numbers for id_ in windows[n]], device=self.device)
            layout = Packed.from_lengths((lengths[n] for n in numbers), self.device)
            ends = torch.tensor([lengths[n] for n in numbers], device=self.device).cumsum(0) - 1
            hidden.update(zip(numbers, module(flat, layout)[ends], strict=True))
        vectors = torch.stack([hidden[n] for n in range(len(windows))])
        logits: Tensor = module.logits(module.lm_head, vectors)
        return logits

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every token but the first."""
        for batch in batches(sequences):
            groups = [list(self._split_windows(ids)) for ids in batch]
            windows = [window for group in groups for window in group]
            scores: dict[int, Floats] = {}
            for numbers in batch_by_tokens([len(ids) for ids, _ in windows], BATCH_TOKENS):
                some = self._score_windows([windows[n] for n in numbers])
                scores.update(zip(numbers, some, strict=True))
            in_order = (scores[n] for n in range(len(windows)))
            yield from (np.concatenate(list(islice(in_order, len(group)))) for group in groups)

    def _split_windows(self, ids: Sequence[int]) -> Iterator[Window]:
        limit = self.model.max_length
        yield list(ids[:limit]), 1
        done = limit
        while done < len(ids):
            first = done - min(limit // 2, limit - 2)
            yield [ids[0], *ids[first : first + limit - 1]], done - first + 1
            done = first + limit - 1

    @torch.inference_mode()
    def _score_windows(self, windows: Sequence[Window]) -> list[Floats]:
        """Log p of the tokens of each window that no earlier window has scored."""
        device, module = self.model.device, self.model.module
        flat = torch.tensor([id_ for ids, _ in windows for id_ in ids], device=device)
        layout = Packed.from_lengths((len(ids) for ids, _ in windows), device)
        with eval_mode(module):
            return self._score_tokens(module(flat, layout), flat, windows)

    def _score_tokens(
        self, hidden: Tensor, flat: Tensor, windows: Sequence[Window]
    ) -> list[Floats]:
        """Log p of the new tokens of windows, from the last layer at all of them (n d)."""
        module = self.model.module
        ends = accumulate(len(ids) for ids, _ in windows)
        positions = [
            np.arange(end - len(ids) + new, end)
            for (ids, new), end in zip(windows, ends, strict=True)
        ]
        targets = torch.from_numpy(np.concatenate(positions)).to(flat.device)  # m
        scores = [
            # a token is predicted from the one before it
            log_softmax(module.logits(module.lm_head, hidden[some - 1])).gather(
                -1, flat[some, None]
            )
            for some in targets.split(_LOGITS_BATCH)
        ]
        log_probs = torch.cat(scores)[:, 0].cpu().numpy()
        return np.split(log_probs, np.cumsum([len(some) for some in positions])[:-1])


def make_causal_encoder(model: LoadedModel) -> CausalEncoder:
    """The adapter of a causal encoder with an LM head; other encoders are an error."""
    if not model.module.is_causal or model.module.lm_head is None:
        head = next(iter(model.task_heads), "missing")
        why = f"its head is {head}" if model.module.is_causal else "it is bidirectional"
        raise InputError(
            f"this model cannot predict the next token: {why}",
            fix="use a language model: one trained with cloze pretrain --family ngram, nnlm or "
            "lstm, a GPT-2, or a BERT with --set objective.kind=causal --pairs none",
        )
    tokenizer = model.tokenizer
    return CausalEncoder(model=model, bos_id=tokenizer.start_id, eos_id=tokenizer.end_id)
