"""A config's or header's fields, read by name and type; what is left unread is refused."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping

from orion_ane.errors import ConfigError

MAX_LISTED = 12
OTHER_MODEL = "this model computes something else than its family does here"


def listed(names: Collection[str]) -> str:
    """Names in their order, the first dozen of them."""
    shown = list(names)[:MAX_LISTED]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


class Fields:
    """Values by name, of which each is read once and none may be ignored.

    Args:
        where: the file, as messages name it.
        values: what the file says; null is the same as absent.
    """

    def __init__(self, where: str, values: Mapping[str, object]) -> None:
        self.where = where
        self._values = {name: value for name, value in values.items() if value is not None}
        self._unread = dict(self._values)
        self._refused: dict[str, str] = {}

    def get(self, name: str) -> object:
        """The value as it stands, or None."""
        self._unread.pop(name, None)
        return self._values.get(name)

    def size(self, name: str, default: int | None = None) -> int:
        """A whole number above 0.

        Raises:
            ConfigError: absent without a default, or not such a number.
        """
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(self.where, f"no such {name}", got=value, want="a whole number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number.

        Raises:
            ConfigError: absent without a default, or not such a number.
        """
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(self.where, f"no such {name}", got=value, want="a number")
        if not abs(value) <= sys.float_info.max:
            raise ConfigError(self.where, f"no such {name}", got=value, want="a finite number")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            ConfigError: something else.
        """
        value = self._required(name, default)
        if not isinstance(value, bool):
            raise ConfigError(self.where, f"no such {name}", got=value, want="true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string.

        Raises:
            ConfigError: absent without a default, or something else.
        """
        value = self._required(name, default)
        if not isinstance(value, str):
            raise ConfigError(self.where, f"no such {name}", got=value, want="a text")
        return value

    def ids(self, name: str) -> tuple[int, ...]:
        """A token id or a list of them; none where the field is absent.

        Raises:
            ConfigError: something else.
        """
        value = self.get(name)
        several = value if isinstance(value, list) else [] if value is None else [value]
        for one in several:
            if isinstance(one, bool) or not isinstance(one, int) or one < 0:
                raise ConfigError(self.where, f"no such {name}", got=one, want="a token id")
        return tuple(several)

    def only(self, name: str, *allowed: object) -> None:
        """Note the field as refused unless it is absent or has one of these values."""
        value = self.get(name)
        if value is not None and not any(
            value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed
        ):
            wanted = " or ".join(map(_shown, allowed))
            self._refused[name] = f"{name} {_shown(value)}" + (f" (not {wanted})" if wanted else "")

    def refuse(self, name: str) -> None:
        """Note the field as refused, whatever it says."""
        self.only(name)

    def finish(
        self, *, harmless: Collection[str] = (), prefix: str = "", hint: str = OTHER_MODEL
    ) -> None:
        """Refuse what was noted and what nothing has read, all at once.

        Args:
            harmless: names that say nothing about the arithmetic.
            prefix: only names that begin so are our affair.
            hint: what it means that there are others.

        Raises:
            ConfigError: a field that we do not know how to honour.
        """
        unknown = {
            name: f"{name} {_shown(value)}"
            for name, value in self._unread.items()
            if name not in harmless and name.startswith(prefix)
        }
        if refused := self._refused | unknown:
            raise ConfigError(
                self.where,
                "fields that cannot be honoured",
                got=listed(refused.values()),
                hint=hint,
            )

    def _required(self, name: str, default: object) -> object:
        value = self.get(name)
        if value is None and default is None:
            raise ConfigError(self.where, f"{name} is missing")
        return default if value is None else value


def _shown(value: object) -> str:
    """A value as JSON spells it, cut where it is long."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
