"""A RETRO as a language model, with or without a database of chunks.

Without a database it is a plain decoder. With one, every chunk of a text retrieves neighbors as
soon as its last token is read, and the tokens after it attend to them.
b rows, t tokens, m tokens of a chunk, k neighbors of l tokens, d width, v vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.data.batch import batch_by_tokens
from cloze.decode.causal_encoder import (
    BATCH_TOKENS,
    CausalEncoder,
    CausalEncoderState,
    Floats,
    Window,
    make_causal_encoder,
)
from cloze.models.language import LoadedModel
from cloze.nn.attention import KVCache
from cloze.nn.context import AttentionContext
from cloze.nn.layout import Packed
from cloze.nn.retrieval import (
    ChunkNeighbors,
    ChunkPositions,
    RetrievalCache,
    SequenceRetrieval,
    StepRetrieval,
)
from cloze.nn.utils import eval_mode


class Retriever(Protocol):
    """Finds the neighbors of chunks (`cloze.tasks.chunk_retriever`, a higher layer)."""

    def find(self, chunks: Sequence[Sequence[int]], /) -> tuple[Any, Any]:
        """Ids of the neighbors of each chunk (c k l), and a mask of real tokens."""
        ...

    def describe(self, ids: Sequence[int], /) -> tuple[Any, ...]:
        """The chunks of a text with their neighbors, for people."""
        ...


@dataclass(frozen=True, kw_only=True)
class RetroState(CausalEncoderState):
    """The tokens of each row so far, their KV cache, and what they read of neighbors."""

    retrieval: RetrievalCache | None = None


@dataclass(frozen=True, kw_only=True)
class RetroDecoder(CausalEncoder):
    """A RETRO as a `LanguageModel`.

    Every text begins with bos, as in training, so that chunks are counted from its first token. A
    text that is longer than the model's maximum loses whole chunks at its start.
    """

    retriever: Retriever | None = None  # None: nothing is retrieved

    @property
    def _adds_bos(self) -> bool:
        return self.bos_id is not None

    @property
    def chunk_length(self) -> int:
        """The number of tokens of a chunk."""
        length: int = self.model.config.chunk_length
        return length

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, RetroState]:
        """The last token of each prompt (b), and the tokens before it, which are not read yet."""
        tokens, state = super().start(prompts)
        return tokens, RetroState(contexts=state.contexts)

    def reorder(self, state: CausalEncoderState, indices: Tensor) -> CausalEncoderState:
        """The state of the rows at `indices`."""
        reordered = super().reorder(state, indices)
        if reordered is state or not isinstance(reordered, RetroState):
            return reordered
        cache = reordered.retrieval
        return replace(reordered, retrieval=cache and cache.reorder(indices))

    def merge(self, states: Sequence[CausalEncoderState]) -> CausalEncoderState:
        """One state with the rows of several; with a database all tokens are read again."""
        if self.retriever is None:
            merged = super().merge(states)
            values = {one.name: getattr(merged, one.name) for one in fields(CausalEncoderState)}
            return RetroState(**values)
        states = [state.read_pending() for state in states]
        new_tokens = max((state.new_tokens or 0 for state in states), default=0) or None
        contexts = tuple(context for state in states for context in state.contexts)
        return RetroState(contexts=contexts, new_tokens=new_tokens)

    def _read_contexts(self, state: CausalEncoderState) -> tuple[Tensor, CausalEncoderState]:
        """Logits after each context (b v), and caches of all tokens and of their neighbors."""
        if self.retriever is None:
            return super()._read_contexts(state)
        assert isinstance(state, RetroState)
        state = state.read_pending()
        module, contexts = self.model.module, state.contexts
        lengths = [len(context) for context in contexts]
        longest = max(lengths)
        ids = torch.tensor(
            [[*context, *[0] * (longest - len(context))] for context in contexts],
            device=self.device,
        )
        starts = np.arange(len(contexts)) * longest
        retrieval = module.retrieve(
            self._find_neighbors(contexts, starts, size=len(contexts) * longest)
        )
        room = longest + (state.new_tokens or 1) - 1
        caches = tuple(KVCache(reserve=min(room, self.model.max_length)) for _ in module.blocks)
        with eval_mode(module):
            x, context = module.embeddings(ids), module.make_context(ids, None, retrieval)
            for block, cache in zip(module.blocks, caches, strict=True):
                x = block(x, context, cache)
            ends = torch.tensor(lengths, device=self.device) - 1
            last = x[torch.arange(len(ids), device=self.device), ends]
            logits = module.logits(module.lm_head, module.norm(last))
            cached = self._start_cache(retrieval, lengths, longest)
        mask = None
        if min(lengths) < longest:
            mask = torch.arange(longest, device=self.device) <= ends[:, None]
        return logits, replace(state, caches=caches, mask=mask, retrieval=cached)

    def _start_cache(
        self, retrieval: SequenceRetrieval, lengths: Sequence[int], longest: int
    ) -> RetrievalCache:
        """What later tokens of each row read: the states of its last chunk, its neighbors."""
        module, size = self.model.module, self.chunk_length
        assert retrieval.states is not None
        # the chunk that the last token is in, and the last one that is complete, from 1
        current = np.array([max(length - 2, 0) // size for length in lengths])
        complete = np.array([(length - 1) // size for length in lengths])
        starts = np.arange(len(lengths)) * longest
        inside = current[:, None] * size + np.arange(1, size + 1)  # b m
        places = starts[:, None] + inside.clip(max=longest - 1)
        states = retrieval.states[torch.from_numpy(places).to(self.device)]
        counts = np.cumsum(complete) - complete
        rows = np.where(complete > 0, counts + complete - 1, -1)  # the chunk that is read now
        has_chunk = torch.from_numpy(rows >= 0).to(self.device)
        chosen = torch.from_numpy(rows.clip(0)).to(self.device)
        width = self.model.config.num_neighbors * self.model.config.neighbor_length
        if retrieval.encoded is None:
            encoded = states.new_zeros(len(lengths), width, states.shape[-1])
            found = has_chunk.new_zeros(len(lengths), width)
        else:
            encoded = retrieval.encoded[chosen]
            found = retrieval.neighbors.mask.flatten(1)[chosen] & has_chunk[:, None]
        has_any = found.any(1)
        return RetrievalCache(
            states=states,
            key_values=tuple(one.project_encoder(encoded) for one in module.retrieval_attentions),
            mask=found | ~has_any[:, None],
            has_neighbors=has_any,
        )

    def _read_tokens(
        self, tokens: Tensor, state: CausalEncoderState
    ) -> tuple[Tensor, CausalEncoderState] | None:
        """Logits after one more token of each row (b v), and the caches with that token."""
        if self.retriever is None:
            return super()._read_tokens(tokens, state)
        if not isinstance(state, RetroState) or not state.caches or state.retrieval is None:
            return None
        module, mask, cache = self.model.module, state.mask, state.retrieval
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones(len(tokens), 1)], 1)
        positions = [length - 1 for length in state.lengths]
        if ending := [row for row, one in enumerate(positions) if one % self.chunk_length == 0]:
            state = state.read_pending()
        slots = torch.tensor([(one - 1) % self.chunk_length for one in positions])
        retrieval = StepRetrieval(
            module.encode_neighbors,
            cache,
            slots.to(self.device),
            self._find_ending(state, ending) if ending else None,
        )
        position_ids = torch.tensor(positions, device=self.device)[:, None]
        context = AttentionContext(
            mask,
            max_seqlen=state.caches[0].length + 1,
            device=self.device,
            position_ids=position_ids,
        )
        context.retrieval = retrieval
        caches = tuple(replace(one) for one in state.caches)  # the state is not changed
        with eval_mode(module):
            x = module.embeddings(tokens[:, None], None, position_ids)  # b 1 d
            for block, block_cache in zip(module.blocks, caches, strict=True):
                x = block(x, context, block_cache)
            logits = module.logits(module.lm_head, module.norm(x[:, 0]))
        return logits, replace(state, caches=caches, mask=mask, retrieval=retrieval.cache)

    def _find_ending(
        self, state: CausalEncoderState, rows: Sequence[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The rows whose chunk ends with their last token, and the neighbors of these chunks."""
        assert self.retriever is not None
        ids, mask = self.retriever.find([state.contexts[row][-self.chunk_length :] for row in rows])
        return (
            torch.tensor(rows, device=self.device),
            torch.from_numpy(ids).to(self.device),
            torch.from_numpy(mask).to(self.device),
        )

    def _find_neighbors(
        self,
        sequences: Sequence[Sequence[int]],
        starts: NDArray[np.int64],
        *,
        size: int,
    ) -> ChunkNeighbors:
        """The neighbors of all complete chunks of sequences that begin at `starts` in a row."""
        assert self.retriever is not None
        length, config = self.chunk_length, self.model.config
        lengths = np.array([len(ids) for ids in sequences])
        counts = (lengths - 1) // length
        positions = ChunkPositions.locate(starts, lengths, counts, chunk_length=length, size=size)
        chunks = [
            ids[1 + length * number : 1 + length * (number + 1)]
            for ids, count in zip(sequences, counts.tolist(), strict=True)
            for number in range(count)
        ]
        shape = (0, config.num_neighbors, config.neighbor_length)
        found, mask = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        if chunks:
            found, mask = self.retriever.find(chunks)
        return ChunkNeighbors.from_arrays(found, mask, positions, self.device)

    def _run_packed(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        """The last layer at every token of sequences, in a flat row: n d."""
        lengths = np.array([len(ids) for ids in sequences])
        flat = torch.tensor([id_ for ids in sequences for id_ in ids], device=self.device)
        layout = Packed.from_lengths(lengths.tolist(), self.device)
        neighbors = None
        if self.retriever is not None:
            starts = np.cumsum(lengths) - lengths
            neighbors = self._find_neighbors(sequences, starts, size=len(flat))
        hidden: Tensor = self.model.module(flat, layout, None, neighbors)
        return hidden

    def _read_windows(self, contexts: Sequence[Sequence[int]]) -> Tensor:
        """Logits after each context (b v), without the first chunks if it is too long."""
        size, module = self.chunk_length, self.model.module
        windows = []
        for context in contexts:
            extra = max(0, len(context) - self.model.max_length)
            windows.append([context[0], *context[1 + -(-extra // size) * size :]])
        hidden: dict[int, Tensor] = {}
        lengths = [len(ids) for ids in windows]
        for numbers in batch_by_tokens(lengths, BATCH_TOKENS):
            ends = np.cumsum([lengths[n] for n in numbers]) - 1
            found = self._run_packed([windows[n] for n in numbers])[ends.tolist()]
            hidden.update(zip(numbers, found, strict=True))
        logits: Tensor = module.logits(
            module.lm_head, torch.stack([hidden[n] for n in range(len(windows))])
        )
        return logits

    def _split_windows(self, ids: Sequence[int]) -> Iterator[Window]:
        """Windows that begin with bos and a chunk; each repeats half of the one before."""
        size = self.chunk_length
        limit = 1 + max(1, (self.model.max_length - 1) // size) * size
        yield list(ids[:limit]), 1
        done = limit
        while done < len(ids):
            kept = (limit - 1) // size // 2 * size  # tokens of the window before
            first = done - kept
            yield [ids[0], *ids[first : first + limit - 1]], kept + 1
            done = first + limit - 1

    @torch.inference_mode()
    def _score_windows(self, windows: Sequence[Window]) -> list[Floats]:
        """Log p of the tokens of each window that no earlier window has scored."""
        if self.retriever is None:
            return super()._score_windows(windows)
        sequences = [ids for ids, _ in windows]
        flat = torch.tensor([id_ for ids in sequences for id_ in ids], device=self.device)
        with eval_mode(self.module):
            hidden = self._run_packed(sequences)
            return self._score_tokens(hidden, flat, windows)

    def describe_neighbors(self, ids: Sequence[int]) -> tuple[Any, ...]:
        """The chunks of a text that was generated, with the neighbors that were read."""
        return () if self.retriever is None else self.retriever.describe(ids)


def make_retro_decoder(model: LoadedModel) -> RetroDecoder:
    """The adapter of a RETRO; a database is added by the functions that accept one."""
    made = make_causal_encoder(model)
    return RetroDecoder(model=model, bos_id=made.bos_id, eos_id=made.eos_id)
