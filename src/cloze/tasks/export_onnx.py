"""`export onnx`: an encoder as an ONNX file, checked against the module.

Inputs are `input_ids`, `attention_mask` and, for models with token types, `token_type_ids`, each
(batch, tokens); both sizes are dynamic. The outputs depend on the task. b batch, t tokens, d width.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cloze.checkpoint.atomic import atomic_folder, translate_write_errors
from cloze.checkpoint.model import Model, unsupported_function_error
from cloze.checkpoint.task import TASK_HEADS
from cloze.config import one_of
from cloze.errors import ConfigError, InputError, MissingExtraError
from cloze.files import write_json
from cloze.models.registry import resolve
from cloze.nn.context import AttentionContext
from cloze.nn.encoder import Encoder
from cloze.nn.layout import apply_causal_mask, window_mask
from cloze.nn.pooling import pool_masked
from cloze.nn.utils import eval_mode
from cloze.tasks.inference import predicts_next_sentence
from cloze.text.tokenizer_files import ROLES

TASKS = {"embed": "", "fill": "mlm", **TASK_HEADS}  # and the head that each reads
PER_TOKEN = ("fill", "tag", "answer")  # tasks with an output for each token
DTYPES = ("float32", "int8")
MAX_DIFFERENCE = 1e-4  # of any output from the module's, in float32
MIN_COSINE = 0.99  # mean cosine of the outputs in int8 to the module's
FILE = "model.onnx"
_CHECKED = ((1, 5), (3, 17), (2, 1))  # batch and tokens of the inputs that are compared


class _ExportContext(AttentionContext):
    """Masks whose computation does not depend on the length, which is dynamic."""

    def reach(self, window_size: int | None) -> int | None:
        return None if window_size is None else window_size // 2

    def _whole_mask(self, mask: Tensor | None, length: int, reach: int | None) -> Tensor | None:
        assert mask is not None
        if reach is not None:
            mask = mask & (window_mask(length, reach, self.device) | ~mask.mT)
        return apply_causal_mask(mask, length, self.device) if self.is_causal else mask


class _OnnxModule(nn.Module):
    """The outputs of a task from padded inputs."""

    def __init__(self, model: Model, task: str) -> None:
        super().__init__()
        self.encoder: Encoder = model.module
        self.head = find_head(model, task)
        self.pooling = model.pooling

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        encoder, mask = self.encoder, attention_mask.bool()
        context = _ExportContext(
            mask,
            max_seqlen=input_ids.shape[1],
            device=input_ids.device,
            is_causal=encoder.is_causal,
        )
        encoder.blocks.prepare(context)
        hidden = encoder.embeddings(input_ids, token_type_ids, None)
        for block in encoder.blocks:
            hidden = block(hidden, context)
        hidden = encoder.norm(hidden)  # b t d
        if not self.head:
            modes = self.pooling.modes if self.pooling else ("mean",)
            unit = bool(self.pooling and self.pooling.normalize)
            return pool_masked(hidden, mask.sum(1), modes, normalize=unit), hidden
        if not encoder.uses_pooler(self.head):
            logits = encoder.logits(self.head, hidden)  # b t c
            return tuple(logits.unbind(-1)) if self.head == "span" else (logits,)
        size, length = input_ids.shape
        first = torch.arange(size, device=input_ids.device) * length
        return (encoder.logits(self.head, encoder.head_inputs(self.head, hidden, first, mask)),)


def output_names(task: str) -> list[str]:
    """The names of the outputs: those that other programs use."""
    if task == "embed":
        return ["sentence_embedding", "last_hidden_state"]
    return ["start_logits", "end_logits"] if task == "answer" else ["logits"]


def find_head(model: Model, task: str) -> str:
    """The head that a task reads; to classify, that of next-sentence prediction if it is alone."""
    return "nsp" if task == "classify" and predicts_next_sentence(model) else TASKS[task]


def choose_task(model: Model, task: str | None) -> str:
    """The task of the file: the given one, that of the model's head, or embed."""
    if task is None:
        own = next((name for name, head in TASKS.items() if head and head == model.head), "embed")
        return "embed" if model.pooling else own
    one_of("task", task, TASKS)
    head = find_head(model, task)
    if head and head not in model.task_heads:
        raise unsupported_function_error(model, task, f"it has no {head} head")
    return task


