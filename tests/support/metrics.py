"""Reads the metrics of a process that runs."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from support.processes import Process

LISTEN = ("--metrics-listen", "127.0.0.1:0")
SECONDS = 20


@dataclass(frozen=True)
class Metrics:
    """What a process told at one moment."""

    text: str

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels; 0 for none."""
        samples = (each for family in text_string_to_metric_families(self.text) for each in family.samples)
        return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())


def address(process: Process) -> str:
    """Where the process says that it serves metrics; one that was started again, last."""
    told = [json.loads(line) for line in process.log.read_text().splitlines()]
    *_, line = [each for each in told if each["event"] == "serving metrics"]
    return str(line["address"])


def scrape(process: Process) -> Metrics:
    """Asks the process, as Prometheus does."""
    with urllib.request.urlopen(f"http://{address(process)}/metrics", timeout=SECONDS) as answer:
        return Metrics(answer.read().decode())
