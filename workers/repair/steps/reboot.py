"""Reboot, or stop and start; prove the new boot; back into service."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthboard import clock
from healthboard.fleet import gaps
from healthboard.fleet.models import NodeRequest
from healthboard.policies.reading import BAD, GOOD
from healthboard.repairs.budget import FREE
from workers.repair.results import Ask, Climb, Done, Result, Skip, Wait
from workers.repair.run import PASSING, Run
from workers.repair.serving import fabric_starts
from workers.repair.steps.leave import (
    _AGAIN,
    _UNDO,
    TRIES,
    _after,
    _choice,
    _state,
    heard_again,
    in_group_again,
    still_empty,
)
from workers.repair.steps.prepare import still_bad

#: what EC2 and ECS may say of a machine that is still coming up: not that the fault is back, unless it stays so
COMING_UP = {"EC2_INSTANCE_IMPAIRED", "ECS_AGENT_DISCONNECTED"}

_REPLACE = _choice("replace", "Replace it")
_RETURN = _choice("undo", "Return it to service as it is")


def reboot(run: Run) -> Result:
    """RebootInstances once. It has no token and two calls are two reboots: it is never repeated blindly."""
    again = run.facts.get("reboot_after", "")
    ours = [c for c in run.calls("RebootInstances") if c.intended_at.isoformat() > again]
    if ours:
        return Done("reboot queued")
    if bad := still_bad(run):
        return bad
    if stays := still_empty(run):
        return stays
    run.remember(boot_before=run.instance.boot_id)
    outcome, answer = run.change(
        "ec2", "RebootInstances", {"InstanceIds": [run.instance.instance_id]}, irreversible=True
    )
    if outcome == "ok" or outcome == "unknown":
        return Done("reboot queued" if outcome == "ok" else "no clear answer: the boot id will tell")
    if PASSING.search(outcome):
        return Wait(10, f"EC2 answered {outcome}")
    return Ask(f"EC2 refused: {outcome} {answer.get('message', '')}", (_AGAIN, _UNDO))


def stop(run: Run) -> Result:
    look, ours = run.look, run.calls("StopInstances")
    if look.state == "stopped":
        return Done("stopped")
    if look.state == "stopping" or run.settling(ours):
        return Wait(5, "stopping")
    if guard := still_bad(run) or still_empty(run):  # before each try: much may have changed since the last
        return guard
    if run.tries(ours) >= TRIES:
        return Ask("EC2 does not stop it.", (_AGAIN, _UNDO))
    run.remember(boot_before=run.instance.boot_id)
    outcome, answer = run.change("ec2", "StopInstances", {"InstanceIds": [run.instance.instance_id]}, irreversible=True)
    return _after(outcome, answer, "EC2")


def start(run: Run) -> Result:
    look, ours = run.look, run.calls("StartInstances")
    if look.state == "running":
        return Done("running")
    if look.state == "pending" or run.settling(ours):
        return Wait(5, "starting")
    if run.tries(ours) >= TRIES:
        return Ask("EC2 does not start it: no capacity may be free on another host.", (_AGAIN,))
    outcome, answer = run.change("ec2", "StartInstances", {"InstanceIds": [run.instance.instance_id]})
    return _after(outcome, answer, "EC2")


def boot(run: Run) -> Result:
    """A new boot id and the agent back; for one that never told a boot id a person confirms."""
    run.renew()
    before, now = run.facts.get("boot_before", ""), run.instance.boot_id
    if run.look.state not in ("running", "pending", ""):
        return Ask(f"EC2 shows it as {run.look.state} after the reboot.", (_AGAIN, _REPLACE))
    if before and now and now != before and run.look.connected is True:
        return Done(f"boot {now[:8]} after {before[:8]}")
    if not before and run.look.connected is True and run.in_step_for() > clock.scaled(300):
        return Ask(
            "No reporter told a boot id: whether it rebooted cannot be seen.", (_choice("booted", "It did"), _UNDO)
        )
    if run.late("reboot_timeout_s", 1200):
        return Ask(
            "It has not come back from the reboot with a new boot id.",
            (_choice("wait_longer", "Wait longer"), _choice("reboot_again", "Reboot it again"), _REPLACE),
        )
    return Wait(5, "waiting for a new boot id and the agent")


def diagnose(run: Run) -> Result:
    """The reporter's quick diagnostic, after the boot; its failure means that the reboot did not help."""
    asked = run.facts.get("diagnose_request")
    request = NodeRequest.objects.filter(pk=asked).first() if asked else None
    if request is None:
        _ask(run, f"repair {run.repair.pk}")
        return Wait(5, "the reporter runs diagnose-1")
    if request.answered_at is None:
        if clock.now() > request.expires_at:
            run.remember(diagnose_request=None)
            return Ask("The reporter did not answer the diagnostic.", (_AGAIN, _REPLACE, _RETURN))
        return Wait(5, "the reporter runs diagnose-1")
    if request.ok:
        return Done("diagnose-1 passed")
    if request.ok is None:
        run.remember(diagnose_request=None)
        return Ask("The diagnostic could not run on the node.", (_AGAIN, _REPLACE, _RETURN))
    failed = ", ".join(c.get("name", "?") for c in request.checks if c.get("ok") is False) or "see its output"
    return Climb(f"diagnose-1 failed after the reboot: {failed}")


