"""A small Python module as someone would type it, key by key. Knows no clients and no clocks."""

from __future__ import annotations

from collections.abc import Iterator

from swiftspec_daemon.protocol.messages import Edit, Position

URI = "file:///bench/inventory.py"

WRITTEN = '''\
"""A small inventory: items on shelves, counted in whole pieces."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path


class InventoryError(Exception):
    """Something was asked of the inventory that it cannot do."""


@dataclass
class Item:
    """One kind of thing."""

    name: str
    shelf: str
    count: int = 0
    price: float = 0.0

    @property
    def value(self) -> float:
        """What all pieces are worth together."""
        return self.count * self.price


@dataclass
class Inventory:
    """All items by name."""

    items: dict[str, Item] = field(default_factory=dict)

    def add(self, name: str, shelf: str, count: int, price: float) -> Item:
        """Add a new kind of item. Raises InventoryError if the name is taken."""
        if name in self.items:
            raise InventoryError(f"{name} is there already")
        item = Item(name, shelf, count, price)
        self.items[name] = item
        return item

    def take(self, name: str, count: int) -> None:
        """Take pieces out. Raises InventoryError if there are too few."""
        item = self.find(name)
        if item.count < count:
            raise InventoryError(f"only {item.count} of {name} left")
        item.count -= count

    def find(self, name: str) -> Item:
        """The item of that name. Raises InventoryError if there is none."""
        try:
            return self.items[name]
        except KeyError:
            raise InventoryError(f"no item called {name}") from None

'''
"""What is in the document when typing begins."""

TYPED = '''\
    def total_value(self) -> float:
        """What everything is worth together."""
        return sum(item.value for item in self.items.values())

    def on_shelf(self, shelf: str) -> list[Item]:
        """The items of one shelf, by name."""
        found = [item for item in self.items.values() if item.shelf == shelf]
        return sorted(found, key=lambda item: item.name)

    def save(self, path: Path) -> None:
        """Write the inventory as JSON."""
        data = {name: vars(item) for name, item in self.items.items()}
        path.write_text(json.dumps(data, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Inventory:
        """Read what `save` has written."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls({name: Item(**fields) for name, fields in data.items()})


def read_csv(path: Path) -> Inventory:
    """Read an inventory from a table with columns name, shelf, count and price."""
    inventory = Inventory()
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            inventory.add(row["name"], row["shelf"], int(row["count"]), float(row["price"]))
    return inventory
'''
"""What is typed after it."""


def keystrokes(every: int = 1) -> Iterator[tuple[Edit, Position]]:
    """`TYPED` in insertions of `every` characters at the end of `WRITTEN`.

    Yields the edit and the cursor after it. All text is ASCII, so that positions are the same in
    each encoding.
    """
    line, character = WRITTEN.count("\n"), len(WRITTEN) - WRITTEN.rfind("\n") - 1
    for start in range(0, len(TYPED), every):
        text = TYPED[start : start + every]
        place = Position(line=line, character=character)
        breaks = text.count("\n")
        line += breaks
        character = len(text) - text.rfind("\n") - 1 if breaks else character + len(text)
        yield Edit(start=place, end=place, text=text), Position(line=line, character=character)
