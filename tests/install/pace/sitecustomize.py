"""Test setting, read by every Python of the installation under test, whose code stays as it is shipped: it goes at the pace of
a sandbox, and asks no address but loopback ones what it runs on."""

import importlib.abc
import importlib.machinery
import os
import sys

CHANGES = {
    "healthboard.config": {"speed": lambda: float(os.environ["PACE"])},
    "healthboard.fleet.itself": {"IMDS": "http://127.0.0.1:1"},
}


class Pace(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            for attribute, value in CHANGES[name].items():
                getattr(module, attribute)  # it must be there
                setattr(module, attribute, value)

        spec.loader.exec_module = exec_module
        return spec


if "PACE" in os.environ:
    sys.meta_path.insert(0, Pace())
