"""A small Hub on this machine: it speaks the part of the Hub's API that huggingface_hub asks for.

    POST /api/repos/create                        make a repository
    POST /api/validate-yaml                       whether the header of a card is YAML
    POST /api/models/NAME/branch/REVISION         make a branch
    GET  /api/models/NAME[/revision/REVISION]     its newest commit, and the names of its files
    POST /api/models/NAME/preupload/REVISION      which files go to the large storage
    POST /NAME.git/info/lfs/objects/batch         where large files are put
    POST /api/models/NAME/commit/REVISION         a commit, as lines of JSON
    HEAD, GET /NAME/resolve/REVISION/FILE         a file; large ones by way of another address

Commits and files are kept in a folder. The owner's token is `secret`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "secret"
LARGE = (".safetensors", ".png")
Tree = dict[str, str]  # path: the checksum of its content


@dataclass
class Repository:
    private: bool = False
    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Tree] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def add(self, branch: str, tree: Tree, message: str) -> str:
        words = json.dumps([tree, message, len(self.commits)]).encode()
        number = hashlib.sha1(words).hexdigest()
        self.commits[number], self.branches[branch] = tree, number
        self.messages.append(message)
        return number

    def find(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.branches.get(revision)


class LocalHub:
    """A running Hub. `lies` are sizes that it states falsely, `broken` makes it answer 500."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        self.storage.mkdir()
        self.repositories: dict[str, Repository] = {}
        self.lies: dict[str, int] = {}
        self.broken = False
        self.sent = 0  # bytes of files
        hub = self

        class Handler(HubHandler):
            here = hub

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def keep(self, data: bytes) -> str:
        found = hashlib.sha256(data).hexdigest()
        (self.storage / found).write_bytes(data)
        return found

    def files(self, name: str, revision: str = "main") -> dict[str, bytes]:
        """What a repository holds."""
        repository = self.repositories[name]
        tree = repository.commits[repository.find(revision) or ""]
        return {path: (self.storage / each).read_bytes() for path, each in tree.items()}

    def put(self, name: str, files: dict[str, bytes]) -> None:
        """Let somebody replace files, whatever they hold."""
        repository = self.repositories.setdefault(name, Repository())
        old = repository.commits.get(repository.branches.get("main", ""), {})
        tree = {**old, **{path: self.keep(data) for path, data in files.items()}}
        repository.add("main", tree, "by hand")


