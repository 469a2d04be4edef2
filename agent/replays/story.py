"""A replay that is a story: one incident from the first prediction over a failed repair to a complete one.

The script is diagnosed. The operator says what no run can show, and the same incident goes on with it. A reference that
was computed in another way is sealed; only then is each attempt at a repair held against the baseline and against it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.continuing import Addition, continue_incident
from weaklink.agent.progress import Progress
from weaklink.agent.record.bodies import ReferenceCompared, ReferenceSealed
from weaklink.agent.record.canonical import digest
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.check import check_record
from weaklink.agent.record.incident import Incident
from weaklink.agent.recovery.session import Asked, recover
from weaklink.agent.replays.folder import Story
from weaklink.agent.replays.outcome import record_runs
from weaklink.agent.replays.receipt import Receipt, receipt_of
from weaklink.agent.replays.reference import Reference, compute_reference, hold_against, sha256_of
from weaklink.agent.replays.story_receipt import Attempt, StoryReceipt
from weaklink.agent.reporters.json_report import plain
from weaklink.agent.session import Finished, Options, Session
from weaklink.collector.evidence import Subject


@dataclass(frozen=True)
class Teller:
    """Tells one story: `options` are those of the first diagnosis, `known` the same with what was declared later."""

    story: Story
    options: Options
    known: Options
    progress: Progress

    def tell(self) -> StoryReceipt:
        """The whole story; every incident lies in the folder of the options.

        Raises:
            WeaklinkError: A part of it cannot be run.
            KeyboardInterrupt: A part of it was interrupted.
        """
        first = self._finished(Session(self.options, Playbook(), self.progress).diagnose_script())
        before = receipt_of(first)
        went_on = self._finished(
            continue_incident(first, Addition(tuple(self.story.facts)), self.known, Playbook(), self.progress)
        )
        claim = before.frozen.claim_sha256 if before.frozen is not None else None
        reference, sealed, seq = self._seal(first.folder)
        attempts = {
            script: self._attempt(first.folder, script, reference, seq, claim) for script in self.story.attempts
        }
        incident = Incident.read(first.folder)
        return StoryReceipt(
            first=before,
            first_prediction=_digests(before),
            facts=[fact.text for fact in incident.facts],
            declared=self.known.intent.said,
            went_on=went_on.closed.problem if went_on.closed is not None else None,
            reference=plain(sealed),
            attempts=attempts,
            diagnosed={script: self._diagnosed(script) for script in self.story.attempts},
            events=[kind for _, kind, _ in incident.events],
            check="intact" if check_record(first.folder).intact else "damaged",
        )

    def _finished(self, finished: Finished) -> Incident:
        if finished.exit_code == 130:
            raise KeyboardInterrupt
        return finished.incident

    def _seal(self, incident: Path) -> tuple[Reference, ReferenceSealed, int]:
        """Compute the reference and seal it: on the disk, and in the chain, before any attempt is run."""
        story, folder = self.story, self.options.folder
        self.progress.say(f"reference {story.reference}")
        reference = compute_reference(folder / story.reference, story.seeds, self.options.python, self.options.deadline)
        outcome = reference.model_dump(mode="python")
        sealed = ReferenceSealed(
            what=story.reference_is,
            sources={path.name: sha256_of(path) for path in sorted(folder.glob("*.py"))},
            outcome=outcome,
            outcome_sha256=digest(outcome),
            tolerance=story.tolerance,
            expects=story.attempts,
            does_not_prove=story.does_not_prove,
        )
        with RecordWriter.resume(incident) as writer:
            seq = writer.count
            writer.append("reference.sealed", sealed, durable=True)
        self.progress.say(f"sealed    {sealed.outcome_sha256}")
        return reference, sealed, seq

    def _attempt(self, incident: Path, script: str, reference: Reference, sealed: int, claim: str | None) -> Attempt:
        options, story = self.options, self.story
        asked = Asked(options.folder / script, len(story.seeds), None, options.python, options.deadline)
        recovery = recover(Incident.read(incident), asked, self.progress).recovery
        assert recovery is not None, "a recovery that ended is on the record"
        runs = record_runs(script, story.seeds, options.folder, options.python, options.deadline)
        found = hold_against(reference, runs, self.known.intent.objectives, story.tolerance)
        compared = ReferenceCompared(
            attempt=script,
            source_sha256=sha256_of(options.folder / script),
            sealed=sealed,
            claim_sha256=claim,
            outcome_sha256=digest([run.body for run in runs]),
            checks=found.checks,
            worst=found.worst,
            worst_at=found.worst_at,
            complete=found.complete,
            text=found.text,
        )
        with RecordWriter.resume(incident) as writer:
            writer.append("reference.compared", compared, durable=True)
        self.progress.say(f"compared  {script}: {compared.text}")
        return Attempt(
            recovery=recovery.status.recovery,
            reasons=recovery.reasons,
            runs={
                f"seed {run.seed}": {
                    "ended": run.ended,
                    "row": run.row,
                    "newly_failing": run.newly_failing,
                    "first_divergence": run.first_divergence,
                }
                for run in recovery.runs
                if run.side == "repair"
            },
            against_the_reference=plain(compared, exclude={"text"}),
        )

    def _diagnosed(self, script: str) -> Receipt:
        """The attempt as a user would have it diagnosed, in an incident of its own."""
        known = replace(self.known, subject=Subject(kind="script", name=script))
        return receipt_of(self._finished(Session(known, Playbook(), self.progress).diagnose_script()))


def tell_story(story: Story, options: Options, known: Options, progress: Progress) -> StoryReceipt:
    """Tell the story with all its incidents in a folder that is thrown away.

    Raises:
        WeaklinkError: A part of it cannot be run.
        KeyboardInterrupt: A part of it was interrupted.
    """
    with tempfile.TemporaryDirectory(prefix="weaklink-") as incidents:
        root = Path(incidents)
        return Teller(story, replace(options, incidents=root), replace(known, incidents=root), progress).tell()


def _digests(receipt: Receipt) -> dict[str, str]:
    frozen = receipt.frozen
    return {} if frozen is None else {"claim_sha256": frozen.claim_sha256, "context_sha256": frozen.context_sha256}
