"""``carrel submit``: options, or a YAML file with the API's fields, become requests.

Most options of ``docker run`` are options here, too. Of the others, ``-p 8888:80`` publishes a port
(``-p`` with a project has no colon), ``--shm-size`` asks for shared memory, and ``-u`` has no
effect: a job runs as the person who submits it. What stands behind ``--`` is the command's own.
"""

import difflib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from carrel import options
from carrel.cli.common import Invocation, connected, fields, note, project_of, say
from carrel.cli.typer_options import Texts, with_table
from carrel.errors import BadSetting
from carrel.options import EVERY, Surface
from carrel.volumes import hint_unmounted, in_workspace, set_working_dir

if TYPE_CHECKING:
    from carrel.models import Workload

PUBLISHED: Final = re.compile(r"(?:[\d.]+:)?\d*:(\d+)(?:/tcp)?")
NO_USER: Final = "-u has no effect: a job runs as you."
VALUED: Final = {
    "-p": "port", "--publish": "port", "--shm-size": "shm", "-u": "user", "--user": "user",
}  # fmt: skip


def translated(words: Sequence[str], warn: Callable[[str], None] = note) -> list[str]:
    """The same line in our words."""
    return list(_translated(iter(words), warn))


def _translated(words: Iterator[str], warn: Callable[[str], None]) -> Iterator[str]:
    for word in words:
        flag, sign, value = word.partition("=")
        meaning = VALUED.get(flag)
        if meaning is None or (sign and not flag.startswith("--")):
            yield word
            continue
        text = value if sign else next(words, None)
        if text is None:  # nothing behind it, which is said elsewhere
            yield word
            return
        published = PUBLISHED.fullmatch(text)
        if meaning == "port" and published:
            yield from ("--port", published[1])
        elif meaning == "shm":
            yield "--large-shm"
        elif meaning == "user":
            warn(NO_USER)
        else:
            yield from (flag, text)


NOTHING: Final[Mapping[str, Any]] = {}
WITHOUT_OPTION: Final = frozenset({"kind", "command", "files"})
Json = dict[str, Any]


def load(file: str | None) -> list[Mapping[str, Any]]:
    """The requests in a file; one empty request without a file. Raises ``BadSetting``."""
    if file is None:
        return [NOTHING]
    found = [document for document in documents(file) if document is not None]
    if not found:
        raise BadSetting(f"{file} asks for nothing; write a request such as `kind: training`.")
    return [_checked(file, document) for document in found]


def documents(file: str) -> list[Any]:
    """The documents of a YAML file, or of standard input (``-``). Raises ``BadSetting``."""
    import yaml

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{file} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        raise BadSetting(
            f"{file}{line} is no YAML: {getattr(error, 'problem', error)}.", code="malformed_yaml"
        ) from error


def _checked(file: str, document: Any) -> Mapping[str, Any]:
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadSetting(f"{file} should hold fields of a request, such as `kind: training`.")
    kinds = [kind.name for kind in options.KINDS]
    if document.get("kind", "training") not in kinds:
        raise BadSetting(
            f"{file}: kind {document['kind']!r} is not known; write one of {', '.join(kinds)}.",
            code="unknown_value",
        )
    known = {re.split(r"[.\[]", path)[0] for row in options.TABLE for path in row.fields}
    for field in document:
        if field not in known | WITHOUT_OPTION:
            right = difflib.get_close_matches(field, known | WITHOUT_OPTION, n=1)
            hint = f"; did you mean `{right[0]}`?" if right else "; docs/api.md lists them."
            raise BadSetting(f"{file}: there is no field `{field}`{hint}", code="unknown_field")
    return {"kind": "training", **document}


def with_notebook(kind: str, fields: Json) -> Json:
    """A request whose notebook was named on the command line: the notebook is sent along."""
    from carrel.client.notebooks import notebook_body

    section = dict(fields.pop("notebook"))
    send: bool | None = None
    if kind == "schedule" and "JUPYTERHUB_API_TOKEN" in os.environ:
        send = False  # each run reads it anew
    timeout = section.pop("cell_timeout_seconds", None)
    path = section.pop("path")
    return notebook_body(path, **section, cell_timeout=timeout, send=send, **fields)


