"""What every account of a rude API has: the same few products and orders, whoever asks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Product:
    """One product; its number is its id."""

    number: int
    title: str
    cents: int


@dataclass(frozen=True, slots=True)
class Order:
    """One order of two lines; its number is its id."""

    number: int
    email: str
    lines: tuple[Product, Product]

    @property
    def cents(self) -> int:
        """What it comes to."""
        return sum(line.cents for line in self.lines)


PRODUCTS = tuple(Product(number, f"Product {number}", 100 + 25 * number) for number in range(1, 26))
"""25 of them, in the order of their numbers."""
ORDERS = tuple(
    Order(
        1000 + number,
        f"buyer{number}@example.com",
        (PRODUCTS[number % len(PRODUCTS)], PRODUCTS[number * 7 % len(PRODUCTS)]),
    )
    for number in range(1, 61)
)
"""60 of them, in the order of their numbers."""


def amount(cents: int) -> str:
    """*cents* as vendors write money.

    >>> amount(1205)
    '12.05'
    """
    return f"{cents // 100}.{cents % 100:02}"
