"""The pages for browsers: files, headers, content security policy, keys."""

import base64
import re

import httpx
import pytest

from cloze.plot.page import csp_hash, load_page_style
from cloze.plot.svg import load_asset
from cloze.serve.page_routes import load_files, make_policy
from servers import run_server

KEY = "a-secret-key"
PAGES = ("/", "/docs")


def test_pages_and_files_are_served_with_a_policy(server):
    for path in (*PAGES, *(f"/page/{name}" for name in load_files())):
        answer = server.client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-security-policy"] == make_policy()
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        kind = answer.headers["content-type"].partition(";")[0]
        suffix = path.rpartition(".")[2] if "." in path else "html"
        types = {"js": "text/javascript", "css": "text/css", "html": "text/html"}
        assert kind == types.get(suffix, "image/svg+xml")


def test_the_policy_allows_only_this_server_and_the_scripts_of_views():
    policy = dict(one.split(" ", 1) for one in make_policy().split("; "))
    assert policy["default-src"] == "'self'"
    for name in ("object-src", "base-uri", "form-action", "frame-ancestors"):
        assert policy[name] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    for name, asset in (("script-src", load_asset("page.js")), ("style-src", load_page_style())):
        assert csp_hash(asset) in policy[name]
        sources = policy[name].split()
        assert sources[0] == "'self'"
        assert all(re.fullmatch(r"'sha256-[\w+/]+='", one) for one in sources[1:])
    assert "unsafe" not in make_policy()


def test_the_files_load_and_contain_nothing_from_elsewhere():
    for name, content in load_files().items():
        text = content.decode()
        addresses = re.findall(r"https?://[^\s\"'`)]+", text)
        assert all("www.w3.org" in one for one in addresses), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert not re.search(r"localStorage|sessionStorage|document\.cookie", text), name
        if name.endswith(".html"):
            assert not re.search(r"<style|style=|\son\w+=|<script(?! type=\"module\" src=)", text)
        if name.endswith(".js"):
            for imported in re.findall(r'from "(.+?)"', text):
                assert imported.startswith(("./", "../"))


def test_every_panel_is_registered():
    files = load_files()
    panels = {name for name in files if name.startswith("panels/")}
    registry = files["panels.js"].decode()
    assert {f"panels/{one}" for one in re.findall(r'"./panels/(.+?)"', registry)} == panels


def test_the_page_knows_whether_a_key_is_needed(server):
    assert server.client.get("/page/settings.json").json() == {"needs_key": False}


def test_unchanged_files_are_not_sent_again(server):
    first = server.client.get("/page/app.js")
    again = server.client.get("/page/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["../app.py", "%2e%2e/app.py", "none.js", "panels", ""])
def test_other_files_are_not_served(server, path):
    answer = server.client.get(f"/page/{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


def test_a_browser_is_asked_for_the_key(folders):
    def basic(text):
        return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}

    with run_server({"mlm": folders["mlm"]}, api_keys=(KEY,)) as server, httpx.Client() as plain:
        for path in (*PAGES, "/page/app.js", "/page/none"):
            answer = plain.get(server.url + path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic realm=")
            assert "<" not in answer.text
            for header in (basic("user:wrong-key"), basic(KEY), {"Authorization": "Basic !"}):
                assert plain.get(server.url + path, headers=header).status_code == 401
        for path in (*PAGES, "/page/app.js", "/api/models", "/openapi.json"):
            for user in ("", "any"):
                answer = plain.get(server.url + path, headers=basic(f"{user}:{KEY}"))
                assert answer.status_code == 200
                assert KEY not in answer.text
        settings = server.client.get("/page/settings.json").json()
        assert settings == {"needs_key": True}
        assert plain.get(f"{server.url}/page/settings.json").status_code == 401
        assert plain.get(f"{server.url}/api/models").headers["www-authenticate"] == "Bearer"


def test_pages_of_other_sites_load_nothing(server):
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    for path in ("/", "/page/app.js", "/api/models"):
        assert server.client.get(path, headers=foreign).json()["error"]["code"] == "cross_origin"
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert server.client.get("/", headers=link).status_code == 200
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert server.client.get("/api/models", headers=own).status_code == 200
