"""Every page: answers, says what it should, and hides what is not for the reader."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from carrel.testing import FakeScheduler
from contract.console.site import Clock, Site, Visitor

PAGES = {
    "": "My running work",
    "jobs": "My work",
    "help": "What the words mean",
    "jobs?state=failed": "train-6",
    "cluster": "Largest job that would start now: 1 GPU on one node.",
    "queue": "In the order of service.",
    "submit": "Submit a training",
    "jobs/vision/train-7": "What happened",
    "compare": "Nothing is compared yet.",
    "compare?run=vision/train-7&run=vision/train-8": "Parameters and last values",
    "jobs/vision/train-7/delete": "of work since the checkpoint at step 1,800 is lost.",
    "catalogue": "The catalogue is empty.",
    "projects": "Fair share",
    "projects/vision/models": "There are no models yet.",
    "projects/vision": "A workspace that nobody uses is stopped after 1 h.",
}


@pytest.fixture
async def ada(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site, "ada") as visitor:
        yield visitor


@pytest.fixture
async def root(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site, "root") as visitor:
        yield visitor


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_answers(ada: Visitor, path: str) -> None:
    page = await ada.get(path)
    assert page.status == 200
    assert PAGES[path] in page.words
    assert page.text.count("<h1") == 1
    assert "style=" not in page.text
    assert "<script>" not in page.text


@pytest.mark.parametrize("path", ["", "jobs/vision/train-7", "no-such-page", "static/console.css"])
async def test_every_answer_is_locked_down(ada: Visitor, path: str) -> None:
    headers = (await ada.get(path)).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"


async def test_nothing_comes_from_elsewhere(ada: Visitor) -> None:
    for path in PAGES:
        text = (await ada.get(path)).text
        for attribute in ('src="', 'href="', 'action="'):
            for found in text.split(attribute)[1:]:
                own = ("/services/console/", "/services/carrel/", "/hub/", "/user/", "#")
                assert found.startswith(own), found[:40]


async def test_home_shows_work_quota_and_what_comes_next(ada: Visitor) -> None:
    words = (await ada.get()).words
    assert "4 of 4 guaranteed · 1.5 borrowed · 5 pending" in words
    assert "1,800 of 4,000 steps" in words
    assert "Stops in 17 min: nobody has used it for 42 min." in words
    assert "Waiting for 1 GPU: speech holds 1 of your guaranteed 4" in words
    assert words.index("sweep-3") < words.index("big-2")
    assert "align" not in words


async def test_pages_say_when_work_is_likely_to_start_and_end(ada: Visitor) -> None:
    ending = (await ada.get("jobs/vision/train-8")).words
    assert "Likely to end " in ending
    for page in ("", "queue", "jobs/vision/sweep-3"):
        words = (await ada.get(page)).words
        assert "When it starts is not known:" in words or "Likely to start" in words, page


async def test_home_offers_the_two_buttons(ada: Visitor) -> None:
    text = (await ada.get()).text
    assert '<a class="button first" href="/hub/spawn">Open a workspace</a>' in text
    assert "/services/console/submit" in text


async def test_a_newcomer_is_told_what_would_be_here(site: Site) -> None:
    async with Visitor(site, "new") as visitor:
        home = (await visitor.get()).words
        assert "ask an admin to add new to one" in home
        assert "Nothing of yours runs." in home
        assert "Submit a training" not in home
        assert "You are not a member of a project yet" in (await visitor.get("projects")).words
        assert "You are not a member of a project yet" in (await visitor.get("submit")).words
        assert "You have not started anything yet" in (await visitor.get("jobs")).words


async def test_empty_cluster_and_queue_say_so() -> None:
    clock = Clock()
    with FakeScheduler(tcp=True, now=clock) as fake:
        async with Site(fake, clock) as site, Visitor(site, "ada") as visitor:
            assert "No node has reported yet." in (await visitor.get("cluster")).words
            assert "Nobody waits" in (await visitor.get("queue")).words


async def test_admins_alone_see_what_the_scheduler_set_aside() -> None:
    clock = Clock()
    with FakeScheduler(tcp=True, now=clock) as fake:
        aside = {
            "source": "workload",
            "key": "uid7",
            "name": "vision/train-7",
            "reason": "bad_quantity",
            "message": "<b>no number</b>",
            "since": clock() - 90,
        }
        fake.faults(set_aside=[aside], violated_invariants=["limits_held"])
        async with Site(fake, clock) as site, Visitor(site, "root") as root:
            words = (await root.get("cluster")).words
            assert "workload vision/train-7 bad_quantity <b>no number</b> 1 min" in words
            assert "limits_held" in words
            for page in ("", "alerts"):
                words = (await root.get(page)).words
                assert "The scheduler has set 2 things aside" in words, page
                told = "workload vision/train-7: bad_quantity (<b>no number</b>), 1 min"
                assert told in words, page
                assert "invariant limits_held: violated" in words, page
            async with Visitor(site, "ada") as ada:
                assert "Set aside" not in (await ada.get("cluster")).words
                for page in ("", "alerts"):
                    assert "could not process" not in (await ada.get(page)).words
        fake.faults(set_aside=[], violated_invariants=[])
        async with Site(fake, clock) as site, Visitor(site, "root") as root:
            assert "could not process" not in (await root.get()).words


async def test_foreign_projects_have_their_colours(ada: Visitor) -> None:
    for page in ("cluster", "queue"):
        html = (await ada.get(page)).text
        assert re.search(r'<span class="swatch p1"></span>\s*speech', html), page
    assert "gpu-used p1" in (await ada.get("cluster")).text


async def test_the_queue_hides_foreign_names(ada: Visitor, root: Visitor) -> None:
    mine = (await ada.get("queue")).words
    assert "training of a member of speech" in mine
    assert "align-9" not in mine
    assert "Its turn is being decided" not in mine
    assert "align-9" in (await root.get("queue")).words


async def test_the_job_page_tells_its_story(ada: Visitor) -> None:
    page = await ada.get("jobs/vision/train-7")
    assert "Preempted by speech: it needs 1 GPU of its guarantee back." in page.words
    assert "Preempted 10 min ago for a member of speech" in page.words
    assert "1 min 40 s of work was lost; it goes on from the checkpoint at step 1,200" in page.words
    assert "Submitted by ada." in page.words
    assert "python train.py --epochs 40 --name 'two words'" in page.words
    assert "<dt>Node group</dt><dd>a100</dd>" in page.text
    assert "<dt>GPU types</dt><dd>H100, A100 (moves to a better one)</dd>" in page.text
    assert "<dt>loss</dt>" in page.text
    assert "&lt;script&gt;alert(&#39;not run&#39;)&lt;/script&gt;" in page.text


async def test_buttons_fit_the_state(ada: Visitor, site: Site) -> None:
    running = (await ada.get("jobs/vision/train-7")).text
    assert ">Suspend</button>" in running
    assert ">Resume</button>" not in running
    stopped = (await ada.get("jobs/vision/old-desk")).text
    assert ">Resume</button>" in stopped
    assert ">Suspend</button>" not in stopped
    done = (await ada.get("jobs/vision/train-5")).text
    assert ">Suspend</button>" not in done
    assert ">Resume</button>" not in done
    assert ">Keep for 1 h</button>" in (await ada.get("jobs/vision/desk")).text
    assert ">Keep for" not in running


async def test_a_fellow_member_reads_but_gets_no_buttons(site: Site) -> None:
    async with Visitor(site, "cyd") as visitor:
        page = await visitor.get("jobs/vision/train-7")
        assert page.status == 200
        assert ">Suspend</button>" not in page.text
        assert "Delete…" not in page.text


async def test_a_researcher_sees_no_admin_forms(ada: Visitor) -> None:
    assert "new-project" not in (await ada.get("projects")).text
    page = (await ada.get("projects/vision")).text
    assert "<form" not in page
    assert "Remove" not in page
    assert (await ada.get("new-project")).status == 403


async def test_an_admin_sees_all_projects_and_their_rules(root: Visitor) -> None:
    assert {"vision", "speech"} <= set((await root.get("projects")).words.split())
    page = (await root.get("projects/vision")).text
    assert 'name="quota_gpus" type="text" value="4"' in page
    assert 'name="limit_gpus" type="text" value="8"' in page
    assert 'name="time_limit" type="text" value="12 h"' in page
    assert 'name="idle_timeout" type="text" value="1 h"' in page
    assert "Remove" in page


KINDS = {
    "sweep": ("running experiment of ada", "the smallest loss, by tpe", "1 running · 1 completed"),
    "digits": ("running endpoint of ada", "1 ready of 2 wanted, 1 starting; 1 to 3 allowed"),
    "curves": (
        "running TensorBoard of ada",
        "/services/gateway/vision/curves/",
        "train-7, train-8",
    ),
    "report-1": ("running notebook job of ada", "Cells done 3 of 9", "month=3"),
    "nightly": ("running schedule of ada", "0 3 * * * (Europe/Berlin)", "Next run in 52 min"),
    "desk": ("running workspace of ada", "/user/ada/"),
}


@pytest.mark.parametrize("name", KINDS)
async def test_each_kind_has_a_page_that_says_what_it_is(ada: Visitor, name: str) -> None:
    page = await ada.get(f"jobs/vision/{name}")
    for words in KINDS[name]:
        assert words in page.words
    assert ("No metrics yet" in page.words) is (name == "report-1")
    made_of_others = name in ("sweep", "digits", "nightly")
    assert ('id="tasks-title"' in page.text) is not made_of_others


@pytest.mark.parametrize("name", ["sweep", "digits", "nightly"])
async def test_work_that_is_made_of_other_work_shows_the_output_of_that(
    site: Site, ada: Visitor, name: str
) -> None:
    site.scheduler.log("vision", name, "epoch 1")
    assert f"{name}-0 | epoch 1" in (await ada.get(f"jobs/vision/{name}")).words
    assert f"{name}-0 | epoch 1" in (await ada.get(f"jobs/vision/{name}/log")).text


async def test_a_job_shows_how_hard_its_gpus_work(ada: Visitor) -> None:
    assert "0: 87 %, 8.8 of 24 GiB" in (await ada.get("jobs/vision/train-7")).words


async def test_a_crashed_endpoint_has_failed(site: Site, ada: Visitor) -> None:
    site.scheduler.stop("vision", "digits", "ReplicasFailed", "7 replicas in a row failed.")
    words = (await ada.get("jobs/vision/digits")).words
    assert "failed endpoint of ada" in words
    assert "7 replicas in a row failed." in words
    assert "digits endpoint failed" in (await ada.get("jobs?state=stopped")).words


async def test_work_is_run_again_as_it_was_or_changed(site: Site, ada: Visitor) -> None:
    made = await ada.post("jobs/vision/train-5/rerun", {}, form_at="jobs/vision/train-5")
    assert made.address.endswith("/jobs/vision/train-1")
    form = (await ada.get("submit?again=vision/train-8")).text
    assert 'name="memory" value="16G"' in form
    assert "python train.py --epochs 40 --name &#39;two words&#39;</textarea>" in form
    typed = {"kind": "training", "project": "vision", "again": "vision/train-8", "gpus": "2"}
    sent = await ada.post("submit", {**typed, "command": "python b.py", "name": "train-20"})
    assert sent.address.endswith("/jobs/vision/train-20")
    spec = site.scheduler.workload("vision", "train-20")["spec"]
    assert (spec["command"], spec["gpus"]) == (["python", "b.py"], 2)
    wrong = await ada.post("submit", {**typed, "command": "python b.py", "gpus": "many"})
    assert wrong.status == 422
    assert 'name="again" value="vision/train-8"' in wrong.text


async def test_the_output_is_searched_and_downloaded(ada: Visitor) -> None:
    found = await ada.get("jobs/vision/train-7?find=STEP++1700")
    assert found.text.count("loss 0.0768") == 1
    assert "loss 0.0739" not in found.text
    whole = await ada.get("jobs/vision/train-7/log")
    assert whole.headers["Content-Disposition"] == 'attachment; filename="train-7-2.log"'
    assert "<script>alert('not run')</script>" in whole.text
    assert whole.headers["Content-Type"].startswith("text/plain")
    assert (await ada.get("jobs/vision/train-7?attempt=0")).status == 400
    assert (await ada.get("jobs/speech/align-9/log")).status == 404


async def test_lists_are_searched_filtered_and_paged(site: Site, ada: Visitor) -> None:
    for number in range(60):
        site.scheduler.submit("vision", f"many-{number}")
    first = await ada.get("jobs?search=many")
    assert first.text.count('name="run"') == 50
    following = re.search(r'href="([^"]+)" rel="next"', first.text)
    assert following is not None
    address = following[1].replace("&amp;", "&").removeprefix("/services/console/")
    rest = await ada.get(address)
    assert rest.text.count('name="run"') == 10
    assert ">sweep</a>" in (await ada.get("jobs?kind=experiment")).text
    assert 'aria-current="true">failed<' in (await ada.get("jobs?state=failed")).text


async def test_a_long_queue_comes_in_pages(site: Site, ada: Visitor) -> None:
    for number in range(120):
        site.scheduler.submit("vision", f"many-{number}")
    first = await ada.get("queue")
    assert (first.text.count('data-label="Place"'), 'href="/services/console/queue?after=100"') == (
        100,
        re.findall(r'href="[^"]*after=100"', first.text)[0],
    )
    rest = await ada.get("queue?after=100")
    assert 0 < rest.text.count('data-label="Place"') < 100


async def test_admins_see_everybodys_work(ada: Visitor, root: Visitor) -> None:
    everything = await root.get("jobs?whose=all&search=ben")
    assert ">align-9</a>" in everything.text
    assert ">align-9</a>" not in (await ada.get("jobs?whose=all&search=ben")).text


async def test_marked_work_is_compared_suspended_and_deleted(site: Site, ada: Visitor) -> None:
    marked = [("run", "vision/train-7"), ("run", "vision/train-8")]
    token = ("_xsrf", await ada.token("jobs"))

    async def send(*more: tuple[str, str]) -> str:
        url = site.url("marked")
        async with ada.session.post(url, data=[token, *more]) as answer:
            return f"{answer.status} {answer.url} {await answer.text()}"

    assert "Parameters and last values" in await send(*marked, ("action", "compare"))
    assert "2 suspended." in await send(*marked, ("action", "suspend"))
    assert site.scheduler.workload("vision", "train-7")["status"]["phase"] == "stopped"
    asked = await send(*marked, ("action", "delete"))
    assert "Delete these 2?" in asked
    assert site.scheduler.workload("vision", "train-7")["name"] == "train-7"
    foreign = ("run", "speech/align-9")
    done = await send(*marked, foreign, ("action", "delete"), ("sure", "yes"))
    assert "2 deleted. Refused: align-9" in done
    assert (await send(("action", "delete")))[:3] == "400"


async def test_a_job_shows_what_it_submitted_and_waits_for_and_goes_with_it(
    site: Site, ada: Visitor
) -> None:
    parent = site.scheduler.workload("vision", "train-7")["uid"]
    lineage: dict[str, Any] = {"parent": "train-7", "ancestors": [parent]}
    site.scheduler.submit(
        "vision", "child", labels={"carrel.dev/parent": "train-7"}, **lineage,
        after=[{"name": "train-8", "uid": "u", "unmet": "failed"}], blocked_by=["train-8"],
    )  # fmt: skip
    site.scheduler.submit("vision", "later", after=[{"name": "train-7", "uid": parent}])
    page = (await ada.get("jobs/vision/train-7")).text
    related = page.partition('id="related"')[2].partition("</section>")[0]
    for name in ("child", "later"):
        assert f'href="/services/console/jobs/vision/{name}"' in related
    page = (await ada.get("jobs/vision/child")).text
    related = page.partition('id="related"')[2].partition("</section>")[0]
    assert "train-7</a>" in related
    assert "(failed)" in related
    assert "what it submitted (1)" in (await ada.get("jobs/vision/train-7/delete")).text
    data = {"_xsrf": await ada.token("jobs"), "children": "yes"}
    async with ada.session.post(site.url("jobs/vision/train-7/delete"), data=data) as answer:
        assert answer.status == 200
    names = {one["name"] for one in site.scheduler.workloads()}
    assert names & {"train-7", "child", "later"} == {"later"}


async def test_work_is_found_by_name(ada: Visitor) -> None:
    answer = await ada.get("find?search=train-7")
    (found,) = json.loads(answer.text)["found"]
    assert found["address"] == "/services/console/jobs/vision/train-7"
    assert json.loads((await ada.get("find?search=align")).text) == {"found": []}


async def test_a_comparison_has_parameters_values_curves_and_a_file(ada: Visitor) -> None:
    page = await ada.get("compare?run=vision/train-7&run=vision/train-8")
    assert "lr net data same accuracy loss" in page.words
    assert "0.02 small cells" in page.words
    answer = await ada.get("curves?run=vision/train-7&run=vision/train-8")
    curves = {run["label"]: run["curves"] for run in json.loads(answer.text)["runs"]}
    assert [point[0] for point in curves["train-8"]["loss"]] == list(range(10, 311, 10))
    table = await ada.get("compare.csv?run=vision/train-7&run=vision/train-8")
    assert table.headers["Content-Disposition"] == 'attachment; filename="runs.csv"'
    assert table.text.splitlines()[0].endswith("seconds,lr,net,data,accuracy,loss")


async def test_a_comparison_shows_what_its_reader_may_see(site: Site, ada: Visitor) -> None:
    for path in ("compare", "curves", "compare.csv"):
        assert (await ada.get(f"{path}?run=speech/align-9")).status == 404
        assert (await ada.get(f"{path}?run=../x")).status == 400
    assert (await ada.get("shared/views.py")).status == 404


async def test_hostile_names_stay_text(site: Site, root: Visitor) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    site.scheduler.project("vision", description=hostile)
    site.scheduler.status(
        "vision", "big-2", reason={"token": "X", "sentence": hostile, "help": f"`{hostile}`"}
    )
    site.scheduler.report("vision", "train-7", step=1, metrics={hostile: 1.0})
    site.scheduler.report("vision", "train-7", parameters={hostile: hostile})
    compared = "compare?run=vision/train-7"
    for path in ("projects/vision", "jobs/vision/big-2", "jobs/vision/train-7", compared):
        page = await root.get(path)
        assert page.status == 200
        assert "<img" not in page.text
        assert "onerror=alert(1)" in page.words


async def test_the_page_of_a_waiting_job_says_what_would_help(site: Site, ada: Visitor) -> None:
    told = "It starts when `x<b>` of project `vision` ends."
    site.scheduler.remedies("vision", "big-2", {"change": "ends", "sentence": told})
    page = await ada.get("jobs/vision/big-2")
    assert "What would help: It starts when x<b> of project vision ends." in page.words
    assert "x<b>" not in page.text
    site.scheduler.remedies("vision", "big-2", refused=True)
    page = await ada.get("jobs/vision/big-2")
    assert page.status == 200
    assert "What would help" not in page.words
    assert "Waiting for 8 GPUs" in page.words


async def test_a_job_without_any_past_has_a_page(site: Site, ada: Visitor) -> None:
    site.scheduler.submit("vision", "bare", command=[])
    page = await ada.get("jobs/vision/bare")
    assert page.status == 200
    assert "No output yet." in page.words
    assert "No metrics yet." in page.words


async def test_files_are_served_with_their_version(ada: Visitor) -> None:
    home = (await ada.get()).text
    address = home.split('href="/services/console/static/console.css')[1].split('"')[0]
    sheet = await ada.get(f"static/console.css{address}")
    assert sheet.status == 200
    assert address.startswith("?v=")
    assert "max-age=315" in sheet.headers["Cache-Control"]


async def test_a_model_shows_what_made_each_version(site: Site, ada: Visitor) -> None:
    site.scheduler.register("vision", "digits", 1, workload="train-6", user="ada", metrics={})
    site.scheduler.register(
        "vision",
        "digits",
        2,
        workload="train-7",
        user="ada",
        path="net/model.pt",
        description="<b>wide</b>",
        metrics={"loss": 0.25},
        parameters={"lr": "0.1"},
    )
    listed = await ada.get("projects/vision/models")
    assert "projects/vision/models/digits" in listed.text
    assert "&lt;b&gt;wide&lt;/b&gt;" in listed.text
    page = await ada.get("projects/vision/models/digits")
    assert page.words.index("digits@2") < page.words.index("digits@1")
    for said in ("train-7", "net/model.pt", "0.25", "lr 0.1", "--model digits@2"):
        assert said in page.words, said
    assert (await ada.get("projects/vision/models/nothing")).status == 404


async def test_gpu_use_is_shown_and_its_absence_said(ada: Visitor) -> None:
    works = await ada.get("jobs/vision/train-7")
    assert "87 % now, 87 % in the mean" in works.words
    assert "8.79 GiB now, 8.79 GiB at most" in works.words
    assert "idle for" not in works.words
    idle = await ada.get("jobs/vision/train-8")
    assert "Its GPUs have been idle for 20 min" in idle.words
    assert "Suspend it and free 1 GPU" in idle.words
    assert "no measurement" in (await ada.get("jobs/vision/desk")).words
    home = await ada.get("")
    assert "0 % now, 0 % in the mean" in home.words
    assert "Idle for 20 min" in home.words


async def test_work_that_waits_for_other_work_is_drawn(site: Site, ada: Visitor) -> None:
    fake = site.scheduler

    def after(*names: str) -> list[dict[str, str]]:
        return [{"name": one, "uid": fake.workload("vision", one)["uid"]} for one in names]

    fake.submit("vision", "first")
    fake.submit("vision", "second", after=after("first"))
    gone = {"name": "removed", "uid": "u-removed", "condition": "any", "unmet": ""}
    fake.submit("vision", "third", after=[*after("second"), gone])
    for name in ("first", "second", "third"):
        page = await ada.get(f"jobs/vision/{name}")
        assert 'class="dependency-graph"' in page.text
        assert page.text.count('class="graph-box') == (4 if name == "third" else 3)
    assert "removed gone" in page.words
    assert page.text.count("graph-line any") == 1
    alone = await ada.get("jobs/vision/train-7")
    assert "dependency-graph" not in alone.text


async def test_a_model_of_the_catalogue_is_served_by_one_click(site: Site, ada: Visitor) -> None:
    why = "It needs 2 GPUs; here are none."
    chat = {"name": "chat", "source": "ours/chat", "description": "Small <talk>."}
    large = {"name": "large", "gpus": 2.0, "gpu_memory_gib": 80.0}
    site.scheduler.catalogue.extend([chat, large | {"runs_here": False, "why_not": why}])
    page = await ada.get("catalogue")
    assert "Small <talk>." in page.words
    assert why in page.words
    assert page.text.count(">Serve</button>") == 1
    served = await ada.post("catalogue", {"entry": "chat", "project": "vision"})
    assert served.status == 200
    [made] = [one for one in site.scheduler.workloads() if one["spec"].get("template") == "chat"]
    assert (made["project"], made["spec"]["kind"]) == ("vision", "inference")
    refused = await ada.post("catalogue", {"entry": "chat", "project": "speech"})
    assert refused.status in (403, 404)
    assert "<h1>Model catalogue</h1>" in refused.text
