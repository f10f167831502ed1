"""What a job hands back: who may write it, who may read it, how large it may be."""

import io
from pathlib import Path

import pytest

from carrel_scheduler.api.operations.results import MOST_BYTES
from carrel_scheduler.api.results import Results
from contract.api.service import ROOT, ApiHarness

RESULT = f"{ROOT}/workloads/vision/train-1/result"
BYTES = {"Content-Type": "application/octet-stream"}


def headers(token: str, media: dict[str, str] = BYTES) -> dict[str, str]:
    return {"Authorization": f"token {token}", **media}


async def put(
    harness: ApiHarness, token: str, content: bytes, media: dict[str, str] = BYTES
) -> int:
    url = harness.url + RESULT
    async with harness.session.put(
        url, data=io.BytesIO(content), headers=headers(token, media)
    ) as answer:
        return answer.status


async def get(harness: ApiHarness, token: str) -> tuple[int, bytes]:
    async with harness.session.get(harness.url + RESULT, headers=headers(token, {})) as answer:
        return answer.status, await answer.read()


async def test_a_job_hands_back_and_its_owner_reads(harness: ApiHarness) -> None:
    job = harness.tokens.issue("uid-vision-train-1")
    status, problem = await get(harness, "ada-token")
    assert (status, b"no_result" in problem) == (404, True)
    assert await put(harness, job, b"first") == 204
    assert await put(harness, job, b"\x00second") == 204
    assert await get(harness, "ada-token") == (200, b"\x00second")
    assert (await get(harness, "root-token"))[0] == 200


@pytest.mark.parametrize(("token", "status"), [("bea-token", 403), ("carl-token", 404)])
async def test_others_read_and_write_nothing(harness: ApiHarness, token: str, status: int) -> None:
    assert await put(harness, harness.tokens.issue("uid-vision-train-1"), b"secret") == 204
    assert (await get(harness, token))[0] == status
    assert await put(harness, token, b"x") == status


async def test_the_token_of_another_job_is_refused(harness: ApiHarness) -> None:
    assert await put(harness, harness.tokens.issue("uid-speech-train-1"), b"x") in (403, 404)
    assert await put(harness, "stranger-token", b"x") == 401


async def test_size_and_type_are_bounded(harness: ApiHarness) -> None:
    job = harness.tokens.issue("uid-vision-train-1")
    assert await put(harness, job, b"x" * (8 * 2**20)) == 204
    assert await put(harness, job, b"x" * (MOST_BYTES + 1)) == 413
    assert await put(harness, job, b"{}", {"Content-Type": "application/json"}) == 415
    assert (await get(harness, "ada-token"))[1] == b"x" * (8 * 2**20)


async def test_a_result_goes_with_its_job(harness: ApiHarness) -> None:
    assert await put(harness, harness.tokens.issue("uid-vision-train-1"), b"x") == 204
    url = f"{harness.url}{ROOT}/workloads/vision/train-1"
    async with harness.session.delete(url, headers=headers("ada-token", {})) as answer:
        assert answer.status == 202
    assert (await get(harness, "ada-token"))[0] == 404


async def test_what_belongs_to_nobody_is_swept(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    assert await results.get("a") is None
    await results.put("a", b"1")
    await results.put("b", b"2")
    (tmp_path / "results" / ".new-x").write_bytes(b"half")
    await results.begin()

    async def exists(uid: str) -> bool:
        return uid == "b"

    await results.sweep(exists)
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["b"]
    assert (tmp_path / "results" / "b").stat().st_mode & 0o777 == 0o600


async def test_outputs_of_a_map_are_bounded_in_all_and_go_with_it(tmp_path: Path) -> None:
    results = Results(tmp_path / "results", most_output_bytes=10)
    assert await results.put_output("map-1", "a", b"12345678")
    assert not await results.put_output("map-1", "b", b"123")
    assert await results.put_output("map-2", "b", b"123")
    assert await results.outputs("map-1") == ["a"]
    await results.remove("map-1")
    assert (await results.outputs("map-1"), await results.get_output("map-2", "b")) == ([], b"123")
