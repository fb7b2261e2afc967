"""The profile of numbers, and the traffic made from it."""

import itertools
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.traffic import Format, Tally, read_events, synthesise
from callboard.traffic.measure import size_class
from callboard.traffic.profile import load_profile, profile_from_json


def test_the_shipped_profile_is_what_measuring_the_log_gives(nasa_log):
    """The profile has not drifted from the log and the code that measured it."""
    command = [sys.executable, "-P", "-m", "callboard.traffic.measure"]
    with nasa_log.open("rb") as log:
        measured = subprocess.run(command, stdin=log, capture_output=True, check=True, text=True).stdout
    assert measured == load_profile().to_json()


def test_the_profile_holds_numbers_only():
    """No name of a host and no address is in the shipped profile; and it is small."""
    text = load_profile().to_json()
    assert len(text) < 50_000
    kinds = {kind.split()[0] for kind, _ in load_profile().requests}
    assert kinds == {"GET", "HEAD", "POST"}
    assert "/" not in text


def test_a_profile_survives_json():
    """Writing and reading a profile changes nothing."""
    profile = load_profile()
    assert profile_from_json(profile.to_json()) == profile


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"x": 1}', "null"])
def test_what_is_no_profile_is_refused(text):
    """Anything but a profile is an InvalidArgument."""
    with pytest.raises(InvalidArgument):
        profile_from_json(text)


@given(st.integers(min_value=1, max_value=10**9))
def test_a_size_lies_within_its_class(size):
    """A class of sizes bounds the sizes in it."""
    found = size_class(size)
    assert 2 ** (found / 4) <= size * 1.000001
    assert size < 2 ** ((found + 1) / 4) * 1.000001


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_the_number_of_events_is_exact(seeded, count):
    """As many events are made as were asked for."""
    assert len(list(synthesise(load_profile(), count, seeded(1)))) == count


def test_one_seed_is_one_day(seeded):
    """The same seed makes the same events, another seed others."""
    first, again, other = (list(synthesise(load_profile(), 500, seeded(seed))) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_the_synthetic_day_is_one_day_in_order_and_readable_as_an_access_log(seeded):
    """Times rise within 24 hours, and every line parses back to the very same event."""
    events = list(synthesise(load_profile(), 2000, seeded(2)))
    times = [event.time_us for event in events]
    assert times == sorted(times)
    assert times[-1] - times[0] < 86_400_000_000
    tally = Tally()
    assert list(read_events([event.value for event in events], form=Format.COMMON, tally=tally)) == events
    assert tally.bad == 0


def test_the_synthetic_day_has_the_measured_character(seeded):
    """Skew, bursts and the rates over the day are near the measured ones."""
    profile = load_profile()
    events = list(synthesise(profile, 30_000, seeded(3)))
    hosts = Counter(event.key for event in events)
    assert 0.008 < hosts.most_common(1)[0][1] / 30_000 < 0.02
    assert 2000 < len(hosts) <= 2365
    shared = sum(one.time_us == two.time_us for one, two in itertools.pairwise(events)) / 30_000
    assert 0.3 < shared < 0.5
    first_half = sum(event.time_us < events[0].time_us + 43_200_000_000 for event in events)
    measured = sum(profile.buckets[: len(profile.buckets) // 2]) / sum(profile.buckets)
    assert abs(first_half / 30_000 - measured) < 0.02