NO_EFFECT = "-it has no effect where input and output are no terminal; see `carrel bash {name}`."
Words = Annotated[
    Texts, typer.Argument(metavar="[NAME] [-- COMMAND...]", help="Its name; then its command.")
]


@with_table
def submit(context: typer.Context, words: Words = None, **chosen: Any) -> None:
    """Submit a job: `carrel submit train-7 -p vision -g 1 -- python train.py`."""
    name, command = _name_and_command(words or [], context)
    if name and chosen["name"]:
        raise BadSetting("The name is there twice; write it once.")
    name = name or chosen["name"] or ""
    attached = _is_attached(name, chosen)
    bodies = [_body(written, name, command, chosen) for written in load(chosen.pop("file"))]
    folders = [_folder(body, chosen) for body in bodies]
    if name and len(bodies) > 1:
        raise BadSetting(f"The file has {len(bodies)} requests; one name cannot be that of all.")
    if chosen["follow"] and (len(bodies) > 1 or chosen["dry-run"]):
        raise BadSetting("--follow is about one job that runs: leave it or --dry-run out.")
    if attached:
        _attach(bodies, folders, chosen)
        return
    for body, folder in zip(bodies, folders, strict=True):
        job = send(
            body,
            dry_run=bool(chosen["dry-run"]),
            replace=bool(chosen["replace"]),
            folder=folder,
        )
        if job is not None and chosen["follow"]:
            _follow(job)


def _attach(
    bodies: list[dict[str, Any]], folders: list[Path | None], chosen: Mapping[str, Any]
) -> None:
    """Submit a job and run its command in this terminal."""
    from carrel.cli import attached
    from carrel.cli.commands.terminal import attach

    if len(bodies) > 1 or chosen["follow"]:
        raise BadSetting("-it is about one job in this terminal: leave it or the others out.")
    body, command = attached.held(bodies[0])
    job = send(body, dry_run=False, replace=bool(chosen["replace"]), folder=folders[0])
    if job is None:
        return
    if code := attached.run_beside(job, command, attach, remove=bool(chosen["rm"])):
        raise typer.Exit(code)


def _follow(job: "Workload") -> None:
    """Print what it prints, over all attempts, and end as it did."""
    from carrel.cli.commands import ending, jobs

    jobs.logs(job.name, project=job.project, follow=True)
    ending.wait([job.name], project=job.project)


