"""Every collection and every method of the Admin API, with Python requests.

Each collection is walked the same way: empty, made, read, replaced, listed, changed in part, made
under an id that the gateway chooses, deleted. What a client depends on is compared exactly: status,
envelope, and the resource as it was sent.
"""

import copy
import re

from checks import holds, same
from tables import collections


def walk(checks, api, stand):
    tables = collections(stand.upstream)
    for table in tables:
        Walk(checks, api, table).all()
    left(checks, api, tables)


def left(checks, api, tables):
    """What is there is deleted in the order in which nothing is in use."""
    for table in reversed(tables):
        @checks.one(f"{table.path}: deleted once")
        def _(table=table):
            item = f"{table.path}/{table.id}"
            same(api.delete(item).expect(200), {"deleted": "1", "key": key_of(table)})
            same(api.delete(item).expect(404), {"message": "Key not found"})
            same(api.get(item).expect(404), {"message": "Key not found"})


def key_of(table):
    return table.key or f"/apisix{table.path}/{table.id}"


class Walk:
    """One collection."""

    def __init__(self, checks, api, table):
        self.checks, self.api, self.table = checks, api, table
        self.item = f"{table.path}/{table.id}"

    def all(self):
        for name, step in [("nothing yet", self.empty), ("what is not there", self.absent), ("PUT makes it", self.made),
                           ("GET shows what was sent", self.read), ("PUT replaces it", self.replaced),
                           ("the list has it", self.listed), ("PATCH", self.patched), ("POST", self.posted),
                           ("PUT with the id in the body", self.without_id), ("ids have to agree", self.other_id),
                           ("a mistake is refused, and nothing changes", self.mistaken)]:
            self.checks.run(f"{self.table.path}: {name}", step)

    def expected(self, sent, value):
        """What is stored for what was sent."""
        table, wanted = self.table, copy.deepcopy(sent)
        if table.has_id:
            wanted["id"] = table.stored_id or table.id
        if table.has_times:
            for name in ("create_time", "update_time"):
                holds(type(value.get(name)) is int, f"{name} is {value.get(name)!r}")
                wanted[name] = value[name]
        return wanted

    def shown(self, sent):
        """A GET of the item, compared with what was sent; gives the envelope."""
        body = self.api.get(self.item).expect(200, key=key_of(self.table))
        same(sorted(body), ["createdIndex", "key", "modifiedIndex", "value"])
        wanted = self.expected(sent, body["value"])
        for name in self.table.hidden:
            wanted.pop(name, None)
        same(body["value"], wanted)
        return body

    def empty(self):
        answer = self.api.get(self.table.path)
        if self.table.empty_is_404:
            same(answer.expect(404), {"message": "Key not found"})
        else:
            same(answer.expect(200), {"list": [], "total": 0})
        same([answer.headers.get(name) for name in ("Server", "Content-Type", "X-API-VERSION")],
             ["APISIX/3.18.0", "application/json", "v3"])

    def absent(self):
        for method in ("GET", "DELETE"):
            same(self.api.ask(method, self.item).expect(404), {"message": "Key not found"})

    def made(self):
        body = self.api.put(self.item, self.table.body).expect(201, key=key_of(self.table))
        same(sorted(body), ["key", "value"])
        if self.table.has_times:
            same(body["value"]["create_time"], body["value"]["update_time"])

    def read(self):
        body = self.shown(self.table.body)
        same(body["createdIndex"], body["modifiedIndex"])
        holds(type(body["createdIndex"]) is int and body["createdIndex"] > 0, f"an index of {body['createdIndex']!r}")

    def replaced(self):
        before = self.api.get(self.item).expect(200)
        self.api.put(self.item, self.table.other).expect(200, key=key_of(self.table))
        after = self.shown(self.table.other)
        same(after["createdIndex"], before["createdIndex"])
        holds(after["modifiedIndex"] > before["modifiedIndex"], "modifiedIndex did not grow")
        if self.table.has_times:
            same(after["value"]["create_time"], before["value"]["create_time"])

    def listed(self):
        # A secret's list is that of all managers; with a slash at the end it is the same list.
        for path in (self.table.path, self.table.path + "/"):
            body = self.api.get(path).expect(200, total=1)
            same(body["list"], [self.api.get(self.item).expect(200)])

    def patched(self):
        answer = self.api.patch(self.item, self.table.patch or {"desc": "x"})
        if self.table.patch is None:
            same(answer.expect(405), {"error_msg": f"not supported `PATCH` method for {self.table.called}"})
            return
        answer.expect(200, key=key_of(self.table))
        wanted = merged(self.table.other, self.table.patch)
        self.shown(wanted)
        # A part of it, by its path.
        name = sorted(self.table.patch)[0]
        whole = merged(self.table.other, {name: self.table.patch[name]})
        self.api.patch(f"{self.item}/{name}", whole.get(name)).expect(200)
        self.shown(wanted)
        same(self.api.patch(f"{self.table.path}/not-there", self.table.patch).expect(404), {"message": "Key not found"})

    def posted(self):
        body = dict(self.table.body)
        if self.table.path == "/routes":
            body["uri"] = "/posted"
        answer = self.api.post(self.table.path, body)
        if not self.table.post:
            same(answer.expect(405), {"error_msg": f"not supported `POST` method for {self.table.called}"})
            return
        made = answer.expect(201)
        holds(re.fullmatch(r"\d{20}", made["value"]["id"]), f"an id of {made['value']['id']!r}")
        same(made["key"], f"/apisix{self.table.path}/{made['value']['id']}")
        own = {"error_msg": f"wrong {self.table.called} id, do not need it"}
        same(self.api.post(self.table.path, {**body, "id": "mine"}).expect(400), own)
        same(self.api.post(self.item, body).expect(400), own)
        self.api.delete(f"{self.table.path}/{made['value']['id']}").expect(200)

    def without_id(self):
        body = {**self.table.other, self.table.in_body: self.table.id}
        self.api.put(self.table.path, body).expect(200, key=key_of(self.table))

    def other_id(self):
        if self.table.path == "/plugin_metadata":
            return  # Its id is the plugin's name, whatever the body says.
        answer = self.api.put(self.item, {**self.table.other, self.table.in_body: "another"})
        wanted = "wrong username" if self.table.path == "/consumers" else f"wrong {self.table.called} id"
        same(answer.expect(400), {"error_msg": wanted})

    def mistaken(self):
        before = self.api.get(self.item).expect(200)
        for method, body in [("PUT", b"{"), ("PUT", b"[1]"), ("PUT", b""), ("PUT", b'{"create_time":1}')]:
            answer = self.api.ask(method, self.item, body)
            holds("error_msg" in (answer.expect(400) or {}), "an answer without error_msg")
        same(self.api.get(self.item).expect(200), before)


def merged(value, patch):
    """JSON merge patch, of objects."""
    out = copy.deepcopy(value)
    for name, part in patch.items():
        if part is None:
            out.pop(name, None)
        elif isinstance(part, dict) and isinstance(out.get(name), dict):
            out[name] = merged(out[name], part)
        else:
            out[name] = part
    return out
