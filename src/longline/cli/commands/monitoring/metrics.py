"""longline metrics: the metrics of a home, as Prometheus reads them."""

from __future__ import annotations

import click

from longline.cli.options import common_options, settings_of
from longline.cli.output import print_result
from longline.cli.queries import uses_store
from longline.core.output import sanitize
from longline.monitoring.metrics import Measurement, metric_families, render_metrics
from longline.services.background import process_memory
from longline.storage.store import Store


@click.command("metrics")
@common_options
@uses_store
async def metrics_command(store: Store) -> None:
    """Print the metrics of this home in the text format of Prometheus.

    `longline serve` serves them at /metrics if the setting `monitoring_address` is set. With
    --json, each metric has its name, type, help and samples.
    """
    settings = settings_of()
    totals = await store.totals.read(await store.now(), max_sources=settings.metrics_sources)
    measured = Measurement(totals, process_memory(settings.home))
    families = [
        {
            "name": one.name,
            "type": one.type,
            "help": one.documentation,
            "samples": [
                {"name": sample.name, "labels": sample.labels, "value": sample.value}
                for sample in one.samples
            ],
        }
        for one in metric_families(measured)
    ]
    text = sanitize(render_metrics(measured)[0].decode())
    print_result(families, lambda: click.echo(text, nl=False))
