"""ELMo in plain numpy, from the equations of the papers: one word and one step at a time."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def word_vector(row, weights, activation=lambda x: np.maximum(x, 0)):
    """Kim et al. 2016, eq. 1–3: filters over the characters, their maximum, highway layers."""
    x = weights["characters"][row]  # c d
    pooled = []
    for filters, bias in weights["filters"]:  # w d f, f
        width = len(filters)
        windows = [x[at : at + width] for at in range(len(x) - width + 1)]
        values = [np.einsum("wd,wdf->f", window, filters) + bias for window in windows]
        pooled.append(np.max(values, axis=0))
    y = activation(np.concatenate(pooled))
    for transform, transform_bias, gate, gate_bias in weights["highways"]:
        share = sigmoid(y @ gate + gate_bias)
        y = share * np.maximum(y @ transform + transform_bias, 0) + (1 - share) * y
    projection, bias = weights["projection"]
    return y @ projection + bias


def lstm(inputs, layer, cell_clip=np.inf, output_clip=np.inf, state=None):
    """Sak et al. 2014, eq. 1–6 without peepholes; the output is a projection of the cell."""
    size = len(layer["b_i"])
    output, cell = state or (np.zeros(layer["projection"].shape[1]), np.zeros(size))
    found = []
    for x in inputs:
        both = np.concatenate([x, output])
        i, f, o = (sigmoid(both @ layer[f"w_{gate}"] + layer[f"b_{gate}"]) for gate in "ifo")
        cell = f * cell + i * np.tanh(both @ layer["w_g"] + layer["b_g"])
        cell = np.clip(cell, -cell_clip, cell_clip)
        output = np.clip((o * np.tanh(cell)) @ layer["projection"], -output_clip, output_clip)
        found.append(output)
    return np.array(found), (output, cell)


def read_direction(inputs, layers, **clips):
    """The layers of one direction, with a residual above the first (Peters et al. 2018, §3.4)."""
    found, x = [], inputs
    for number, layer in enumerate(layers):
        y, _ = lstm(x, layer, **clips)
        x = y + x if number else y
        found.append(x)
    return found


def elmo(rows, weights, **clips):
    """Layer 0, [x; x], then [→h; ←h] of each layer."""
    x = np.array([word_vector(row, weights) for row in rows])
    ahead = read_direction(x, weights["forward"], **clips)
    back = read_direction(x[::-1], weights["backward"], **clips)
    layers = [np.concatenate([x, x], 1)]
    return layers + [np.concatenate([h, g[::-1]], 1) for h, g in zip(ahead, back, strict=True)]


def weights_of(module):
    """The weights of an `Elmo`, by the names that are used here."""
    values = {name: one.detach().double().numpy() for name, one in module.named_parameters()}

    def cnn(prefix):
        filters = [name for name in values if name.startswith(f"{prefix}convolutions.")]
        highways = range(len(module.embeddings.highways))
        return {
            "characters": values[f"{prefix}embeddings.weight"],
            "filters": [
                (values[name].transpose(2, 1, 0), values[name.replace("weight", "bias")])
                for name in filters
                if name.endswith("weight")
            ],
            "highways": [
                tuple(
                    values[f"{prefix}highways.{n}.{part}.{kind}"].T
                    for part in ("transform", "gate")
                    for kind in ("weight", "bias")
                )
                for n in highways
            ],
            "projection": tuple(
                values[f"{prefix}projection.{kind}"].T for kind in ("weight", "bias")
            ),
        }

    def layers(name):
        found = []
        for n in range(module.num_layers):
            part = {key: values[f"{name}.{n}.{key}_l0"] for key in ("weight_ih", "weight_hh")}
            matrix = np.concatenate([part["weight_ih"], part["weight_hh"]], 1).T  # both 4h
            bias = values[f"{name}.{n}.bias_ih_l0"] + values[f"{name}.{n}.bias_hh_l0"]
            layer = {"projection": values[f"{name}.{n}.weight_hr_l0"].T}
            for gate, w, b in zip("ifgo", np.split(matrix, 4, 1), np.split(bias, 4), strict=True):
                layer |= {f"w_{gate}": w, f"b_{gate}": b}
            found.append(layer)
        return found

    found = {**cnn("embeddings."), "forward": layers("forward_layers")}
    found["backward"] = layers("backward_layers")
    if module.config.output == "cnn":
        found["output"] = cnn("output.cnn.")
        found["correction"] = values["output.correction.weight"]
        found["correction_projection"] = values["output.correction_projection.weight"].T
    elif module.config.output == "softmax":
        found["output"] = values["output.weight"]
    found["bias"] = values.get("output.bias")
    return found
