"""Published ELMo models: files that the tests write in that layout, against plain equations."""

import json
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cloze
from cloze.cli.app import app
from cloze.errors import ConfigError, FolderError, InputError, MissingExtraError
from cloze.nn.layout import Packed
from cloze.text.word_characters import encode_rows
from elmo_reference import elmo
from helpers import raises
from languages import elmo_model

h5py = pytest.importorskip("h5py")

FILTERS = [[1, 3], [2, 4], [3, 5]]
CHAR, WIDTH, CELLS, LAYERS, HIGHWAYS = 4, 6, 9, 2, 2
OPTIONS = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": WIDTH,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": CELLS,
        "n_layers": LAYERS,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": FILTERS,
        "n_highway": HIGHWAYS,
        "embedding": {"dim": CHAR},
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}


def draw_arrays():
    rng, total = np.random.default_rng(0), sum(count for _, count in FILTERS)
    shapes = {
        "char_embed": (261, CHAR),
        "CNN_proj/W_proj": (total, WIDTH),
        "CNN_proj/b_proj": WIDTH,
    }
    for n, (width, count) in enumerate(FILTERS):
        shapes |= {f"CNN/W_cnn_{n}": (1, width, CHAR, count), f"CNN/b_cnn_{n}": count}
    for n in range(HIGHWAYS):
        for part in ("carry", "transform"):
            shapes |= {f"CNN_high_{n}/W_{part}": (total, total), f"CNN_high_{n}/b_{part}": total}
    for direction in range(2):
        for n in range(LAYERS):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{n}/LSTMCell"
            shapes |= {
                f"{cell}/W_0": (2 * WIDTH, 4 * CELLS),
                f"{cell}/B": 4 * CELLS,
                f"{cell}/W_P_0": (CELLS, WIDTH),
            }
    # multiples of 1/256, so that the 1 of the forget gates is added without rounding
    return {
        name: (np.round(rng.standard_normal(shape) * 256) / 256).astype(np.float32)
        for name, shape in shapes.items()
    }


def write(folder, arrays=None, options=OPTIONS, prefix=""):
    folder.mkdir(exist_ok=True)
    (folder / f"{prefix}options.json").write_text(json.dumps(options))
    with h5py.File(folder / f"{prefix}weights.hdf5", "w") as file:
        for name, values in (draw_arrays() if arrays is None else arrays).items():
            file[name] = values
    return folder


def reference_weights(arrays):
    arrays = {name: values.astype(np.float64) for name, values in arrays.items()}
    found = {
        "characters": arrays["char_embed"],
        "filters": [(arrays[f"CNN/W_cnn_{n}"][0], arrays[f"CNN/b_cnn_{n}"]) for n in range(3)],
        "highways": [
            tuple(
                arrays[f"CNN_high_{n}/{kind}_{part}"]
                for part in ("transform", "carry")
                for kind in "Wb"
            )
            for n in range(HIGHWAYS)
        ],
        "projection": (arrays["CNN_proj/W_proj"], arrays["CNN_proj/b_proj"]),
    }
    for number, direction in enumerate(("forward", "backward")):
        found[direction] = []
        for n in range(LAYERS):
            cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{n}/LSTMCell"
            layer = {"projection": arrays[f"{cell}/W_P_0"]}
            parts = zip(
                "igfo",  # TensorFlow's order
                np.split(arrays[f"{cell}/W_0"], 4, 1),
                np.split(arrays[f"{cell}/B"], 4),
                strict=True,
            )
            for gate, w, b in parts:
                layer |= {f"w_{gate}": w, f"b_{gate}": b + 1 if gate == "f" else b}
            found[direction].append(layer)
    return found


def test_the_layers_of_a_published_model_equal_the_equations(tmp_path):
    arrays, words = draw_arrays(), ["A", "published", "model", "naïveté", "."]
    model = cloze.load(write(tmp_path / "elmo", arrays))
    rows = encode_rows(words)
    expected = elmo(rows, reference_weights(arrays), cell_clip=3, output_clip=3)
    layers = model.module.double().hidden_states(torch.from_numpy(rows), Packed.from_lengths([5]))
    for found, layer in zip(layers, expected, strict=True):
        np.testing.assert_allclose(found.detach().numpy(), layer, rtol=0, atol=1e-10)


