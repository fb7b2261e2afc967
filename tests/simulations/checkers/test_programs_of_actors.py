"""The checkers of programs of actors: fates, timeouts, durable state, order, backoffs and intensities."""

from __future__ import annotations

from collections import Counter

import pytest

from callboard.actors.kernel import Actor, MailboxSpec
from callboard.simulations.checkers import (
    Terms,
    durable_state,
    mailboxes,
    restarts,
    timeouts,
    tree_order,
    watchers,
)
from callboard.supervision import Backoff, ChildSpec, SupervisorSpec

PERIOD_S = 10.0


def child(name, **more):
    """A child that begins again after 1 s, 2 s, 4 s and so on."""
    backoff = Backoff(initial=1.0, maximum=4.0, jitter=0.0)
    return ChildSpec(name=name, start=Actor, **{"backoff": backoff, "shutdown_grace": 0.5} | more)


def tree(strategy="one_for_one", *, intensity=2, mailbox=None, **more):
    """Terms of a tree with one team, `t`, of the actors `a`, `b` and `c`."""
    children = [child(name, mailbox=mailbox or MailboxSpec(), **more) for name in "abc"]
    team = SupervisorSpec(
        name="t", strategy=strategy, intensity=intensity, period=PERIOD_S, children=children
    )
    return Terms(tree=SupervisorSpec(name="root", children=[team]))


class Program:
    """Writes the history of a tree whose actors begin one after the other."""

    def __init__(self, script):
        self.script = script
        self.history = script.history
        self.operations = {}
        self.lives = Counter()
        self.tell("tree begins")

    def tell(self, kind, who="", number=-1, **more):
        """One entry."""
        ids = more.pop("ids", (number,) if number >= 0 else ())
        self.lives[who] += kind == "begins"
        more.setdefault("attempts", (self.lives[who],))
        self.history.record(self.script.machine, kind, who, ids=ids, **more)
        return self

    def at(self, time):
        """From here on it is that late."""
        self.script.at(time)
        return self

    def up(self, *names):
        """Lives that begin, and are ready at once."""
        for name in names:
            self.tell("begins", f"t/{name}").tell("ActorStarted", f"t/{name}")
        return self

    def down(self, *names):
        """Lives that end in order."""
        for name in names:
            self.tell("stopping", f"t/{name}").tell("stopped", f"t/{name}")
        return self

    def crash(self, name, delay_s=None):
        """A crash, and the restart that is planned."""
        self.tell("IncarnationCrashed", f"t/{name}", detail="Poisoned")
        if delay_s is not None:
            self.tell("ActorRestarted", f"t/{name}", until=delay_s, detail="Poisoned")
        return self

    def send(self, number, kind="tell", until=float("inf")):
        """A message to `a`."""
        self.operations[number] = self.history.operation()
        self.history.record(
            self.script.machine, kind, "c", self.operations[number], "t/a", ids=(number,), until=until
        )
        return self

    def hear(self, number, kind="told", detail=""):
        """What its sender is told."""
        self.history.record(
            self.script.machine, kind, "c", self.operations[number], "t/a", ids=(number,), detail=detail
        )
        return self

    def handle(self, *numbers):
        """Messages that `a` handles."""
        for number in numbers:
            self.tell("handled", "t/a", number).tell("done", "t/a", number)
        return self

    def end(self, time=100.0):
        """The tree is closed, last first."""
        self.at(time).tell("closing")
        return self.down("c", "b", "a").tell("tree ended").at(time + 1).tell("closed")


@pytest.fixture
def program(script):
    """An empty tree."""
    return Program(script)


def words(checker, program, left, terms):
    """What the checker says."""
    return [found.words for found in checker.check(program.history, left(), terms)]


# -- fates --------------------------------------------------------------------------------------------------


def test_every_message_with_a_fate(program, left):
    """Statements that are handled, dropped by an end, or refused, and questions that are answered, are as promised."""
    program.up(*"abc").send(1).hear(1).handle(1)
    program.send(2, "ask").tell("handled", "t/a", 2).tell("replied", "t/a", 2).tell("done", "t/a", 2)
    program.hear(2, "answered").send(3).hear(3, "refused", "cancelled").send(4).hear(4)
    program.tell("handled", "t/a", 4).crash("a", 1.0).tell("dead letter", "t/a", 4, detail="crashed")
    program.at(1.0).up("a").end()
    assert words(mailboxes, program, left, tree()) == []


