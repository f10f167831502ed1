"""The result as a table by module, the survivors as changed lines, or all of it as one object."""

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass

from hunts.mutants.making import Mutant
from hunts.mutants.trying import Outcome

NOTICED = (Outcome.KILLED, Outcome.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcomes of all mutants, the number of equivalent ones, and tests that fail unmutated."""

    tried: list[tuple[Mutant, Outcome]]
    equivalent: int
    failing: list[str]

    @property
    def killed(self) -> int:
        """Mutants that were noticed; an endless loop is."""
        return sum(outcome in NOTICED for _, outcome in self.tried)

    @property
    def share(self) -> float:
        """Noticed of all that were tried."""
        return self.killed / max(1, len(self.tried))

    @property
    def survivors(self) -> list[tuple[Mutant, Outcome]]:
        """The mutants that no test noticed."""
        return [(one, outcome) for one, outcome in self.tried if outcome not in NOTICED]


def as_text(result: Result) -> str:
    """Table, survivors, failing tests, and one line with the figure."""
    parts = [_table(result)]
    parts += [_survivor(mutant, outcome) for mutant, outcome in result.survivors]
    parts += [f"left out, since it fails without a fault: {test}" for test in result.failing]
    parts.append(
        f"{result.killed} of {len(result.tried)} mutants killed ({result.share:.1%}), "
        f"{result.equivalent} equivalent ones left out"
    )
    return "\n".join(parts)


def as_json(result: Result) -> str:
    """The result as JSON."""
    return json.dumps(
        {
            "mutants": len(result.tried),
            "killed": result.killed,
            "share": round(result.share, 4),
            "equivalent": result.equivalent,
            "failing_without_a_fault": result.failing,
            "modules": {name: dict(counts) for name, counts in _by_module(result).items()},
            "survivors": [{**asdict(one), "outcome": outcome} for one, outcome in result.survivors],
        },
        indent=2,
    )


def _by_module(result: Result) -> dict[str, Counter[Outcome]]:
    counts: defaultdict[str, Counter[Outcome]] = defaultdict(Counter)
    for mutant, outcome in result.tried:
        counts[mutant.module][outcome] += 1
    return dict(sorted(counts.items()))


def _table(result: Result) -> str:
    lines = [f"{'module':36}{'mutants':>9}" + "".join(f"{one:>11}" for one in Outcome)]
    for module, counts in _by_module(result).items():
        cells = "".join(f"{counts[one] or '':>11}" for one in Outcome)
        lines.append(f"{module:36}{counts.total():>9}{cells}")
    return "\n".join(lines)


def _survivor(mutant: Mutant, outcome: Outcome) -> str:
    before = [f"  - {line}" for line in mutant.before.splitlines()]
    after = [f"  + {line}" for line in mutant.after.splitlines()]
    return "\n".join([f"{mutant.module}:{mutant.line} {outcome}", *before, *after])
