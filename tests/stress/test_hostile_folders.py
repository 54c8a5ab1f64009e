"""250 hostile model folders: a clear error or a model, under a second, nothing runs."""

import json
import os
import pickle
import random
import resource
import shutil
import struct
import time

import pytest

import cloze
from cloze.errors import MAX_MESSAGE, ClozeError
from helpers import tiny_model

pytestmark = pytest.mark.stress

VALUES = (
    *(None, True, 0, -1, 1.5, 1 << 31, 1 << 62, 10**400, float("nan"), "", "x", "../../etc/passwd"),
    *([], {}, [1], ["x"] * 5000, {"a": 1}, "\x1b]0;x\x07", "[/bold]", "x" * 100_000),
)


class Payload:
    """A pickle that leaves a mark when it is read."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def change_json(folder, rng, mark):
    file = rng.choice(["config.json", "tokenizer.json", "tokenizer_config.json"])
    whole = json.loads((folder / file).read_text())
    inside = whole
    while True:
        key = rng.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
        value = inside[key]
        if not isinstance(value, dict | list) or not value or rng.random() < 0.3:
            inside[key] = rng.choice(VALUES)
            break
        inside = value
    (folder / file).write_text(json.dumps(whole))


def change_bytes(folder, rng, mark):
    path = folder / rng.choice(sorted(path.name for path in folder.iterdir()))
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 3, 50))):
        content[rng.randrange(min(len(content), 3000))] = rng.randrange(256)
    path.write_bytes(content[: rng.choice((len(content), len(content) // 2, 1, 0))])


def change_header(folder, rng, mark):
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    name = rng.choice([name for name in header if name != "__metadata__"])
    match rng.randrange(6):
        case 0:
            header[name]["shape"] = [rng.choice((-1, 0, 1 << 40, 1 << 62)), 4]
        case 1:
            header[name]["data_offsets"] = [0, rng.choice((-5, 1 << 60, 3))]
        case 2:
            header[name]["dtype"] = rng.choice(("F4", "I64", "", None, "BOOL"))
        case 3:
            header[f"[link=https://x]{name}[/bold]\x1b[2J"] = header.pop(name)
        case 4:
            header = {**header, **{f"t{n}": header[name] for n in range(20_000)}}
        case 5:
            header[name] = rng.choice(VALUES[:12])
    made = json.dumps(header).encode()
    size = rng.choice((len(made), len(made), len(made), 1 << 60, 2))
    path.write_bytes(struct.pack("<Q", size) + made + data)


def name_code(folder, rng, mark):
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "auto_map": {"AutoModel": "modeling_evil.Evil", "AutoConfig": "modeling_evil.Evil"},
        "architectures": ["modeling_evil.Evil"],
        "model_type": rng.choice(("bert", "evil", "os.system", "__import__('os')")),
        "trust_remote_code": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_evil.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    (folder / "__init__.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")


def add_pickle(folder, rng, mark):
    name = rng.choice(("pytorch_model.bin", "model.pt", "training_args.bin", "model.safetensors"))
    if rng.random() < 0.5:
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Payload(mark)))


def name_shards(folder, rng, mark):
    (folder / "model.safetensors").unlink()
    names = ("../x.safetensors", "/etc/passwd", "a" * 300_000 + ".safetensors", "x.bin", 5, "x\0y")
    index = {"weight_map": {f"w{n}": rng.choice(names) for n in range(rng.choice((1, 5, 40)))}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


ATTACKS = (
    change_json,
    change_json,
    change_bytes,
    change_header,
    name_code,
    add_pickle,
    name_shards,
)


def test_250_hostile_folders(tmp_path):
    for name, heads in (("bert", ("mlm",)), ("distilbert", ("mlm",)), ("modernbert", ("mlm",))):
        tiny_model(*heads, family=name).save(tmp_path / name)
        cloze.load(tmp_path / name, device="cpu", quiet=True)
    rng, mark = random.Random(0), tmp_path / "it-ran"
    start, slowest, loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0, 0
    for number in range(250):
        folder = tmp_path / f"hostile-{number}"
        shutil.copytree(tmp_path / rng.choice(("bert", "distilbert", "modernbert")), folder)
        for attack in rng.sample(ATTACKS, rng.choice((1, 1, 2))):
            if attack is not name_shards or (folder / "model.safetensors").exists():
                try:
                    attack(folder, rng, mark)
                except (ValueError, OSError, IndexError):
                    continue  # two attacks on one file
        began = time.process_time()
        problem = None
        try:
            cloze.load(folder, device="cpu", quiet=True)
        except ClozeError as error:
            problem = error
        loaded += problem is None
        assert problem is None or (problem.problem and problem.fix)
        assert len(str(problem)) < 3 * MAX_MESSAGE
        slowest = max(slowest, time.process_time() - began)
        assert not mark.exists(), number
        shutil.rmtree(folder)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) >> 10
    print(f"250 folders, {loaded} loaded; slowest {slowest:.2f} s; {more} MB more")  # noqa: T201
    assert slowest < 1
    assert more < 300
    assert 0 < loaded < 125