def test_a_statement_that_vanishes(program, left):
    """A statement that was accepted, and neither handled nor a dead letter, is found."""
    program.up(*"abc").crash("a").send(1).hear(1).tell("ActorFailed", "t/a").end()
    (found,) = words(mailboxes, program, left, tree())
    assert found == "statement 1 to t/a was accepted, and it is unknown what became of it"


@pytest.mark.parametrize("reason", ["stopped", "crashed"])
def test_a_statement_with_two_fates(program, left, reason):
    """A statement that was handled is no dead letter."""
    program.up(*"abc").send(1).hear(1).handle(1).tell("dead letter", "t/a", 1, detail=reason).end()
    assert "was handled, and is a dead letter" in words(mailboxes, program, left, tree())[0]


def test_a_dead_letter_for_a_reason_that_is_not_true(program, left):
    """What nobody had in hand has not crashed anybody."""
    program.up(*"abc").crash("a").send(1).hear(1).tell("dead letter", "t/a", 1, detail="crashed").end()
    assert "reason that is not true" in words(mailboxes, program, left, tree())[0]


@pytest.mark.parametrize("detail", ["cancelled", "AskTimeout", "ActorStopped", "MailboxFull"])
def test_what_failed_definitely_and_is_handled(program, left, detail):
    """Whatever the sender was told: what did not happen must not happen later."""
    program.up(*"abc").send(0).send(1, "ask").hear(1, "refused", detail).handle(1).end()
    assert any("failed definitely" in found for found in words(mailboxes, program, left, tree()))


def test_messages_out_of_order(program, left):
    """What was sent first is handled first, whoever sent it."""
    program.up(*"abc").send(1).send(2).hear(1).hear(2).handle(2, 1).end()
    (found,) = words(mailboxes, program, left, tree())
    assert found == "statement 1 to t/a is handled after another that was sent later"


def test_a_message_again(program, left):
    """Only what was in hand at a crash is handled again, and no more often than is stated."""
    program.up(*"abc").send(1).hear(1).tell("handled", "t/a", 1).crash("a", 1.0).at(1.0).up("a").handle(
        1
    ).end()
    assert words(mailboxes, program, left, tree(retry_in_hand=1)) == []
    assert "for the 2th time" in words(mailboxes, program, left, tree())[0]


def test_an_actor_that_sleeps_beside_its_messages(program, left):
    """An actor that is up and has nothing in hand handles what waits before time goes on."""
    program.up(*"abc").send(1).hear(1).end()
    assert "had nothing to do for 100 s" in words(mailboxes, program, left, tree())[0]


def test_an_asker_that_does_not_hear(program, left):
    """An asker hears the answer when it is given, and of the end of its actor when that comes."""
    program.up(*"abc").send(1, "ask").tell("handled", "t/a", 1).tell("replied", "t/a", 1)
    program.tell("done", "t/a", 1).at(1.0).hear(1, "answered").end()
    assert "its asker does not hear of it" in words(mailboxes, program, left, tree())[0]


def test_a_mailbox_that_is_not_full(program, left):
    """A mailbox refuses only when as many wait as there is room for."""
    terms = tree(mailbox=MailboxSpec(2, "fail"))
    program.up(*"abc").send(1).hear(1).send(2).hear(2, "refused", "MailboxFull").handle(1).end()
    assert "in which 1 of 2 waited" in words(mailboxes, program, left, terms)[0]


@pytest.mark.parametrize("is_revived", [False, True])
def test_an_actor_that_refuses_though_it_is_up(program, left, is_revived):
    """A failed actor refuses what it is sent until it is revived, and no longer."""
    program.up(*"abc").crash("a").tell("ActorFailed", "t/a").at(1.0)
    if is_revived:
        program.up("a")
    program.send(1).hear(1, "refused", "RestartLimitReached").end()
    told = words(mailboxes, program, left, tree())
    assert (
        told == ["statement 1 to t/a was refused by a failed actor, which is up since 1.000 s"] * is_revived
    )


