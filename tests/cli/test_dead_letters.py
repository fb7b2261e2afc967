"""`callboard dead-letters`, through the real entry point."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

import callboard


@pytest.fixture
def returns(command: Any) -> Any:
    """A directory whose topic `returns` has three dead letters of `orders`."""

    async def fill() -> None:
        async with callboard.open_runtime(command.folder / "data") as runtime:
            await runtime.create_topic("returns")
            orders = await runtime.create_topic("orders")
            await orders.publish_batch([b"a", b"b", b"c"])
            async with orders.subscribe("billing", dead_letter_topic="returns") as consumer:
                for reason in ("too late", "too early\x1b[2J\n", "too late"):
                    await (await consumer.get()).reject(reason=reason)
                letters = runtime.dead_letters("returns")
                while len(await letters.list()) < 3:
                    await trio.lowlevel.checkpoint()

    trio.run(fill)
    return command


def test_dead_letters_are_listed_and_counted(returns: Any) -> None:
    """For people and as JSON, chosen by options."""
    told = returns.run("dead-letters", "list", "returns").out.decode()
    assert "orders/0@1" in told
    assert "too early\\x1b[2J\\n" in told  # nothing that a terminal obeys
    assert "│" not in told
    found = returns.run("dead-letters", "list", "returns", "--reason", "late", "--json").documents
    assert [(letter["offset"], letter["message"]["value"]) for letter in found] == [(0, "a"), (2, "c")]
    counted = returns.run("dead-letters", "count", "returns", "--json").json
    assert counted == [
        {"group": "billing", "reason": "too late", "messages": 2},
        {"group": "billing", "reason": "too early\x1b[2J\n", "messages": 1},
    ]


def test_what_two_groups_gave_up_for_one_reason_is_told_apart(returns: Any) -> None:
    """Whether it was forwarded, or its group names no topic and the partitions keep it."""

    async def reject() -> None:
        async with callboard.open_runtime(returns.folder / "data") as runtime:
            orders, letters = runtime.topic("orders"), runtime.dead_letters("returns")
            async with orders.subscribe("audit", dead_letter_topic="returns") as audit:
                await (await audit.get()).reject(reason="too late")
                while len(await letters.list()) < 4:
                    await trio.lowlevel.checkpoint()
            for group, count in (("first", 1), ("second", 2)):
                async with orders.subscribe(group) as keeping:
                    for _ in range(count):
                        await (await keeping.get()).reject(reason="too late")

    trio.run(reject)
    told = returns.run("dead-letters", "count", "returns", "--reason", "late").out.decode()
    assert [line.split() for line in told.splitlines()] == [
        ["group", "reason", "messages"],
        ["billing", "too", "late", "2"],
        ["audit", "too", "late", "1"],
    ]
    told = returns.run("dead-letters", "count", "orders").out.decode()
    assert sorted(line.split() for line in told.splitlines()[1:]) == [
        ["first", "too", "late", "1"],
        ["second", "too", "late", "2"],
    ]
    assert returns.run("dead-letters", "count", "orders", "--group", "second", "--json").json == [
        {"group": "second", "reason": "too late", "messages": 2, "kept_of": "second"}
    ]


def test_nothing_found_is_told_in_words(returns: Any) -> None:
    """With what is wrong: a group or topic that is not there, or a topic that takes no dead letters."""
    for verb in ("list", "count"):
        told = returns.run("dead-letters", verb, "returns", "--reason", "nosuch")
        assert (told.out, told.err) == (b"", "no such dead letters in returns\n")
        told = returns.run("dead-letters", verb, "orders")
        assert told.err == "no dead letters in orders: no group names it as its dead_letter_topic\n"
        told = returns.run("dead-letters", verb, "returns", "--group", "biling", code=1)
        assert "there is no group 'biling' (did you mean 'billing'?)" in told.err
        told = returns.run("dead-letters", verb, "returns", "--from", "order", code=1)
        assert "there is no topic 'order' (did you mean 'orders'?)" in told.err
    assert returns.run("dead-letters", "count", "returns", "--reason", "nosuch", "--json").json == []


def test_dead_letters_are_redriven_once(returns: Any) -> None:
    """A dry run says what would be done; running it again does nothing."""
    late = ("dead-letters", "redrive", "returns", "--reason", "late")
    assert "would redrive 2 dead letters" in returns.run(*late, "--dry-run").err
    assert "would redrive 1 dead letter of" in returns.run(*late, "--dry-run", "--limit", "1").err
    assert "redrove 2" in returns.run(*late).err
    assert returns.run("dead-letters", "redrive", "returns", "--json").json == {
        "messages": 1,
        "passed_over": {},
        "dry_run": False,
    }
    assert "redrove 0" in returns.run("dead-letters", "redrive", "returns").err


def test_the_group_of_the_broker_stays(returns: Any) -> None:
    """It is listed only when asked for, and nobody deletes, moves, alters or joins it: what was purged stays purged."""
    returns.run("dead-letters", "purge", "returns", "--limit", "1", "--yes")
    for command in (("group", "list"), ("stats",), ("topic", "describe", "returns")):
        assert "callboard.handled" not in returns.run(*command).out.decode()
    for command in (("group", "list", "--all"), ("stats", "--all"), ("group", "list", "--all", "--json")):
        assert "callboard.handled" in returns.run(*command).out.decode()
    for verb, *rest in (("delete", "--yes"), ("reset",), ("seek", "beginning"), ("alter", "max_in_flight=5")):
        told = returns.run("group", verb, "callboard.handled", *rest, code=2).err
        assert "is a group of the broker's own" in told
    told = returns.run("consume", "returns", "--group", "callboard.handled", "--max", "1", code=2).err
    assert "is a group of the broker's own" in told
    assert (
        sum(each["messages"] for each in returns.run("dead-letters", "count", "returns", "--json").json) == 2
    )


def test_names_of_the_brokers_own_are_not_given(returns: Any) -> None:
    """No topic and no group begins with `callboard.`, unless it was there before."""
    for command in (
        ("topic", "create", "callboard.orders"),
        ("publish", "callboard.orders", "x", "--create"),
        ("consume", "returns", "--group", "callboard.mine", "--max", "1"),
    ):
        told = returns.run(*command, code=2).err
        assert "names that begin with 'callboard.' are the broker's own" in told


def test_purging_needs_a_yes(returns: Any) -> None:
    """Then they are gone."""
    assert "--yes" in returns.run("dead-letters", "purge", "returns", code=2).err
    assert "purged 1" in returns.run("dead-letters", "purge", "returns", "--limit", "1", "--yes").err
    assert returns.run("dead-letters", "purge", "returns", "--yes", "--json").json == {"purged": 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("list", "missing"), "there is no topic 'missing'"),
        (("redrive", "returns", "--to", "missing"), "there is no topic 'missing'"),
        (("redrive", "returns", "--rate", "0"), "0.0 is not in the range x>0"),
    ],
)
def test_wrong_arguments_are_told_in_a_line(returns: Any, arguments: tuple[str, ...], words: str) -> None:
    """Nothing is done."""
    refused = returns.run("dead-letters", *arguments, code=None)
    assert refused.code != 0
    assert words in refused.err
    assert "Traceback" not in refused.err


async def test_the_commands_work_beside_a_program(returns: Any) -> None:
    """Through its control socket: what they print is the same, a redrive is in parts, and the program consumes it."""
    async with callboard.open_runtime(returns.folder / "data", control=True) as runtime:
        late = ("--reason", "late", "--json")
        run = partial(trio.to_thread.run_sync, returns.run)
        listed = (await run("dead-letters", "list", "returns", *late)).documents
        assert [(letter["offset"], letter["message"]["value"]) for letter in listed] == [(0, "a"), (2, "c")]
        assert listed[0]["consumers"] == [listed[0]["consumer"]]
        counted = (await run("dead-letters", "count", "returns", *late)).json
        assert counted == [{"group": "billing", "reason": "too late", "messages": 2}]
        dry = await run("dead-letters", "redrive", "returns", "--dry-run", "--json")
        assert dry.json == {"messages": 3, "passed_over": {}, "dry_run": True}
        done = await run("dead-letters", "redrive", "returns", "--rate", "500", "--limit", "2", *late)
        assert done.json["messages"] == 2
        assert "purged 1" in (await run("dead-letters", "purge", "returns", "--yes")).err
        assert await runtime.dead_letters("returns").list() == ()
        async with runtime.topic("orders").subscribe("billing") as consumer:
            assert [(await consumer.get()).value for _ in range(2)] == [b"a", b"c"]
        stats = (await run("stats")).out.decode()
        assert "dead letters for" in stats
        (told,) = (await runtime.stats()).forwarding
        assert (told.topic, told.kept, told.held) == ("returns", 0, None)


async def test_what_fails_again_is_redriven_once(command: Any) -> None:
    """Also when it is there again before the command has asked for all parts: that is left for the next command."""
    count = 410
    async with callboard.open_runtime(command.folder / "data", control=True) as runtime:
        await runtime.create_topic("returns")
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"%d" % number for number in range(count)])
        letters = runtime.dead_letters("returns")

        async def handler(_: Any) -> None:
            raise callboard.Reject("still broken")

        async with trio.open_nursery() as nursery:
            work = partial(orders.work, handler, "billing", concurrency=64, dead_letter_topic="returns")
            nursery.start_soon(work)
            while sum((await letters.count()).values()) < count:
                await trio.lowlevel.checkpoint()
            run = partial(trio.to_thread.run_sync, command.run)
            done = await run("dead-letters", "redrive", "returns", "--json")
            assert done.json == {"messages": count, "passed_over": {}, "dry_run": False}
            while sum((await letters.count()).values()) < count:
                await trio.lowlevel.checkpoint()
            assert (await orders.describe())[0].visible_end == 2 * count
            nursery.cancel_scope.cancel()


def test_a_redrive_in_parts_passes_what_goes_nowhere(returns: Any) -> None:
    """However many of these are in front."""
    returns.run("group", "delete", "billing", "--yes")
    found = returns.run("dead-letters", "redrive", "returns", "--limit", "1", "--json").json
    assert (found["messages"], list(found["passed_over"].values())) == (0, [3])


def test_a_group_is_deleted_with_its_dead_letters_when_asked(returns: Any) -> None:
    """The refusal names the commands that help."""

    async def reject() -> None:
        async with callboard.open_runtime(returns.folder / "data") as runtime:
            async with runtime.topic("orders").subscribe("audit") as consumer:
                await (await consumer.get()).reject(reason="no")

    trio.run(reject)
    told = returns.run("group", "delete", "audit", "--yes", code=1).err
    assert "group 'audit' keeps 1 dead letter that would go with it: 1 in orders/0" in told
    assert "`callboard group delete audit --drop-dead-letters`" in told
    assert "`callboard group alter audit dead_letter_topic=...`" in told
    returns.run("group", "delete", "audit", "--yes", "--drop-dead-letters")
    assert "audit" not in returns.run("group", "list").out.decode()


@pytest.fixture
def kept(command: Any) -> Any:
    """A directory whose topic `orders` keeps three dead letters of `billing`, which names no topic for them."""

    async def fill() -> None:
        async with callboard.open_runtime(command.folder / "data") as runtime:
            await runtime.create_topic("returns")
            orders = await runtime.create_topic("orders")
            await orders.publish_batch([b"a", b"b", b"c"])
            async with orders.subscribe("billing", name="worker-1") as consumer:
                for number in range(3):
                    await (await consumer.get()).reject(reason=f"order {number} is bad")

    trio.run(fill)
    return command


MOVE = "name one: `callboard group alter billing dead_letter_topic=TOPIC`"


def test_what_partitions_keep_is_listed_and_counted(kept: Any) -> None:
    """With how it is moved on; nothing says that there is none."""
    told = kept.run("dead-letters", "list", "orders")
    assert [line.split()[0] for line in told.out.decode().splitlines()] == [
        "from",
        "orders/0@0",
        "orders/0@1",
        "orders/0@2",
    ]
    assert "3 dead letters of group billing are kept in the partitions of orders" in told.err
    assert MOVE in told.err
    assert "no dead letters" not in told.err
    found = kept.run("dead-letters", "list", "orders", "--at", "orders/0@1", "--json").documents
    assert [(letter["message"]["value"], letter["is_forwarded"], letter["consumer"]) for letter in found] == [
        ("b", False, "worker-1")
    ]
    assert len(kept.run("dead-letters", "list", "orders", "--limit", "2", "--json").documents) == 2
    told = kept.run("dead-letters", "count", "orders")
    assert "order N is bad" in told.out.decode()
    assert MOVE in told.err
    assert kept.run("dead-letters", "count", "orders", "--json").json == [
        {"group": "billing", "reason": "order N is bad", "messages": 3, "kept_of": "billing"}
    ]
    assert len(kept.run("dead-letters", "count", "orders", "--full", "--json").json) == 3
    assert kept.run("dead-letters", "list", "orders", "--reason", "nosuch").err.startswith(
        "no such dead letters in orders"
    )


def test_what_partitions_keep_is_neither_redriven_nor_purged(kept: Any) -> None:
    """The commands say so, and how it is moved to a topic; then they do it."""
    for command in (("redrive", "orders"), ("purge", "orders", "--yes")):
        assert MOVE in kept.run("dead-letters", *command).err
    kept.run("group", "alter", "billing", "dead_letter_topic=returns")

    async def forward() -> None:
        async with callboard.open_runtime(kept.folder / "data") as runtime:
            while len(await runtime.dead_letters("returns").list()) < 3:
                await trio.lowlevel.checkpoint()

    trio.run(forward)
    assert "redrove 3" in kept.run("dead-letters", "redrive", "returns").err


def test_one_dead_letter_is_chosen_by_its_place(returns: Any) -> None:
    """As `list` prints it; several may be named. The others stay."""
    assert "redrove 1" in returns.run("dead-letters", "redrive", "returns", "--at", "orders/0@1").err
    places = ("--at", "orders/0@1", "--at", "orders/0@2")
    assert "would redrive 1" in returns.run("dead-letters", "redrive", "returns", *places, "--dry-run").err
    assert returns.run("dead-letters", "purge", "returns", *places, "--yes", "--json").json == {"purged": 1}
    (left,) = returns.run("dead-letters", "list", "returns", "--json").documents
    assert (left["offset"], left["is_forwarded"]) == (0, True)
    assert (
        returns.run("dead-letters", "list", "returns", "--at", "orders/0@9").err
        == "no such dead letters in returns\n"
    )
    refused = returns.run("dead-letters", "purge", "returns", "--at", "0@1", "--yes", code=None)
    assert refused.code != 0
    assert "'0@1' is no place of a message. Nothing was done. Say orders/0@17" in refused.err


def test_stats_show_what_has_occurred(kept: Any) -> None:
    """A column for what is not 0 anywhere, and none for the rest."""
    told = kept.run("stats").out.decode()
    assert "dead letters kept" in told
    assert "leases expired" in told
    for head in ("messages expired", "duplicates", "ids forgotten early", "dead letters dropped"):
        assert head not in told


@pytest.mark.parametrize("option", ["--at", "--group", "--reason", "--from"])
def test_an_option_that_is_empty_does_not_mean_all(returns: Any, option: str) -> None:
    """As that of a script whose variable is not set."""
    told = returns.run("dead-letters", "purge", "returns", option, "", "--yes", code=2)
    assert f"{option} is empty. Nothing was done." in told.err
    assert len(returns.run("dead-letters", "list", "returns", "--json").documents) == 3
