"""Driver messages that carry no Xid number, as (pattern, code). Each is matched from the start of the message."""

from __future__ import annotations

import re

ADDRESS = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
IDENTITY = re.compile(rf"NVRM: GPU at (?:PCI:)?{ADDRESS}: (GPU-[0-9a-fA-F-]{{36}})")
#: The three physical lines of a GPU that was dead when the driver looked for it.
PROBE_LOST_HEAD = re.compile(rf"NVRM: The NVIDIA GPU {ADDRESS}")
PROBE_LOST_TAIL = re.compile(r"(?:NVRM: )?fallen off the bus and is not responding to commands")
BOOT = re.compile(r"Linux version \d|Command line: BOOT_IMAGE")
#: A remark between the lines that says the same.
REBOOTED = re.compile(
    r"^\s*(?:[\[(#>*-]|\.\.\.)(?!.*\b(?:not|never|before|until|to be|must|should|will|can|may|needs?|if|please)\b)"
    r".{0,80}?\b(?:after (?:a|the|its|one|another) (?:re)?boot|rebooted)\b", re.IGNORECASE
)  # fmt: skip
SUPPRESSED = re.compile(r"(?:NVRM: )?(\d{1,18}) callbacks suppressed")

PROBE_COUNT = re.compile(r"probe routine (?:failed|was not called) for (\d{1,3}) device")

_NVRM = r"NVRM: (?:\[[^\]]{0,100}\] )?"
NAMED: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (code, re.compile(pattern, re.IGNORECASE))
    for code, pattern in (
        ("GPU_FALLEN_OFF_BUS", rf"{_NVRM}GPU(?: at)? (?:PCI:)?{ADDRESS}:? (?:GPU )?has fallen off the bus"),
        ("GPU_FALLEN_OFF_BUS", rf"{_NVRM}GPU(?: at)? (?:PCI:)?{ADDRESS}:? .*\bis lost\b"),
        ("GPU_FALLEN_OFF_BUS", rf"{_NVRM}.*(?:GPU (?:is )?lost from the bus|NV_ERR_GPU_IS_LOST)"),
        ("GFW_BOOT_FAILED", rf"{_NVRM}.*failed to wait for GFW.?boot"),
        ("GFW_BOOT_FAILED", rf"{_NVRM}.*GFW.?boot.{{0,200}}(?:timed? ?out|not complete|failed)"),
        ("GPU_INIT_FAILED", rf"{_NVRM}GPU(?: at)? (?:PCI:)?{ADDRESS}: (?:RmInitAdapter|rm_init_adapter) failed"),
        ("GPU_INIT_FAILED", rf"{_NVRM}.*(?:RmInitAdapter failed|rm_init_adapter failed|RmInitAdapter: Cannot init)"),
        ("GPU_INIT_FAILED", rf"{_NVRM}The NVIDIA probe routine (?:failed|was not called) for \d+ device"),
        ("GPU_INIT_FAILED", rf"{_NVRM}None of the NVIDIA (?:graphics |devices)"),
        ("NVML_LIB_RM_VERSION_MISMATCH", rf"{_NVRM}API mismatch: the client"),
        ("GPU_RESET_REQUIRED", rf"{_NVRM}.*NV_ERR_RESET_REQUIRED"),
        ("GPU_RESET_REQUIRED", rf"{_NVRM}.*(?:status|paramsStatus)=0x0{{0,8}}62\b"),
        (
            "NVLINK_DISCOVERY_FAILED",
            rf"{_NVRM}.*(?:knvlinkDiscover|postRxDetLinkMask|nvlink (?:link )?discovery).{{0,200}}(?:fail|timed? ?out|unable)",
        ),
        ("ECC_UNCORRECTED", rf"{_NVRM}.*uncorrect(?:ed|able) (?:double.bit )?ECC error"),
        ("GPU_OVERTEMP", rf"{_NVRM}.*(?:GPU|board).{{0,200}}(?:overheat|over.?temperature|shut ?down temperature)"),
        ("GPU_POWER_BRAKE", rf"{_NVRM}.*power brake"),
    )
)
#: A GPU named somewhere in such a message.
ANY_ADDRESS = re.compile(rf"(?:PCI:|GPU ?|GPU at )?{ADDRESS}")

#: The PCI core's own words on a device that no longer answers.
INACCESSIBLE = re.compile(r"device (?:is )?inaccessible|no longer (?:responds|accessible)|device lost", re.IGNORECASE)
AER = re.compile(
    rf"(?:(pcieport|nvidia|vfio-pci) {ADDRESS}: )?(?:pcieport: )?(?:AER: )?(.*)", re.IGNORECASE | re.DOTALL
)  # fmt: skip
AER_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("recovery-failed", re.compile(r"(?:device )?recovery failed|can't recover|recovery: failed", re.IGNORECASE)),
    ("recovered", re.compile(r"(?:device )?recovery (?:was )?successful", re.IGNORECASE)),
    ("nonfatal", re.compile(r"uncorrect(?:ed|able) \(non-fatal\)", re.IGNORECASE)),
    ("fatal", re.compile(r"uncorrect(?:ed|able) \(fatal\)|severity=fatal", re.IGNORECASE)),
    ("corrected", re.compile(r"correct(?:ed|able) error|severity=correct(?:ed|able)", re.IGNORECASE)),
)

#: Words of a reader that could not read: they make the rest of the log incomplete.
UNREAD: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("KMSG_OVERRUN", re.compile(r"kmsg.{0,100}(?:overrun|EPIPE|broken pipe|lost \d+)", re.IGNORECASE)),
    ("KMSG_OVERRUN", re.compile(r"(?:missed|lost|dropped) \d+ (?:kernel )?(?:log )?(?:messages|records|lines)", re.I)),
    (
        "MONITORING_GAP",
        re.compile(
            r"^(?:\$ )?(?:dmesg|journalctl|cat|tail|less)\b.*(?:not permitted|denied|No such file|No journal files)|"
            r"^No journal files|^-- No entries --", re.IGNORECASE
        ),
    ),
    (
        "MONITORING_GAP",
        re.compile(
            r"^\W*(?:\w+ ){0,4}(?:log|journal|kernel messages|boot messages)\b.{0,60}(?:was|were|is|are|has been|could) "
            r"(?:not (?:be )?(?:read|collected|captured|available|kept)|unread|truncated|lost|rotated)", re.IGNORECASE
        ),
    ),
)  # fmt: skip
FORGED = re.compile(r"^\s*(?:_TRANSPORT=(?!kernel)|SYSLOG_FACILITY=[1-9])", re.MULTILINE)
