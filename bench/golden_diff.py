"""Do two versions of cloze compute the same bits on the folders and inputs in tests/golden?

    python bench/golden_diff.py /path/to/old/src src
    python bench/golden_diff.py /path/to/old/src src --gradients --threads 2 --dtype bfloat16

Each source tree runs in its own process, one after the other, on the same machine with the same
number of threads. It writes the outputs of every module and the results of the inference functions,
under names that both sides use: tests/golden_adapter.py of the tree calls its functions, and
tests/golden/adapter_58e9c8d.py those of a tree without an adapter. Exit code 1 if a bit differs.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
BUILTIN = {"cloze_en": "cloze-en"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path, help="src folder of the older tree")
    parser.add_argument("new", type=Path, help="src folder of the newer tree")
    parser.add_argument("--threads", type=int, default=1, help="of both sides (default 1)")
    parser.add_argument("--dtype", default="float32", help="of the nets (default float32)")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--gradients", action="store_true", help="compare those of weights, too")
    parser.add_argument("--dump", type=Path, help=argparse.SUPPRESS)  # one side: old is its src
    options = parser.parse_args()
    if options.dump:
        dump(options)
        return 0
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        sides = []
        for name in ("old", "new"):
            sides.append(Path(folder, name))
            run_side(getattr(options, name).resolve(), sides[-1], options)
        return compare(*sides)


def run_side(src: Path, out: Path, options: argparse.Namespace) -> None:
    """Let one tree write what it computes."""
    out.mkdir()
    threads = str(options.threads)
    command = [sys.executable, __file__, str(src), str(src), "--dump", str(out)]
    command += ["--threads", threads, "--dtype", options.dtype, "--device", options.device]
    command += ["--gradients"] * options.gradients
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": threads}
    environment = os.environ | {"PYTHONPATH": str(src)} | offline
    subprocess.run(command, env=environment, check=True)


# One side.


def adapter_of(src: Path):
    """The module that knows how this tree is called."""
    own = src.parent / "tests" / "golden_adapter.py"
    file = own if own.is_file() else GOLDEN / "adapter_58e9c8d.py"
    spec = importlib.util.spec_from_file_location("golden_adapter", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dump(options: argparse.Namespace) -> None:
    import torch
    from safetensors.torch import save_file

    import cloze

    assert Path(cloze.__file__).is_relative_to(options.old), cloze.__file__
    torch.set_num_threads(options.threads)
    adapter = adapter_of(options.old)
    texts = json.loads((GOLDEN / "data" / "inputs.json").read_text("utf-8"))
    tensors, values = {}, {}
    for place in sorted(GOLDEN.glob("*/expected.json")):
        name = place.parent.name
        table = name.startswith(("ngram", "word2vec"))  # which have one dtype alone
        source = BUILTIN.get(name, place.parent / "model")
        dtype = "float32" if table else options.dtype
        model = cloze.load(source, device=options.device, dtype=dtype)
        inputs = inputs_of(place.parent, options.device)
        with torch.inference_mode():
            found = adapter.module_outputs(model, inputs) if inputs else {}
        for function in json.loads(place.read_text("utf-8"))["functions"]:
            result = adapter.FUNCTIONS[function](model, texts)
            if function == "embed":
                found |= {f"embed.{part}": one for part, one in result.items()}
            else:
                values[f"{name}: {function}"] = result
        tensors |= {f"{name}: {key}": one.cpu().contiguous() for key, one in found.items()}
        if options.gradients and inputs and not table:
            values[f"{name}: gradients"] = gradients(adapter.module_outputs, model, inputs)
    save_file(tensors, options.dump / "outputs.safetensors")
    (options.dump / "values.json").write_text(json.dumps(values), "utf-8")


def inputs_of(folder: Path, device: str):
    from safetensors.torch import load_file

    stored = load_file(folder / "expected.safetensors", device=device)
    return {
        key.removeprefix("input."): one for key, one in stored.items() if key.startswith("input.")
    }


def gradients(module_outputs, model, inputs) -> list[str]:
    """A hash of each weight's gradient, sorted, as weights may have other names on either side."""
    from torch.backends import cudnn

    with cudnn.flags(enabled=False):  # its RNNs have a backward pass in training mode alone
        found = module_outputs(model, inputs)
        learned = [one for one in found.values() if one.requires_grad]
        sum(one.float().square().sum() for one in learned).backward()
    hashes = [
        hashlib.sha256(weight.grad.float().cpu().numpy().tobytes()).hexdigest()[:16]
        for weight in model.module.parameters()
        if weight.grad is not None
    ]
    return sorted(hashes)


# Both.


def compare(old: Path, new: Path) -> int:
    """Print what differs; 1 if anything does."""
    from safetensors.torch import load_file

    one, other = (load_file(side / "outputs.safetensors") for side in (old, new))
    bad = [difference(name, one.get(name), other.get(name)) for name in sorted(one | other)]
    first, second = (json.loads((side / "values.json").read_text("utf-8")) for side in (old, new))
    for name in sorted(first | second):
        mine, theirs = first.get(name), second.get(name)
        if name.endswith(": gradients") and mine and theirs:
            left = (Counter(mine) - Counter(theirs)).total()
            bad.append(f"{name}: {left} of {len(mine)} weights differ" if left else "")
        elif mine != theirs:
            bad.append(f"{name}: {_short(mine)} became {_short(theirs)}")
    bad = [line for line in bad if line]
    for line in bad:
        print(line)
    print(f"{len(one | other)} tensors and {len(first | second)} results: {len(bad)} differ")
    return int(bool(bad))


def difference(name: str, one, other) -> str:
    """Empty where two tensors have the same bits."""
    import torch

    if one is None or other is None:
        return f"{name}: only one side has it"
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{name}: {one.dtype} {list(one.shape)} became {other.dtype} {list(other.shape)}"
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    wrong = one.view(bits) != other.view(bits)
    if not wrong.any():
        return ""
    most = (one.double() - other.double()).abs().max().item()
    return f"{name}: {wrong.sum().item()} of {one.numel()} numbers differ, by {most:.3g} at most"


def _short(value: object, most: int = 160) -> str:
    text = json.dumps(value)
    return text if len(text) <= most else f"{text[:most]} …"


if __name__ == "__main__":
    sys.exit(main())
