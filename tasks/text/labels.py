"""Classes of a column of labels: their names and numbers, and the mistakes that such a column can have."""

from typing import Any

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.tables import Table

TEXT_COLUMNS = ("text", "sentence", "review", "content", "document", "comment", "message")
LABEL_COLUMNS = ("label", "class", "category", "topic", "target", "sentiment", "intent")
# rows per class on average; a column with fewer is not a column of classes, unless the table is small
MIN_ROWS_PER_CLASS = 2
SMALL_TABLE = 10
MAX_SHOWN = 10


def choose_column(table: Table, name: str | None, obvious: tuple[str, ...], option: str) -> str:
    """Return ``name``, or the column of the table with an obvious name.

    Args:
        table: the training table.
        name: the column that the user gave, if any.
        obvious: names that a column of this kind often has; the first has precedence over the others.
        option: the option that sets the column.
    """
    if name is not None:
        return name
    present = [column for column in obvious if column in table.columns]
    if len(present) == 1 or present[:1] == [obvious[0]]:
        return present[0]
    kind = obvious[0]
    reason = f"both {present[0]} and {present[1]} may be it" if present else f"none of them is called {kind}"
    raise UsageError(f"set {option} to the column with the {kind}: {table.name}: {table.listing}, and {reason}")


def read_labels(table: Table, column: str, option: str) -> list[str]:
    """Return the name of the class of each row; raise a ``UsageError`` if a label is missing."""
    values = table.column(column, option)
    names = table.class_names.get(column)
    if names:
        # -1 is the label of an example without a known class
        values = [names[value] if isinstance(value, int) and 0 <= value < len(names) else None for value in values]
    table.check_filled(values, column)
    for number, value in enumerate(values, start=1):
        if not isinstance(value, str | int | float):
            raise UsageError(
                f"{table.row.format(number)} of {table.name} has a {type(value).__name__} in the column {column!r}, "
                f"but a class must be a text or a number; correct {option}"
            )
    return [str(value).strip() for value in values]


def order_classes(table: Table, column: str, labels: list[str], option: str) -> list[str]:
    """Return the names of the classes in the order of their numbers; raise a ``UsageError`` if they are not classes.

    Integers are in numerical order, other names in alphabetical order. The names of a data set on the hub keep their
    order.
    """
    names = set(labels)
    if len(names) == 1:
        raise UsageError(
            f"{table.name} has only the class {labels[0]!r} in the column {column!r}; classification needs at least "
            f"two, so add rows of other classes or correct {option}"
        )
    if len(labels) >= SMALL_TABLE and len(labels) < MIN_ROWS_PER_CLASS * len(names):
        raise UsageError(
            f"the column {column!r} of {table.name} has {len(names)} different values in {len(labels)} rows, which is "
            f"too many for classes; set {option} to a column of classes"
        )
    if column in table.class_names:
        return [name for name in table.class_names[column] if name in names]
    return sorted(names, key=_class_key)


def _class_key(name: str) -> tuple[int, Any]:
    try:
        return 0, (int(name), name)
    except ValueError:
        return 1, (0, name)


def number_labels(table: Table, column: str, labels: list[str], classes: list[str], training: str) -> list[int]:
    """Return the number of the class of each row.

    Args:
        table: the table of a split.
        column: name of its column of labels.
        labels: class of each row.
        classes: classes of the training table.
        training: name of the training table.
    """
    numbers = {name: number for number, name in enumerate(classes)}
    unknown = sorted({label for label in labels if label not in numbers}, key=_class_key)
    if unknown:
        known = f"{', '.join(classes[:MAX_SHOWN])}{', ...' if len(classes) > MAX_SHOWN else ''}"
        raise UsageError(
            f"{table.name} has the class {unknown[0]!r} in the column {column!r}, but {training} has only {known}; add "
            f"training rows of this class or remove its rows from {table.name}"
        )
    return [numbers[label] for label in labels]
