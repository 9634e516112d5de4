"""The common beginning and end of every process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from hippovault_chassis import commands, logs, metrics, settings, tracing
from hippovault_chassis.errors import ServiceError, told
from hippovault_chassis.settings import SettingsT


def run(
    section: str,
    settings_type: type[SettingsT],
    serve: Callable[[SettingsT], None],
    argv: Sequence[str] | None = None,
) -> None:
    """Loads the settings, prepares logs and home, and serves until the process is asked to stop.

    Args:
        section: The process's name, see `settings.load`.
        settings_type: Its settings.
        serve: Runs until the process is asked to stop.
        argv: The arguments; None means this process's own.

    Raises:
        SystemExit: Serving was impossible; what and why is on stderr.
    """
    values = settings.load(settings_type, section, argv)
    logs.configure(section, values.log_level)
    try:
        commands.belong_to(values.layout)
        values.layout.create()
        metrics.listen(values.metrics_listen)
        with tracing.exporting(section):
            serve(values)
    except (ServiceError, OSError) as error:
        sys.exit(f"hippovault-{section}: {told(error)}")
