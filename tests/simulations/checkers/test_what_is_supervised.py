"""The checker of supervision."""

import pytest

from callboard.simulations.checkers import Intensity, Terms, handled, no_bugs, supervision

TERMS = Terms(intensities=(Intensity(path="topics/orders/", restarts=2, period_s=10.0, each=True),))


def crash(script, path="topics/orders/0", delay=0.1):
    """A crash, and its restart at once."""
    script.event("IncarnationCrashed", path).event("ActorRestarted", path, delay=delay)
    script.at(script.time + delay).event("ActorStarted", path)


def test_restarts_within_the_intensity(script, left):
    """Two restarts in ten seconds, and a third later, keep what was stated."""
    crash(script)
    crash(script)
    script.at(20.0)
    crash(script)
    assert supervision.check(script.history, left(), TERMS) == []


def test_one_restart_too_many(script, left):
    """The third restart within the period is a violation."""
    for _ in range(3):
        crash(script)
    (found,) = supervision.check(script.history, left(), TERMS)
    assert found.first.kind == "ActorRestarted"


def test_insignificant_children_have_a_window_each(script, left):
    """Restarts of two partitions do not add up."""
    for path in ("topics/orders/0", "topics/orders/1") * 2:
        crash(script, path)
    assert supervision.check(script.history, left(), TERMS) == []


def test_children_of_one_supervisor_share_a_window(script, left):
    """Restarts of two significant children add up."""
    for path in ("a/1", "a/2", "a/1"):
        crash(script, path)
    terms = Terms(intensities=(Intensity(path="a/", restarts=2, period_s=10.0),))
    assert len(supervision.check(script.history, left(), terms)) == 1


@pytest.mark.parametrize(
    ("kind", "remark"),
    [
        ("note", "the runtime ended: ActorCrashed"),
        ("note", "everything is started anew"),
        ("runtime closed", ""),
    ],
)
def test_a_tree_that_is_begun_anew_has_windows_and_backoffs_of_its_own(script, left, kind, remark):
    """What the tree before it did is not counted with it, and nobody waits for its backoffs."""
    crash(script)
    crash(script)
    script.event("IncarnationCrashed", "topics/orders/0").event("ActorEnded", "topics/orders/0")
    script.history.note(kind, remark)
    script.event("ActorStarted", "topics/orders/0")
    crash(script)
    crash(script)
    assert supervision.check(script.history, left(), TERMS) == []
    crash(script)
    assert len(supervision.check(script.history, left(), TERMS)) == 1


def test_a_start_before_its_backoff_is_found(script, left):
    """An actor that starts before its backoff is over is a violation."""
    script.event("IncarnationCrashed", "a").event("ActorRestarted", "a", delay=1.0).at(0.5)
    script.event("ActorStarted", "a")
    assert len(supervision.check(script.history, left(), TERMS)) == 1


@pytest.mark.parametrize(("planned_at", "violations"), [(1.0, 0), (1.5, 1)])
def test_a_start_by_hand_needs_no_backoff(script, left, planned_at, violations):
    """Also when the restart that was planned before is told after the request, at the same instant."""
    script.at(1.0).event("IncarnationCrashed", "a").event("restart asked", "a").at(planned_at)
    script.event("ActorRestarted", "a", delay=1.0).event("ActorStarted", "a")
    assert len(supervision.check(script.history, left(), TERMS)) == violations


def backs_off(script, path, above, kind="Escalated"):
    """An actor waits for its backoff when somebody gives up, and starts before it is over."""
    script.event("IncarnationCrashed", path).event("ActorRestarted", path, delay=1.0)
    script.event(kind, above).at(0.5).event("ActorStarted", path)


@pytest.mark.parametrize("above", ["a", "a/", "", "a/b"])
def test_who_is_below_one_that_gave_up_begins_anew(script, left, above):
    """A backoff ends with the supervisor, however far above, and with the actor that is given up itself."""
    backs_off(script, "a/b", above, "ActorFailed" if above == "a/b" else "Escalated")
    assert supervision.check(script.history, left()) == []


