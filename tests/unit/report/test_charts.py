"""The charts of a report."""

from cloze.metrics.names import METRICS
from cloze.report.charts import CHARTS


def test_a_baseline_has_the_format_of_its_metric():
    for chart in CHARTS:
        for metric in chart.metrics if chart.baselines else ():
            for baseline in chart.baselines:
                assert METRICS[baseline].format is METRICS[metric].format
                assert METRICS[baseline].result  # the report shows it next to the metric
