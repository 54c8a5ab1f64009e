"""The cost of storing weights in fewer bits: file size, MLM accuracy, embeddings.

    python bench/storage.py runs/bert held-out.txt --fit text.txt --json out.json
    python bench/storage.py --shapes              # bytes of 12 × 320 by vocabulary, no model needed

Each format is written to a folder and loaded from it (`int8 by row`, integers with one scale per
row, is only simulated in memory). Then each model predicts the same masked tokens, all replaced by
[MASK], and embeds the same texts. DATA is text that the model was not trained on; `--fit` is the
text for GPTQ (`float8, fitted`). `cosine` is the similarity with the float32 vector of the same
text: mean and minimum; `nearest` is the fraction of texts whose nearest other text is unchanged.
"""

import argparse
import copy
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import prod
from pathlib import Path

import numpy as np
import torch
from builtin import MAX_BYTES, long_texts, select_texts
from rich.table import Table

import cloze
from cloze.checkpoint.model import Model
from cloze.data.batch import batch_by_tokens
from cloze.make.float8 import round_weights, save_float8, to_float8
from cloze.models.build import build_on_meta
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.nn.layout import Packed
from cloze.plot.format import format_percent
from common import print_result, versions

VOCABULARIES = (8_000, 16_000, 24_000, 30_522)
RATE = 0.15
BATCH_TOKENS = 4096


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="?")
    parser.add_argument("data", nargs="*")
    parser.add_argument("--fit", nargs="*", default=[])
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument(
        "--max-length", type=int, default=128, help="tokens of a text that are read"
    )
    parser.add_argument("--device")
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.shapes:
        results = [shape(size) for size in VOCABULARIES]
    elif given.model and given.data:
        results = compare(given)
    else:
        parser.error("name a model and texts, or give --shapes")
    table = Table(*results[0])
    for row in results:
        table.add_row(*map(str, row.values()))
    print_result(table, versions("torch"), results=results, file=given.json)


def shape(vocabulary: int) -> dict[str, object]:
    """Bytes of the preset `cloze` with its masked-LM head."""
    module = build_on_meta(ModernBertConfig.preset("cloze", vocab_size=vocabulary), ("mlm",))
    shapes = [weight.shape for weight in module.parameters()]
    matrices = [shape for shape in shapes if len(shape) == 2]
    count = sum(map(prod, shapes))
    in_matrices = sum(map(prod, matrices))
    eight = in_matrices + 4 * (count - in_matrices)
    sizes = {
        "bfloat16": 2 * count,
        "float8": eight,
        "int8 by row": eight + 2 * sum(shape[0] for shape in matrices),
    }
    told = {
        name: f"{size / 1e6:.1f}{'' if size <= MAX_BYTES else ' (too much)'}"
        for name, size in sizes.items()
    }
    return {"vocabulary": f"{vocabulary:,}", "parameters": f"{count / 1e6:.2f} M", **told}


def compare(given: argparse.Namespace) -> list[dict[str, object]]:
    base = cloze.load(given.model, device=given.device)
    base = replace(
        base, tokenizer=base.tokenizer.with_max_length(min(given.max_length, base.max_length))
    )
    texts = list(islice(long_texts(given.data), given.texts))
    asked = mask_texts(base, texts) if "mlm" in base.task_heads else None
    exact: np.ndarray | None = None
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, size, model in forms(base, Path(folder), given.fit):
            row: dict[str, object] = {"stored as": name, "MB": round(size / 1e6, 2)}
            if asked is not None:
                row |= evaluate_masks(model, *asked)
            vectors = cloze.embed(model, texts, truncation="head", normalize=True)
            exact = vectors if exact is None else exact
            cosines = (vectors * exact).sum(1)
            row |= {
                "cosine": round(float(cosines.mean()), 5),
                "least": round(float(cosines.min()), 5),
                "nearest": round(float((nearest(vectors) == nearest(exact)).mean()), 4),
            }
            results.append(row)
    return results


def forms(base: Model, folder: Path, fit: list[str]) -> Iterator[tuple[str, int, Model]]:
    """Each form's name, the bytes of its weights, and the model as it comes back."""
    device = base.device

    def load_folder(place: Path) -> tuple[int, Model]:
        size = (place / "model.safetensors").stat().st_size
        return size, cloze.load(place, device=device, quiet=True)

    yield "float32", *load_folder(base.save(folder / "float32"))
    half = replace(base, module=copy.deepcopy(base.module).bfloat16())
    yield "bfloat16", *load_folder(half.save(folder / "bfloat16"))
    yield "float8", *load_folder(save_float8(base, folder / "float8"))
    if fit:
        close = round_weights(base, select_texts(fit))
        yield "float8, fitted", *load_folder(save_float8(close, folder / "fitted"))
    size, model = load_folder(folder / "float8")
    scales = 0
    with torch.no_grad():
        for weight, theirs in zip(model.module.parameters(), base.module.parameters(), strict=True):
            if to_float8(theirs) is not theirs:
                scale = theirs.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
                weight.copy_((theirs / scale).round() * scale)
                scales += 2 * len(scale)
    yield "int8 by row", size + scales, model


def mask_texts(
    model: Model, texts: list[str]
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Ids with masks, the positions of the masks, and the original ids."""
    rng = np.random.default_rng(0)
    inputs, places, targets = [], [], []
    for text in texts:
        encoding = model.tokenizer.encode(text, max_length=model.max_length, truncation="head")
        ids = list(encoding.ids)
        plain = [n for n, special in enumerate(encoding.special_tokens_mask) if not special]
        chosen = sorted(rng.permutation(plain)[: max(1, round(RATE * len(plain)))].tolist())
        targets += [ids[n] for n in chosen]
        for n in chosen:
            ids[n] = model.tokenizer.mask_id
        inputs.append(ids)
        places.append(chosen)
    return inputs, places, targets


@torch.inference_mode()
def evaluate_masks(
    model: Model, inputs: list[list[int]], places: list[list[int]], targets: list[int]
) -> dict[str, object]:
    starts = np.cumsum([0, *map(len, places)]).tolist()
    right, loss = 0, 0.0
    for batch in batch_by_tokens([len(ids) for ids in inputs], BATCH_TOKENS):
        packed = Packed.from_lengths([len(inputs[n]) for n in batch], device=model.device)
        flat = torch.tensor([id_ for n in batch for id_ in inputs[n]], device=model.device)
        hidden = model.module(flat, packed)
        spots = [
            start + place
            for start, n in zip(packed.starts.tolist(), batch, strict=False)
            for place in places[n]
        ]
        scores = model.module.logits(
            "mlm", hidden[torch.tensor(spots, device=model.device)]
        ).float()
        wanted = torch.tensor(
            [target for n in batch for target in targets[starts[n] : starts[n + 1]]],
            device=model.device,
        )
        right += int((scores.argmax(-1) == wanted).sum())
        loss += float(torch.nn.functional.cross_entropy(scores, wanted, reduction="sum"))
    return {
        "MLM accuracy": format_percent(right / len(targets), 3),
        "loss": round(loss / len(targets), 4),
    }


def nearest(vectors: np.ndarray) -> np.ndarray:
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -1)
    return likeness.argmax(1)


if __name__ == "__main__":
    main()
