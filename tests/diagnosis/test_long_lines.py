"""What a text costs is not up to whoever writes it: of a line its beginning is searched, and no pattern runs wild."""

import importlib
import pkgutil
import re

import pytest

import healthboard.diagnosis
from healthboard.api.node_schema import KernelLine
from healthboard.diagnosis.explain import explain
from healthboard.diagnosis.kernel_log import KernelLog
from healthboard.diagnosis.parsed import MAX_LINE

MEGABYTE = 1_000_000
LINES = {
    "kernel-log": ("NVRM: Xid (PCI:0000:5e:00): 79, pid=0, GPU has fallen off the bus.", "XID_79"),
    "nvml": ("nvml: NVMLError_GpuIsLost: GPU is lost", "NVML_GPU_IS_LOST"),
    "nvidia-smi": ("Unable to determine the device handle for GPU0000:5E:00.0: GPU is lost.", "NVML_GPU_IS_LOST"),
    "ecs-agent-log": (
        "2026-05-01T10:00:00Z [ERROR] GPU information is not found, no such file",
        "ECS_ZERO_GPUS_REGISTERED",
    ),
    "dcgm-api": ("GPU 3: a row remap failure: failed to remap row", "ROW_REMAP_FAILURE"),
}


@pytest.mark.parametrize("format_", LINES)
def test_of_a_megabyte_in_one_line_the_beginning_counts(format_):
    line, code = LINES[format_]
    found = explain(f"{line} {'lost GPU, ' * (MEGABYTE // 10)}", format_)
    assert code in found["codes"]
    assert any("beyond the first" in row["reason"] for row in found["ignored"])
    shifted = explain("x " * MEGABYTE + line, format_)
    assert shifted["codes"] == [], "what begins a megabyte later is no line of a log"


def test_a_megabyte_in_a_report_of_a_node_is_refused_and_what_fits_is_cut():
    told = {"seq": 7, "at": "2026-05-01T10:00:00Z", "facility": 0, "text": "NVRM: GPU 0000:5e:00.0: " + "x" * MEGABYTE}
    with pytest.raises(ValueError, match="at most"):
        KernelLine.model_validate(told)
    log = KernelLog()
    log.feed("NVRM: " + "GFWboot " * (MAX_LINE // 8) + "failed")
    assert log.result().events == ()


#: texts that have more than one way to be matched by careless patterns: each of them once took minutes or for ever
MANY_WAYS = {
    "comments alone": ("dcgm", "# a comment # of many ##\n" * 400 + "x"),
    "one number without an end": ("kernel-log", "1," * 9_900),
    "a word that comes again": ("kernel-log", "NVRM: " + "knvlinkDiscover" * 4_000),
    "spaces after a word": ("nvml", ("GPU is lost" + " " * 4_000 + "x\n") * 20),
    "spaces after a colon": ("nvidia-smi", ("Temperature : 45" + " " * 4_000 + "x\n") * 100),
}


@pytest.mark.parametrize("name", MANY_WAYS)
def test_what_can_be_matched_in_many_ways_is_read_all_the_same(name):
    format_, text = MANY_WAYS[name]
    assert explain(text, format_)["verdict"] in {"HEALTHY", "UNKNOWN", "HARDWARE"}


def _patterns():
    for module in pkgutil.walk_packages(healthboard.diagnosis.__path__, "healthboard.diagnosis."):
        for name, value in vars(importlib.import_module(module.name)).items():
            for pattern in _inside(value):
                yield f"{module.name}.{name}", pattern


def _inside(value, depth=0):
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict | list | tuple | frozenset) and depth < 4:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _inside(item, depth + 1)


def test_no_pattern_looks_for_the_rest_of_the_line_twice():
    """Two unbounded searches in one pattern cost the square of the line's length."""
    found = dict.fromkeys(_patterns())
    assert len(found) > 150
    wide = re.compile(r"(?<!\\)\.[*+]|\[\^[^\]]+\][*+](?!\))")
    assert [name for name, pattern in found if len(wide.findall(pattern.pattern)) > 1] == []