class HubHandler(BaseHTTPRequestHandler):
    here: LocalHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, value: Any = None, **headers: str) -> None:
        data = json.dumps({} if value is None else value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    @property
    def owner(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def missing(self) -> None:
        self.answer(404, {"error": "Not found"}, X_Error_Code="RepoNotFound")

    # What is asked ------------------------------------------------------------------------------

    def do_POST(self) -> None:
        path, body = unquote(urlsplit(self.path).path), self.body()
        if self.here.broken:
            return self.answer(500, {"error": "broken"})
        if path == "/api/validate-yaml":
            return self.validate(json.loads(body)["content"])
        if not self.owner:
            return self.answer(401, {"error": "Invalid credentials in Authorization header"})
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        if path.endswith(".git/info/lfs/objects/batch"):
            return self.batch(json.loads(body))
        name, _, rest = path.removeprefix("/api/models/").partition("/")
        name, (verb, revision) = f"{name}/{rest.split('/')[0]}", rest.split("/")[1:3]
        repository = self.here.repositories[name]
        if verb == "branch":
            repository.branches.setdefault(revision, repository.branches["main"])
            return self.answer(201)
        if verb == "preupload":
            return self.answer(200, {"files": [
                {"path": each["path"], "shouldIgnore": False,
                 "uploadMode": "lfs" if each["path"].endswith(LARGE) else "regular"}
                for each in json.loads(body)["files"]
            ]})  # fmt: skip
        assert verb == "commit"
        return self.commit(name, repository, revision, body)

    def validate(self, text: str) -> None:
        facts = yaml.safe_load(text.split("---")[1])
        errors = [] if isinstance(facts.get("tags"), list) else [{"message": "no tags"}]
        self.answer(400 if errors else 200, {"errors": errors, "warnings": []})

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization'] or 'user'}/{asked['name']}"
        if name in self.here.repositories:
            return self.answer(409, {"error": "You already created this model repo"})
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        made = self.here.repositories[name] = Repository(private)
        made.add("main", {".gitattributes": self.here.keep(b"")}, "initial commit")
        return self.answer(200, {"url": f"{self.here.address}/{name}"})

    def batch(self, asked: dict[str, Any]) -> None:
        objects = []
        for each in asked["objects"]:
            to = {"upload": {"href": f"{self.here.address}/storage/{each['oid']}", "header": {}}}
            there = (self.here.storage / each["oid"]).exists()
            objects.append({**each, **({} if there else {"actions": to})})
        self.answer(200, {"transfer": "basic", "objects": objects})

    def commit(self, name: str, repository: Repository, branch: str, body: bytes) -> None:
        tree, message = dict(repository.commits[repository.branches[branch]]), ""
        for line in body.splitlines():
            found = json.loads(line)
            value = found["value"]
            if found["key"] == "header":
                message = value["summary"]
            elif found["key"] == "file":
                tree[value["path"]] = self.here.keep(base64.b64decode(value["content"]))
            elif found["key"] == "lfsFile":
                assert (self.here.storage / value["oid"]).exists()
                tree[value["path"]] = value["oid"]
            elif found["key"] == "deletedFile":
                del tree[value["path"]]
        number = repository.add(branch, tree, message)
        url = f"{self.here.address}/{name}/commit/{number}"
        self.answer(200, {"commitUrl": url, "commitOid": number})

    def do_PUT(self) -> None:
        data = self.body()
        assert self.path == f"/storage/{hashlib.sha256(data).hexdigest()}"
        self.here.keep(data)
        self.answer(200)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if self.here.broken:
            return self.answer(500, {"error": "broken"})
        if path.startswith("/storage/"):
            return self.content(path.removeprefix("/storage/"), path)
        words = path.removeprefix("/api/models/").strip("/").split("/")
        name, rest = "/".join(words[:2]), words[2:]
        repository = self.here.repositories.get(name)
        if repository is None or (repository.private and not self.owner):
            return self.missing()
        number = repository.find(rest[1] if rest else "main")
        if number is None:
            return self.answer(404, {"error": "Not found"}, X_Error_Code="RevisionNotFound")
        tree = repository.commits[number]
        if path.startswith("/api/"):
            siblings = [{"rfilename": each} for each in sorted(tree)]
            return self.answer(200, {"id": name, "sha": number, "siblings": siblings})
        file = "/".join(rest[2:])
        if file not in tree:
            return self.answer(404, {"error": "Not found"}, X_Error_Code="EntryNotFound")
        if not file.endswith(LARGE):
            return self.content(tree[file], file, number)
        size = (self.here.storage / tree[file]).stat().st_size
        return self.answer(
            302, X_Repo_Commit=number, X_Linked_Etag=f'"{tree[file]}"',
            X_Linked_Size=str(self.here.lies.get(file, size)),
            Location=f"{self.here.address}/storage/{tree[file]}",
        )  # fmt: skip

    def content(self, stored: str, name: str, number: str = "") -> None:
        data = (self.here.storage / stored).read_bytes()
        self.send_response(200)
        self.send_header("ETag", f'"{stored}"')
        self.send_header("X-Repo-Commit", number)
        if self.command == "HEAD":
            self.send_header("Content-Length", str(self.here.lies.get(name, len(data))))
            return self.end_headers()
        self.send_header("Connection", "close")  # its length is not told
        self.close_connection = True
        self.end_headers()
        self.here.sent += len(data)
        self.wfile.write(data)
        return None
