"""Library of the tests' programs: the driver by ctypes, and messages to the test."""

import ctypes
import json
import os
import sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

from gpu_driver.cuda import MIB, AllocNode, ArrayDescriptor, Cuda, Location, PoolProps

__all__ = [
    "MIB",
    "AllocNode",
    "ArrayDescriptor",
    "Cuda",
    "Location",
    "PoolProps",
    "byref",
    "c_int",
    "c_size_t",
    "c_uint64",
    "c_void_p",
    "ctypes",
    "os",
    "tell",
    "wait",
]


def tell(value: Any) -> None:
    """Prints a value for the test."""
    print(json.dumps(value), flush=True)


def wait() -> None:
    """Waits for a line from the test."""
    sys.stdin.readline()
