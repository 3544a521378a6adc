"""What is fuzzed: a strategy that makes inputs, and a check that raises Finding for a fault that an input shows."""

import ast
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

MAX_BEFORE = 5
"""The most inputs that are kept of a fault that the last one alone does not show."""


class Finding(AssertionError):
    """The server or a parser did what it must never do."""


@dataclass
class Target:
    """One thing to fuzz. Inputs are made of literals alone, so that a file can hold them."""

    name: str
    inputs: SearchStrategy[Any]
    check: Callable[[Any], None]
    per_turn: int  # inputs in one turn; a turn should take a second or two
    tried: int = 0
    found: dict[str, Any] | None = field(default=None)

    def take_turn(self, number: int) -> None:
        """Try new inputs, chosen by *number* alone. If one shows a fault, the smallest like it is kept in *found*."""
        seen: list[Any] = []
        at_first: list[Any] = []  # the inputs up to the first fault

        @seed(number)
        @settings(
            max_examples=self.per_turn,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        @given(self.inputs)
        def turn(value: Any) -> None:
            seen.append(value)
            self.tried += 1
            try:
                self.check(value)
            except Exception:
                at_first.extend(() if at_first else seen[-MAX_BEFORE:])
                raise

        try:
            turn()
        except ExceptionGroup as errors:  # the last input alone does not show the fault again
            self._find(number, errors.exceptions[0], at_first)
        except Exception as error:  # noqa: BLE001  whatever an input raises is a finding
            self._find(number, error, seen[-1:])

    def _find(self, number: int, error: Exception, inputs: list[Any]) -> None:
        text = str(error) if isinstance(error, Finding) else "".join(traceback.format_exception(error))[-4000:]
        self.found = {"target": self.name, "turn": number, "error": text, "inputs": [repr(value) for value in inputs]}


def keep(found: dict[str, Any], folder: Path) -> Path:
    """Write an input that shows a fault to *folder*, for --replay. Returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found['target']}-{found['turn']}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def read_findings(path: Path) -> tuple[str, list[Any]]:
    """Return the name of the target and the inputs in a file that keep() wrote, the last of which shows the fault."""
    found = json.loads(path.read_text())
    return found["target"], [ast.literal_eval(value) for value in found["inputs"]]
