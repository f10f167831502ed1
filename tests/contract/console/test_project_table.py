"""The table of projects: searched, with columns of choice, as a CSV file."""

import csv
import io

from contract.console.site import Site, Visitor


async def test_projects_are_searched_by_name_and_description(site: Site) -> None:
    async with Visitor(site, "root") as root:
        page = await root.get("projects?search=MICROSCOPE")
        assert ">vision</a>" in page.text
        assert ">speech</a>" not in page.text
        assert 'value="MICROSCOPE"' in page.text
        none = await root.get("projects?search=nobody")
        assert "No project has nobody in its name" in none.words


async def test_columns_beyond_the_usual_ones_are_there_and_hidden(site: Site) -> None:
    async with Visitor(site, "root") as root:
        page = await root.get("projects")
    assert '<th scope="col" data-column="limit-gpus" class="num" hidden>GPU limit</th>' in page.text
    assert '<th scope="col" data-column="running" class="num">Running</th>' in page.text
    assert 'id="column-limit-gpus" value="limit-gpus">' in page.text
    assert 'id="column-running" value="running" checked>' in page.text
    assert "columns.js" in page.text


async def test_the_table_is_a_file_without_formulas(site: Site) -> None:
    site.scheduler.project("speech")["description"] = "=HYPERLINK(1)"
    site.scheduler.project("vision")["limit"]["gpus"] = 8
    async with Visitor(site, "root") as root:
        answer = await root.get("projects.csv")
        searched = await root.get("projects.csv?search=microscope")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = {row["Project"]: row for row in csv.DictReader(io.StringIO(answer.text))}
    assert float(rows["vision"]["GPU limit"]) == 8
    assert rows["speech"]["Description"] == "'=HYPERLINK(1)"
    assert [row["Project"] for row in csv.DictReader(io.StringIO(searched.text))] == ["vision"]


async def test_only_own_projects_are_in_the_file(site: Site) -> None:
    async with Visitor(site, "ben") as ben:
        answer = await ben.get("projects.csv")
    names = {row["Project"] for row in csv.DictReader(io.StringIO(answer.text))}
    assert "speech" in names
    assert "vision" not in names


async def test_marked_projects_are_previewed_and_saved_together(site: Site) -> None:
    async with Visitor(site, "root") as root:
        page = await root.get("projects")
        assert 'name="project" value="vision" aria-label="Mark vision"' in page.text
        marked = {"project": "vision\nspeech"}
        form = await root.post("projects-edit", marked, form_at="projects")
        assert "Edit 2 projects" in form.words
        typed = marked | {"quota_gpus": "1", "limit_gpus": "none", "reset_ranks": "on"}
        told = await root.post("projects-edit", typed | {"action": "preview"}, form_at="projects")
        assert "all of this together would at once" in told.words
        assert site.scheduler.project("vision")["quota"]["gpus"] == 4
        saved = await root.post("projects-edit", typed | {"action": "save"}, form_at="projects")
        assert "All of them were saved." in saved.words
    for name in ("vision", "speech"):
        project = site.scheduler.project(name)
        assert (project["quota"]["gpus"], project["limit"]["gpus"]) == (1, None)
        assert project["rank"] == 0


async def test_what_was_typed_wrong_changes_no_project(site: Site) -> None:
    before = site.scheduler.project("vision")["quota"]["gpus"]
    async with Visitor(site, "root") as root:
        typed = {"project": "vision", "quota_gpus": "many", "action": "save"}
        wrong = await root.post("projects-edit", typed, form_at="projects")
        assert (wrong.status, "This should be a number" in wrong.words) == (422, True)
        nothing = {"project": "vision", "action": "save"}
        empty = await root.post("projects-edit", nothing, form_at="projects")
        assert "Say at least one change." in empty.words
        assert (await root.post("projects-edit", {}, form_at="projects")).status == 400
    assert site.scheduler.project("vision")["quota"]["gpus"] == before
    async with Visitor(site, "ada") as ada:
        assert "Edit the marked projects" not in (await ada.get("projects")).words
