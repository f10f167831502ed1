"""What a workspace is to be: options, or a YAML file with the Hub's own fields.

Options count more than the file. What an environment's name means is the Hub's: one that begins
with a slash is a folder, any other one a kind that the admin offers.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from typer import Option

from carrel.cli.requests import documents
from carrel.errors import BadSetting
from carrel.options import values

FIELDS: Final = ("project", "gpus", "cpu", "memory_gib", "profile", "environment", "volumes")
Texts = list[str] | None
Text = str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceOptions:
    """What was named on the command line; ``None``: it was not."""

    project: Annotated[Text, Option("--project", "-p", help="Its project.")] = None
    gpus: Annotated[int | None, Option("--gpus", "-g", min=0, help="GPUs.")] = None
    cpu: Annotated[float | None, Option("--cpu", min=0.1, help="Processor cores.")] = None
    memory: Annotated[float | None, Option("--memory", min=0.25, help="Memory in GiB.")] = None
    environment: Annotated[
        Text,
        Option(
            "--environment",
            "-e",
            metavar="NAME|FOLDER",
            help="Python of its notebooks: one that is offered, or the folder of your own.",
        ),
    ] = None
    volume: Annotated[
        Texts,
        Option(
            "--volume",
            "-v",
            metavar=values.VOLUME.shown,
            help="A folder to see in the home, and where; ro: only to read; may be repeated.",
        ),
    ] = None

    def definition(self) -> dict[str, Any]:
        """The Hub's fields of the options that were given. Raises ``BadSetting``."""
        asked = {
            "project": self.project,
            "gpus": self.gpus,
            "cpu": self.cpu,
            "memory_gib": self.memory,
            **_python(self.environment),
            "volumes": None if not self.volume else [_folder(one) for one in self.volume],
        }
        return {key: value for key, value in asked.items() if value is not None}


def written(file: str | None) -> tuple[str, dict[str, Any]]:
    """The name (empty: none) and the definition in a file. Raises ``BadSetting``."""
    if file is None:
        return "", {}
    found = [one for one in documents(file) if one is not None]
    if len(found) != 1 or not isinstance(found[0], Mapping):
        raise BadSetting(f"{file} should hold one workspace, such as `project: vision`.")
    definition = dict(found[0])
    for field in definition:
        if field not in ("name", *FIELDS):
            close = difflib.get_close_matches(str(field), FIELDS, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(FIELDS)}."
            raise BadSetting(f"{file}: there is no field `{field}`; {hint}", code="unknown_field")
    return str(definition.pop("name", "")), definition


def _python(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    own = text.startswith(("/", "~/"))
    return {"environment": text} if own else {"profile": text, "environment": ""}


def _folder(text: str) -> dict[str, Any]:
    """As the Hub takes it: seen under its own name unless another one is given."""
    volume: dict[str, Any] = values.VOLUME.read(text)
    if volume["destination"] == volume["source"]:
        del volume["destination"]
    return volume