def test_a_mailbox_that_holds_too_much(program, left):
    """No more statements are accepted than there is room for, but for what the actor has taken already."""
    program.up(*"abc").crash("a")
    for number in range(6):
        program.send(number).hear(number)
    assert "5 statements wait" in words(mailboxes, program, left, tree(mailbox=MailboxSpec(2)))[0]


def test_a_message_that_was_put_back_comes_first(program, left):
    """What is tried again is tried before anything else."""
    program.up(*"abc").send(1).hear(1).tell("handled", "t/a", 1).crash("a", 1.0).at(1.0)
    program.send(2).hear(2).up("a").handle(2, 1).end()
    assert (
        "message 1 was to be handled again first" in words(mailboxes, program, left, tree(retry_in_hand=1))[0]
    )


def test_a_message_after_a_stop(program, left):
    """An actor that was told to stop ends after the message in hand."""
    program.up(*"abc").send(1).hear(1).send(2).hear(2).tell("handled", "t/a", 1).tell("stop asked", "t/a")
    program.tell("done", "t/a", 1).handle(2).end()
    assert words(mailboxes, program, left, tree()) == [
        "statement 2 to t/a is handled after its actor was asked to stop"
    ]


@pytest.mark.parametrize(
    ("heard_at", "count"), [((1.0,), 0), ((1.0, 1.0), 1), ((2.0,), 1), ((0.5,), 1), ((), 1)]
)
def test_watchers(program, left, heard_at, count):
    """A watcher hears once that an actor has ended, and when it ends."""
    program.up(*"abc").tell("watches", "t/a")
    for time in heard_at:
        if time >= 1.0 and program.script.time < 1.0:
            program.at(1.0).tell("ActorEnded", "t/a")
        program.at(time).tell("terminated", "t/a")
    program.at(3.0).tell("ActorEnded", "t/a").tell("tree ended")
    assert len(words(watchers, program, left, tree())) == count


# -- timeouts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard_at", "detail", "expected"),
    [
        (2.0, "AskTimeout", []),
        (1.0, "ActorCrashed", []),
        (1.9, "AskTimeout", ["question 1 to t/a with a timeout of 2 s was given up after 1.9 s"]),
        (2.5, "AskTimeout", ["question 1 to t/a with a timeout of 2 s ended after 2.5 s (AskTimeout)"]),
        (2.5, "ActorCrashed", ["question 1 to t/a with a timeout of 2 s ended after 2.5 s (ActorCrashed)"]),
    ],
)
def test_timeouts(program, left, heard_at, detail, expected):
    """A timeout is told at its time, and whatever else ends a question comes before."""
    program.up(*"abc").send(1, "ask", until=2.0).at(heard_at).hear(1, "unsure", detail).end()
    assert words(timeouts, program, left, tree()) == expected


def test_a_question_that_outlives_its_tree(program, left):
    """When a tree has ended, nobody waits for an answer any more."""
    program.up(*"abc").send(1, "ask").end()
    assert words(timeouts, program, left, tree()) == ["question 1 to t/a outlives the tree"]


# -- durable state ------------------------------------------------------------------------------------------


def write(program, number, events, *, ends=True):
    """Message `number` writes this many events; `ends`: and hears that they are written."""
    program.tell("handled", "t/a", number).tell("writes", "t/a", number, offsets=(events,))
    return program.tell("written", "t/a", number) if ends else program


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((1, 1, 2), ""),
        ((1, 1, 2, 3, 3), ""),
        ((1, 1), "lacks the events of message 2"),
        ((1, 2), "finds 1 events of message 1"),
        ((2, 1, 1), "in another order"),
        ((1, 1, 2, 3), "finds 1 events of message 3"),
        ((1, 1, 2, 1, 1), "in two places"),
        ((1, 1, 1, 1, 2), "finds 4 events of message 1"),
        ((1, 1, 2, 9), "finds 1 events of message 9"),
    ],
)
def test_what_a_durable_actor_finds(program, left, found, expected):
    """All that was written, whole and in order; what nobody was told of is there completely or not at all."""
    write(program, 1, 2)
    write(program, 2, 1)
    write(program, 3, 2, ends=False)
    program.script.cut()
    program.tell("journal read", "t/a", ids=found)
    told = words(durable_state, program, left, Terms())
    assert len(told) == bool(expected)
    assert expected in "".join(told)


