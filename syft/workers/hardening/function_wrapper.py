"""What a worker runs in the place of a torch function, and what still counts as that function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


class FunctionWrapper(ABC):
    """A function that calls another one, and does something before or after. Abstract.

    It equals the function, so that sets of functions which hold that one hold this one too: what is
    decided by the function is decided alike, whatever it is wrapped in.

    >>> class Twice(FunctionWrapper):
    ...     def __call__(self, /, *args, **kwargs):
    ...         return self.function(*args, **kwargs) * 2
    >>> Twice(abs)(-3), Twice(Twice(abs))(-3), Twice(Twice(abs)) in {abs}
    (6, 12, True)
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @abstractmethod
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""

    def __eq__(self, other: object) -> bool:
        return other is self or bool(other == self.function)

    def __hash__(self) -> int:
        return hash(self.function)
