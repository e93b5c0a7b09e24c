"""ADC itself, built by adc.sh from a checkout: ping, lint, validate, sync, diff, dump, over both of its backends."""

import copy
import json
import os
import re
import subprocess

import pem
from checks import holds, same
from stand import ADMIN_KEY, VIEWER_KEY, gateway_binary

# In what `adc diff` writes: the kind of each change, which is at the top of its entry.
TYPE = re.compile(r"^(?:- |  )type: (\w+)$", re.M)
SECONDS = 60


class Adc:
    """The program, run in a folder of its own."""

    def __init__(self, checks, program, stand, backend="apisix"):
        self.checks, self.program, self.stand, self.backend = checks, program, stand, backend

    def run(self, command, *options, wanted=0, key=ADMIN_KEY):
        """What it printed, without colours."""
        told = {**os.environ, "ADC_BACKEND": self.backend, "ADC_SERVER": f"http://127.0.0.1:{self.stand.admin_port}",
                "ADC_TOKEN": key, "NO_COLOR": "1", "CI": "true"}
        done = subprocess.run(["node", self.program, command, *map(str, options)], cwd=self.stand.folder, env=told, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
        text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
        self.checks.last = f"adc {command} {' '.join(map(str, options))}: status {done.returncode}\n{text[-3000:]}"
        same(done.returncode, wanted)
        return text

    def file(self, name, configuration):
        path = self.stand.folder / f"{name}.yaml"
        path.write_text(json.dumps(configuration))
        return path

    def changes(self, file, *options, **more):
        """How many resources a diff would create, update and delete."""
        written = self.stand.folder / "diff.yaml"
        written.unlink(missing_ok=True)
        self.run("diff", "-f", file, *options, **more)
        text = written.read_text()
        self.checks.last += "\n" + text[:3000]
        kinds = [kind.lower() for kind in TYPE.findall(text)]
        return [kinds.count(kind) for kind in ("create", "update", "delete")]


    def lockgate(self, command, file):
        """What lockgate's own command says of the same file."""
        key = self.stand.folder / "admin.key"
        key.write_text(ADMIN_KEY)
        told = [str(gateway_binary()), command, str(file), "--admin", f"http://127.0.0.1:{self.stand.admin_port}",
                "--key-file", str(key), "--json"]
        done = subprocess.run(told, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=SECONDS)
        self.checks.last = f"{' '.join(told)}: status {done.returncode}\n{done.stdout[-3000:]}"
        same(done.returncode, 0)
        return json.loads(done.stdout)


def adc_cli(program):
    def run(checks, api, stand):
        adc = Adc(checks, program, stand)
        configuration = of(stand)
        round_trip(checks, adc, api, configuration)
        the_same_file(checks, adc, configuration)
        edits(checks, adc, api, configuration)
        certificates(checks, adc, api)
    return run


def of(stand):
    host, port = stand.upstream.split(":")
    cert, key = pem.pair("cli.test")
    upstream = {"nodes": [{"host": host, "port": int(port), "weight": 1}]}
    return {
        "services": [{"name": f"svc {n}", "hosts": [f"s{n}.cli.test"], "upstream": upstream, "routes": [
            {"name": f"route {at}", "uris": [f"/s{n}/r{at}/*"], "methods": ["GET"], "plugins": {"key-auth": {}}} for at in range(4)]}
            for n in range(5)],
        "consumers": [{"username": f"cli{n}", "credentials": [
            {"name": "key", "type": "key-auth", "config": {"key": f"cli-key-{n}"}}]} for n in range(3)],
        "ssls": [{"snis": ["cli.test"], "certificates": [{"certificate": cert, "key": key}]}],
        "global_rules": {"cors": {"max_age": 7}},
        "plugin_metadata": {"cors": {"allow_origins": {"own": "https://a.test"}}},
    }


def round_trip(checks, adc, api, configuration):
    file = adc.file("adc", configuration)

    @checks.one("ping, lint, validate")
    def _():
        adc.run("ping")
        adc.run("lint", "-f", file)
        adc.run("validate", "-f", file)

    @checks.one("validate tells what is wrong")
    def _():
        wrong = copy.deepcopy(configuration)
        wrong["services"][0]["routes"][0]["plugins"] = {"cors": {"max_age": "long"}}
        holds("max_age" in adc.run("validate", "-f", adc.file("wrong", wrong), "--no-lint", wanted=1), "it does not name max_age")

    @checks.one("diff before: everything; sync; diff after: nothing")
    def _():
        created, updated, deleted = adc.changes(file)
        holds(created > 30 and updated == deleted == 0, (created, updated, deleted))
        adc.run("sync", "-f", file)
        same(adc.changes(file), [0, 0, 0])
        same(adc.changes(file, key=VIEWER_KEY), [0, 0, 0])

    @checks.one("requests are served")
    def _():
        same(adc.stand.served("/s3/r2/x", host="s3.cli.test", apikey="cli-key-1"), (200, "GET /s3/r2/x cli1"))
        same(adc.stand.served("/s3/r2/x", host="s3.cli.test")[0], 401)

    @checks.one("sync again writes nothing")
    def _():
        before = {kind: api.get(f"/{kind}").expect(200) for kind in ("routes", "services", "upstreams", "consumers", "plugin_metadata")}
        adc.run("sync", "-f", file)
        for kind, body in before.items():
            same(api.get(f"/{kind}").expect(200), body)

    @checks.one("a dump, synced back, changes nothing")
    def _():
        dump = adc.stand.folder / "dump.yaml"
        adc.run("dump", "-o", dump)
        # Without its key the certificate is not one to the linter.
        same(adc.changes(dump, "--no-lint"), [0, 0, 0])


def the_same_file(checks, adc, configuration):
    file = adc.file("adc", configuration)

    @checks.one("what ADC wrote is no change to lockgate")
    def _():
        plan = adc.lockgate("plan", file)
        same([plan["format"], plan["changes"]], ["adc", []])

    @checks.one("what lockgate wrote is no difference to ADC")
    def _():
        nested = copy.deepcopy(configuration)
        cert, key = pem.pair("two.test")
        # With a second pair ADC could not read it back: no server shows the keys that it looks for.
        nested["ssls"].append({"snis": ["two.test", "www.two.test"], "certificates": [{"certificate": cert, "key": key}]})
        checked = {"active": {"http_path": "/up", "healthy": {"successes": 1}, "unhealthy": {"timeouts": 1}},
                   "passive": {"healthy": {}, "unhealthy": {"http_failures": 2}}}
        node = configuration["services"][0]["upstream"]["nodes"][0]
        upstream = {"nodes": [{**node, "port": str(node["port"])}], "checks": checked, "keepalive_pool": {"size": 5}, "retries": 2,
                    "timeout": {"connect": 1, "send": 1, "read": 1}}
        nested["services"].append({
            "name": "more", "description": "more", "labels": {"one": "a"}, "upstream": upstream,
            "upstreams": [{"name": "canary", **copy.deepcopy(upstream)}], "plugins": {"cors": {}},
            "routes": [{"name": "r", "uris": ["/more"], "vars": [["arg_a", "==", "b"]], "priority": 3,
                        "timeout": {"connect": 1, "send": 1, "read": 1}, "remote_addrs": ["127.0.0.0/8"]},
                       {"name": "own id", "id": "own-id", "uris": ["/own"]}]})
        nested["consumers"].append({"username": "more", "description": "d", "plugins": {"cors": {}}, "credentials": [
            {"name": "phone", "type": "key-auth", "config": {"key": "more-key"}, "labels": {"a": "b"}}]})
        more = adc.file("more", nested)
        holds(len(adc.lockgate("apply", more)["changes"]) == 8, adc.checks.last)
        same(adc.changes(more), [0, 0, 0])
        adc.run("sync", "-f", more)
        same(adc.lockgate("plan", more)["changes"], [])
        # Back again, not by ADC, which ends with 1 wherever a consumer goes with a credential.
        adc.lockgate("apply", file)
        same(adc.changes(file), [0, 0, 0])


def edits(checks, adc, api, configuration):
    @checks.one("an edit of one route writes that route")
    def _():
        edited = copy.deepcopy(configuration)
        del edited["ssls"]
        edited["services"][0]["routes"][0]["description"] = "edited"
        del edited["services"][1]["routes"][3]
        file = adc.file("edited", edited)
        before = {item["key"]: item["modifiedIndex"] for item in api.get("/routes").expect(200)["list"]}
        same(adc.changes(file), [0, 1, 2])
        adc.run("sync", "-f", file)
        after = {item["key"]: item["modifiedIndex"] for item in api.get("/routes").expect(200)["list"]}
        same([len(before), len(after), sum(before[key] != index for key, index in after.items())], [20, 19, 1])
        same(adc.changes(file), [0, 0, 0])

    @checks.one("sync of nothing deletes everything")
    def _():
        nothing = adc.file("nothing", {})
        # ADC deletes a consumer, then its credentials, which went with it, and ends with 1: its own fault.
        adc.run("sync", "-f", nothing, wanted=1)
        adc.run("sync", "-f", nothing)
        for kind in ("routes", "services", "upstreams", "consumers", "ssls", "global_rules", "plugin_metadata"):
            api.get(f"/{kind}").expect(200, total=0)


def certificates(checks, adc, api):
    @checks.one("an upstream with a private key of its own: nothing differs after it was synced")
    def _():
        cert, key = pem.pair("client.test")
        file = adc.file("mtls", {"services": [{"name": "mtls", "upstream": {
            "scheme": "https", "nodes": [{"host": "127.0.0.1", "port": 1, "weight": 1}],
            "tls": {"client_cert": cert, "client_key": key}}, "routes": [{"name": "r", "uris": ["/mtls"]}]}]})
        adc.run("sync", "-f", file)
        same(adc.changes(file), [0, 0, 0])
        # A viewer does not see the key.
        same(adc.changes(file, key=VIEWER_KEY), [0, 1, 0])
        holds("PRIVATE" not in api.get("/upstreams", key=VIEWER_KEY).text, "a viewer sees a private key")
        adc.run("sync", "-f", adc.file("nothing", {}))


def adc_standalone(program):
    """The backend that sends the whole configuration at once."""
    def run(checks, api, stand):
        adc = Adc(checks, program, stand, "apisix-standalone")
        configuration = of(stand)
        # Its read copy of metadata has a member too many: always changed, whatever the server does.
        del configuration["plugin_metadata"]
        file = adc.file("whole", configuration)

        @checks.one("sync, diff, requests")
        def _():
            adc.run("sync", "-f", file)
            same(adc.changes(file), [0, 0, 0])
            same(stand.served("/s3/r2/x", host="s3.cli.test", apikey="cli-key-1"), (200, "GET /s3/r2/x cli1"))

        @checks.one("an edit, and nothing at all")
        def _():
            edited = copy.deepcopy(configuration)
            del edited["services"][0]
            adc.run("sync", "-f", adc.file("whole-edited", edited))
            same([stand.served(f"/s{n}/r2/x", host=f"s{n}.cli.test", apikey="cli-key-1")[0] for n in (0, 1)], [404, 200])
            adc.run("sync", "-f", adc.file("whole-nothing", {}))
            same(stand.served("/s1/r2/x", host="s1.cli.test", apikey="cli-key-1")[0], 404)
    return run