def test_what_one_life_found_the_next_ones_find(program, left):
    """Events that were found once stay, also when a sync failed."""
    write(program, 1, 1, ends=False)
    program.script.fault("FailVerb:sync:EIO")
    program.tell("journal read", "t/a").tell("journal read", "t/a", ids=(1,))
    assert words(durable_state, program, left, Terms()) == []
    program.tell("journal read", "t/a")
    assert len(words(durable_state, program, left, Terms())) == 1


def test_what_a_message_met_the_next_life_finds(program, left):
    """The state by which a durable actor begins with a message is the one of its journal."""
    write(program, 1, 1)
    program.tell("finds", "t/a", ids=(1,)).tell("journal read", "t/a", ids=(1,))
    assert words(durable_state, program, left, Terms()) == []
    program.tell("finds", "t/a", ids=(1, 2)).tell("journal read", "t/a", ids=(1,))
    assert len(words(durable_state, program, left, Terms())) == 1


# -- order --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "together"), [("one_for_one", ""), ("one_for_all", "ca"), ("rest_for_one", "c")]
)
def test_who_is_restarted_with_whom(program, left, strategy, together):
    """Who is restarted with a crashed child is stopped, last first, before anybody begins again; nobody else is."""
    program.up(*"abc").at(20.0).crash("b", 1.0).down(*together).at(21.0)
    program.up(*sorted(f"b{together}")).end()
    assert words(tree_order, program, left, tree(strategy)) == []
    for other in {"one_for_one", "one_for_all", "rest_for_one"} - {strategy}:
        assert words(tree_order, program, left, tree(other)) != []


def test_a_child_begins_before_its_time(program, left):
    """A child begins when those before it are ready."""
    program.tell("begins", "t/a").up("b")
    assert words(tree_order, program, left, tree()) == [
        "t/b begins, and t/a before it has not been ready yet"
    ]


def test_closing_first_first(program, left):
    """At closing, children are stopped last first."""
    program.up(*"abc").at(1.0).tell("closing").down("a")
    assert words(tree_order, program, left, tree()) == ["t/a is stopped before t/b, which comes after it"]


@pytest.mark.parametrize(("crashed", "violations"), [("a", 0), ("", 1)])
def test_closing_reaches_a_team_that_restarts_its_children(program, left, crashed, violations):
    """Until its turn has come a team restarts its children, also one that began as another crashed."""
    first = SupervisorSpec(
        name="t", strategy="one_for_all", intensity=2, children=[child(name) for name in "ab"]
    )
    second = SupervisorSpec(name="u", intensity=2, children=[child("a")])
    terms = Terms(tree=SupervisorSpec(name="root", children=[first, second]))
    program.up("a", "b").tell("begins", "u/a").tell("ActorStarted", "u/a").at(1.0).tell("closing")
    program.tell("stopping", "u/a").at(1.1).crash("a", 0.1).down("b").at(1.2).up("a")
    if crashed:
        program.crash(crashed, 0.1)
    program.up("b").down("b").at(1.3)
    told = words(tree_order, program, left, terms)
    assert told == ["t/b is stopped before u/a, whose team comes after its own"] * violations


def test_a_stop_without_a_reason(program, left):
    """Whom nobody asked to stop goes on; who was asked, stops."""
    program.up(*"abc").at(1.0).tell("stop asked", "t/b").down("b")
    assert words(tree_order, program, left, tree()) == []
    program.down("c")
    assert words(tree_order, program, left, tree()) == ["t/c is stopped without a reason"]


@pytest.mark.parametrize(
    ("after_s", "expected"), [(0.1, "is killed after 0.1 s at most"), (0.5, ""), (2.0, "has taken 2 s")]
)
def test_the_grace_of_a_child(program, left, after_s, expected):
    """Who is told to stop is killed when its grace is over, neither sooner nor later."""
    program.up(*"abc").at(1.0).tell("closing").tell("stopping", "t/c").at(1.0 + after_s)
    program.tell("IncarnationCrashed", "t/c", detail="killed")
    told = words(tree_order, program, left, tree())
    assert len(told) == bool(expected)
    assert expected in "".join(told)


def test_a_child_that_is_forgotten(program, left):
    """Who crashed begins again when its backoff is over."""
    program.up(*"abc").at(1.0).crash("a", 1.0).at(9.0).tell("closing")
    assert "has not begun again for 7 s" in words(tree_order, program, left, tree())[0]