def test_it_embeds_words_and_refuses_to_predict_them(tmp_path):
    folder = write(tmp_path / "elmo")
    info = cloze.info(folder)
    expected = {"embed", "similarity", "rerank", "index", "evaluate", "compare", "export"}
    expected |= {"tokenize"}
    assert set(info.capabilities) == expected
    assert (info.family, info.dtypes) == ("elmo", {"HDF5": info.total_parameters})
    found = cloze.embed(folder, "Unseen wördz!", pooling="none", layers=[0, 1, 2])
    assert found.encoding.tokens == ["<s>", "Unseen", "wördz", "!", "</s>"]
    assert found.vectors.shape == (5, 3 * 2 * WIDTH)
    assert cloze.tokenize(folder, "Unseen wördz!").ids == found.encoding.ids
    pairs = [{"sentence1": "a b", "sentence2": c, "score": n} for n, c in enumerate(("x y", "a"))]
    assert "spearman" in cloze.evaluate(folder, pairs).scores
    with raises(InputError, "suggest", fix="embed"):
        cloze.suggest(folder, "the")


def test_one_file_or_a_folder_under_any_prefix(tmp_path):
    folder = write(tmp_path / "elmo", prefix="elmo_2x9_6_")
    file = folder / "elmo_2x9_6_weights.hdf5"
    one, other = cloze.embed(folder, "a b"), cloze.embed(file, "a b")
    assert np.array_equal(one, other)
    assert cloze.load(file, dtype="bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["", "weights.hdf5"])
def test_it_is_a_source_of_features(tmp_path, name):
    source = write(tmp_path / "elmo") / name
    data = tmp_path / "train.tsv"
    data.write_text("text\tlabel\n" + "a good wug\tyes\nthe bad mat\tno\n" * 4)
    given = ["--train", str(data), "--dev", str(data), "--out", str(tmp_path / "out")]
    options = ["--recipe", "features", "--quiet"]
    found = CliRunner().invoke(app, ["finetune", "classify", str(source), *given, *options])
    assert found.exit_code == 0, found.output
    assert cloze.load(tmp_path / "out").labels == ("no", "yes")


@pytest.mark.parametrize("name", ["", "weights.hdf5"])
def test_it_cannot_be_trained_further(tmp_path, name):
    source, out = write(tmp_path / "elmo") / name, tmp_path / "out"
    with raises(ConfigError, str(source), "vocabulary", "output layer", fix="features"):
        cloze.pretrain([["a b c"] * 9], out, init_from=source, steps=1)
    data = tmp_path / "train.tsv"
    data.write_text("text\tlabel\n" + "a good wug\tyes\nthe bad mat\tno\n" * 4)
    with raises(ConfigError, str(source), "vocabulary", "output layer", fix="features"):
        cloze.finetune(
            "classify",
            source,
            data,
            out,
            transfer="features",
            settings={"language_model.finetune_recipe": "elmo"},
        )
    assert not out.exists()


def test_a_folder_without_weights_or_with_two_is_refused(tmp_path):
    folder = write(tmp_path / "elmo", prefix="one_")
    (folder / "one_weights.hdf5").rename(tmp_path / "weights")
    with raises(FolderError, "options", "weights", fix="HDF5"):
        cloze.load(folder)
    for name in ("one_weights.hdf5", "two_weights.hdf5"):
        shutil.copy(tmp_path / "weights", folder / name)
    with raises(FolderError, "one_weights.hdf5", "two_weights.hdf5", fix="one_weights.hdf5"):
        cloze.load(folder)


def test_it_is_saved_as_any_other_folder_and_exported_again(tmp_path):
    arrays = draw_arrays()
    model = cloze.load(write(tmp_path / "elmo", arrays))
    again = cloze.load(model.save(tmp_path / "own"))
    text = "Some words."
    one, other = (cloze.embed(some, text) for some in (again, model))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    out = cloze.export("allennlp", again, tmp_path / "exported")
    assert json.loads((out / "options.json").read_text()) == OPTIONS
    with h5py.File(out / "weights.hdf5") as file:
        for name, values in arrays.items():
            np.testing.assert_allclose(file[name][...], values, rtol=1e-6, atol=1e-6)


def test_a_model_of_our_own_is_exported(tmp_path):
    model = elmo_model()
    out = cloze.export("allennlp", model, tmp_path / "out")
    text = "the cat sat on xyzzy"
    one, other = (cloze.embed(some, text) for some in (model, out))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    folder = write(tmp_path / "elmo")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with raises(MissingExtraError, "HDF5", fix="cloze[elmo]"):
        cloze.load(folder)


CELL = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell"


def edit(folder, change):
    with h5py.File(folder / "weights.hdf5", "a") as file:
        change(file)


def damage(name, values):
    def change(file):
        del file[name]
        if values is not None:
            file[name] = values

    return change


def link_outside(file):
    del file["char_embed"]
    file["char_embed"] = h5py.ExternalLink("../secret.hdf5", "char_embed")


def link_group_outside(file):
    del file["CNN"]
    file["CNN"] = h5py.ExternalLink("../secret.hdf5", "CNN")


def store_outside(file):
    del file["char_embed"]
    size = 261 * CHAR * 4
    file.create_dataset("char_embed", (261, CHAR), "f4", external=[("../secret.bin", 0, size)])


def map_outside(file):
    del file["char_embed"]
    layout = h5py.VirtualLayout((261, CHAR), "f4")
    layout[:] = h5py.VirtualSource("../secret.hdf5", "char_embed", (261, CHAR))
    file.create_virtual_dataset("char_embed", layout)


def leave_empty(file):
    del file["char_embed"]
    file.create_dataset("char_embed", (261, CHAR), "f4")  # declared, but nothing is stored


def compress(file):
    del file["char_embed"]
    file.create_dataset("char_embed", data=np.zeros((261, CHAR), "f4"), compression="gzip")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (damage("CNN_proj/b_proj", None), "CNN_proj/b_proj"),
        (damage("CNN", None), "CNN/W_cnn_0"),
        (damage(f"{CELL}/W_0", np.zeros((4, 4), "f4")), "(4, 4)"),
        (damage("char_embed", np.zeros((261, CHAR), "i4")), "char_embed"),
        (damage("char_embed", np.full((261, CHAR), np.nan, "f4")), "NaN"),
        (damage("CNN", np.zeros(3, "f4")), "CNN/W_cnn_0"),
        (
            lambda file: (
                file.__setitem__("x", 1) or damage("char_embed", h5py.SoftLink("/x"))(file)
            ),
            "link",
        ),
        (link_outside, "link"),
        (link_group_outside, "link"),
        (store_outside, "another file"),
        (map_outside, "another file"),
        (leave_empty, "char_embed"),
        (compress, "compressed"),
    ],
)
def test_hostile_weights_are_refused(tmp_path, change, name):
    arrays = draw_arrays()
    with h5py.File(tmp_path / "secret.hdf5", "w") as file:  # would be read if it were followed
        file["char_embed"] = arrays["char_embed"]
        file["CNN/W_cnn_0"] = arrays["CNN/W_cnn_0"]
    (tmp_path / "secret.bin").write_bytes(arrays["char_embed"].tobytes())
    folder = write(tmp_path / "elmo", arrays)
    edit(folder, change)
    with raises(FolderError, "weights.hdf5", name):
        cloze.load(folder)


