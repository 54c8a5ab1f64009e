"""The data and models that bench/spec_results.py takes to another machine."""

import argparse
import json
import lzma
import shutil
import tarfile
from pathlib import Path

from common import DATA, minilm

COPIED = [
    *(f"dream/{part}.json.xz" for part in ("train", "dev", "test")),
    *(f"squad/{part}-v{version}.json.xz" for part in ("train", "dev") for version in (1.1, 2.0)),
    *(f"multi30k/{part}.{language}.gz" for part in ("train", "val", "test_2016_flickr")
      for language in ("en", "fr")),
    "bilingual/cmn-eng.txt.xz",
    "conll2003/eng.train.xz",
    "conll2003/eng.testa.xz",
    "chinese/ChnSentiCorp/train.tsv.xz",
    "chinese/ner/resume/train.char.bmes.xz",
]  # fmt: skip
COMPRESSED = [
    "sst2/train.tsv",
    "sst2/dev.tsv",
    "chinese/ChnSentiCorp/dev.tsv",
    "chinese/ner/resume/dev.char.bmes",
    "vocab/bert-base-chinese-vocab.txt",
]
# the first lines of larger files
PARTS = {
    "text/wiki-zh-00.txt.xz": 14_000_000,  # bytes
    "text/wiki-short-01.txt.xz": 9_000_000,
    "chinese/tnews/train.tsv.xz": 1_300_000,
    "chinese/tnews/dev.tsv": 400_000,
}


def fill(carry: Path) -> None:
    """Copy data, jieba and all-MiniLM-L6-v2 (in float16) into a folder."""
    data = carry / "data"
    for file in COPIED:
        (data / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(DATA / file, data / file)
    for file in (*COMPRESSED, *PARTS):
        source = DATA / file
        opened = lzma.open if source.suffix == ".xz" else open
        with opened(source, "rb") as stream:
            content = stream.read(PARTS.get(file, -1))
        if file in PARTS:
            content = content[: content.rindex(b"\n\n" if file.startswith("text/") else b"\n") + 1]
        place = data / (file if source.suffix == ".xz" else f"{file}.xz")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(lzma.compress(content, preset=6))
    import jieba
    import torch
    from safetensors.torch import load_file, save_file

    package = Path(jieba.__file__).parent
    with tarfile.open(carry / "jieba.tar.xz", "w:xz") as archive:
        for name in ("__init__.py", "_compat.py", "dict.txt", "finalseg"):
            skipped = lambda one: None if "__pycache__" in one.name else one  # noqa: E731
            archive.add(package / name, f"jieba/{name}", filter=skipped)
    model = carry / "minilm"
    shutil.copytree(minilm(), model, dirs_exist_ok=True)
    weights = load_file(model / "model.safetensors")
    halved = {k: v.half() if v.dtype == torch.float32 else v for k, v in weights.items()}
    save_file(halved, model / "model.safetensors", metadata={"format": "pt"})
    with tarfile.open(carry / "minilm.tar.xz", "w:xz") as archive:
        archive.add(model, "all-MiniLM-L6-v2")
    shutil.rmtree(model)
    size = sum(path.stat().st_size for path in carry.rglob("*") if path.is_file())
    print(f"{carry}: {size / 2**20:.1f} MiB")


def unpack(args: argparse.Namespace) -> None:
    """Models and packages, and in a rehearsal the first rows of each file."""
    args.work.mkdir(parents=True, exist_ok=True)
    for name in ("jieba", "minilm"):
        with tarfile.open(args.carry / f"{name}.tar.xz") as archive:
            archive.extractall(args.work, filter="data")
    words = args.work / "chinese"
    words.mkdir(exist_ok=True)
    with lzma.open(args.carry / "data/vocab/bert-base-chinese-vocab.txt.xz") as file:
        (words / "vocab.txt").write_bytes(file.read())
    if args.rehearse:
        shorten(args)


def shorten(args: argparse.Namespace) -> None:
    place = args.work / "carry"
    for path in sorted((args.carry / "data").rglob("*.*z")):
        target = place / path.relative_to(args.carry)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".gz" or {"bilingual", "ner"} & set(path.parts):
            shutil.copyfile(path, target)
            continue
        content = lzma.decompress(path.read_bytes()).decode("utf-8")
        if ".json" in path.name:
            loaded = json.loads(content)
            if isinstance(loaded, list):
                loaded = loaded[:12]
            else:
                loaded["data"] = loaded["data"][:1]
                loaded["data"][0]["paragraphs"] = loaded["data"][0]["paragraphs"][:4]
            content = json.dumps(loaded)
        elif "vocab" not in path.name:
            content = content[:20_000] if "text" not in path.parts else content[:60_000]
            content = content[: content.rindex("\n") + 1]
        target.write_bytes(lzma.compress(content.encode()))
    args.carry = place