def test_a_child_that_goes_for_good(program, left):
    """A permanent child leaves only when its supervisor is asked to stop it."""
    program.up(*"abc").at(1.0).crash("a").tell("ActorEnded", "t/a")
    assert words(tree_order, program, left, tree()) == [
        "t/a has ended for good, and is to be restarted always"
    ]
    assert words(tree_order, program, left, tree(restart="temporary")) == []


def test_a_temporary_child_that_begins_again(program, left):
    """A temporary child that was stopped with others ends for good."""
    program.up(*"abc").at(20.0).crash("b", 1.0).down("c").at(21.0).up("b", "c")
    told = words(tree_order, program, left, tree("rest_for_one", restart="temporary"))
    assert "t/c is temporary, has ended, and begins again" in told


def test_a_child_that_is_added_to_a_team_that_begins_anew(program, left):
    """A child that is stopped while its team is down, and added when it has begun anew, is the last one."""
    program.up(*"abc").at(1.0).tell("Escalated", "t", detail="t/a").down(*"cba")
    program.tell("stop child asked", "t/b").tell("ActorEnded", "t/b").tell("ActorEnded", "t/c")
    program.at(2.0).up("a").tell("add child asked", "t/b").up("c", "b")
    assert words(tree_order, program, left, tree("rest_for_one", restart="temporary")) == []


@pytest.mark.parametrize(("asked", "violations"), [("stop asked", 0), ("", 1)])
def test_a_child_begins_while_one_before_it_stops(program, left, asked, violations):
    """Who stops because a client asked for that is up for its supervisor, which waits for its own stops only."""
    program.up(*"abc").at(1.0).crash("b").tell("ActorFailed", "t/b").crash("c").tell("ActorFailed", "t/c")
    program.at(2.0).tell("restart asked", "t/b").up("b").at(3.0)
    if asked:
        program.tell(asked, "t/b")
    program.tell("stopping", "t/b").at(3.1).tell("restart asked", "t/c").up("c")
    told = words(tree_order, program, left, tree("rest_for_one", significant=False))
    assert told == ["t/c begins, and t/b before it is not up"] * violations


@pytest.mark.parametrize("after_s", [0.0, 1.0])
def test_a_team_that_is_revived_as_it_fails(program, left, after_s):
    """A team that a client revives has a new life, also when that begins at the instant at which it gave up."""
    program.up(*"abc").at(1.0).down(*"cb").crash("a").tell("Escalated", "t", detail="t/a")
    for name in "abc":
        program.tell("ActorFailed", f"t/{name}")
    program.at(1.0 + after_s).tell("restart asked", "t").up("a").at(5.0).up("b").end()
    told = words(tree_order, program, left, tree())
    assert not any("in a new life of its team" in text for text in told), told


def test_a_team_that_is_restarted_waits_for_nobody(program, left):
    """Only the first start of a team waits for the teams before it."""
    first = SupervisorSpec(name="t", intensity=2, children=[child(name) for name in "abc"])
    second = SupervisorSpec(name="u", intensity=2, children=[child("a")])
    terms = Terms(tree=SupervisorSpec(name="root", children=[first, second]))

    def begin():
        return program.tell("begins", "u/a").tell("ActorStarted", "u/a")

    program.up(*"abc")
    begin().at(20.0).tell("Escalated", "t", detail="t/a").down(*"cba").at(21.0).tell("begins", "t/a")
    program.tell("IncarnationCrashed", "u/a", detail="Poisoned").tell("Escalated", "u", detail="u/a").at(22.0)
    begin()
    assert words(tree_order, program, left, terms) == []


def test_a_team_begins_before_its_time(program, left):
    """A team begins when those before it are ready, which is when all their children are."""
    first = SupervisorSpec(name="t", intensity=2, children=[child(name) for name in "abc"])
    second = SupervisorSpec(name="u", intensity=2, children=[child("a")])
    terms = Terms(tree=SupervisorSpec(name="root", children=[first, second]))
    program.up("a", "b").tell("begins", "u/a")
    assert words(tree_order, program, left, terms) == [
        "u/a begins, and team t before its own has not been ready yet"
    ]


