"""Checks: functions that each become one line of the report, and the exchanges they are about.

    checks = Checks("embedded")

    @checks.one("a route comes back as it was sent")
    def _():
        api.put("/routes/r1", body).expect(201)

A failed check says what was asked and answered last; the others go on.
"""

import json
import traceback


class Checks:
    """What was found, in order."""

    def __init__(self, title, only=""):
        self.title, self.only = title, only
        self.passed = self.failed = 0
        self.last = None

    def one(self, name):
        """Runs the decorated function at once, as a check of its own."""
        def run(function):
            self.run(name, function)
            return function
        return run

    def run(self, name, function):
        line = f"test clients: {self.title}: {name}"
        if self.only not in line:
            return
        self.last = None
        try:
            function()
        except Exception:  # Whatever goes wrong in a client is what the check is for.
            self.failed += 1
            told = traceback.format_exc(limit=-3)
            print(f"{line} ... FAILED\n{told}" + (f"{self.last}\n" if self.last else ""), flush=True)
        else:
            self.passed += 1
            print(f"{line} ... ok", flush=True)


class Exchange:
    """An answer, and what it answers."""

    def __init__(self, method, path, sent, answer):
        self.method, self.path, self.sent = method, path, sent
        self.status, self.headers, self.text = answer.status_code, answer.headers, answer.text

    def __str__(self):
        return (f"{self.method} {self.path}\n  sent: {json.dumps(self.sent)[:2000]}\n"
                f"  answered: {self.status} {self.text[:2000]!r}")

    @property
    def json(self):
        return json.loads(self.text)

    def expect(self, status, **members):
        """The status, and members of the JSON answer; gives the JSON."""
        same(self.status, status)
        body = self.json if self.text.strip() else None
        for name, value in members.items():
            same(body.get(name), value)
        return body


class Api:
    """The Admin API through `requests`, with a key."""

    def __init__(self, checks, session, base, key):
        self.checks, self.session, self.base, self.key = checks, session, base, key

    def ask(self, method, path, body=None, key=True, **more):
        """`body`: a value as JSON, or bytes as they are. `key`: the own one, another, or None."""
        headers = dict(more.pop("headers", {}))
        if key:
            headers.setdefault("X-API-KEY", self.key if key is True else key)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.session.request(method, self.base + path, data=data, headers=headers, timeout=30,
                                      allow_redirects=False, **more)
        sent = body.decode(errors="replace") if isinstance(body, bytes) else body
        self.checks.last = Exchange(method, path, sent, answer)
        return self.checks.last

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def put(self, path, body, **more):
        return self.ask("PUT", path, body, **more)

    def post(self, path, body, **more):
        return self.ask("POST", path, body, **more)

    def patch(self, path, body, **more):
        return self.ask("PATCH", path, body, **more)

    def delete(self, path, **more):
        return self.ask("DELETE", path, **more)


def same(got, wanted):
    """Both are equal, types included: 1 is neither true nor 1.0."""
    if json.dumps(got, sort_keys=True) != json.dumps(wanted, sort_keys=True):
        raise AssertionError(f"wanted {json.dumps(wanted)[:1500]}\n   got {json.dumps(got)[:1500]}")


def holds(what, said):
    """Something is so; `said` tells when it is not."""
    if not what:
        raise AssertionError(said)
