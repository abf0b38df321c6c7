r"""Metrics as text: OpenMetrics, which the textfile collector of Prometheus' node exporter reads, too.

# HELP sglogparse_decode_batch_lines Decode batch lines of the log.
# TYPE sglogparse_decode_batch_lines gauge
sglogparse_decode_batch_lines{log="server.log",rank="TP0"} 12
# EOF

Gauges and summaries are written the same in both formats. A label's value is text of a log or a path: control
codes are shown, and \, " are escaped, so it ends neither its quotes nor its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sglogparse._metrics import Family, Sample
from sglogparse._safe import plain


def render_openmetrics(families: Iterable[Family]) -> str:
    """Return the text, with the line that ends it."""
    return "\n".join([*(line for one in families for line in _family(one)), "# EOF"])


def _family(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"
    for sample in family.samples:
        yield f"{family.name}{sample.suffix}{{{_labels(sample)}}} {_number(sample.value)}"


def _number(value: float) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _labels(sample: Sample) -> str:
    labels = {"log": sample.log}
    if sample.rank is not None:
        labels["rank"] = sample.rank
    if sample.quantile is not None:
        labels["quantile"] = f"{sample.quantile}"
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return plain(text).replace("\\", "\\\\").replace('"', '\\"')
