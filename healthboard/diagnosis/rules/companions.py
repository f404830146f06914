"""Codes that speak of one fault together: which of them decides, and which only accompany it."""

from __future__ import annotations

from datetime import timedelta

from healthboard.diagnosis import comms
from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules.claims import GONE, Claim, Claims, near
from healthboard.diagnosis.signals import Action, Verdict

#: Lines of one fault come within this.
TOGETHER = timedelta(minutes=10)
_NVLINK5 = tuple(f"XID_{n}" for n in range(144, 151))
_UNREACHABLE = ("NVML_UNKNOWN_ERROR", "NVML_GPU_IS_LOST", "XID_79", "GPU_FALLEN_OFF_BUS")


def apply(evidence: Evidence, claims: Claims) -> None:
    _lost_without_number(claims)
    _initialisation(claims)
    for gpu in dict.fromkeys(c.gpu for c in claims):
        _memory(claims, gpu)
        _context_switch(evidence, claims, gpu)
        _peer_access(claims, gpu)
    _nvlink_teardown(claims)
    _switch_and_gpu(claims)
    _aftermath(evidence, claims)
    _closed(claims)
    _monitoring(claims)


def _companion(claim: Claim, why: str, rule: str) -> None:
    claim.role = "companion"
    claim.why, claim.rule = why, rule


def _lost_without_number(claims: Claims) -> None:
    lost = claims.of("XID_79")
    for line in claims.of("GPU_FALLEN_OFF_BUS"):
        for xid in lost:
            if line.gpu in (None, xid.gpu):
                claims.drop(line)
    for claim in claims.of("NVML_GPU_IS_LOST"):
        if any(claim.gpu in (None, c.gpu) for c in claims.of("XID_79", "GPU_FALLEN_OFF_BUS")):
            _companion(claim, "NVML says the same of this GPU", "same-loss")
    gone = [c for c in claims if c.code in GONE]
    for claim in claims.of("PCIE_AER_FATAL", "PCIE_AER_CORRECTED", "PCIE_AER_NONFATAL"):
        if any(near(claim, other, TOGETHER) for other in gone):
            _companion(claim, "the PCIe link above the GPU that was lost", "link-of-lost-gpu")
            if claim.code == "PCIE_AER_FATAL" and claim.verdict is Verdict.HARDWARE:
                claim.action = Action.REPLACE


def _initialisation(claims: Claims) -> None:
    failed = claims.of("GPU_INIT_FAILED")
    if not failed:
        return
    gone = [c for c in claims if c.code in ("XID_79", "GPU_FALLEN_OFF_BUS")]
    named = [c for c in failed if c.gpu]
    for claim in failed:
        by_probe = all(e.attrs.get("probe") for e in claim.events)
        if claim.gpu is None and ((by_probe and gone) or named):
            # the driver counts its failed devices, or explains a failure whose GPU it names in another line
            claims.drop(claim)
    failed = claims.of("GPU_INIT_FAILED")
    counted = max((e.attrs.get("devices", 0) for c in failed for e in c.events), default=0)
    firmware, mismatch = claims.of("GFW_BOOT_FAILED"), claims.of("NVML_LIB_RM_VERSION_MISMATCH")
    for claim in failed:
        if firmware:
            why = "initialisation fails because the firmware on the GPU does not start"
            claim.set(Verdict.HARDWARE, Action.REPLACE, why, "init-firmware")
        elif len({c.gpu for c in failed}) > 1 or counted > 1:
            why = "several GPUs fail to initialise alike: driver installation or passthrough rather than GPUs"
            claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "init-several")
        elif mismatch or any(e.attrs.get("versions") for e in claim.events):
            why = "initialisation fails beside a change of versions"
            claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "init-versions")


def _memory(claims: Claims, gpu: str | None) -> None:
    """48 with 63 or 94 is contained; 95 and 140 are not."""
    by_code = {c.code: c for c in claims if c.gpu == gpu}
    dbe, remap, contained = (by_code.get(f"XID_{n}") for n in (48, 63, 94))
    escaped = [by_code[c] for c in ("XID_95", "XID_140") if c in by_code]
    for claim in (by_code.get("XID_171"), by_code.get("XID_172"), by_code.get("ECC_UNCORRECTED")):
        if claim is None or (claim.code == "ECC_UNCORRECTED" and claim.verdict is Verdict.HARDWARE):
            continue
        if any(c and near(c, claim, TOGETHER) for c in (dbe, contained, *escaped)):
            _companion(claim, "detail of the memory error that the driver reports", "memory-detail")
            claim.verdict, claim.action = Verdict.WATCH, Action.WATCH
    if dbe and any(near(dbe, c, TOGETHER) for c in escaped):
        return
    with_remap = remap if remap and any(c and near(remap, c, TOGETHER) for c in (dbe, contained)) else None
    if with_remap:
        why = "an uncorrected memory error that was contained and its row retired: a reset is due, a person picks the time"
        for claim in (dbe, contained):
            if claim and near(claim, with_remap, TOGETHER):
                claim.set(Verdict.AMBIGUOUS, Action.REBOOT, why, "memory-contained-and-remapped")
        _companion(with_remap, "the row of that memory error", "memory-remap")
    elif dbe and contained and near(dbe, contained, TOGETHER) and contained.verdict is Verdict.WORKLOAD:
        why = "the double-bit error was contained to one application"
        dbe.set(Verdict.WORKLOAD, Action.NOTIFY_WORKLOAD, why, "memory-contained")
        dbe.role = "companion"