def _ask(run: Run, by: str) -> NodeRequest:
    """Queued and remembered in one commit: whoever stood still or was killed, the node is asked once."""
    now = clock.now()
    with run.fenced():
        request = NodeRequest.objects.create(
            instance=run.instance, verb="diagnose-1", asked_at=now, asked_by=by,
            expires_at=now + max(clock.scaled(600), timedelta(seconds=60)),
        )  # fmt: skip
        run.remember(diagnose_request=request.pk)
    return request


def soak(run: Run) -> Result:
    verdict = run.reading.assessment.verdict
    bad = {f.code for f in run.reading.assessment.findings if f.verdict in BAD}
    if bad - COMING_UP <= {"FABRIC_UNHEALTHY"} and fabric_starts(run.instance):
        run.remember(good_since=None)
        if run.late("reboot_timeout_s", 1200):  # its manager is software: another machine may do no better
            why = "The fabric of its GPUs has not come up after the reboot; see whether its fabric manager runs."
            return Ask(why, (_AGAIN, _REPLACE, _RETURN))
        return Wait(5, "the fabric of its GPUs comes up")
    if verdict in BAD and (bad - COMING_UP or run.late("reboot_timeout_s", 1200)):
        return Climb(f"the fault is back after the reboot: {run.reading.assessment.why}")
    since = run.facts.get("good_since")
    if verdict not in GOOD:
        if since:
            run.remember(good_since=None)
        if run.late("reboot_timeout_s", 1200):
            return Ask(f"Its evidence stays {verdict}: {run.reading.assessment.why}", (_AGAIN, _REPLACE, _RETURN))
        return Wait(5, f"its evidence reads {verdict}: {run.reading.assessment.why}")
    now = clock.now()
    if not since:
        run.remember(good_since=now.isoformat())
        return Wait(5, "good; soaking")
    if now - gaps.counted_from(datetime.fromisoformat(since)) >= run.span("soak_s", 300):
        return Done("good without a break for the soak time")
    return Wait(5, "good; soaking")


def rejoin(run: Run) -> Result:
    """ExitStandby raises desired capacity by the one that stepping aside had lowered it."""
    look, ours = run.look, run.calls("ExitStandby")
    if look.lifecycle == "InService":
        in_group_again(run)
        if entered := run.calls("EnterStandby"):
            run.remember(rejoined=entered[-1].pk)
        return Done("in service in its group")
    if look.group is None or not look.lifecycle:
        return Ask("It is no longer a member of its group.", (_AGAIN,))
    if look.lifecycle.startswith("Pending") or run.settling(ours):
        return Wait(3, f"rejoining ({look.lifecycle})")
    if run.tries(ours) >= TRIES:
        return Ask("The group does not take it back.", (_AGAIN, _REPLACE))
    outcome, answer = run.change(
        "autoscaling",
        "ExitStandby",
        {"AutoScalingGroupName": look.group["AutoScalingGroupName"], "InstanceIds": [run.instance.instance_id]},
    )
    return _after(outcome, answer, "Auto Scaling")


def activate(run: Run) -> Result:
    """Our own DRAINING back to ACTIVE; somebody else's stays, and the note says so."""
    look = run.look
    if look.container is None:
        return _not_back(run, "It is not registered with ECS.")
    if run.facts.get("drained_by_other"):
        return Skip("somebody else had drained it: left as it was")
    if look.ecs_status == "ACTIVE":
        heard_again(run)
        return Done("ACTIVE")
    ours = run.calls("UpdateContainerInstancesState", **_state(run, "ACTIVE"))
    if run.settling(ours):
        return Wait(3, "waiting for ECS to show ACTIVE")
    if run.tries(ours) >= TRIES:
        return _not_back(run, "ECS does not take it back.")
    outcome, answer = run.change("ecs", "UpdateContainerInstancesState", _state(run, "ACTIVE"))
    return _after(outcome, answer, "ECS")


def _not_back(run: Run, why: str) -> Ask:
    if run.repair.action in FREE:
        why += " What else shall become of it is asked for on the machine's own page, once this is left as it is."
    return Ask(why, (_AGAIN, _REPLACE))


def ask_node(run: Run) -> Result:
    """DIAGNOSE: queue diagnose-1 at the node; an absence of the answer is an answer too."""
    asked = run.facts.get("diagnose_request")
    request = NodeRequest.objects.filter(pk=asked).first() if asked else None
    if request is None:
        request = _ask(run, run.repair.requested_by)
    if request.answered_at is not None:
        words = {True: "passed", False: "failed: see the answer on the case", None: "could not run on the node"}
        return Done(f"diagnose-1 {words[request.ok]}")
    if clock.now() > request.expires_at:
        return Done("the node did not answer diagnose-1")
    return Wait(5, "waiting for the node's answer")
