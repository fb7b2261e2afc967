"""Workloads as plain data and back."""

from __future__ import annotations

from typing import Any, Literal

import attrs
import pytest

from callboard.log.errors import InvalidArgument
from callboard.simulations.search.values import from_plain, to_plain


@attrs.frozen
class Order:
    """A part of a workload."""

    size: int
    weight: float = 1.0
    kind: Literal["new", "again"] = "new"


@attrs.frozen
class Shop:
    """A workload."""

    orders: tuple[Order, ...] = ()
    name: str = ""
    pair: tuple[int, str] = (0, "")
    limit: int | None = None
    open: bool = True


SHOP = Shop((Order(1), Order(2, 0.5, "again")), "corner", (3, "x"), 9, False)


def test_a_value_comes_back_as_it_was() -> None:
    """Nested classes, tuples, options and scalars survive, also by way of JSON's types."""
    assert SHOP == from_plain(Shop, to_plain(SHOP))
    assert Shop() == from_plain(Shop, {})


def test_an_integer_serves_where_a_float_is_wanted() -> None:
    """JSON writes 1.0 as 1."""
    found = from_plain(Order, {"size": 1, "weight": 2})
    assert isinstance(found.weight, float)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ([], "workload"),
        ({"colour": 1}, "colour"),
        ({"orders": [{}]}, "orders[0]"),
        ({"orders": [{"size": "1"}]}, "orders[0].size"),
        ({"orders": [{"size": True}]}, "orders[0].size"),
        ({"orders": [{"size": 1, "kind": "old"}]}, "orders[0].kind"),
        ({"orders": [{"size": 1, "weight": float("nan")}]}, "orders[0].weight"),
        ({"pair": [1]}, "pair"),
        ({"limit": "many"}, "limit"),
        ({"open": 1}, "open"),
        ({"name": None}, "name"),
        ({"orders": {}}, "orders"),
    ],
)
def test_data_of_another_shape_is_refused(data: Any, where: str) -> None:
    """Wrong types, unknown and missing fields are refused with the place named."""
    with pytest.raises(InvalidArgument) as caught:
        from_plain(Shop, data)
    assert where in str(caught.value)


def test_what_cannot_be_stored_is_refused() -> None:
    """A list or another object is no workload."""
    for value in ([1], object(), {1: 2}):
        with pytest.raises(InvalidArgument):
            to_plain(value)


def test_a_class_that_refuses_its_values_is_heard() -> None:
    """An error of the class itself becomes the stored failure's."""

    @attrs.frozen
    class Even:
        size: int = attrs.field(validator=lambda self, field, value: 1 // (value % 2 == 0 and 1))

    @attrs.frozen
    class Small:
        size: int = attrs.field(validator=attrs.validators.le(5))

    with pytest.raises(InvalidArgument):
        from_plain(Small, {"size": 6})
    assert from_plain(Even, {"size": 4}).size == 4
