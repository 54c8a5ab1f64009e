"""Draw ulmfit-rates.svg: the learning rate of each layer in the classifier stage of ULMFiT.

python docs/img/ulmfit.py
"""

from pathlib import Path

from cloze.make.finetune.job import layer_lr_factors
from cloze.make.recipe.complete import recipe
from cloze.plot.line_chart import LineChart, Series

LAYERS, EPOCHS, POINTS = 3, 10, 200
NAMES = ["embeddings", *(f"layer {number}" for number in range(1, LAYERS + 1)), "classifier"]
PARAMETERS = ["embeddings.word.weight", *(f"rnn.layers.{n}.w" for n in range(LAYERS)), "head"]

if __name__ == "__main__":
    made = recipe("ulmfit")
    factor = layer_lr_factors(made.transfer, LAYERS)
    fractions = [(number + 0.5) / POINTS for number in range(POINTS)]
    series = []
    for depth in range(LAYERS + 1, -1, -1):
        start = (LAYERS + 1 - depth) * made.transfer.unfreeze_every / EPOCHS
        points = [one for one in fractions if one >= start]
        peak = made.optimizer.lr * factor(PARAMETERS[depth])
        rates = [peak * made.schedule(one) for one in points]
        series.append(Series(name=NAMES[depth], x=[EPOCHS * one for one in points], y=rates))
    LineChart(
        title="Learning rates of ULMFiT's classifier",
        x_label="epoch",
        y_label="learning rate",
        log=True,
        series=series,
    ).save(Path(__file__).parent / "ulmfit-rates.svg")
