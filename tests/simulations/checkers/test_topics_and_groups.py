"""Checkers of the catalog and of groups: what was made of topics and groups, members, ends, settings."""

import attrs
import pytest

from callboard.actors.settings import GroupSettings, TopicSettings
from callboard.simulations.checkers import (
    catalog_map,
    forgotten,
    group_ends,
    identities,
    membership,
    told_settings,
)
from callboard.simulations.checkers.catalog_model import apply
from callboard.simulations.checkers.terms import Terms
from callboard.simulations.history.entry import MAYBE, member_name, plain
from callboard.simulations.history.surviving import Surviving

NOTHING = Surviving(())


class Admin:
    """Writes what administrators and consumers do, at the times and on the machines of a script."""

    def __init__(self, script) -> None:
        self.script = script
        self.starts_catalog()

    def starts_catalog(self) -> None:
        self.script.event("ActorStarted", "catalog")

    def record(self, kind: str, operation: int = 0, **more) -> None:
        self.script.history.record(self.script.machine, kind, "admin", operation, **more)

    def begin(self, verb: str, name: str, **given) -> int:
        """A change begins."""
        operation = self.script.history.operation()
        where = {"topic": name} if verb.endswith("topic") else {"group": name}
        self.record("change", operation, detail=f"{verb} {plain(given)}", **where)
        return operation

    def end(self, operation: int, kind: str = "changed", detail: str = "") -> None:
        """It ends."""
        self.record(kind, operation, detail=detail)

    def change(self, verb: str, name: str, kind: str = "changed", detail: str = "", **given) -> None:
        """A change from its beginning to its end."""
        self.end(self.begin(verb, name, **given), kind, detail)

    def topics(self, **topics) -> None:
        """A listing of topics, with what differs from the defaults."""
        rows = {
            name: {"id": name, "settings": attrs.asdict(TopicSettings(**given))}
            for name, given in topics.items()
        }
        self.record("topics listed", detail=plain(rows))

    def groups(self, members=(), **groups) -> None:
        """A listing of groups; all have the `members`."""
        operation = self.script.history.operation()
        self.record("list groups", operation)
        rows = {
            name: {
                "id": 1,
                "settings": attrs.asdict(GroupSettings(**given)),
                "topics": [],
                "count": len(members),
                "members": list(enumerate(members, 1)),
                "reads": {member: [""] for member in members},
            }
            for name, given in groups.items()
        }
        self.record("groups listed", operation, detail=plain(rows))

    def consumer(self, group: str, *kinds: str, **given) -> str:
        """A consumer's life as far as its entries go; returns the name that its group knows."""
        life = self.script.history.operation()
        for kind in kinds:
            kind, _, detail = kind.partition(" ")
            if kind == "joined":
                self.script.event("ActorStarted", f"groups/{group}")
            detail = plain(given) if kind == "joining" else detail
            self.script.history.record(self.script.machine, kind, "w", life, group=group, detail=detail)
        return member_name("w", life)


@pytest.fixture
def admin(script):
    return Admin(script)


def broken(checker, script) -> bool:
    return bool(checker.check(script.history, NOTHING))


def test_the_model_knows_how_changes_end():
    """Creating again compares what is named, altering keeps the rest, and what is not there is refused."""
    ended, made = apply("create_topic", {"compression": "gzip"}, None)
    assert ended == "changed"
    assert apply("create_topic", {}, made) == ("changed", made)
    assert apply("create_topic", {"compression": "none"}, made) == ("TopicExists", made)
    assert (
        apply("alter_topic", {"drop_unread": True}, made)[1]
        == apply("create_topic", {"compression": "gzip", "drop_unread": True}, None)[1]
    )
    assert apply("delete_topic", {}, made) == ("changed", None)
    assert apply("alter_topic", {}, None) == apply("delete_topic", {}, None) == ("TopicNotFound", None)
    _, group = apply("subscribe", {"durable": False}, None)
    assert apply("subscribe", {"max_in_flight": 3}, group) == ("changed", group)
    assert apply("subscribe", {"durable": True}, group) == ("ConfigurationError", group)
    assert apply("alter_group", {}, None) == ("GroupNotFound", None)


