"""What speculation did and what there is for it, in lines for people. Knows no daemon."""

from __future__ import annotations

from swiftspec_daemon.protocol.speculation import (
    DraftStatus,
    PlannerStatus,
    SpeculationCounts,
    SpeculationReport,
    SpeculationStatus,
)


def describe(report: SpeculationReport) -> str:
    """One line about a request."""
    counts = report.counts
    if not counts.rounds:
        return f"speculation: {report.mode}"
    return f"speculation: {report.mode}, {_rate(counts)}, {_accepted(counts)}"


def status_rows(status: SpeculationStatus) -> dict[str, str]:
    """Lines of `swiftspec status`, by name; those without a name go on with the one before."""
    tuned = f", tuned on {status.tuned[:10]}" if status.tuned else ""
    rows = {"speculation": f"{status.mode}{_with(status)}{tuned}"}
    if status.message:
        rows["no draft"] = status.message
    here = [draft for draft in status.drafts if not draft.own_process]
    for number, draft in enumerate(here):
        rows[f"draft {number + 1}" if number else "draft"] = describe_draft(draft)
    for draft in status.drafts:
        if draft.own_process:
            rows["draft, async" if here else "draft"] = describe_draft(draft)
    for mode, counts in status.totals.items():
        if counts.rounds:
            rows[f"with {mode}"] = "; ".join(totals(counts))
    for mode, planner in status.planners.items():
        if sum(planner.rounds.values()):
            rows[f"planner, {mode}"] = plan(planner)
    return rows


def describe_draft(draft: DraftStatus) -> str:
    """A draft model in one line."""
    where = "in a process of its own" if draft.own_process else "in the model's process"
    parts = [f"{draft.name}: {draft.state}", where]
    parts += [draft.kernels] if draft.kernels else []
    if draft.weight_mb or draft.kv_mb:
        parts.append(f"{draft.weight_mb:.0f} MB and up to {draft.kv_mb:.0f} MB for keys and values")
    if draft.restarts:
        parts.append(f"lost {draft.restarts} time{'s' if draft.restarts > 1 else ''}")
    return ", ".join(parts) + (f". {draft.message}" if draft.message else "")


def totals(counts: SpeculationCounts) -> list[str]:
    """Sums over requests: rate, acceptance in all and by position, fall-ins."""
    parts = [_rate(counts), _accepted(counts)]
    shares = [
        f"{right / tried:.0%}"
        for right, tried in zip(counts.accepted_at, counts.tried_at, strict=False)
        if tried
    ]
    if shares:
        parts.append(f"by position {' '.join(shares[:6])}")
    falls = counts.fall_ins + counts.fall_outs
    if falls:
        parts.append(f"fall-in {counts.fall_ins / falls:.0%}")
    return parts


def plan(planner: PlannerStatus) -> str:
    """What a planner has measured and chooses."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in planner.rounds.items() if count)
    rows = max(planner.target_ms)
    worth = ", ".join(f"{name} {source.worth:+.2f}" for name, source in planner.sources.items())
    return (
        f"{planner.speedup:.2f} times plain of late; a step of the model {planner.plain_ms:.1f} ms,"
        f" of {rows} tokens {planner.target_ms[rows]:.1f} ms; rounds: {kinds};"
        f" tokens a round gained: {worth}"
    )


def _with(status: SpeculationStatus) -> str:
    names = " and ".join(dict.fromkeys(draft.name for draft in status.drafts))
    if names:
        return f" with draft {names}"
    return " (look-up in the text)" if status.mode == "ngram" else ""


def _rate(counts: SpeculationCounts) -> str:
    return f"{counts.tokens_per_verification:.1f} tokens a verification"


def _accepted(counts: SpeculationCounts) -> str:
    return f"{counts.accepted} of {counts.proposed} drafts accepted"
