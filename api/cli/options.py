"""Options and parsing that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import click

from callboard.actors.settings import SettingField
from callboard.cli.output import say
from callboard.cli.streams import check_directory
from callboard.consumer.reader import plain_start
from callboard.control.verbs import is_negative
from callboard.log.errors import ConfigurationError, InvalidArgument
from callboard.message import parse_instant

directory_option = click.option(
    "-d",
    "--directory",
    envvar="CALLBOARD_DIRECTORY",
    default="data",
    show_default=True,
    show_envvar=True,
    callback=lambda _context, _option, given: check_directory(given),
    help="The runtime's directory.",
)


class FiniteFloat(click.FloatRange):
    """The type of every option that is a number with a fraction: NaN is in every range of click's, and is refused here
    as the infinities are.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click's; and the number is finite."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r:.40} is not a finite number.", param, ctx)
        return number


all_option = click.option(
    "--all", "with_own", is_flag=True, help="Also the groups of the broker's own, such as callboard.handled."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


def zoned(text: str) -> datetime:
    """An instant in ISO 8601. One without a zone is UTC, which is reported. Raises `ValueError`."""
    instant = parse_instant(text)
    if datetime.fromisoformat(text).tzinfo is None:
        say(f"{text} has no zone: it is taken as {instant.isoformat()}")
    return instant


def parse_start(text: str) -> int | str | datetime:
    """ "beginning", "end", an offset, or an ISO 8601 instant (UTC unless it says otherwise)."""
    if text in ("beginning", "end"):
        return text
    if text.isascii() and text.isdecimal() and len(text) < 20:
        plain_start("the place to start", int(text))
        return int(text)
    if is_negative(text):
        raise InvalidArgument(
            f"{text:.60} lies before the start: offsets begin at 0. Say beginning for the oldest message that is kept."
        )
    try:
        return zoned(text)
    except ValueError:
        raise InvalidArgument(
            f'{text!r:.60} is no place to start: use "beginning", "end", an offset, or an instant such as'
            " 2026-11-21T12:00:00+00:00."
        ) from None


def parse_settings(
    given: tuple[str, ...], fields: Mapping[str, SettingField], check: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Settings from `name=value` arguments that `check` accepts. All that is wrong with them is in one error."""
    settings: dict[str, Any] = {}
    problems: list[str] = []
    for item in given:
        name, equals, text = item.partition("=")
        name = name.replace("-", "_")
        if not equals or not name:
            problems.append(f"{item!r:.60} is not of the form name=value")
        elif name in settings:
            problems.append(f"{name} is given twice")
        else:
            field = fields.get(name)
            settings[name] = _value(text, field.kind if field else "choice")
    try:
        check(settings)
    except ConfigurationError as error:
        if not problems:
            raise
        problems += error.problems
    if problems:
        raise InvalidArgument(f"{'; '.join(problems)}. Nothing was changed.")
    return settings


def _value(text: str, kind: str) -> Any:
    if text.lower() == "none" and kind != "choice":
        return None
    if kind == "bool" and text.lower() in ("true", "false", "yes", "no"):
        return text.lower() in ("true", "yes")
    if kind == "delays" and "," in text:
        return [_value(part, "seconds") for part in text.split(",")]
    if kind in ("int", "seconds", "delays"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            return text
    return text


def bytes_of(text: str) -> bytes:
    """An argument's bytes exactly as typed, UTF-8 or not."""
    return text.encode("utf-8", "surrogateescape")
