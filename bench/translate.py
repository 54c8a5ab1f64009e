"""Translation with cloze, CTranslate2 and transformers with the same weights: sentences per second.

    python bench/translate.py MODEL --file SENTENCES --threads 2 --json out.json

MODEL is the folder of a Transformer from `cloze finetune translate`. Its weights are converted to a
`TransformerSpec` of CTranslate2, and to a Marian (post-norm) or M2M-100 model (pre-norm) of
transformers, which have the same sub-layers in the same order; the position table is copied. All
use beam size 4 and rank by log p / length^0.6, from text to text, with one tokenizer, in batches of
about the same number of source tokens, alternately. The libraries stop a search by different rules,
so a few sentences may differ: the fraction of equal translations is printed. cloze has no int8;
that of CTranslate2 is shown for comparison.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import ctranslate2
import numpy as np
import torch
import transformers
from ctranslate2.specs import common_spec, transformer_spec
from rich.table import Table
from torch import nn

import cloze
from cloze.checkpoint.model import Model
from cloze.data.batch import batch_by_tokens
from cloze.data.parallel_text import read_all_lines
from cloze.decode.translators import pad_sequences
from cloze.models.transformer import Transformer
from cloze.plot.format import format_percent
from cloze.tasks.translate import translate
from cloze.text.joint_bpe import decode_sentence, encode_sentences
from common import print_result, versions

BEAM, ALPHA, RATIO = 4, 0.6, 2.0
PLACES = 1024
Side = Callable[[Sequence[str]], list[str]]


def run_cloze(model: Model, tokens: int) -> Side:
    def run(texts: Sequence[str]) -> list[str]:
        found = translate(
            model,
            list(texts),
            beam=BEAM,
            length_normalization="average",
            length_penalty=ALPHA,
            max_length_ratio=RATIO,
            batch_tokens=BEAM * tokens,  # which counts hypotheses
        )
        return [one.text for one in found]

    return run


def table(module: Transformer) -> np.ndarray:
    """The positions, whatever they are made by."""
    most = min(PLACES, module.max_positions or PLACES)
    with torch.no_grad():
        return module.position_encoding(torch.arange(most), most).numpy()


# --- CTranslate2 ------------------------------------------------------------------------------


def export_ctranslate2(model: Model, folder: Path) -> None:
    module, config = model.module, model.config
    assert isinstance(module, Transformer)
    spec = transformer_spec.TransformerSpec.from_config(
        (len(module.encoder), len(module.decoder)),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=getattr(common_spec.Activation, config.activation.upper()),
    )
    source = (
        module.target_embeddings if module.source_embeddings is None else module.source_embeddings
    )
    embed(spec.encoder.embeddings[0], source)
    embed(spec.decoder.embeddings, module.target_embeddings)
    output = module.target_embeddings if module.output is None else module.output
    spec.decoder.projection.weight = output.weight.detach().numpy()
    for side, blocks, norm in (
        (spec.encoder, module.encoder, module.encoder_norm),
        (spec.decoder, module.decoder, module.decoder_norm),
    ):
        side.scale_embeddings = True
        side.position_encodings.encodings = table(module)
        if config.norm == "pre":
            copy_norm(side.layer_norm, norm)
        for layer, block in zip(side.layer, blocks, strict=True):
            copy_attention(layer.self_attention, block.attention, block.attention_norm, parts=1)
            if side is spec.decoder:
                copy_attention(
                    layer.attention, block.cross_attention, block.cross_attention_norm, parts=2
                )
            copy_norm(layer.ffn.layer_norm, block.ffn_norm)
            copy_linear(layer.ffn.linear_0, block.ffn.up)
            copy_linear(layer.ffn.linear_1, block.ffn.down)
    names = [str(id_) for id_ in range(config.vocab_size)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.decoder_start_token = str(config.bos_id)
    spec.config.eos_token = spec.config.unk_token = str(config.eos_id)
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(str(folder))


def embed(spec: Any, table_: nn.Embedding) -> None:
    spec.weight = table_.weight.detach().numpy()


def copy_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = norm.weight.detach().numpy(), norm.bias.detach().numpy()


def copy_linear(spec: Any, dense: nn.Linear) -> None:
    spec.weight, spec.bias = dense.weight.detach().numpy(), dense.bias.detach().numpy()


def copy_attention(spec: Any, attention: Any, norm: Any, *, parts: int) -> None:
    """Query, key and value in one matrix; or the query, then key and value."""
    copy_norm(spec.layer_norm, norm)
    width = attention.out.in_features
    weight, bias = attention.qkv.weight.detach().numpy(), attention.qkv.bias.detach().numpy()
    cuts = [slice(None)] if parts == 1 else [slice(0, width), slice(width, None)]
    for one, cut in zip(spec.linear, cuts, strict=False):
        one.weight, one.bias = weight[cut], bias[cut]
    copy_linear(spec.linear[-1], attention.out)


def by_ctranslate2(model: Model, folder: Path, kind: str, tokens: int, threads: int) -> Side:
    translator = ctranslate2.Translator(
        str(folder), device="cpu", compute_type=kind, inter_threads=1, intra_threads=threads
    )

    def run(texts: Sequence[str]) -> list[str]:
        sources = encode_sentences(model.tokenizer, texts)
        found = translator.translate_batch(
            [[str(id_) for id_ in ids] for ids in sources],
            beam_size=BEAM,
            length_penalty=ALPHA,
            max_batch_size=tokens,
            batch_type="tokens",
            max_decoding_length=int(RATIO * max(map(len, sources))) + 10,
        )
        return [
            decode_sentence(model.tokenizer, [int(token) for token in one.hypotheses[0]])
            for one in found
        ]

    return run


# --- transformers -----------------------------------------------------------------------------


def export_transformers(model: Model) -> Any:
    """A Marian or an M2M-100 with these weights, and one more token to pad with."""
    module, config = model.module, model.config
    assert isinstance(module, Transformer)
    if config.embeddings != "shared" or not config.tie_embeddings:
        raise SystemExit("transformers' translators of these kinds share and tie their embeddings")
    pre, pad = config.norm == "pre", config.vocab_size
    kind = transformers.M2M100Config if pre else transformers.MarianConfig
    made = kind(
        vocab_size=pad + 1,
        d_model=config.hidden_size,
        encoder_layers=len(module.encoder),
        decoder_layers=len(module.decoder),
        encoder_attention_heads=config.num_heads,
        decoder_attention_heads=config.num_heads,
        encoder_ffn_dim=config.intermediate_size,
        decoder_ffn_dim=config.intermediate_size,
        activation_function=config.activation,
        scale_embedding=True,
        max_position_embeddings=PLACES + (pad if pre else 0),
        pad_token_id=pad,
        bos_token_id=config.bos_id,
        eos_token_id=config.eos_id,
        forced_eos_token_id=None,
        decoder_start_token_id=config.bos_id,
    )
    peer: Any = (
        transformers.M2M100ForConditionalGeneration if pre else transformers.MarianMTModel
    )(made).eval()
    places = torch.from_numpy(table(module))
    state = {
        "model.shared.weight": torch.cat(
            [module.target_embeddings.weight, torch.zeros(1, config.hidden_size)]
        )
    }
    for side in ("encoder", "decoder"):
        for number, block in enumerate(getattr(module, side)):
            at = f"model.{side}.layers.{number}."
            state |= their_attention(at + "self_attn", block.attention, block.attention_norm)
            if side == "decoder":
                state |= their_attention(
                    at + "encoder_attn", block.cross_attention, block.cross_attention_norm
                )
            for name, part in (
                ("fc1", block.ffn.up),
                ("fc2", block.ffn.down),
                ("final_layer_norm", block.ffn_norm),
            ):
                state |= both(at + name, part)
        if pre:
            state |= both(f"model.{side}.layer_norm", getattr(module, f"{side}_norm"))
        stack = getattr(peer.model, side)
        with torch.no_grad():
            if pre:  # its positions begin after the number of the padding
                stack.embed_positions.weights[pad + 1 : pad + 1 + len(places)] = places
            else:
                stack.embed_positions.weight[: len(places)] = places
    missing, unexpected = peer.load_state_dict(state, strict=False)
    tied = ("embed_tokens", "embed_positions", "lm_head", "final_logits_bias")
    left = [name for name in missing if not any(one in name for one in tied)]
    assert not [*left, *unexpected], (left, unexpected)
    peer.tie_weights()
    return peer


def both(name: str, part: Any) -> dict[str, torch.Tensor]:
    return {f"{name}.weight": part.weight, f"{name}.bias": part.bias}


def their_attention(name: str, attention: Any, norm: Any) -> dict[str, torch.Tensor]:
    found = both(f"{name}_layer_norm", norm) | both(f"{name}.out_proj", attention.out)
    weights, biases = attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3)
    for letter, weight, bias in zip("qkv", weights, biases, strict=True):
        found |= {f"{name}.{letter}_proj.weight": weight, f"{name}.{letter}_proj.bias": bias}
    return found


def by_transformers(model: Model, peer: Any, tokens: int) -> Side:
    pad = model.config.vocab_size

    @torch.inference_mode()
    def run(texts: Sequence[str]) -> list[str]:
        sources = encode_sentences(model.tokenizer, texts)
        said: dict[int, str] = {}
        for batch in batch_by_tokens([len(ids) for ids in sources], tokens):
            ids, real = pad_sequences([sources[n] for n in batch], torch.device("cpu"))
            found = peer.generate(
                input_ids=ids.masked_fill(~real, pad),
                attention_mask=real.long(),
                num_beams=BEAM,
                length_penalty=ALPHA,
                max_new_tokens=int(RATIO * ids.shape[1]) + 10,
                suppress_tokens=[pad],
                do_sample=False,
            )
            for n, row in zip(batch, found[:, 1:].tolist(), strict=True):
                end = row.index(model.config.eos_id) if model.config.eos_id in row else len(row)
                said[n] = decode_sentence(model.tokenizer, row[:end])
        return [said[n] for n in range(len(texts))]

    return run


# --- side by side -----------------------------------------------------------------------------


def measure(sides: dict[str, Side], texts: Sequence[str], rounds: int) -> dict[str, Any]:
    """In turns, so that what else the machine does meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    said: dict[str, list[str]] = {}
    for side in sides.values():  # what is done only once
        side(texts[:32])
    for _ in range(rounds):
        for name, side in sides.items():
            began = time.perf_counter()
            said[name] = side(texts)
            times[name].append(time.perf_counter() - began)
    first = next(iter(sides))
    return {
        name: {
            "sentences_per_second": len(texts) / min(times[name]),
            "ratio": statistics.median(
                mine / other for mine, other in zip(times[name], times[first], strict=True)
            ),  # how many times as long as cloze
            "equal": sum(map(lambda a, b: a == b, said[name], said[first])) / len(texts),
        }
        for name in sides
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--file", type=Path, required=True, help="a sentence on each line")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=1024, help="of source, in a batch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    model = cloze.load(given.model, device="cpu")
    texts = [row.text for row in read_all_lines(given.file) if row.text.strip()][: given.sentences]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "ct2"
        place.mkdir()
        export_ctranslate2(model, place)
        sides = {
            "cloze float32": run_cloze(model, given.tokens),
            "CTranslate2 float32": by_ctranslate2(
                model, place, "float32", given.tokens, given.threads
            ),
            "CTranslate2 int8": by_ctranslate2(model, place, "int8", given.tokens, given.threads),
            "transformers float32": by_transformers(
                model, export_transformers(model), given.tokens
            ),
        }
        found = measure(sides, texts, given.rounds)
    shown = Table(title=f"{len(texts)} sentences, beam {BEAM}, {given.threads} threads")
    for column in ("", "sentences/s", "time, cloze = 1", "same translations"):
        shown.add_column(column, justify="right" if column else "left")
    for name, one in found.items():
        shown.add_row(
            name,
            f"{one['sentences_per_second']:.1f}",
            f"{one['ratio']:.2f}",
            format_percent(one["equal"]),
        )
    print_result(
        shown,
        versions("torch", "transformers", "ctranslate2"),
        results={"sentences": len(texts), "threads": given.threads, "found": found},
        file=given.json,
    )


if __name__ == "__main__":
    main()
