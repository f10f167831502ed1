"""The protocol by which `mpirun` reaches members: who may, what comes back."""

import socket
import sys

import pytest

from carrel.job.mpi import member, rsh


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARREL_TASK_TOKEN", "ct1.u1.signed")
    monkeypatch.setenv("CARREL_MEMBERS", "train-0=127.0.0.1:20001,train-1=10.0.0.2:20010")
    monkeypatch.setenv("CARREL_MEMBER", "train-0")


def test_members_have_addresses_and_ports() -> None:
    assert member.members() == {
        "train-0": ("127.0.0.1", 20001),
        "train-1": ("10.0.0.2", 20010),
    }


def test_a_proof_is_of_one_nonce_one_line_and_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    known = member.proof(b"nonce", b"line")
    assert known == member.proof(b"nonce", b"line")
    assert known != member.proof(b"other", b"line")
    assert known != member.proof(b"nonce", b"another")
    monkeypatch.setenv("CARREL_TASK_TOKEN", "ct1.u2.signed")
    assert known != member.proof(b"nonce", b"line")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train-9", "true"], "there is no member 'train-9'; there are train-0, train-1"),
        (["train-1"], "runs inside the tasks of an MPI job only"),
    ],
)
def test_what_cannot_be_reached_is_said(arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        rsh.main(arguments)


def test_a_command_for_oneself_is_run_here_and_its_code_passed_on() -> None:
    with pytest.raises(SystemExit) as ended:
        rsh.main(["-x", "train-0", "sh", "-c", '"exit 3"'])
    assert ended.value.code == 3


PRTED = (
    "PRTE_PREFIX=/opt/mpi;export PRTE_PREFIX;"
    "LD_LIBRARY_PATH=/opt/mpi/lib:$LD_LIBRARY_PATH;export LD_LIBRARY_PATH;"
    '/opt/mpi/bin/prted --prtemca ess "env" --prtemca uri "0.0;tcp://127.0.0.1:1:8"'
)
ORTED = (
    "   PATH=/opt/mpi/bin:$PATH ; export PATH ; LD_LIBRARY_PATH=/opt/mpi/lib:${LD_LIBRARY_PATH:-} ;"
    ' export LD_LIBRARY_PATH ;   orted -mca ess "env"'
)
HOST = [sys.executable, "-m", "carrel.job.mpi.host", "train-0"]


@pytest.mark.parametrize(
    ("line", "words", "variables"),
    [
        ('hydra_pmi_proxy --host "a b" x;', ["hydra_pmi_proxy", "--host", "a b", "x;"], {}),
        ("A=1 env", ["A=1", "env"], {}),
        ("A=1; export B; env", ["A=1;", "export", "B;", "env"], {}),
        ("A=`id`; export A; env", ["A=`id`;", "export", "A;", "env"], {}),
        (
            PRTED,
            [
                *(*HOST, "/opt/mpi/bin/prted", "--prtemca", "ess", "env"),
                *("--prtemca", "uri", "0.0;tcp://127.0.0.1:1:8"),
            ],
            {"PRTE_PREFIX": "/opt/mpi", "LD_LIBRARY_PATH": "/opt/mpi/lib:/usr/own"},
        ),
        (
            ORTED,
            [*HOST, "orted", "-mca", "ess", "env"],
            {"PATH": "/opt/mpi/bin", "LD_LIBRARY_PATH": "/opt/mpi/lib:/usr/own"},
        ),
    ],
)
def test_of_a_shells_language_only_leading_assignments_mean_anything(
    line: str, words: list[str], variables: dict[str, str]
) -> None:
    there = {"CARREL_MEMBER": "train-0", "LD_LIBRARY_PATH": "/usr/own"}
    assert member.parse_command(line, there) == (words, there | variables)


def test_a_machine_that_has_the_members_name_needs_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "train-0")
    assert member.parse_command("orted", {"CARREL_MEMBER": "train-0"})[0] == ["orted"]


def test_mpirun_is_told_in_whose_language_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    rsh.main(["train-1", "echo $SHELL"])
    assert capsys.readouterr().out == "/bin/bash\n"
