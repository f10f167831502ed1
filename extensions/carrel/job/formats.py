"""How a value becomes files and a value again: pickle, NumPy's npz, or a function of the user's.

NumPy is used only where the program itself already imported it.
"""

import functools
import pickle
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PICKLE: Final = "pickle"
ARRAY: Final = "array"
ARRAYS: Final = "arrays"
WRITTEN: Final = "written"
FUNCTIONS: Final = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)
NAMES: Final = {PICKLE: "data.pkl", ARRAY: "data.npz", ARRAYS: "data.npz", WRITTEN: "data"}


def kind_of(value: Any) -> str:
    """The format for a value. Models are often callable, so only functions count as functions."""
    if isinstance(value, FUNCTIONS):
        return WRITTEN
    if _is_array(value):
        return ARRAY
    if isinstance(value, dict) and value and all(map(_is_array, value.values())):
        names = (isinstance(name, str) and name.isidentifier() for name in value)
        return ARRAYS if all(names) else PICKLE
    return PICKLE


def _is_array(value: Any) -> bool:
    # While another thread imports it, NumPy is there without its names: then nobody has an array.
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    return array is not None and type(value) is array and not value.dtype.hasobject


def write(value: Any, kind: str, folder: Path) -> None:
    """Write it below the folder."""
    path = folder / NAMES[kind]
    if kind == WRITTEN:
        writer: Callable[[Path], object] = value
        writer(path)
        if not any(folder.iterdir()):
            raise ValueError(f"the function given to save() wrote nothing to {path.name}")
        return
    if kind == PICKLE:
        with path.open("wb") as out:
            pickle.dump(value, out, protocol=pickle.HIGHEST_PROTOCOL)
        return
    import numpy as np

    np.savez(path, **({"array": value} if kind == ARRAY else value))


def read(kind: str, folder: Path) -> Any:
    """The value again; for what a function wrote, its path."""
    path = folder / NAMES[kind]
    if kind == PICKLE:
        with path.open("rb") as file:
            return pickle.load(file)  # noqa: S301 - the job's own file, checked against its sums
    if kind in (ARRAY, ARRAYS):
        import numpy as np

        with np.load(path, allow_pickle=False) as arrays:
            return arrays["array"] if kind == ARRAY else dict(arrays)
    return path if path.exists() else next(p for p in folder.iterdir() if p.name != "manifest.json")
