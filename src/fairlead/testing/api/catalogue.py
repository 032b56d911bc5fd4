"""The products and orders that every account of every vendor API has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Product:
    """A product; its number is its id."""

    number: int
    title: str
    cents: int


@dataclass(frozen=True, slots=True)
class Order:
    """An order of two lines; its number is its id."""

    number: int
    email: str
    lines: tuple[Product, Product]

    @property
    def cents(self) -> int:
        """The total in cents."""
        return sum(line.cents for line in self.lines)


PRODUCTS = tuple(Product(number, f"Product {number}", 100 + 25 * number) for number in range(1, 26))
"""25 products in the order of their numbers."""
ORDERS = tuple(
    Order(
        1000 + number,
        f"buyer{number}@example.com",
        (PRODUCTS[number % len(PRODUCTS)], PRODUCTS[number * 7 % len(PRODUCTS)]),
    )
    for number in range(1, 61)
)
"""60 orders in the order of their numbers."""


def amount(cents: int) -> str:
    """Return *cents* as vendors write money.

    >>> amount(1205)
    '12.05'
    """
    return f"{cents // 100}.{cents % 100:02}"
