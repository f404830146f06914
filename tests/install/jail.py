"""A command as a container would run it, without a container engine: a mount namespace in which this machine's own root is
read-only, and only what is named is put in or may be written. For root alone, as CI is; others are told why they are passed over."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_PR_SET_MDWE, _REFUSE_EXEC_GAIN = 65, 1
_libc = ctypes.CDLL(None, use_errno=True)

_SCRIPT = r"""
set -eu
root=$1; shift
mount --bind / "$root"
mount -o remount,bind,ro "$root"
while [ "$1" != -- ]; do
    kind=$1 source=$2 at=$root$3; shift 3
    case $kind in
    empty) mount -t tmpfs -o "$source" none "$at" ;;
    all) mount --rbind "$source" "$at" ;;
    *)
        if [ -d "$source" ]; then mkdir -p "$at"
        elif ! [ -e "$at" ]; then mkdir -p "$(dirname "$at")"; touch "$at"; fi
        mount --bind "$source" "$at"
        [ "$kind" = rw ] || mount -o remount,bind,ro "$at" ;;
    esac
done
shift
while [ "$1" != -- ]; do mount -o remount,ro "$root$1"; shift; done
shift
exec chroot "$root" "$@"
"""


def needed() -> None:
    """Passes a test over where there is no root, or one that may not mount; not in CI, where WANT_JAIL says so."""
    may = os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    if not may:
        assert not os.environ.get("WANT_JAIL"), "mounts and other users' ids want root that may unshare"
        pytest.skip("mounts and other users' ids want root that may unshare")


@dataclass
class Jail:
    """`empty`: folders of this machine that are hidden, read-only once they are filled; `writable`: hidden and open.

    `inside`: path in the jail -> (path here, "ro" or "rw"), in the order of mounting.
    """

    folder: Path
    empty: list[str] = field(default_factory=list)
    writable: list[str] = field(default_factory=list)
    inside: dict[str, tuple[Path, str]] = field(default_factory=dict)

    def command(self, argv: list[str], env: dict[str, str], user: int = 0) -> list[str]:
        root = self.folder / "root"
        root.mkdir(exist_ok=True)
        mounts = ["all", "/proc", "/proc", "all", "/dev", "/dev"]
        python = Path(sys.base_prefix).resolve()
        closed = next((p for p in reversed(python.parents) if not p.stat().st_mode & 0o001), None)
        hidden = [*self.empty, *([str(closed)] if closed else [])]  # an interpreter in somebody's home
        for at in hidden:
            mounts += ["empty", "mode=755", at]
        for at in self.writable:
            mounts += ["empty", "mode=1777", at]
        if closed:
            mounts += ["ro", str(python), str(python)]
        for at, (source, how) in self.inside.items():
            mounts += [how, str(source), at]
        # no capability, none to be had by a program with a set-user-id bit, and no group
        drop = [
            "setpriv",
            f"--reuid={user}",
            f"--regid={user}",
            "--clear-groups",
            "--no-new-privs",
            "--bounding-set=-all",
        ]
        said = ["env", "-i", *(f"{k}={v}" for k, v in env.items()), *argv]
        script = ["sh", "-c", _SCRIPT, "jail", str(root), *mounts, "--", *hidden, "--"]
        return ["unshare", "--mount", "--propagation", "private", "--", *script, *(drop if user else []), *said]

    def start(self, argv: list[str], env: dict[str, str], user: int, **popen: Any) -> subprocess.Popen:
        """As systemd's MemoryDenyWriteExecute has it as well: no memory becomes executable that was writable."""
        return subprocess.Popen(self.command(argv, env, user), preexec_fn=_no_new_code, **popen)


def _no_new_code() -> None:
    _libc.prctl(_PR_SET_MDWE, _REFUSE_EXEC_GAIN, 0, 0, 0)  # older kernels do not know it, and go on without
