"""What is said of rounds: how they are, who is asked, and what became of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from syft.exceptions import UnusableSetting
from syft.federated.rules import RULES, Rule


class Why(StrEnum):
    """Why a client that was asked is not in a round.

    >>> Why("late") is Why.LATE
    True
    """

    ABSENT = "absent"
    """It is not among the clients that this program was given."""
    SILENT = "silent"
    """The loop has not reported for it."""
    LATE = "late"
    """It had not finished at the deadline."""
    LOST = "lost"
    """Its worker is gone, or was closed."""
    FAILED = "failed"
    """Something went wrong at its worker."""
    REFUSED = "refused"
    """Its update is no number, or unlike those of most clients."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a client is not in a round, and what is known of it.

    >>> print(Missing(Why.LOST, "its process has ended"))
    lost: its process has ended
    """

    why: Why
    text: str = ""

    def __str__(self) -> str:
        return f"{self.why}: {self.text}" if self.text else str(self.why)


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """What became of a round: who was asked, who has reported how many samples, who is missing.

    >>> RoundRecord(0, ("a", "b"), {"a": 10}, {"b": Missing(Why.LATE)}).missing["b"].why.value
    'late'
    """

    number: int
    asked: tuple[str, ...]
    reported: Mapping[str, float]
    missing: Mapping[str, Missing]

    def to_json(self) -> dict[str, Any]:
        """Its parts as JSON has them."""
        missing = {name: [str(one.why), one.text] for name, one in self.missing.items()}
        reported = dict(self.reported)
        return {
            "number": self.number,
            "asked": list(self.asked),
            "reported": reported,
            "missing": missing,
        }

    @classmethod
    def from_json(cls, parts: Mapping[str, Any]) -> RoundRecord:
        """The record of such parts.

        >>> record = RoundRecord(0, ("a",), {"a": 10}, {})
        >>> RoundRecord.from_json(record.to_json()) == record
        True
        """
        missing = {name: Missing(Why(why), text) for name, (why, text) in parts["missing"].items()}
        return cls(parts["number"], tuple(parts["asked"]), parts["reported"], missing)


def sampled(names: Iterable[str], count: int, seed: int, number: int) -> list[str]:
    """The clients of a round: as many of the names, each set of them as likely as any other.

    They follow from the names, the seed and the number of the round, in whatever order the names
    come, and from no generator.

    >>> sampled(["a", "b", "c"], 2, 1, 0) == sampled(["c", "b", "a"], 2, 1, 0)
    True
    """

    def place(name: str) -> bytes:
        return hashlib.sha256(f"syft sample {seed} {number} {name}".encode()).digest()

    return sorted(sorted(names, key=place)[:count])


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """How the rounds of a run are, as for :func:`syft.rounds`; ``clients`` is how many there are,
    None if a file says so, in which some are that are gone.

    Raises :class:`~syft.exceptions.UnusableSetting` for settings that make no sense.

    >>> RoundSettings(3, sample=2).described()["sample"]
    '2'
    """

    clients: int | None
    count: int | None = None
    sample: int | None = None
    minimum: int = 1
    deadline: float | None = None
    seed: int = 0
    rule: Rule = RULES["mean"]
    secure: bool = False
    user: str | None = None

    def __post_init__(self) -> None:
        if self.secure and not self.rule.weighs:
            wanted = "the mean or sy.ClippedMean, to be secure"
            raise UnusableSetting("rule", wanted, repr(self.rule))
        if self.count is not None:
            _check_number("count", self.count, 0)
        if self.sample is not None:
            _check_number("sample", self.sample, 1, self.clients)
        _check_number("seed", self.seed)
        _check_number("minimum", self.minimum, 1 + self.secure, self.sample or self.clients)
        if self.deadline is not None and not 0 < self.deadline < float("inf"):
            raise UnusableSetting("deadline", "seconds over 0", repr(self.deadline))

    def described(self) -> dict[str, str]:
        """What makes another run of it, as text; of a rule its numbers, and not the model around
        which it clips: that is another one each round."""
        rule: Any = self.rule
        numbers = [one.name for one in fields(rule) if one.name != "around"]
        listed = ", ".join(f"{name}={getattr(rule, name)!r}" for name in numbers)
        return {
            "seed": str(self.seed),
            "sample": str(self.sample),
            "rule": f"{type(rule).__name__}({listed})",
            "secure": str(self.secure),
        }


def _check_number(
    setting: str, number: Any, least: int | None = None, most: int | None = None
) -> None:
    """Raise unless a setting is a whole number in a range."""
    whole = isinstance(number, int) and not isinstance(number, bool)
    low = not whole or (least is not None and number < least)
    if low or (most is not None and number > most):
        wanted = "a whole number" + ("" if least is None else f" from {least}")
        wanted += "" if most is None else f" to {most}"
        raise UnusableSetting(setting, wanted, repr(number))