@pytest.mark.parametrize(
    ("above", "kind"), [("c", "Escalated"), ("a/bb", "Escalated"), ("a/c", "ActorFailed")]
)
def test_who_is_elsewhere_keeps_to_its_backoff(script, left, above, kind):
    """That somebody else gave up is no reason to start early."""
    backs_off(script, "a/b", above, kind)
    (found,) = supervision.check(script.history, left())
    assert found.first.kind == "ActorStarted"


@pytest.mark.parametrize(
    ("who", "broken"), [("topics/orders/0", 0), ("topics", 0), ("topics/orders/1", 1), ("groups", 1)]
)
def test_a_window_ends_with_its_own_actor(script, left, who, broken):
    """Restarts are counted anew when the actor, or one above it, gave up, and not when another one did."""
    crash(script)
    crash(script)
    script.event("ActorFailed" if "/" in who else "Escalated", who)
    crash(script)
    assert len(supervision.check(script.history, left(), TERMS)) == broken


def test_a_backoff_has_a_longest(script, left):
    """A delay beyond the longest backoff is a violation."""
    crash(script, delay=5.0)
    assert len(supervision.check(script.history, left(), TERMS)) == 1


@pytest.mark.parametrize("answer", ["ActorRestarted", "ActorFailed", "ActorEnded", "Escalated", "power"])
def test_every_crash_is_answered(script, left, answer):
    """A crash that nobody answers is a violation, unless the machine ended."""
    script.event("IncarnationCrashed", "topics/orders/0")
    assert len(supervision.check(script.history, left(), TERMS)) == 1
    if answer == "power":
        script.cut()
    else:
        script.event(answer, "topics/orders" if answer == "Escalated" else "topics/orders/0")
    assert supervision.check(script.history, left(), TERMS) == []


def ask(script, number, end=None, *, handled=1):
    """A question to an actor, how it ended, and how often it was handled."""
    operation = script.history.operation()
    script.history.record(1, "ask", "asker", operation, "worker", ids=(number,))
    for _ in range(handled):
        script.history.record(1, "handled", "worker", ids=(number,))
    if end:
        script.history.record(1, end, "asker", operation, "worker", ids=(number,))


def test_questions_are_handled_once(script, left):
    """What was answered was handled, what failed definitely was not, what is unsure may have been."""
    ask(script, 0, "answered")
    ask(script, 1, "refused", handled=0)
    ask(script, 2, "unsure")
    ask(script, 3, "unsure", handled=0)
    assert handled.check(script.history, left()) == []


@pytest.mark.parametrize(("end", "times"), [("answered", 0), ("refused", 1), ("unsure", 2)])
def test_questions_that_were_handled_too_often_or_not_at_all(script, left, end, times):
    """An answer from nobody, a refusal that was handled, and a second handling are violations."""
    ask(script, 0, end, handled=times)
    assert handled.check(script.history, left())
    if times == 2:
        assert handled.check(script.history, left(), Terms(retries_in_hand=1)) == []


def test_questions_of_one_asker_keep_their_order(script, left):
    """An actor that handles a later question first breaks the order."""
    ask(script, 0, handled=0)
    ask(script, 1)
    script.history.record(1, "handled", "worker", ids=(0,))
    assert len(handled.check(script.history, left())) == 1


def test_mistakes_are_no_reason_to_crash(script, left):
    """A crash by a fault or a failing disk is fine; one by a mistake in the code is a violation."""
    script.history.record(1, "IncarnationCrashed", "a", detail="DiskFull: no space left")
    assert no_bugs.check(script.history, left()) == []
    script.history.record(1, "IncarnationCrashed", "a", detail="KeyError: 5")
    assert len(no_bugs.check(script.history, left())) == 1