def _context_switch(evidence: Evidence, claims: Claims, gpu: str | None) -> None:
    by_code = {c.code: c for c in claims if c.gpu == gpu}
    timeout = by_code.get("XID_109")
    if timeout is None:
        return
    for code in ("XID_13", "XID_31"):
        fault = by_code.get(code)
        if fault and near(fault, timeout, evidence.thresholds.burst_gap) and timeout.verdict is Verdict.AMBIGUOUS:
            why = "a context-switch timeout right after a fault of the application: program and hardware are both possible"
            timeout.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "timeout-after-fault")
    for code in ("XID_38", "XID_44"):
        firmware = by_code.get(code)
        if firmware and near(firmware, timeout, TOGETHER) and firmware.verdict is Verdict.AMBIGUOUS:
            why = "a firmware error and a context-switch timeout together: one reboot is the try"
            firmware.set(Verdict.AMBIGUOUS, Action.REBOOT, why, "firmware-and-timeout")


def _peer_access(claims: Claims, gpu: str | None) -> None:
    by_code = {c.code: c for c in claims if c.gpu == gpu}
    if "XID_137" in by_code:
        for code in _NVLINK5:
            if code in by_code and by_code[code].verdict is Verdict.WATCH:
                _companion(by_code[code], "the link's word on the illegal peer access", "peer-access")


def _nvlink_teardown(claims: Claims) -> None:
    calm = [c for c in claims.of(*_NVLINK5) if c.verdict is Verdict.WATCH and c.rule != "nvlink5-ignore"]
    if len({c.gpu for c in calm}) < 2:
        return
    torn = [
        c for c in claims.of("XID_45", "XID_43", "XID_94")
        if any(near(c, link, TOGETHER) for link in calm)
    ]  # fmt: skip
    if torn:
        why = "calls itself non-fatal, yet jobs were torn down on more than one GPU: only a fabric test can tell"
        for claim in calm:
            claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "nvlink5-teardown")


def _switch_and_gpu(claims: Claims) -> None:
    fatal = [c for c in claims if c.code.startswith("SXID_") and c.verdict is Verdict.HARDWARE]
    unreachable = claims.of(*_UNREACHABLE)
    if fatal and unreachable:
        why = "the switch lost a link and a GPU cannot be reached: the GPU is the culprit, the switch a witness"
        for claim in (*fatal, *unreachable):
            claim.set(Verdict.HARDWARE, Action.REPLACE, why, "switch-and-gpu")
        if any(c.code in ("XID_79", "GPU_FALLEN_OFF_BUS") for c in unreachable):
            for claim in fatal:
                claim.role = "companion"


def _aftermath(evidence: Evidence, claims: Claims) -> None:
    """45 follows a companion of about its time, on whichever GPU; what dies with a broken GPU is not the application's
    fault."""
    numbered = [c for c in claims if c.code.startswith(("XID_", "SXID_")) and c.code not in ("XID_45", "XID_154")]
    for claim in claims.of("XID_45"):
        named = any(e.attrs.get("caused_by") for e in claim.events)
        if named or any(near(claim, other, evidence.thresholds.xid45_hold) for other in numbered):
            _companion(claim, "clean-up after the other error", "aftermath")
    broken = [c for c in claims if c.verdict is Verdict.HARDWARE and c.role == "own"]
    for claim in claims.of("XID_43", "XID_94", "XID_13", "XID_31", comms.CODE):
        if claim.verdict is Verdict.WORKLOAD and any(
            (claim.gpu is None or b.gpu in (claim.gpu, None)) and near(b, claim, TOGETHER) for b in broken
        ):
            claim.role = "companion"
    for claim in claims.of("GPU_RESET_REQUIRED", "ROW_REMAP_FAILURE"):
        causes = [c for c in broken if c.code.startswith("XID_") and c.gpu == claim.gpu and c is not claim]
        if claim.gpu and any(near(c, claim, TOGETHER) and c.weight >= claim.weight for c in causes):
            _companion(claim, "NVML's word on the same fault", "same-fault")
    for claim in claims.of("NVML_UNKNOWN_ERROR", "GPU_MISSING", "XID_119", "XID_120", "XID_109"):
        if any(c.code in GONE and claim.gpu in (None, c.gpu) and c is not claim for c in claims):
            _companion(claim, "follows from the GPU that was lost", "lost-gpu")


def _closed(claims: Claims) -> None:
    """162 closes an open 163 on the same GPU."""
    for opened in claims.of("XID_163"):
        if any(c.last >= opened.last for c in claims.of("XID_162") if c.gpu == opened.gpu):
            opened.set(Verdict.HEALTHY, Action.NONE, "power smoothing works again", "closed")


def _monitoring(claims: Claims) -> None:
    """A fabric that does not come up because its manager is down; after 119 DCGM stops calling the driver for the whole host."""
    if claims.of("FABRIC_MANAGER_DOWN"):
        for claim in claims.of("FABRIC_UNHEALTHY"):
            if claim.readings and all(r.value == "starting" or r.attrs.get("starting") for r in claim.readings):
                claims.drop(claim)
    if claims.of("XID_119", "XID_120"):
        for claim in claims.of("GPU_MISSING"):
            if claim.sources == ("dcgm",):
                claims.drop(claim)
        for claim in claims.of("DCGM_UNREACHABLE", "DCGM_METRICS_STALE"):
            _companion(claim, "the monitor is blind after the GSP timeout", "monitor-after-gsp")
