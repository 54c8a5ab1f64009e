"""The table of metrics."""

from cloze.metrics.names import METRICS, metric_label


def test_each_term_has_one_metric():
    terms = [term for measure in METRICS.values() for term in measure.terms]
    assert len(set(terms)) == len(terms)


def test_formatted_values():
    told = {
        "tokens": 8192,
        "mlm_loss": 2.5,
        "all_original_baseline": 0.85,
        "seconds": 61,
        "bleu": 30,
    }
    assert [METRICS[key].describe(value) for key, value in told.items()] == [
        "8,192 tokens",
        "MLM loss 2.500",
        "all-original baseline 85.0\N{NO-BREAK SPACE}%",
        "1:01",
        "BLEU 30.0",
    ]


def test_labels_and_formats():
    assert metric_label("f1_macro") == "macro F1"
    assert metric_label("blank_pairs") == "blank pairs"
    assert METRICS["matthews_correlation"].format(0) == METRICS["pearson"].format(0) == "0.0000"
