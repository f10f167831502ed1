"""What a real JupyterLab's page loads: kept by browsers where nothing changes below its address."""

import json
import re
import urllib.request
from typing import Any
from urllib.error import HTTPError

import pytest

from carrel.workspace.page_files import OPTION, OWN
from contract.notebook.lab import BASE, Lab


def origin(lab: Lab) -> str:
    return lab.url.removesuffix(BASE.strip("/") + "/").rstrip("/")


def options_of(lab: Lab) -> dict[str, Any]:
    with urllib.request.urlopen(lab.page(), timeout=60) as answer:
        page = answer.read().decode()
    found = re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    options: dict[str, Any] = json.loads(found[1])
    return options


def test_our_files_are_kept_for_good_and_no_others_are_there(lab: Lab) -> None:
    options = options_of(lab)
    assert options["buildCheck"] is False
    place = f"{origin(lab)}{options[OPTION]}"
    for address in (f"{place}plugin.js", f"{place}try1/plugin.js"):
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert answer.read() == (OWN / "plugin.js").read_bytes()
            assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    outside = "..%2Fpackage.json"
    for wrong in (place + outside, f"{place}try1/{outside}", f"{lab.url}carrel/static/plugin.js"):
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(wrong, timeout=60)
        with refused.value as answer:
            assert answer.code in (403, 404)


def test_files_with_a_hash_in_their_names_are_kept_and_others_are_not(lab: Lab) -> None:
    told = options_of(lab)["federated_extensions"]
    loads = {one["name"]: one["load"] for one in told}
    kept = {}
    for name in ("anywidget", "carrel"):
        address = f"{lab.url}lab/extensions/{name}/{loads[name].removeprefix('./')}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            kept[name] = "immutable" in answer.headers["Cache-Control"]
    assert kept == {"anywidget": True, "carrel": False}
