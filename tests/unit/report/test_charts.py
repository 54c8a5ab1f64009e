"""The charts of a report."""

from cloze.metrics.names import METRICS
from cloze.report.charts import CHARTS, build_sections


def test_a_baseline_has_the_format_of_its_metric():
    for chart in CHARTS:
        for metric in chart.metrics if chart.baselines else ():
            for baseline in chart.baselines:
                assert METRICS[baseline].format is METRICS[metric].format
                assert METRICS[baseline].result  # the report shows it next to the metric


def test_a_baseline_is_explained_only_if_it_was_measured() -> None:
    rows = [{"kind": "train", "step": step, "lm_accuracy": 0.1 * step} for step in (1, 2)]
    measured = {"kind": "eval", "step": 2, "lm_accuracy": 0.2, "unigram_baseline": 0.05}

    def page(rows: list[dict[str, object]]) -> str:
        return "".join(str(section.element()) for section in build_sections(rows))

    assert "Unigram baseline" not in page(rows)
    assert "Unigram baseline" in page([*rows, measured])