# -- backoffs and intensities -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("crashes", "expected"),
    [
        ([(1.0, 1.0), (3.0, 2.0), (14.0, 4.0)], ""),
        ([(1.0, 1.0), (3.0, 1.0)], "waits 1 s for restart 2 in a row"),
        ([(1.0, 2.0)], "waits 2 s for restart 1 in a row"),
        ([(1.0, 1.0), (13.0, 1.0)], ""),
        ([(1.0, 1.0), (13.0, 2.0)], "waits 2 s for restart 1 in a row"),
    ],
)
def test_backoffs(program, left, crashes, expected):
    """A backoff grows from crash to crash, and begins anew when the child has run for the period."""
    program.up(*"abc")
    for time, delay_s in crashes:
        program.at(time).crash("a", delay_s).at(time + delay_s).up("a")
    told = words(restarts, program, left, tree())
    assert len(told) == bool(expected)
    assert expected in "".join(told)


@pytest.mark.parametrize(("told_at", "is_excused"), [(1.1, True), (1.2, False)])
def test_a_restart_by_hand_in_the_moment_of_a_crash(program, left, told_at, is_excused):
    """A backoff that is told at that instant may have been decided before, and counts the crashes before it."""
    program.up(*"abc").at(1.0).crash("a", 1.0).at(1.1).up("a").crash("a").tell("restart asked", "t/a")
    program.at(told_at).tell("ActorRestarted", "t/a", until=2.0, detail="Poisoned")
    assert (words(restarts, program, left, tree()) == []) == is_excused


def test_one_restart_too_many(program, left):
    """Significant children share a window."""
    program.up(*"abc").at(1.0)
    for name in "abc":
        program.crash(name, 1.0)
    assert "the 3th to be restarted" in words(restarts, program, left, tree())[0]
    alone = tree(significant=False)
    assert words(restarts, program, left, alone) == []


@pytest.mark.parametrize("crashes", [1, 2, 3])
def test_giving_up_too_early(program, left, crashes):
    """A supervisor gives up when it needs one restart more than its intensity, and no sooner."""
    program.up(*"abc").at(1.0)
    for name in "abc"[: crashes - 1]:
        program.crash(name, 1.0)
    program.crash("c").tell("Escalated", "t", detail="t/c")
    told = words(restarts, program, left, tree())
    assert len(told) == (crashes < 3)


@pytest.mark.parametrize("is_revived", [False, True])
def test_a_revived_child_begins_anew(program, left, is_revived):
    """Restarting a failed child by hand begins its window and its backoff anew."""
    program.up(*"abc").at(1.0).crash("a", 1.0).at(2.0).up("a").crash("a", 2.0).at(4.0).up("a")
    program.crash("a").tell("ActorFailed", "t/a")
    if is_revived:
        program.at(5.0).tell("restart asked", "t/a").up("a").crash("a", 1.0).at(6.0).up("a")
    program.crash("a").tell("ActorFailed", "t/a")
    told = words(restarts, program, left, tree(significant=False))
    assert told == [
        f"t/a has failed with {1 + is_revived} ends in 10 s, and 2 may be restarted",
    ]


def test_an_end_that_was_asked_for(program, left):
    """What ends because supervision stops it needs no restart of its own."""
    program.up(*"abc").at(1.0).crash("a", 1.0).crash("b", 1.0)
    assert words(restarts, program, left, tree()) == []
    assert "was to end" in words(restarts, program, left, tree("one_for_all"))[0]


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_child_that_begins_as_its_restart_is_asked_for(program, left, is_asked):
    """It may have been killed for that: then its end is no reason to end those that are restarted with it."""
    program.up(*"abc").at(1.0).crash("b", 0.5).down("c", "a").at(1.5).up("a")
    if is_asked:
        program.tell("restart asked", "t/b")
    program.tell("begins", "t/b").tell("IncarnationCrashed", "t/b", detail="killed").up("b", "c")
    program.at(2.0).crash("a", 1.0)
    found = [each for each in words(restarts, program, left, tree("one_for_all")) if "was to end" in each]
    assert len(found) == (not is_asked)


def test_who_is_not_to_be_restarted(program, left):
    """A temporary child is restarted by nobody, and a transient one only when it crashed."""
    program.up(*"abc").at(1.0).crash("a", 1.0)
    assert words(restarts, program, left, tree(restart="transient")) == []
    assert len(words(restarts, program, left, tree(restart="temporary"))) == 1
