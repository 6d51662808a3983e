"""What follows an engine failure: which error it was, and when another start may be tried.

Knows no process and no clock.
"""

from __future__ import annotations

import math

from swiftspec_daemon.errors import EngineError, SwiftSpecError

_FIRST_DELAY_S = 1.0
_LONGEST_DELAY_S = 60.0


class BackOff:
    """At most one start a request, and after repeated failures only after growing delays.

    The first failure may be followed by a start at once, the next by one after 1, 2, 4, ... 60 s.
    """

    def __init__(
        self, first_s: float = _FIRST_DELAY_S, longest_s: float = _LONGEST_DELAY_S
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0
        self._not_before = 0.0

    def failed(self, now: float) -> None:
        """A worker failed to load or was lost. `now` in seconds."""
        self._failures += 1
        if self._failures > 1:
            delay = self._first_s * 2.0 ** min(self._failures - 2, 30)
            self._not_before = now + min(delay, self._longest_s)

    def succeeded(self) -> None:
        """A request was served."""
        self._failures = 0
        self._not_before = 0.0

    def check(self, now: float, cause: SwiftSpecError) -> None:
        """Raises an error of the kind of `cause` if it is too soon for another start."""
        if now < self._not_before:
            wait = math.ceil(self._not_before - now)
            hint = f"{cause.hint} The next try is possible in {wait} s.".strip()
            raise type(cause)(cause.message, hint)


def error_from_code(code: str, message: str, hint: str = "") -> SwiftSpecError:
    """The error of `swiftspec_daemon.errors` with that code; EngineError for an unknown one."""
    kinds: list[type[SwiftSpecError]] = [SwiftSpecError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return next((kind for kind in kinds if kind.code == code), EngineError)(message, hint)
