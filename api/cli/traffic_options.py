"""Options that say how files of traffic are written."""

from __future__ import annotations

import click

from callboard.traffic.times import TimeFormat, time_form


def _check_form(_context: click.Context, _option: click.Parameter, given: str) -> str:
    try:
        time_form(given)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    return given


time_format_option = click.option(
    "--time-format",
    default=TimeFormat.AUTO.value,
    show_default=True,
    metavar="FORM",
    callback=_check_form,
    help="How times are written: auto, s, ms, us, iso, clf, or a pattern of strptime, such as '%d/%m/%Y %H:%M:%S'.",
)


empty_key_option = click.option(
    "--empty-key",
    type=click.Choice(["null", "keep"]),
    default="null",
    show_default=True,
    help="What an empty key field is: no key, or a key of no bytes.",
)


def parse_delimiter(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    """What separates fields, as it is typed: a tab is hard to type."""
    return "\t" if given in ("tab", "\\t") else given
