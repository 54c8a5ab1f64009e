"""What an explanation is about: the score of one output, before the softmax, for each row.

b rows, t tokens, s source tokens, d width, c outputs, v vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.errors import InputError
from cloze.models.elmo import Elmo
from cloze.models.nnlm import NNLM
from cloze.nn.utils import log_softmax

Index = int | Tensor  # the same for all rows, or one for each (b)
Activation = Literal["softmax", "sigmoid", "none"]
S = TypeVar("S", bound="Score")


@dataclass(frozen=True)
class Batch:
    """The inputs of a module, as padded rows."""

    ids: Tensor  # b t; of an ELMo rows of characters, b t c; of a translator the target from bos on
    mask: Tensor | None = None  # b t, False where a row is padded; None: no row is
    type_ids: Tensor | None = None  # b t
    source_ids: Tensor | None = None  # b s, of a translator
    source_mask: Tensor | None = None  # b s

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.ids)

    def select(self, rows: Tensor) -> "Batch":
        """These rows, of which one may occur several times."""
        values: dict[str, Any] = {
            field.name: one[rows]
            for field in fields(self)
            if (one := getattr(self, field.name)) is not None
        }
        return Batch(**values)

    def repeat(self, times: int) -> "Batch":
        """Every row so many times, the copies of a row next to each other."""
        rows = torch.arange(len(self), device=self.ids.device)
        return self.select(rows.repeat_interleave(times))


class Score(ABC):
    """The score of one output of a model, for each row of a batch."""

    position: Index  # of the token whose vector predicts it
    name: str  # what it is the score of, for people

    @abstractmethod
    def evaluate(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The logit of the output and its log-probability: b each."""

    @abstractmethod
    def log_probabilities(self, module: nn.Module, batch: Batch) -> Tensor:
        """The log-probabilities of all outputs that compete with it: b c."""

    def __call__(self, module: nn.Module, batch: Batch) -> Tensor:
        """The logit of the output: b."""
        return self.evaluate(module, batch)[0]

    def log_probability(self, module: nn.Module, batch: Batch) -> Tensor:
        """The log-probability of the output: b."""
        return self.evaluate(module, batch)[1]