def test_what_was_answered_is_there(script, admin):
    """A topic is listed as it was created and altered, also after a power cut."""
    admin.change("create_topic", "a", compression="gzip")
    admin.change("alter_topic", "a", drop_unread=True)
    admin.topics(a={"compression": "gzip", "drop_unread": True})
    script.cut()
    admin.topics(a={"compression": "gzip", "drop_unread": True})
    assert not broken(catalog_map, script)
    admin.topics(a={"drop_unread": True})
    assert broken(catalog_map, script)


def test_what_failed_definitely_is_not(script, admin):
    """A topic whose creation was refused is not listed, and creating it again does not find it."""
    admin.change("create_topic", "a", "not changed", "StorageError")
    admin.topics()
    admin.change("create_topic", "a", compression="gzip")
    assert not broken(catalog_map, script)
    admin.change("delete_topic", "a", "not changed", "StorageError")
    admin.change("alter_topic", "a", "not changed", "TopicNotFound")
    assert broken(catalog_map, script)


@pytest.mark.parametrize("is_there", [False, True])
def test_what_was_indefinite_is_one_or_the_other_and_stays_so(script, admin, is_there):
    """It may turn up when the catalog is read from the disk again; a moment later that is decided."""
    admin.change("create_topic", "a", "maybe changed", f"StorageError{MAYBE}")
    admin.topics()
    script.cut()
    admin.starts_catalog()
    seen = {"a": {}} if is_there else {}
    other = {} if is_there else {"a": {}}
    script.at(5.0)
    admin.topics(**seen)
    admin.topics(**seen)
    assert not broken(catalog_map, script)
    admin.topics(**other)
    assert broken(catalog_map, script)


def test_what_was_indefinite_does_not_turn_up_once_something_else_was_decided(script, admin):
    """The journal was healed before that, without it."""
    admin.change("create_topic", "a", "maybe changed", f"StorageError{MAYBE}")
    admin.topics()
    admin.change("create_topic", "b")
    admin.change("delete_topic", "b")
    assert not broken(catalog_map, script)
    admin.topics(a={})
    assert broken(catalog_map, script)


def test_changes_at_the_same_time_have_happened_in_some_order(script, admin):
    """Both orders are possible, and one of them it was."""
    one, other = admin.begin("alter_topic", "a", compression="gzip"), admin.begin("create_topic", "a")
    admin.topics(a={})
    admin.end(other)
    admin.end(one)
    assert not broken(catalog_map, script)
    admin.topics(a={})
    assert broken(catalog_map, script)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_topic_may_be_altered_and_deleted_before_that_is_answered(script, admin, is_deleted):
    """A change whose topic was deleted meanwhile may have been seen before; without a deletion it may not."""
    admin.change("create_topic", "a")
    altering = admin.begin("alter_topic", "a", compression="gzip")
    admin.topics(a={"compression": "gzip"})
    if is_deleted:
        admin.change("delete_topic", "a")
        admin.topics()
    admin.end(altering, "not changed", "TopicNotFound")
    assert broken(catalog_map, script) != is_deleted


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_topic_may_be_made_and_deleted_before_that_is_answered(script, admin, is_deleted):
    """Who makes a topic may not find it any more; without a deletion that cannot be."""
    making = admin.begin("create_topic", "a")
    admin.topics(a={})
    if is_deleted:
        admin.change("delete_topic", "a")
    admin.end(making, "not changed", "TopicNotFound")
    admin.topics(**({} if is_deleted else {"a": {}}))
    assert broken(catalog_map, script) != is_deleted


def test_a_cancelled_change_may_happen_later(script, admin):
    """It may wait for its turn still, until the runtime ends."""
    admin.change("create_topic", "a", "maybe changed", "Cancelled")
    admin.topics()
    admin.topics(a={})
    assert not broken(catalog_map, script)


def test_a_topic_without_space_may_be_there_for_a_while(script, admin):
    """It was created, and deleted again before that was answered."""
    operation = admin.begin("create_topic", "a")
    admin.topics(a={})
    admin.topics()
    admin.end(operation, "not changed", "DiskFull")
    assert not broken(catalog_map, script)


