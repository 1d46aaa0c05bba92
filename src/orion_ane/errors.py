"""The tree of errors and their one wording: where, what, got, want, way out."""

from __future__ import annotations

from dataclasses import dataclass


class OrionError(Exception):
    """An error a caller may catch, worded `<where>: <what>: got <got>, want <want>`.

    Args:
        where: the op, file, option or port, as the user wrote it.
        what: what is wrong, in lower case.
        got: the offending value, printed.
        want: the rule it breaks.
        hint: the way out, on a second line.
    """

    def __init__(
        self,
        where: str,
        what: str,
        *,
        got: object = None,
        want: object = None,
        hint: str | None = None,
    ) -> None:
        self.where, self.what, self.got, self.want, self.hint = where, what, got, want, hint
        parts = [f"got {got}"] if got is not None else []
        parts += [f"want {want}"] if want is not None else []
        message = f"{where}: {what}" + (": " + ", ".join(parts) if parts else "")
        super().__init__(message + (f"\n  hint: {hint}" if hint else ""))


class ShapeError(OrionError):
    """Types or shapes that an op does not take."""


class MilError(OrionError):
    """MIL text or a blob file that cannot be read or written.

    `line` and `column` count from 1 where the fault lies in a text, else they are None.
    """

    def __init__(
        self,
        where: str,
        what: str,
        *,
        line: int | None = None,
        column: int | None = None,
        got: object = None,
        want: object = None,
        hint: str | None = None,
    ) -> None:
        self.line, self.column = line, column
        place = f"{where}:{line}:{column}" if line is not None else where
        super().__init__(place, what, got=got, want=want, hint=hint)


@dataclass(frozen=True)
class Diagnostic:
    """One place in a program that breaks a rule of a device.

    Attributes:
        code: of the limit; empty where the text says what no rule knows.
        symptom: how it would show on the device.
        where: the statement or port.
        line: from 1, or None where it is the program's as a whole.
        column: likewise.
        message: what is wrong there.
        hint: the way out; empty where there is none.
        sources: who says so.
    """

    code: str
    symptom: str
    where: str
    line: int | None
    column: int | None
    message: str
    hint: str
    sources: tuple[str, ...]

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}: " if self.line is not None else ""
        head = f"{place}{self.where}: {self.message} ({self.code or 'unread'}, {self.symptom})"
        return head + (f"\n  hint: {self.hint}" if self.hint else "")


class LimitError(OrionError):
    """A program that breaks limits of its target; `diagnostics` are all of them."""

    def __init__(self, target: str, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = diagnostics
        super().__init__(target, _broken(len(diagnostics)))
        listed = "\n".join(str(diagnostic) for diagnostic in diagnostics)
        self.args = (f"{self}\n{listed}",)


def _broken(count: int) -> str:
    return "1 limit is broken" if count == 1 else f"{count} limits are broken"


class BackendError(OrionError):
    """A device that is missing, refuses a program, or fails at run."""


class BudgetError(BackendError):
    """A device that has no room for another program."""


class ConfigError(OrionError):
    """A setting or a model's configuration that cannot be honoured."""


class CheckpointError(OrionError):
    """Weights on disk that are missing, left over, damaged or of the wrong shape."""


class DataError(OrionError):
    """Text, tokens or tokenizer files that cannot be used."""
