"""``python -m tests.diagnosis.bench``: how fast logs and exporter texts are read, beside what is asked of them."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from healthboard.diagnosis import kernel_log
from healthboard.diagnosis.exporter_text import samples

LINES, SHARE = 1_000_000, 20


def log_lines(count: int) -> Iterator[str]:
    """A kernel log in which one line of `SHARE` is an Xid, of eight GPUs and a few processes."""
    for n in range(count):
        if n % SHARE == 0:
            gpu = 0x3B + n // SHARE % 8
            yield f"[{n / 50:.6f}] NVRM: Xid (PCI:0000:{gpu:02x}:00): 95, pid={n % 29}, name=train, Uncontained: FBHUB (0x1). RST: Yes"
        else:
            yield f"[{n / 50:.6f}] systemd[1]: Started session {n} of user ubuntu, nothing of interest in this line."


def exporter_text(gpus: int = 8, fields: int = 30, value: int = 0) -> str:
    rows = []
    for field in range(fields):
        name = f"DCGM_FI_DEV_FIELD_{field}"
        rows += [f"# HELP {name} something", f"# TYPE {name} gauge"]
        for gpu in range(gpus):
            rows.append(
                f'{name}{{gpu="{gpu}",UUID="GPU-00000000-0000-4000-8000-00000000000{gpu}",pci_bus_id="00000000:3{gpu}:00.0",'
                f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="ip-10-1-2-3"}} {value + gpu * 1.5}'
            )
    return "\n".join(rows) + "\n"


def kernel_rate(count: int = LINES) -> tuple[float, int]:
    """(lines a second of one core, growth of the process in KiB)."""
    rows = list(log_lines(count))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    kernel_log.parse(iter(rows))
    return count / (time.process_time() - start), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def exporter_ratio(rounds: int = 40) -> tuple[float, float]:
    """(times faster than prometheus_client, series a second), labels warm."""
    texts = [exporter_text(value=n) for n in range(rounds)]
    for _ in samples(texts[0]):
        pass
    start = time.process_time()
    count = sum(1 for text in texts for _ in samples(text))
    ours = time.process_time() - start
    start = time.process_time()
    for text in texts[:5]:
        for family in text_string_to_metric_families(text):
            list(family.samples)
    theirs = (time.process_time() - start) / 5 * rounds
    return theirs / ours, count / ours


def main() -> None:
    rate, grown = kernel_rate()
    print(
        f"kernel log, {LINES:,} lines, {100 // SHARE} % Xid: {rate:,.0f} lines/s (asked: 500,000), memory +{grown / 1024:.1f} MiB"
    )
    ratio, series = exporter_ratio()
    print(f"exporter text, 8 GPUs x 30 fields: {series:,.0f} series/s, {ratio:.1f} times prometheus_client (asked: 20)")


if __name__ == "__main__":
    main()