@dataclass(frozen=True)
class HeadScore(Score):
    """One output of a task head: a token at a mask, a class, a tag, the start or end of an answer.

    The outputs of `span` compete with the same output at the other tokens, that of `choice` with
    the logits of the other options (`others`), which stay as they are.
    """

    head: str
    position: Index  # of the token that the head reads; a pooled head reads the sequence
    index: Index  # of the output: token id, label; of span 0 is the start and 1 the end
    name: str = ""
    activation: Activation = "softmax"  # what makes a probability of it; none: it is a number
    others: Tensor | None = None  # of choice: the logits of the other options, o or b o

    def logits(self, module: Any, batch: Batch) -> Tensor:  # noqa: ANN401 (an encoder)
        """The logits of the head: b c."""
        hidden = module(batch.ids, batch.mask, batch.type_ids)  # b t d
        rows = torch.arange(len(batch), device=hidden.device)
        indices = rows * hidden.shape[1] + _expand(self.position, batch)
        logits: Tensor = module.logits(
            self.head, module.head_inputs(self.head, hidden, indices, batch.mask)
        )
        return logits

    def evaluate(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The logit and the log-probability; of a number the number twice."""
        if self.head == "span":
            logits, index = self._position_logits(module, batch), _expand(self.position, batch)
            return _pick(logits, index), _pick(log_softmax(logits), index)
        logits, index = self.logits(module, batch), _expand(self.index, batch)
        return _pick(logits, index), _pick(self._normalize(logits), index)

    def log_probabilities(self, module: nn.Module, batch: Batch) -> Tensor:
        """B c; of span b t, of choice b o with this option first; a number is returned as it is."""
        if self.head == "span":
            return log_softmax(self._position_logits(module, batch))
        return self._normalize(self.logits(module, batch))

    def _normalize(self, logits: Tensor) -> Tensor:
        if self.head == "choice" and self.others is not None:
            others = self.others.to(logits).expand(len(logits), -1)
            return log_softmax(torch.cat([logits, others], -1))
        if self.activation == "softmax":
            return log_softmax(logits)
        return F.logsigmoid(logits) if self.activation == "sigmoid" else logits

    def _position_logits(self, module: Any, batch: Batch) -> Tensor:  # noqa: ANN401
        """The output of every token: b t."""
        hidden = module(batch.ids, batch.mask, batch.type_ids)
        logits = module.logits(self.head, hidden)  # b t 2
        index = _expand(self.index, batch)[:, None, None].expand(-1, logits.shape[1], 1)
        chosen: Tensor = logits.gather(-1, index)[..., 0]
        return chosen if batch.mask is None else chosen.masked_fill(~batch.mask.bool(), -torch.inf)


@dataclass(frozen=True)
class NextTokenScore(Score):
    """A token after the token at `position`, of a causal encoder or a language model.

    An ELMo predicts with its forward direction.
    """

    position: Index  # of the last token that is read
    id: Index
    name: str = ""

    def logits(self, module: Any, batch: Batch) -> Tensor:  # noqa: ANN401 (of any such family)
        """The logits of all tokens: b v."""
        position = _expand(self.position, batch)
        if getattr(module, "lm_head", None) is not None:
            hidden = module(batch.ids, batch.mask, batch.type_ids)
            found: Tensor = module.logits(module.lm_head, _take(hidden, position))
            return found
        if isinstance(module, NNLM):
            return _nnlm_logits(module, batch.ids, position)
        if isinstance(module, Elmo):
            return _elmo_logits(module, batch.ids, position)
        if not hasattr(module, "init_state") or hasattr(module, "target_embeddings"):
            raise InputError(
                f"{type(module).__name__} predicts no next token",
                fix="use a GPT, a causal BERT, an NNLM, an LSTM or an ELMo with an output layer",
            )
        hidden, _ = module(batch.ids, module.init_state(len(batch)))
        logits: Tensor = module.logits(_take(hidden, position))
        return logits

    def evaluate(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The logit and the log-probability of the token: b each."""
        logits, index = self.logits(module, batch), _expand(self.id, batch)
        return _pick(logits, index), _pick(log_softmax(logits), index)

    def log_probabilities(self, module: nn.Module, batch: Batch) -> Tensor:
        """Of all tokens: b v."""
        return log_softmax(self.logits(module, batch))


@dataclass(frozen=True)
class TranslationScore(Score):
    """A token of the target of a translator, given the source and the target tokens before it."""

    position: Index  # of the last target token that is read: 0 is bos, which predicts the first
    id: Index
    name: str = ""

    def logits(self, module: Any, batch: Batch) -> Tensor:  # noqa: ANN401 (a translator)
        """The logits of all tokens: b v."""
        assert batch.source_ids is not None
        mask = batch.source_mask
        if mask is None:
            mask = torch.ones_like(batch.source_ids, dtype=torch.bool)
        hidden = module(batch.source_ids, mask, batch.ids)  # b t d
        logits: Tensor = module.logits(_take(hidden, _expand(self.position, batch)))
        return logits

    def evaluate(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The logit and the log-probability of the token: b each."""
        logits, index = self.logits(module, batch), _expand(self.id, batch)
        return _pick(logits, index), _pick(log_softmax(logits), index)

    def log_probabilities(self, module: nn.Module, batch: Batch) -> Tensor:
        """Of all tokens: b v."""
        return log_softmax(self.logits(module, batch))


def join_scores(scores: Sequence[S]) -> S:
    """The scores of single rows, of one kind and head, as the score of a batch with these rows."""
    first = scores[0]
    joined: dict[str, Any] = {}
    for field in fields(first):  # type: ignore[arg-type]  # all are dataclasses
        values = [getattr(one, field.name) for one in scores]
        if isinstance(values[0], int):
            joined[field.name] = torch.tensor(values)
        elif isinstance(values[0], Tensor):  # the logits of other options may differ in number
            rows = [one.reshape(-1) for one in values]
            joined[field.name] = nn.utils.rnn.pad_sequence(rows, True, -torch.inf)
    return replace(first, **joined)  # type: ignore[type-var]


def select_rows(score: S, rows: Tensor) -> S:
    """The score of these rows of its batch, of which one may occur several times."""
    values = {
        field.name: value[rows.to(value.device)]
        for field in fields(score)  # type: ignore[arg-type]
        if isinstance(value := getattr(score, field.name), Tensor)
        and value.dim() > (field.name == "others")
    }
    return replace(score, **values)  # type: ignore[type-var]


def _expand(index: Index, batch: Batch) -> Tensor:
    """One index for each row: b."""
    return torch.as_tensor(index, device=batch.ids.device).expand(len(batch))


def _pick(values: Tensor, index: Tensor) -> Tensor:
    """One value of each row: b c, b -> b."""
    return values.gather(-1, index[:, None])[:, 0]


def _take(hidden: Tensor, position: Tensor) -> Tensor:
    """The vector at one position of each row: b t d, b -> b d."""
    return hidden[torch.arange(len(hidden), device=hidden.device), position]


def _nnlm_logits(module: NNLM, ids: Tensor, position: Tensor) -> Tensor:
    """All tokens are embedded, so that those outside of the window have the gradient zero."""
    size = module.config.order - 1
    vectors = module.embeddings(ids)  # b t e
    begin = module.embeddings.weight[module.config.bos_id].expand(len(ids), size, -1)
    window = position[:, None] + 1 + torch.arange(size, device=ids.device)  # b (n−1)
    context = torch.cat([begin, vectors], 1).take_along_dim(window[..., None], 1)
    return module.compute_logits(context.flatten(1))


def _elmo_logits(module: Elmo, characters: Tensor, position: Tensor) -> Tensor:
    if module.output is None:
        raise InputError(
            "this ELMo has no output layer, so it cannot predict words",
            fix="train one with cloze pretrain --family elmo",
        )
    cnn = module.embeddings
    words = cnn(cnn.trim(characters.flatten(0, 1))).unflatten(0, characters.shape[:2])  # b t p
    state = module.init_state(len(words))[:2]
    hidden, _ = module.read_direction(module.forward_layers, words, state)
    with torch.no_grad():  # words to predict are no inputs
        weight, bias = module.output()
    return F.linear(_take(hidden, position), weight, bias)
