"""A client that OpenAPI Generator makes of our document speaks with the API."""

import asyncio
import compileall
import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.api import openapi
from carrel_scheduler.api.table import OPERATIONS
from contract.api.service import ROOT, ApiHarness

PACKAGE = "carrel_generated"
DOCUMENT = json.loads(openapi.document(OPERATIONS, "/services/carrel"))


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package, made anew."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(DOCUMENT))
    generator = Path(sys.executable).with_name("openapi-generator-cli")
    command = [str(generator), "generate", "-i", "openapi.json", "-g", "python", "-o", "out"]
    command += ["--package-name", PACKAGE, "--global-property", "apiTests=false,modelTests=false"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
    sys.path.insert(0, str(folder / "out"))
    try:
        yield importlib.import_module(PACKAGE)
    finally:
        sys.path.remove(str(folder / "out"))
        for name in [one for one in sys.modules if one.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


def test_every_module_compiles_and_each_subject_is_one(generated: Any) -> None:
    (folder,) = generated.__path__
    assert compileall.compile_dir(folder, quiet=1)
    for found in pkgutil.walk_packages(generated.__path__, f"{PACKAGE}."):
        importlib.import_module(found.name)
    subjects = {tag["name"].lower().replace(" ", "_") for tag in DOCUMENT["tags"]}
    modules = {one.name for one in pkgutil.iter_modules([f"{folder}/api"])}
    assert {f"{subject}_api" for subject in subjects} == modules
    wanted = {"workloads", "metrics", "auth", "projects", "departments", "nodes", "policies"}
    assert wanted | {"audit", "experiments", "models"} <= subjects


async def test_it_submits_reads_and_is_refused_as_typed(
    generated: Any, harness: ApiHarness
) -> None:
    def use() -> tuple[Any, Any, int]:
        configuration = generated.Configuration(host=harness.url + ROOT, access_token="ada-token")
        with generated.ApiClient(configuration) as client:
            work = generated.WorkloadsApi(client)
            body = generated.WorkloadCreate.from_dict(
                {"project": "vision", "name": "made", "command": ["true"], "gpus": 1.0}
            )
            made = work.create_workload_without_preload_content(workload_create=body)
            answer = json.loads(made.data)
            projects = generated.ProjectsApi(client).list_projects()
            with pytest.raises(generated.ApiException) as refused:
                generated.AuditApi(client).list_audit_entries()
            return answer, projects, refused.value.status

    answer, projects, status = await asyncio.to_thread(use)
    assert (answer["name"], answer["spec"]["gpus"]) == ("made", 1.0)
    assert [one.name for one in projects.items] == ["vision"]
    assert status == 403