def _body(
    written: Mapping[str, Any], name: str, command: list[str], chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """A request: the options given, over the fields of a file."""
    kinds = [written["kind"]] if "kind" in written else [one.name for one in options.KINDS]
    before = {key: value for key, value in written.items() if key != "kind"}
    asked = options.read(chosen, Surface.CLI, kinds, written=before)
    kind, fields = EVERY[asked.kind], asked.fields
    if chosen["notebook"]:
        fields = with_notebook(kind.name, fields)
    elif "notebook" in kind.sections and not fields["notebook"].get("path"):
        raise BadSetting("Which notebook? Name it: `carrel submit --notebook report.ipynb`.")
    if name:
        fields["name"] = name
        fields.pop("name_prefix", None)
    if command:
        fields["command"] = command
    if kind.command and not (fields.get("command") or fields.get("template")):
        raise BadSetting(
            "What should the job run? Give the command behind `--`: "
            "`carrel submit NAME -- python train.py`."
        )
    if kind.name == "schedule" and command and "notebook" not in fields:
        fields["schedule"].setdefault("runs", "training")
    if "name" not in fields:
        fields.setdefault("name_prefix", kind.prefix)
    if in_workspace() and not (chosen["code"] or fields.get("code")):
        set_working_dir(fields, Path.cwd())
    return {"kind": kind.name, **fields}


def _folder(body: Mapping[str, Any], chosen: Mapping[str, Any]) -> Path | None:
    """The folder that goes along with a request. Raises ``BadSetting``."""
    from carrel.client.working_folder import names_files

    asked = chosen["code"]
    if asked and (chosen["no-code"] or body.get("code") or body.get("working_dir")):
        other = "--no-code" if chosen["no-code"] else "--git" if body.get("code") else "-w"
        raise BadSetting(f"Either --code or {other}: leave one of them out.")
    if asked:
        return Path(asked).expanduser()
    if chosen["no-code"] or body.get("code") or body.get("working_dir"):
        return None
    if names_files(body.get("command", ()), Path.cwd()):
        return Path.cwd()
    if in_workspace() and (hint := hint_unmounted(Path.cwd())):
        note(hint)
    return None


def _is_attached(name: str, chosen: dict[str, Any]) -> bool:
    """Whether the command runs in this terminal; says what has no effect."""
    from carrel.cli import attached

    found = bool(chosen["tty"]) and attached.has_terminal()
    if found and not any(chosen[flag] for flag in ("interactive", "file")):
        chosen["interactive"] = True
    if chosen["tty"] and not found:
        note(NO_EFFECT.format(name=name or "NAME"))
    if chosen["rm"] and not found:
        note("--rm has no effect without -it: a job stays listed until `carrel delete job`.")
    return found and not chosen["dry-run"]


def send(
    body: dict[str, Any], *, dry_run: bool, replace: bool = False, folder: Path | None = None
) -> "Workload | None":
    """Submit a request, or say what would become of it; the project may be left out.

    ``folder`` goes along. Returns the job, if one was submitted.
    """
    from carrel.client.submit import replacing
    from carrel.client.working_folder import pack

    with connected() as client:
        body["project"] = project_of(client, body.get("project"))
        if folder is not None:
            packed = pack(folder)
            if not dry_run:
                body["code"] = {"digest": client.send_folder(body["project"], packed)}
            note(f"The job takes {packed.told} along.")
        if dry_run:
            answer = client.create_workload(body, dry_run=True)
            say(f"Nothing was submitted. {answer.forecast.sentence}".rstrip())
            if answer.workload is not None:
                _show_draft(answer.workload)
            return None
        job = replacing(client, body) if replace else client.create_workload(body)
    say(f"Job {job.name} submitted successfully.")
    say("You can check the status of the job by running:")
    say(f"carrel describe job {job.name} -p {job.project}")
    return job


def _show_draft(job: "Workload") -> None:
    """Show the request that would be submitted, in a few lines."""
    from carrel import units

    spec = job.spec
    shared = f"{spec.gpu_devices} x " if spec.gpu_devices > 1 else ""
    gpus = spec.mig_profile or f"{shared}{units.gpus(spec.gpus)}"
    each = [gpus, f"{units.number(spec.cpu_millicores / 1000)} CPU"]
    fields(
        [
            ("Name", job.name),
            ("Project", job.project),
            ("Kind", spec.kind),
            ("Command", shlex.join(spec.command)),
            ("Folder", spec.working_dir),
            ("Image", spec.image),
            ("Tasks", str(spec.tasks) if spec.tasks > 1 else ""),
            ("Each task", ", ".join([*each, units.memory(spec.memory_bytes)])),
            ("Priority", str(spec.priority)),
            ("Preemptible", "yes" if spec.preemptible else "no"),
            ("Volumes", ", ".join(volume.spelt for volume in spec.volumes)),
            ("Environment", ", ".join(sorted(spec.environment))),
            ("Files", ", ".join(sorted(spec.files))),
        ]
    )


def _name_and_command(words: list[str], context: typer.Context) -> tuple[str, list[str]]:
    """``NAME -- COMMAND``; without ``--`` everything behind the name is the command."""
    invocation: Invocation = context.obj
    if invocation.rest is None:
        name, *command = words or [""]
        return name, command
    if len(words) > 1:
        raise BadSetting(
            f"Only the job's name may stand before `--`; {' '.join(words[1:])!r} is too much."
        )
    return (words[0] if words else ""), invocation.rest
