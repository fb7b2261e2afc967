"""Which topics groups of patterns read, decided by the catalog's state alone."""

from __future__ import annotations

from typing import Any

import attrs
import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.catalog import patterns, state
from callboard.actors.catalog.patterns import after, found_topics, left_out
from callboard.actors.catalog.state import CatalogState
from callboard.log.errors import FormatTooNew

NAMES = ("orders.eu", "orders.us", "orders.dlq", "failed", "refunds")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from(NAMES)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(st.just("group"), st.sampled_from(("*", "orders.*", "failed")), st.booleans()),
        st.tuples(st.just("name"), st.sampled_from(NAMES)),
    ),
    max_size=25,
)


class Catalog:
    """What the catalog decides, step by step, with its records."""

    def __init__(self) -> None:
        self.state = CatalogState()
        self.records: list[bytes] = []
        self.topics = 0

    def decide(self, *events: Any) -> None:
        for event in events:
            self.state.apply(event)
            self.records.append(state.encode(event))

    def step(self, verb: str, what: str, *more: Any) -> None:
        topic = self.state.topic(what)
        if verb == "create" and topic is None:
            self.topics += 1
            topic_id = f"{self.topics:04x}"
            created = (state.TOPIC_CREATED, what, topic_id, {})
            self.decide(*after(self.state, created, lambda then: [then.topics[topic_id]]))
        elif verb == "delete" and topic is not None:
            self.decide((state.TOPIC_DELETING, topic.topic_id))
            self.decide(*after(self.state, (state.TOPIC_DELETED, topic.topic_id), left_out))
        elif verb == "group":
            group_id = self.state.next_group_id
            self.decide((state.GROUP_OPENED, f"group-{group_id}", group_id, {}, None))
            self.decide((state.GROUP_PATTERN, group_id, what, *more))
            self.decide(*found_topics(self.state, self.state.topics.values()))
        elif verb == "name" and topic is not None:
            group_id = self.state.next_group_id
            settings = {"dead_letter_topic": what}
            self.decide((state.GROUP_OPENED, f"group-{group_id}", group_id, settings, None))


@given(STEPS)
def test_a_group_reads_what_matches_and_nothing_else(steps: list[Any]) -> None:
    """PT1, PT2: after any creations, deletions and namings, exactly the topics that match; no dead letters unasked."""
    catalog = Catalog()
    named: set[str] = set()
    for step in steps:
        catalog.step(*step)
        found = catalog.state
        alive = {topic.topic_id for topic in found.topics.values()}
        if step[0] == "name" and (topic := found.topic(step[1])) is not None:
            named.add(topic.topic_id)
        for group in found.groups.values():
            if group.pattern is None:
                continue
            wanted = {
                topic.topic_id
                for topic in found.topics.values()
                if group.pattern.takes(
                    topic.name,
                    takes_dead_letters=topic.topic_id in named
                    or any(other.settings.dead_letter_topic == topic.name for other in found.groups.values()),
                )
            }
            assert set(group.topic_ids) == wanted
            assert group.found <= wanted <= alive


@given(STEPS)
def test_it_is_the_same_after_a_restart(steps: list[Any]) -> None:
    """Records and snapshots rebuild patterns, what was found later, and which topics are for dead letters."""
    catalog = Catalog()
    for step in steps:
        catalog.step(*step)
    replayed, restored = CatalogState(), CatalogState()
    for record in catalog.records:
        replayed.replay(record)
    restored.restore(catalog.state.snapshot())
    for other in (replayed, restored):
        assert other.topics == catalog.state.topics
        assert other.groups == catalog.state.groups


def test_an_older_version_refuses_what_it_would_misread() -> None:
    """Events and the field of the snapshot are mandatory: without them nobody would find new topics."""
    catalog = Catalog()
    catalog.step("create", "orders.eu")
    catalog.step("group", "orders.*", False)
    snapshot = cbor2.loads(catalog.state.snapshot())
    assert snapshot["groups"][0]["must"] == ["pattern"]
    assert state.GROUP_PATTERN < 128
    assert state.GROUP_FOUND < 128
    snapshot["groups"][0]["must"] = ["something newer"]
    with pytest.raises(FormatTooNew):
        CatalogState().restore(cbor2.dumps(snapshot))


def test_too_many_topics_are_passed_over_until_one_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group reads no more than the limit; what was left out is read when another is deleted."""
    monkeypatch.setattr(patterns, "PATTERN_TOPICS_MAX", 2)
    catalog = Catalog()
    catalog.step("group", "*", False)
    for name in ("a", "b", "c"):
        catalog.step("create", name)
    names = lambda: {catalog.state.topics[topic].name for topic in catalog.state.groups[1].topic_ids}  # noqa: E731
    assert names() == {"a", "b"}
    (passed,) = patterns.passed_over(catalog.state, catalog.state.topics.values())
    assert (passed.topic, "no more are allowed" in passed.cause) == ("c", True)
    catalog.step("delete", "a")
    assert names() == {"b", "c"}


def test_the_topic_of_its_own_dead_letters_is_never_read() -> None:
    """PT2: also by a group that asks for dead letters."""
    catalog = Catalog()
    catalog.step("create", "failed")
    settings = attrs.evolve(state.GroupSettings(), dead_letter_topic="failed")
    catalog.decide((state.GROUP_OPENED, "billing", 1, state.changed(settings), None))
    catalog.decide((state.GROUP_PATTERN, 1, "*", True))
    assert found_topics(catalog.state, catalog.state.topics.values()) == []