def test_a_group_ends_by_itself_only_when_it_should(script, admin):
    """Not while it has a member, nor before it was without one for its whole expiry, nor sooner after an opening."""
    admin.change("create_topic", "a")
    admin.consumer("g", "joining", "joined", "left", "gone", group_expiry=2.0)
    script.at(2.5)
    admin.groups()
    assert not broken(catalog_map, script)
    admin.consumer("g", "joining", "joined", group_expiry=2.0)
    script.at(9.0)
    admin.groups()
    assert broken(catalog_map, script)


def test_a_group_may_not_expire_right_after_an_opening(script, admin):
    """Its consumers have their time to come back, however long the directory was closed."""
    admin.change("create_topic", "a")
    admin.consumer("g", "joining", "joined", "left", "gone", group_expiry=2.0)
    script.at(1.0).cut().at(9.0)
    script.history.record(script.machine, "opened", "operator")
    script.event("ActorStarted", "groups/g")
    admin.groups(g={"group_expiry": 2.0})
    assert not broken(catalog_map, script)
    script.at(10.0)
    admin.groups()
    assert broken(catalog_map, script)


def test_members_are_those_who_are_there(script, admin):
    """Who has joined is listed, and who was told that it has left is not."""
    name = admin.consumer("g", "joining", "joined")
    admin.groups((name,), g={})
    gone = admin.consumer("g", "joining", "joined", "left", "gone")
    assert not broken(membership, script)
    admin.groups((name, gone), g={})
    assert broken(membership, script)


def test_nobody_who_has_joined_is_left_out(script, admin):
    """Of a group that nobody deleted."""
    admin.consumer("g", "joining", "joined")
    admin.change("delete_group", "g")
    admin.groups(g={})
    assert not broken(membership, script)
    admin.consumer("g", "joining", "joined")
    admin.groups(g={})
    assert broken(membership, script)


def test_who_was_cancelled_is_a_member_for_a_moment_only(script, admin):
    """When nothing fails."""
    name = admin.consumer("g", "joining", "joined", "left", "gone Cancelled")
    script.history.healed()
    admin.groups((name,), g={})
    assert not broken(membership, script)
    script.at(3.0)
    admin.groups((name,), g={})
    assert broken(membership, script)


def test_members_are_listed_with_what_they_read(script, admin):
    """With all topics that they joined with."""
    life = script.history.operation()
    for kind in ("joining", "joined"):
        script.history.record(1, kind, "w", life, "a and b", group="g", detail="{}")
    operation = script.history.operation()
    for topics in (["a", "b"], ["a"]):
        admin.record("list groups", operation)
        seen = {
            "count": 1,
            "members": [[1, member_name("w", life)]],
            "reads": {member_name("w", life): topics},
        }
        admin.record("groups listed", operation, detail=plain({"g": seen}))
        assert broken(membership, script) == (topics == ["a"])


def test_an_ephemeral_group_ends_with_its_process(script, admin):
    """Nobody lists it when the directory was opened again, before somebody made it anew."""
    admin.consumer("g", "joining", "joined", durable=False)
    script.history.healed()
    script.at(1.0).cut()
    admin.groups(h={"durable": True})
    assert not broken(group_ends, script)
    admin.groups(g={"durable": False})
    assert broken(group_ends, script)


def test_no_id_is_given_twice(script, admin):
    """Not even in another life of the machine."""
    admin.groups((admin.consumer("g", "joining", "joined"),), g={})
    script.cut()
    admin.groups((admin.consumer("g", "joining", "joined"),), g={})
    assert broken(membership, script)


def test_ids_may_be_lost_with_the_last_records_before_a_power_cut(script, admin):
    """Where bits rot, damage to the very last records cannot be distinguished from a torn write."""
    admin.groups((admin.consumer("g", "joining", "joined"),), g={})
    script.cut()
    admin.groups((admin.consumer("g", "joining", "joined"),), g={})
    assert membership.check(script.history, NOTHING, Terms(beyond=True)) == []


