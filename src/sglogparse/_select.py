"""What of a diagnosis is shown and counts: the rules that are selected, less what a baseline knows.

    findings --select, ignore--> findings --baseline--> those that are shown and decide the exit code

The outcome is what it is. A crash does not become `ready` because its rule is ignored, and the report says
how many findings were left out, of which rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from sglogparse._cheap import dataclass
from sglogparse._errors import ConfigError
from sglogparse._fingerprint import finding_fingerprint, verdict_fingerprint

if TYPE_CHECKING:
    from sglogparse._baseline import Baseline
    from sglogparse._config import Settings
    from sglogparse._report import Diagnosis, Finding, LaunchReport

#: What selects every rule.
ALL = "ALL"


@dataclass(frozen=True)
class Selection:
    """Which rules count, by their codes or how these begin."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def holds(self, code: str) -> bool:
        """Tell whether a rule counts: of what matches its code the longest decides, `ignore` where they tie.

        >>> Selection(("P",), ("P00",)).holds("P001"), Selection(("P001",), ("P00",)).holds("P001")
        (False, True)
        """
        wanted = _longest(code, self.select or (ALL,))
        return wanted >= 0 and wanted > _longest(code, self.ignore)


def _longest(code: str, prefixes: tuple[str, ...]) -> int:
    """Return the length of the longest prefix of a code; 0 for ALL, -1 when none is one."""
    return max(
        (0 if one == ALL else len(one) for one in prefixes if one == ALL or code.startswith(one)), default=-1
    )


def selection_of(chosen: Settings, codes: Iterable[str]) -> Selection:
    """Return the selection that settings ask for; ConfigError where one of them matches no rule."""
    known = list(codes)
    select = (chosen.select or (ALL,)) + chosen.extend_select
    for name, prefixes in (("select", select), ("ignore", chosen.ignore)):
        for one in prefixes:
            if one != ALL and not any(code.startswith(one) for code in known):
                import difflib

                near = difflib.get_close_matches(one, known, 1, 0.5)
                meant = f"; did you mean {near[0]}?" if near else "; see `sglogparse rules`"
                raise ConfigError(f"{name}: no rule's code begins with {one!r}{meant}")
    return Selection(select, chosen.ignore)


def selected(diagnosis: Diagnosis, selection: Selection, baseline: Baseline | None = None) -> Diagnosis:
    """Return a diagnosis with the findings that count; what was taken out is kept apart.

    The verdict is known when the baseline holds its fingerprint.
    """
    known: list[Finding] = []
    ignored: list[Finding] = []

    def kept(launch: LaunchReport) -> LaunchReport:
        left = []
        for finding in launch.findings:
            if not selection.holds(finding.code):
                ignored.append(finding)
            elif baseline and finding_fingerprint(finding, launch) in baseline.findings:
                known.append(finding)
            else:
                left.append(finding)
        return replace(launch, findings=tuple(left))

    launches = tuple(kept(one) for one in diagnosis.launches)
    counted = tuple(known), tuple(ignored)
    chief = kept(diagnosis.chief) if diagnosis.chief else None  # one of the launches once more: not counted
    found = bool(baseline and chief and verdict_fingerprint(chief) in baseline.verdicts)
    return replace(
        diagnosis,
        launches=launches,
        chief=chief,
        known=counted[0],
        ignored=counted[1],
        verdict_known=found,
    )
