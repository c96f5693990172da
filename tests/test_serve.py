"""`rivals serve` as a process, asked over HTTP: who may ask, for what, and how much."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

import rivals
from rivals.model.testing import wilson
from served import Served, collect, fill, shape, until

pytest.importorskip("fastapi", reason="fastapi is not installed: rivals[web]")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: rivals[web]")


Serve = Callable[..., Served]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served") / "model")
    yield served
    assert served.stop() == ""


def sentence(answer: httpx.Response) -> str:
    told = answer.json()["message"]
    assert isinstance(told, str)
    assert told.endswith((".", "?"))
    return told


# Who may ask --------------------------------------------------------------------------------------


def test_only_this_machine_is_listened_to(server: Served) -> None:
    assert server.base == f"http://127.0.0.1:{server.port}/"
    rows = Path("/proc/net/tcp").read_text().splitlines()
    addresses = [row.split()[1] for row in rows if row.split()[3] == "0A"]
    assert f"0100007F:{server.port:04X}" in addresses
    assert f"00000000:{server.port:04X}" not in addresses


def test_every_answer_ties_the_browser_down(server: Served) -> None:
    for path in ("/", "/page/main.js", "/api/state", "/api/nothing", "/page/nothing"):
        headers = server.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def test_the_page_takes_nothing_from_outside(server: Served) -> None:
    page = server.client.get("/").text
    found = set(re.findall(r'(?:src|href)="(/[^"#]+)"', page))
    assert {"/page/main.js", "/page/style.css", "/page/icon.svg"} <= found
    seen: set[str] = set()
    while found - seen:
        path = sorted(found - seen)[0]
        seen.add(path)
        answer = server.client.get(path)
        assert answer.status_code == 200, path
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"(?m)//.*$|/\*.*?\*/", "", text) or path.endswith(".svg"), path
        assert "http" not in re.sub("(over|über) https", "", text), path
        assert "innerHTML" not in text
        assert "eval(" not in text
        found |= {f"/page/{name}" for name in re.findall(r'from "\./([\w.]+)"', text)}
    assert len(seen) > 10


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "", "[::1",
             "127.0.0.1:1", "192.168.1.5:{port}", "localhost.:{port}"]
)  # fmt: skip
def test_a_foreign_name_for_this_machine_is_refused(server: Served, host: str) -> None:
    answer = server.client.get("/api/state", headers={"Host": host.format(port=server.port)})
    assert answer.status_code in (400, 421)
    assert "tasks" not in answer.text


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}"])
def test_own_names_are_taken(server: Served, host: str) -> None:
    name = host.format(port=server.port)
    assert server.client.get("/api/state", headers={"Host": name}).status_code == 200


CROSS = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", CROSS, ids=lambda headers: "-".join(headers.values()))
def test_other_pages_change_nothing(server: Served, headers: dict[str, str]) -> None:
    before = server.state()
    for method, path in (
        ("PUT", "class?task=x&name=y"), ("PATCH", "class?task=x&to=y"), ("DELETE", "class?task=x"),
        ("POST", "picture?task=x&name=y"), ("POST", "training?task=x"), ("POST", "answer"),
        ("DELETE", "training?number=1"), ("POST", "ticket?task=x&to=c"), ("DELETE", "task?task=x"),
        ("PATCH", "picture?task=x&name=y&picture=z&to=u"), ("POST", "sample?task=x"),
        ("POST", "project"), ("GET", "project"), ("POST", "undo"), ("DELETE", "undo"),
        ("GET", "state"), ("GET", "events"),
    ):  # fmt: skip
        answer = server.client.request(method, f"/api/{path}", headers=headers)
        assert answer.status_code == 403, (method, path)
        assert "came from another page" in sentence(answer)
    assert server.state() == before


def test_a_link_on_another_page_leads_here(server: Served) -> None:
    """By way of a page without content, for a browser then sends no cookie."""
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert server.client.get("/", headers=headers).status_code == 200
    assert server.client.get("/api/state", headers=headers).status_code == 403
    with httpx.Client(base_url=server.base) as stranger:
        again = stranger.get("/", headers=headers)
        assert (again.status_code, "url=/" in again.text) == (200, True)
        assert len(again.text) < 100
        here = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
        refused = stranger.get("/", headers=here)
        assert (refused.status_code, refused.headers["content-type"][:9]) == (401, "text/html")
        assert "<h1>A token is required; open the address" in refused.text  # a person reads this


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_everybody_needs_the_token(serve: Serve, tmp_path: Path, host: str) -> None:
    served = serve(tmp_path / "model", "--host", host)
    try:
        port, token = served.port, httpx.URL(served.url).params["token"]
        assert len(token) >= 32
        here = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=here) as stranger:
            for path in ("/", "/page/main.js", "/api/state", "/api/events"):
                answer = stranger.get(path)
                assert answer.status_code == 401
                assert "A token is required" in sentence(answer)
            assert stranger.put("/api/class?task=x&name=y").status_code == 401
            for wrong in ("", token[:-1], token + "x", "%00", "ä"):
                assert stranger.get("/", params={"token": wrong}).status_code == 401
            assert stranger.get("/api/state", params={"token": token}).status_code == 401
            for wrong in (token, token[:-1], ""):  # the token is not the cookie
                headers = {"Cookie": f"rivals-{port}={wrong}"}
                assert stranger.get("/api/state", headers=headers).status_code == 401
            foreign = {"Host": f"evil.example:{port}"}
            assert stranger.get("/", params={"token": token}, headers=foreign).status_code == 421
        with httpx.Client(base_url=here) as guest:
            let_in = guest.get("/", params={"token": token})
            assert (let_in.status_code, let_in.headers["location"]) == (303, "/")
            cookie = let_in.headers["set-cookie"]
            assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
            assert "Max-Age" not in cookie
            assert token not in cookie
            assert guest.get("/").status_code == 200
            assert guest.get("/api/state").status_code == 200
            crossed = guest.get("/api/state", headers={"Host": f"evil.example:{port}"})
            assert crossed.status_code == 421
    finally:
        assert served.stop() == ""


def test_a_token_of_ones_own(serve: Serve, tmp_path: Path, refused: Callable[..., str]) -> None:
    """From the environment, or from a file, which comes first; its cookie ends with the server."""
    own, file = "a-token-that-outlives-the-server", tmp_path / "token"
    served = serve(tmp_path / "model", env={"RIVALS_TOKEN": own})
    assert httpx.URL(served.url).params["token"] == own
    cookie, port = served.cookie, str(served.port)
    served.stop()
    file.write_text(f"{own[::-1]}\n")
    file.chmod(0o644)
    words = ("serve", "--model", tmp_path / "model", "--port", "0", "--token-file", file)
    assert "Others may read the token file" in refused(*words)
    file.chmod(0o600)
    options = {"env": {"RIVALS_TOKEN": own}}
    served = serve(tmp_path / "model", "--port", port, "--token-file", str(file), **options)
    assert httpx.URL(served.url).params["token"] == own[::-1]
    with httpx.Client(base_url=served.base, headers={"Cookie": cookie}) as yesterday:
        assert yesterday.get("/api/state").status_code == 401
    line = Path(f"/proc/{served.process.pid}/cmdline").read_bytes()
    assert own[::-1].encode() not in line
    served.stop()
    file.unlink()
    assert "token file" in refused(*words)


def test_the_token_is_on_no_command_line(serve: Serve, tmp_path: Path) -> None:
    """The browser is given a file, which only its owner may read, and which is gone at the end."""
    seen = tmp_path / "seen"
    see = f"import webbrowser; webbrowser.open = lambda url: open({str(seen)!r}, 'w').write(url)"
    served = serve(tmp_path / "model", "--open", first=see)
    opened = until(lambda: seen.exists() and seen.read_text())
    page = Path(opened.removeprefix("file://"))
    assert served.url in page.read_text()
    assert served.url not in opened
    assert page.stat().st_mode & 0o077 == 0
    served.stop()
    assert not page.exists()


# Starting it --------------------------------------------------------------------------------------


def test_what_cannot_be_served(
    server: Served, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    again = refused("serve", "--model", server.model, "--port", "0")
    assert f"Another server has the model {server.model} open" in again
    taken = refused("serve", "--model", tmp_path / "m", "--port", str(server.port))
    assert "Could not listen on 127.0.0.1" in taken
    assert "--port" in taken
    for port in ("-1", "70000"):
        assert "Could not listen" in refused("serve", "--model", tmp_path / "m", "--port", port)
    (tmp_path / "file").write_text("")
    assert "is a file" in refused("serve", "--model", tmp_path / "file")
    assert "There is no folder" in refused("serve", "--model", tmp_path / "no" / "m")
    with monkeypatch.context() as without:
        without.setattr("rivals.cli.serve_command.find_spec", lambda name: None)
        missing = refused("serve", "--model", tmp_path / "m")
        assert "needs fastapi and uvicorn" in missing
        assert "pip install 'rivals[web]'" in missing
    monkeypatch.setenv("RIVALS_TOKEN", "short")
    short = refused("serve", "--model", tmp_path / "m", "--port", "0", "--host", "0.0.0.0")
    assert "at least 16" in short


# What may be stored -------------------------------------------------------------------------------


def test_names_do_not_leave_the_folder(server: Served) -> None:
    before = set(server.model.parent.rglob("*"))
    for name in ("..", "../x", "/etc/x", "..%2fx", ".x", "a\\b", "a\0b"):
        name = name.replace("%2f", "/")
        for words in ({"task": name, "name": "x"}, {"task": "x", "name": name}):
            answer = server.ask("PUT", "class", **words)
            assert answer.status_code == 400
            sentence(answer)
    for path in ("/page/..%2fapp.py", "/page/../app.py", "/page/%2e%2e/app.py", "/..%2f..%2fetc"):
        answer = server.client.get(path)
        assert answer.status_code == 404
    words = {"task": "../..", "name": "..", "picture": "../../../etc/passwd"}
    assert server.ask("GET", "picture", **words).status_code in (400, 404)
    assert server.ask("DELETE", "class", task="..").status_code == 200  # not there: nothing to do
    assert set(server.model.parent.rglob("*")) == before


def test_wrong_files_get_a_sentence(server: Served) -> None:
    server.ask("PUT", "class", task="wrong", name="a")
    words = {"task": "wrong", "name": "a", "filename": "notes.txt"}
    answer = server.ask("POST", "picture", b"no picture at all", **words)
    assert (answer.status_code, sentence(answer)[:9]) == (400, "notes.txt")
    answer = server.ask("POST", "picture", shape("cross", 0)[:60], **words)
    assert "is not a picture that can be read (damaged or cut off)" in sentence(answer)
    missing = server.ask("POST", "picture", shape("circle", 0), task="wrong", name="b")
    assert "has no class 'b'" in sentence(missing)
    odd = server.ask("POST", "training", task="wrong", minutes="soon")
    assert odd.status_code == 422
    few = server.ask("POST", "training", task="wrong")
    assert "at least 2" in sentence(few)
    assert server.ask("DELETE", "class", task="wrong").status_code == 200
    assert server.state()["collected"] == []


def test_a_picture_comes_back_small_and_clean(server: Served) -> None:
    server.ask("PUT", "class", task="one", name="a b?&".replace("?", ""))
    name = "a b&"
    stored = server.ask("POST", "picture", shape("circle", 0, 300), task="one", name=name).json()
    shown = server.ask("GET", "picture", task="one", name=name, picture=stored["picture"])
    assert shown.headers["content-type"] == "image/png"
    assert len(shown.content) < 20_000
    assert server.ask("GET", "pictures", task="one", name=name).json() == [stored["picture"]]
    server.ask("DELETE", "class", task="one", name=name, picture=stored["picture"])
    gone = server.ask("GET", "picture", task="one", name=name, picture=stored["picture"])
    assert gone.status_code == 404
    server.ask("DELETE", "class", task="one")


def test_a_huge_body_is_refused_before_it_is_there(server: Served) -> None:
    server.ask("PUT", "class", task="huge", name="a")
    most = server.state()["limits"]["picture_bytes"]
    line = f"POST /api/picture?task=huge&name=a HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    line += f"Cookie: {server.cookie}\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(f"{line}Content-Length: {10**12}\r\n\r\n".encode())
        assert b" 413 " in raw.recv(100)
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(f"{line}Transfer-Encoding: chunked\r\n\r\n".encode())
        part = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        sent = 0
        raw.settimeout(20)
        try:
            while sent < 20 * most:
                raw.sendall(part)
                sent += 0x10000
        except OSError:
            pass  # it hung up
        assert most < sent < 3 * most
    memory = Path(f"/proc/{server.process.pid}/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+)", memory)[1]) // 1024
    assert peak < 250  # MB, and torch is not there yet
    assert server.state()["collected"] != []
    server.ask("DELETE", "class", task="huge")


def test_nothing_learned_is_said(server: Served) -> None:
    answer = server.ask("POST", "answer", shape("circle", 0))
    assert "has not learned anything yet" in sentence(answer)
    assert server.ask("POST", "answer", b"?").status_code == 400
    answer = server.ask("POST", "explanation", shape("circle", 0))
    assert "has not learned anything yet" in sentence(answer)
    for method, path in (("POST", "ticket"), ("DELETE", "task"), ("GET", "winners")):
        answer = server.ask(method, path, task="x", to="onnx" if path == "ticket" else None)
        assert answer.status_code == 400
        assert "has not learned anything yet" in sentence(answer)


# Trainings ----------------------------------------------------------------------------------------


def events(server: Served, last: str | None = None) -> Iterator[tuple[str, str, dict[str, object]]]:
    """(id, kind, data) of what the server tells."""
    headers = {"Last-Event-ID": last} if last else {}
    with server.client.stream("GET", "/api/events", headers=headers) as stream:
        number, kind = "", ""
        for line in stream.iter_lines():
            word, _, rest = line.partition(": ")
            if word == "id":
                number = rest
            elif word == "event":
                kind = rest
            elif word == "data":
                yield number, kind, json.loads(rest)


def test_teach_kill_everything_and_take_away(serve: Serve, tmp_path: Path) -> None:
    """Two trainings wait; server and training are killed; the next server sees both through."""
    server = serve(tmp_path / "model", "--ancestor", "none")
    collect(server, "shapes")
    collect(server, "more")
    assert server.ask("POST", "training", task="shapes", minutes=1).status_code == 202
    assert server.ask("POST", "training", task="more").status_code == 202
    assert "in the queue" in sentence(server.ask("POST", "training", task="more"))
    assert "being learned" in sentence(server.ask("DELETE", "class", task="shapes"))
    until(lambda: server.trainings() == [("shapes", "running"), ("more", "queued")])
    busy = server.ask("DELETE", "task", task="other")
    assert (busy.status_code, sentence(busy)[:25]) == (409, "'shapes' is being learned")
    assert server.ask("DELETE", "training", number=2).status_code == 200
    seen = []
    for number, kind, data in events(server):
        if kind == "training":
            seen.append(number)
            if data["event"] == "begins":
                break
    trainings = tmp_path / "model.collected" / "trainings"
    process = int((trainings / "000001" / "process").read_text())
    server.kill()
    os.kill(process, signal.SIGKILL)

    server = serve(tmp_path / "model", "--ancestor", "none")
    assert server.trainings() == [("shapes", "running"), ("more", "cancelled")]
    after = [
        data["event"] for _, kind, data in _until_done(server, last=seen[-1]) if kind == "training"
    ]
    assert after.count("begins") == 1  # the first one was seen before
    assert after[-1] == "done"
    until(lambda: server.trainings()[0] == ("shapes", "done"))
    state = server.state()
    assert [task["name"] for task in state["tasks"]] == ["shapes"]
    (task,) = state["tasks"]
    assert task["classes"] == ["circle", "cross"]
    assert task["interval"] == list(
        wilson(round(task["accuracy"] * task["held"] / 100), task["held"])
    )
    assert (task["held"], "sha256" in task) == (2, False)

    answer = server.ask("POST", "answer", shape("circle", 99), reject=0.05).json()
    assert answer["task"] == "shapes"
    assert answer["choices"][0][0] == answer["label"]
    assert sum(share for _, share in answer["choices"]) == pytest.approx(1, abs=0.01)
    assert "no task named 'forms'" in sentence(
        server.ask("POST", "answer", shape("circle", 99), task="forms")
    )
    won = server.ask("GET", "winners", task="shapes").json()
    assert [len(layer) for layer in won["winners"]] == [16, 32, 64]

    packed = server.ask("POST", "ticket", task="shapes", to="ticket")
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        names = archive.namelist()
        assert names == [f"shapes/{n}" for n in ("README.md", "ticket.json", "weights.safetensors")]
    assert "no format named 'onx'" in sentence(
        server.ask("POST", "ticket", task="shapes", to="onx")
    )

    assert server.ask("DELETE", "task", task="shapes").json() == {"heirs": []}
    state = server.state()
    assert state["tasks"] == []
    assert [each["task"] for each in state["collected"]] == ["more"]
    assert not (trainings / "000001").exists()
    dropped = tmp_path / "model.collected" / "dropped"  # until it can no longer be undone
    assert len(list(dropped.rglob("*.png"))) == 12
    assert server.ask("DELETE", "undo").status_code == 200
    assert not dropped.exists()
    left = list((tmp_path / "model.collected").rglob("*.png"))
    assert all("more" in path.parts for path in left)
    assert server.stop() == ""


def test_a_server_that_is_told_to_end_takes_its_training_along(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve(tmp_path / "model")
    collect(server, "shapes", 2)
    server.ask("POST", "training", task="shapes")
    place = tmp_path / "model.collected" / "trainings" / "000001"
    process = int(until(lambda: (place / "process").exists() and (place / "process").read_text()))
    server.process.terminate()
    server.process.wait(240)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    job = json.loads((place / "job.json").read_text())
    assert (job["state"], job["attempts"]) == ("running", 0)  # the next server begins anew
    assert not (tmp_path / "model").exists()
    server.client.close()


def _until_done(server: Served, last: str) -> Iterator[tuple[str, str, dict[str, object]]]:
    deadline = time.monotonic() + 240
    for each in events(server, last):
        yield each
        if each[2].get("event") in ("done", "error") or time.monotonic() > deadline:
            return


def test_a_model_from_the_command_line_is_shown(
    serve: Serve, tmp_path: Path, accepted: Callable[..., str]
) -> None:
    """Learned and dropped behind the server's back."""
    server = serve(tmp_path / "model")
    assert server.state()["tasks"] == []
    folder = fill(tmp_path / "shapes", 3)
    accepted("learn", folder, "--model", tmp_path / "model", "--epochs", "1", "--json")
    assert [task["name"] for task in server.state()["tasks"]] == ["shapes"]

    # What decided in a picture: as from Python, a heat map and what the page makes a sentence of.
    answer = server.ask("POST", "explanation", shape("cross", 1), task="shapes")
    found = rivals.Model(tmp_path / "model").explain(shape("cross", 1), "shapes")
    told = json.loads(unquote(answer.headers["X-Explanation"]))
    assert (told["label"], told["part"] or "") == (found.label, found.part)
    assert (told["verdict"], told["without"]) == (found.verdict, pytest.approx(found.without))
    assert answer.content == found.png()
    answer = server.ask("POST", "explanation", b"?", filename="notes.txt")
    assert sentence(answer).startswith("notes.txt is not a picture")
    answer = server.ask("POST", "explanation", shape("cross", 1), task="?")
    assert (answer.status_code, "no task named '?'" in sentence(answer)) == (400, True), answer.text
    (tmp_path / "model" / "model.json").write_text("{}")
    assert "model" in server.state()["error"]
    assert server.stop() == ""
