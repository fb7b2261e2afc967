"""Options and parsing that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import click

from callboard.actors.settings import SettingField
from callboard.cli.streams import check_directory
from callboard.log.errors import ConfigurationError, InvalidArgument

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