def test_members_of_other_machines_are_none(script, admin):
    """A machine that is gone took its consumers with it."""
    name = admin.consumer("g", "joining", "joined")
    script.cut()
    admin.groups((name,), g={})
    assert broken(membership, script)


@pytest.mark.parametrize("given", [{"durable": False}, {"group_expiry": 2.0}])
def test_groups_that_should_have_ended(script, admin, given):
    """They may be there for a while after their last consumer left, but not for ever."""
    admin.consumer("g", "joining", "joined", "left", "gone", **given)
    script.history.healed()
    script.at(1.0)
    admin.groups(g=given)
    assert not broken(group_ends, script)
    script.at(30.0)
    admin.groups(g=given)
    assert broken(group_ends, script)


def test_groups_that_last(script, admin):
    """Those with a member, and those that never expire."""
    script.history.healed()
    name = admin.consumer("g", "joining", "joined", durable=False)
    script.at(30.0)
    admin.groups((name,), g={"durable": False})
    admin.groups(h={"group_expiry": None})
    assert not broken(group_ends, script)


def test_members_go_by_the_settings_that_were_altered_last(script, admin):
    """Once that was answered; while it is under way both are right."""
    life = script.history.operation()

    def goes_by(settings: str) -> None:
        script.history.record(1, "settings seen", "w", life, group="g", detail=settings)

    old, new = (plain(attrs.asdict(GroupSettings(max_in_flight=count))) for count in (1, 7))
    script.history.record(1, "joining", "w", life, group="g", detail="{}")
    admin.change("alter_group", "g", "changed", old, max_in_flight=1)
    operation = admin.begin("alter_group", "g", max_in_flight=7)
    goes_by(old)
    goes_by(new)
    admin.end(operation, "changed", new)
    goes_by(new)
    assert not broken(told_settings, script)
    goes_by(old)
    assert broken(told_settings, script)


def test_a_group_that_has_ended_is_known_nowhere(script, admin):
    """A partition that still knows it would hold back for it what it may drop, unless it could not forget it."""
    admin.groups(g={})
    admin.record("groups at partition", topic="a", partition=0, ids=(1,), offsets=(0,))
    assert not broken(forgotten, script)
    admin.record("groups at partition", topic="a", partition=1, ids=(1, 2), offsets=(0, 0))
    assert broken(forgotten, script)


def test_what_could_not_be_forgotten_waits_for_the_next_opening(script, admin):
    """It was told that an operation failed."""
    admin.groups(g={})
    script.event("OperationFailed", "")
    admin.record("groups at partition", topic="a", partition=0, ids=(2,), offsets=(0,))
    assert not broken(forgotten, script)
    script.cut()
    admin.record("groups at partition", topic="a", partition=0, ids=(2,), offsets=(0,))
    assert broken(forgotten, script)


def test_who_has_left_holds_nothing(script, admin):
    """A group may have something leased while it has a member."""
    admin.groups((admin.consumer("g", "joining", "joined"),), g={})
    admin.record("groups at partition", topic="a", partition=0, ids=(1,), offsets=(3,))
    assert not broken(forgotten, script)
    admin.groups(g={})
    admin.record("groups at partition", topic="a", partition=0, ids=(1,), offsets=(3,))
    assert broken(forgotten, script)


def test_a_deleted_topic_has_no_files(script, admin):
    """Once the directory was opened again."""
    admin.topics(a={})
    admin.record("files of topics", detail="a")
    assert not broken(forgotten, script)
    admin.record("files of topics", detail="a b")
    assert broken(forgotten, script)


def test_an_id_is_never_given_to_two(script, admin):
    """Neither to topics of different names, nor again to one that was deleted meanwhile, listed or not."""
    admin.groups(g={})
    admin.groups(g={})
    assert not broken(identities, script)
    admin.change("delete_group", "g")
    admin.groups(g={})
    assert broken(identities, script)


def test_what_was_gone_does_not_come_back(script, admin):
    """A topic that was not listed for a while is another one."""
    admin.topics(a={})
    admin.topics()
    assert not broken(identities, script)
    admin.topics(a={})
    assert broken(identities, script)
