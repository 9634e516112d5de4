"""Times mean the same instant wherever the process runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from hippovault_gateway import documents, views

SECONDS = 1_769_902_200
INSTANT = "2026-01-31T23:30:00Z"
"""In Auckland the next day, in Los Angeles the afternoon."""
FORMS = [
    INSTANT,
    "2026-01-31T23:30:00",
    "2026-01-31 23:30",
    "2026-01-31T23:30:00.000+00:00",
    "2026-02-01T12:30:00+13:00",
    "2026-01-31T15:30:00-08:00",
    SECONDS,
    float(SECONDS),
]
# As POSIX writes them, since a machine may have no table of names.
ZONES = {
    "Pacific/Auckland": ("NZST-12NZDT,M9.5.0,M4.1.0/3", 13),
    "America/Los_Angeles": ("PST8PDT,M3.2.0,M11.1.0", -8),
    "UTC": ("UTC0", 0),
}


@pytest.fixture(params=ZONES, autouse=True)
def _zone(request: pytest.FixtureRequest) -> Iterator[None]:
    name, hours = ZONES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        assert time.localtime(SECONDS).tm_gmtoff == hours * 3600
        yield
    time.tzset()


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_time_is_the_same_instant(form: str | float) -> None:
    given = documents.parse(documents.MemoryInput, {"content": "c", "created_at": form})
    assert given.request().created_at == Timestamp(seconds=SECONDS)


@pytest.mark.parametrize("form", [form for form in FORMS if isinstance(form, str)])
def test_each_text_of_a_time_is_the_same_instant(form: str) -> None:
    assert documents.timestamp("since", form) == Timestamp(seconds=SECONDS)


def test_a_day_alone_begins_at_midnight_utc() -> None:
    assert views.iso(documents.timestamp("since", "2026-01-31")) == "2026-01-31T00:00:00Z"


def test_an_instant_is_told_in_utc_to_the_microsecond() -> None:
    assert views.iso(Timestamp(seconds=SECONDS)) == INSTANT
    assert views.iso(Timestamp(seconds=SECONDS, nanos=1_000)) == "2026-01-31T23:30:00.000001Z"
