"""Notebooks as they are sent along: read, looked at, without outputs."""

import json
from pathlib import Path
from typing import Any, Final

from carrel.errors import BadSetting

MOST_BYTES: Final = 1024 * 1024 - 4096
OLDEST_FORMAT: Final = 4


def slim(path: Path) -> str:
    """The notebook's text without its outputs. Raises ``BadSetting`` for what is no notebook."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadSetting(f"There is no notebook {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadSetting(f"{path} cannot be read: {reason}.") from error
    return stripped(text, str(path))


def stripped(text: str, name: str) -> str:
    """The same for text. ``name`` is for the sentence of a refusal."""
    try:
        notebook: dict[str, Any] = json.loads(text)
        cells = notebook["cells"]
        for cell in cells:
            if cell["cell_type"] == "code":
                cell["outputs"], cell["execution_count"] = [], None
    except (ValueError, KeyError, TypeError) as error:
        raise BadSetting(f"{name} is no notebook (.ipynb, format 4).") from error
    if notebook.get("nbformat") != OLDEST_FORMAT:
        raise BadSetting(
            f"{name} has notebook format {notebook.get('nbformat')}; open and save it in Jupyter "
            "to make it format 4."
        )
    notebook.get("metadata", {}).pop("widgets", None)
    return json.dumps(notebook, ensure_ascii=False)