def test_huge_declared_sizes_allocate_nothing(tmp_path):
    cells, width = 30_000, 20_000  # weights of hundreds of gigabytes
    lstm = OPTIONS["lstm"] | {"dim": cells, "projection_dim": width}
    folder = write(tmp_path / "elmo", options=OPTIONS | {"lstm": lstm})

    def change(file):
        del file["CNN_proj"]
        total = sum(count for _, count in FILTERS)
        file["CNN_proj/W_proj"] = np.zeros((total, width), "f4")
        file["CNN_proj/b_proj"] = np.zeros(width, "f4")
        cell = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"
        del file[f"{cell}/W_0"]
        file.create_dataset(f"{cell}/W_0", (2 * width, 4 * cells), "f4")

    edit(folder, change)
    with raises(FolderError, "weights.hdf5", "W_0"):
        cloze.load(folder)


@pytest.mark.parametrize("size", [0, 100, -1000])
def test_a_truncated_file_is_refused(tmp_path, size):
    file = write(tmp_path / "elmo") / "weights.hdf5"
    file.write_bytes(file.read_bytes()[:size])
    with raises(FolderError, "weights.hdf5"):
        cloze.load(file.parent)


def test_other_files_are_refused(tmp_path):
    folder = write(tmp_path / "elmo")
    (folder / "weights.hdf5").write_bytes(b"not HDF5" * 100)
    with raises(FolderError, "weights.hdf5", "HDF5"):
        cloze.load(folder)
    (folder / "options.json").unlink()
    with raises(FolderError, "options.json", fix="options.json"):
        cloze.load(folder)
    shutil.copy(folder / "weights.hdf5", folder / "more.hdf5")
    with raises(FolderError, str(folder)):  # which of the two is not clear
        cloze.load(folder)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"lstm": {}}, "cell_size"),
        ({"char_cnn": None}, "options.json"),
        ({"lstm": OPTIONS["lstm"] | {"dim": 1 << 40}}, "cell_size"),
        ({"lstm": OPTIONS["lstm"] | {"dim": "big"}}, "cell_size"),
        ({"lstm": OPTIONS["lstm"] | {"use_skip_connections": False}}, "residual"),
        ({"char_cnn": OPTIONS["char_cnn"] | {"filters": [[1]]}}, "options.json"),
        ({"char_cnn": OPTIONS["char_cnn"] | {"max_characters_per_token": 20}}, "max_characters"),
    ],
)
def test_faulty_options_are_refused(tmp_path, changed, name):
    folder = write(tmp_path / "elmo", options=OPTIONS | changed)
    with raises(FolderError, "options.json", name):
        cloze.load(folder)
    (folder / "options.json").write_text("[]")
    with raises(FolderError, "options.json"):
        cloze.load(folder)
