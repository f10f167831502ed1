"""Checks of IRIs are what they are elsewhere, and cost nothing before the first one."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

BEFORE = (
    "from carrel_process.late_imports import put_off_iri_checks; put_off_iri_checks(); import sys;"
)
CHECK = (
    "from jsonschema import Draft7Validator as D, FormatChecker as F;"
    "check = lambda value: D({'format': 'iri'}, format_checker=F()).is_valid(value);"
)


def printed(code: str) -> str:
    """What a fresh Python prints."""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return made.stdout.strip()


@pytest.mark.parametrize(
    "module", ["jupyterhub.singleuser.extension", "jupyterhub.app", "nbformat"]
)
def test_a_start_does_not_make_the_parser(module: str) -> None:
    loaded = "print('lark' in sys.modules)"
    assert printed(f"import sys, {module}; {loaded}") == "True", "else nothing is put off any more"
    assert printed(f"{BEFORE} import {module}; {loaded}") == "False"


def test_the_first_check_is_the_real_one() -> None:
    outcome = "print(check('https://ä.example/ü'), check('no iri'), 'lark' in sys.modules)"
    assert printed(f"{BEFORE}{CHECK}{outcome}") == "True False True"


def test_what_else_the_module_has_is_there() -> None:
    other = "import rfc3987_syntax; print(rfc3987_syntax.parse('iri', 'a:b').data)"
    assert printed(f"{BEFORE}{other}") == printed(f"import sys;{other}")


def test_what_is_imported_already_stays() -> None:
    already = "import sys, rfc3987_syntax as own;"
    assert printed(f"{already}{BEFORE}print(sys.modules['rfc3987_syntax'] is own)") == "True"
