"""The types of settings say what the tables of settings check, and what the settings' classes hold."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import pytest

import callboard
from callboard.actors.settings import GROUP_FIELDS, TOPIC_FIELDS, SettingField

KINDS = [
    pytest.param(
        TOPIC_FIELDS,
        callboard.TopicSettings,
        callboard.hints.TopicOptions,
        callboard.hints.TopicChanges,
        id="topic",
    ),
    pytest.param(
        GROUP_FIELDS,
        callboard.GroupSettings,
        callboard.hints.GroupOptions,
        callboard.hints.GroupChanges,
        id="group",
    ),
]
TAKERS = [
    (callboard.Runtime.create_topic, callboard.hints.TopicOptions),
    (callboard.Runtime.alter_topic, callboard.hints.TopicChanges),
    (callboard.Topic.subscribe, callboard.hints.GroupOptions),
    (callboard.Runtime.subscribe, callboard.hints.GroupOptions),
    (callboard.Topic.work, callboard.hints.GroupOptions),
    (callboard.Runtime.work, callboard.hints.GroupOptions),
    (callboard.Group.alter, callboard.hints.GroupChanges),
    (callboard.Runtime.alter_group, callboard.hints.GroupChanges),
]
Fields = dict[str, SettingField]


def _parts(hint: Any) -> set[Any]:
    """What a type is a union of; the words of a literal."""
    if get_origin(hint) in (Union, UnionType):
        return set().union(*map(_parts, get_args(hint)))
    return set(get_args(hint)) if get_origin(hint) is Literal else {hint}


def _checked(field: SettingField) -> set[Any]:
    """What the check of a setting lets pass."""
    kinds: dict[str, set[Any]] = {
        "int": {int},
        "seconds": {float},
        "bool": {bool},
        "choice": set(field.choices),
        "start": {int, datetime, "beginning", "end"},
        "name": {str},
        "delays": {float, Sequence[float]},
    }
    return kinds[field.kind] | ({NoneType} if field.optional else set())


@pytest.mark.parametrize(("fields", "settings", "options", "changes"), KINDS)
def test_the_three_name_the_same_settings(
    fields: Fields, settings: type, options: type, changes: type
) -> None:
    """Table, class and keyword arguments have the same names; what is fixed cannot be changed."""
    assert {field.name for field in attrs.fields(settings)} == set(fields)
    assert set(get_type_hints(options)) == set(fields)
    assert set(get_type_hints(changes)) == {name for name, field in fields.items() if not field.fixed}


@pytest.mark.parametrize(("fields", "settings", "options", "changes"), KINDS)
def test_the_types_are_what_is_checked(fields: Fields, settings: type, options: type, changes: type) -> None:
    """A checker lets pass what the check at run time does, to the last word of a choice."""
    checked = {name: _checked(field) for name, field in fields.items()}
    for typed in (settings, options):
        assert {name: _parts(hint) for name, hint in get_type_hints(typed).items()} == checked
    altered = {name: _parts(hint) for name, hint in get_type_hints(changes).items()}
    assert altered == {name: checked[name] for name in altered}


@pytest.mark.parametrize(("taker", "options"), TAKERS)
def test_settings_of_every_call_are_typed(taker: Any, options: type) -> None:
    """Whoever takes settings as keyword arguments names their types."""
    (settings,) = [p for p in inspect.signature(taker).parameters.values() if p.kind is p.VAR_KEYWORD]
    assert settings.annotation == f"Unpack[{options.__name__}]"


def test_there_are_no_other_takers_of_settings() -> None:
    """Nothing public takes keyword arguments of which a checker knows nothing."""
    found = {
        method
        for owner in (callboard.Runtime, callboard.Topic, callboard.Group, callboard.Consumer)
        for _, method in inspect.getmembers(owner, inspect.isfunction)
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(method).parameters.values())
    }
    assert found == {taker for taker, _ in TAKERS}


def test_no_option_is_required() -> None:
    """Every setting has a default."""
    for options in (callboard.hints.TopicOptions, callboard.hints.GroupOptions):
        assert options.__required_keys__ == frozenset()


def test_levels_are_literals() -> None:
    """The levels that checkers know are those that publishing knows."""
    from callboard.actors.partition.commands import LEVELS

    assert set(get_args(callboard.hints.Acks)) == set(LEVELS)
