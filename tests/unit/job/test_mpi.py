"""The protocol by which `mpirun` reaches members: who may, what comes back."""

import pytest

from carrel.job import mpi_member, mpi_reach


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARREL_TASK_TOKEN", "ct1.u1.signed")
    monkeypatch.setenv("CARREL_MEMBERS", "train-0=127.0.0.1:20001,train-1=10.0.0.2:20010")
    monkeypatch.setenv("CARREL_MEMBER", "train-0")


def test_members_have_addresses_and_ports() -> None:
    assert mpi_member.members() == {
        "train-0": ("127.0.0.1", 20001),
        "train-1": ("10.0.0.2", 20010),
    }


def test_a_proof_is_of_one_nonce_one_line_and_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    known = mpi_member.proof(b"nonce", b"line")
    assert known == mpi_member.proof(b"nonce", b"line")
    assert known != mpi_member.proof(b"other", b"line")
    assert known != mpi_member.proof(b"nonce", b"another")
    monkeypatch.setenv("CARREL_TASK_TOKEN", "ct1.u2.signed")
    assert known != mpi_member.proof(b"nonce", b"line")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train-9", "true"], "there is no member 'train-9'; there are train-0, train-1"),
        (["train-1"], "runs inside the tasks of an MPI job only"),
    ],
)
def test_what_cannot_be_reached_is_said(arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        mpi_reach.main(arguments)


def test_a_command_for_oneself_is_run_here_and_its_code_passed_on() -> None:
    with pytest.raises(SystemExit) as ended:
        mpi_reach.main(["-x", "train-0", "sh", "-c", '"exit 3"'])
    assert ended.value.code == 3