def save_onnx(
    model: Model, out: Path, *, task: str | None = None, dtype: str = "float32", force: bool = False
) -> Path:
    """Write a folder with model.onnx, tokenizer and config.json; compare the file's outputs first.

    The outputs are `sentence_embedding` (pooled as the folder says, else mean) and
    `last_hidden_state` for the task embed, `start_logits` and `end_logits` for answer, else
    `logits`.
    """
    one_of("dtype", dtype, DTYPES)
    if not isinstance(model.module, Encoder):
        raise InputError(
            f"the format onnx does not support this model ({model.family.description})",
            fix="export a BERT, RoBERTa, DistilBERT, ModernBERT or GPT",
        )
    if model.feature_head is not None:
        raise InputError(
            "the format onnx does not support classifiers on features",
            fix="fine-tune the whole model, or export the encoder",
        )
    if not all(block.attention.supports_varlen for block in model.module.blocks):
        raise InputError(
            "the format onnx does not support relative attention", fix="save the model folder"
        )
    task = choose_task(model, task)
    _check_packages()
    with translate_write_errors(out), atomic_folder(out, force=force) as work:
        work.mkdir(parents=True, exist_ok=True)
        with torch.no_grad(), eval_mode(model.module):
            module = _OnnxModule(model, task).eval()
            _write_graph(module, model, task, work / FILE)
            _check_outputs(module, model, task, work / FILE, dtype="float32")
            if dtype == "int8":
                _quantize(work / FILE)
                _check_outputs(module, model, task, work / FILE, dtype="int8")
        _write_settings(model, work)
    return out


def _check_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtraError("exporting to ONNX", extra="onnx") from None


def _input_names(model: Model) -> list[str]:
    has_types = getattr(model.config, "type_vocab_size", 0) > 1
    return ["input_ids", "attention_mask", *(["token_type_ids"] if has_types else [])]


def _write_graph(module: nn.Module, model: Model, task: str, file: Path) -> None:
    names = _input_names(model)
    batch = torch.export.Dim("batch", min=1, max=1 << 16)
    tokens = torch.export.Dim("tokens", min=1, max=model.module.max_positions)
    example = _make_inputs(model, 2, min(8, model.module.max_positions - 1))
    with _silence():
        torch.onnx.export(
            module,
            tuple(example.values()),
            file,
            input_names=names,
            output_names=output_names(task),
            dynamic_shapes={name: {0: batch, 1: tokens} for name in names},
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def _make_inputs(model: Model, size: int, length: int) -> dict[str, Tensor]:
    """Random ids; the rows but the first are shorter."""
    rng = torch.Generator().manual_seed(length)
    lengths = [max(1, length - 2 * n) for n in range(size)]
    mask = torch.arange(length) < torch.tensor(lengths)[:, None]
    ids = torch.randint(0, model.config.vocab_size, (size, length), generator=rng)
    types = (torch.arange(length) >= length // 2).long().expand(size, length) * mask
    both = {"input_ids": ids * mask, "attention_mask": mask.long(), "token_type_ids": types}
    return {name: both[name].to(model.device) for name in _input_names(model)}


def _check_outputs(module: nn.Module, model: Model, task: str, file: Path, *, dtype: str) -> None:
    """Compare the outputs of the file with those of the module, for several sizes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    cosines = []
    sizes = [(b, t) for b, t in _CHECKED if t <= model.module.max_positions]
    longest = min(model.module.max_positions, 192)  # longer than the usual windows
    for size, length in (*sizes, (2, longest)):
        inputs = _make_inputs(model, size, length)
        given = {name: one.cpu().numpy() for name, one in inputs.items()}
        real = given["attention_mask"].astype(bool)
        found = session.run(output_names(task), given)
        outputs = zip(output_names(task), found, module(*inputs.values()), strict=True)
        for name, one, wanted in outputs:
            expected = wanted.float().cpu().numpy()
            if task in PER_TOKEN or name == "last_hidden_state":
                one, expected = one[real], expected[real]
            difference = float(np.abs(one - expected).max())
            if dtype == "float32" and difference > MAX_DIFFERENCE:
                raise ConfigError(
                    f"{name} of the ONNX file differs from the model by {difference:.1e}, which "
                    f"is more than {MAX_DIFFERENCE:.0e}",
                    fix="use other versions of torch and onnxruntime",
                )
            norms = np.linalg.norm(one) * np.linalg.norm(expected)
            cosines.append(float((one * expected).sum() / max(norms, 1e-30)))
    if dtype == "int8" and np.mean(cosines) < MIN_COSINE:
        raise ConfigError(
            f"int8 is not exact enough for this model: the mean cosine of its outputs is "
            f"{np.mean(cosines):.4f}, less than {MIN_COSINE}",
            fix="use dtype float32",
        )


def _quantize(file: Path) -> None:
    """Replace the file by one with 8-bit weights, a scale per channel."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _silence():
        quantized = file.with_name("int8.onnx")
        quantize_dynamic(file, quantized, per_channel=True, weight_type=QuantType.QInt8)
    quantized.replace(file)


def _write_settings(model: Model, work: Path) -> None:
    """The tokenizer and config.json, for programs that read them."""
    layout = resolve(model.family.layout)
    special = {role: getattr(model.tokenizer, f"{role}_id", None) for role in ROLES}
    values: Any = layout.write_config(
        model.config, model.task_heads, dtype="float32", special_ids=special
    )
    write_json(work / "config.json", values, indent=2)
    if model.tokenizer is not None:
        model.tokenizer.save(work, token_types=layout.token_types)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Without what the exporter prints."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
