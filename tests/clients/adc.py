"""What ADC asks for, in its order: read everything, compare, write what differs, ten requests at a time.

ADC itself comes from no registry; `run.sh` drives it when it is given a checkout. These are the
requests that it makes with its backend `apisix`, with the habits that a server has to bear: the
version is taken from `Server`, a service's upstream is written the moment before the service, what
fails is tried three times more, and a second comparison has to find nothing.
"""

import concurrent.futures
import copy
import hashlib
import re
import time

import pem
from checks import same

# ADC's own: requests at once, tries after the first, and the pause between them.
AT_ONCE, RETRIES, PAUSE = 10, 3, 0.1
SERVICES, ROUTES_EACH, CONSUMERS = 6, 5, 4
# Kinds in the order in which ADC deletes, and in which it makes or changes.
DELETES = ["routes", "stream_routes", "services", "upstreams", "consumers", "ssls", "global_rules", "plugin_metadata",
           "credentials"]
PUTS = ["ssls", "services", "routes", "stream_routes", "consumers", "upstreams", "global_rules", "plugin_metadata",
        "credentials"]


def adc(checks, api, stand):
    run, wanted = Sync(api), configuration(stand)

    @checks.one("the version is in `Server`")
    def _():
        server = api.get("/routes").headers.get("Server", "")
        same(re.search(r"APISIX/(.*)", server).group(1), "3.18.0")

    @checks.one("validate")
    def _():
        lists = {kind: [] for kind in ("services", "routes", "stream_routes", "consumers", "ssls", "global_rules",
                                       "plugin_metadata", "upstreams")}
        for (kind, name), value in wanted.items():
            if kind in lists and kind != "plugin_metadata":
                lists[kind].append({**value, **({} if kind == "consumers" else {"id": name})})
        same(api.post("/configs/validate", lists).expect(200), {})

    @checks.one("sync of everything, then nothing differs")
    def _():
        made = run.sync(wanted)
        same(made["failed"], [])
        same(made["deleted"], [])
        same(run.difference(wanted), [])

    @checks.one("requests are served")
    def _():
        same(stand.served("/s3/r2/x", host="s3.adc.test", apikey="adc-key-1"), (200, "GET /s3/r2/x adc1"))
        same(stand.served("/s3/r2/x", host="s3.adc.test")[0], 401)

    @checks.one("sync again writes nothing")
    def _():
        same(run.sync(wanted), {"put": [], "deleted": [], "failed": []})

    @checks.one("an edit writes what it changed, and nothing else")
    def _():
        changed = copy.deepcopy(wanted)
        route = next(key for key in changed if key[0] == "routes")
        changed[route]["desc"] = "edited"
        gone = [key for key in changed if key[0] == "routes" and key != route][0]
        del changed[gone]
        made = run.sync(changed)
        same(made, {"put": [list(route)], "deleted": [list(gone)], "failed": []})
        same(run.difference(changed), [])

    @checks.one("sync of nothing deletes everything; credentials are gone with their consumers")
    def _():
        made = run.sync({})
        same(sorted({kind for kind, _ in made["failed"]}), ["credentials"])
        same(run.difference({}), [])
        same(run.sync({}), {"put": [], "deleted": [], "failed": []})


def identity(*names):
    """ADC's ids."""
    return hashlib.sha1(".".join(names).encode()).hexdigest()


def configuration(stand):
    """Resources by kind and id, as ADC sends them."""
    out = {}
    host, port = stand.upstream.split(":")
    for number in range(SERVICES):
        name = f"service {number}"
        service = identity(name)
        # ADC fills in defaults of its own before it sends.
        out["upstreams", service] = {
            "id": service, "name": name, "scheme": "http", "type": "roundrobin", "hash_on": "vars", "pass_host": "pass",
            "nodes": [{"host": host, "port": int(port), "weight": 1, "priority": 0}],
            "retry_timeout": 0, "timeout": {"connect": 60, "send": 60, "read": 60}}
        out["services", service] = {"id": service, "name": name, "desc": "from ADC", "labels": {"managed-by": "adc"},
                                    "hosts": [f"s{number}.adc.test"], "upstream_id": service}
        for at in range(ROUTES_EACH):
            route = identity(name, f"route {at}")
            out["routes", route] = {"id": route, "name": f"route {at}", "labels": {"team": '["a","b"]'},
                                    "uris": [f"/s{number}/r{at}/*"], "methods": ["GET"], "priority": 0, "service_id": service,
                                    "plugins": {"key-auth": {}}, "status": 1}
    for number in range(CONSUMERS):
        name, credential = f"adc{number}", identity(f"adc{number}", "key")
        out["consumers", name] = {"username": name, "plugins": {}}
        out["credentials", f"{name}/{credential}"] = {"id": credential, "name": "key",
                                                      "plugins": {"key-auth": {"key": f"adc-key-{number}"}}}
    cert, key = pem.pair("adc.test")
    ssl = identity("adc.test")
    out["ssls", ssl] = {"id": ssl, "status": 1, "type": "server", "snis": ["adc.test"], "cert": cert, "key": key}
    out["global_rules", "cors"] = {"plugins": {"cors": {"max_age": 7}}}
    out["plugin_metadata", "cors"] = {"allow_origins": {"own": "https://a.test"}}
    return out


def path_of(kind, name):
    if kind == "credentials":
        consumer, credential = name.split("/")
        return f"/consumers/{consumer}/credentials/{credential}"
    return f"/{kind}/{name}"


class Sync:
    def __init__(self, api):
        self.api = api

    def dump(self):
        """Everything that is there, by kind and id. The lists are asked for at once."""
        kinds = ["services", "routes", "upstreams", "ssls", "consumers", "plugin_configs", "global_rules", "plugin_metadata",
                 "stream_routes"]
        with concurrent.futures.ThreadPoolExecutor(len(kinds)) as pool:
            lists = dict(zip(kinds, pool.map(lambda kind: self.api.get(f"/{kind}"), kinds)))
        out = {}
        for kind, answer in lists.items():
            if kind == "stream_routes" and answer.status >= 400:
                continue
            for item in answer.expect(200)["list"]:
                out[kind, item["key"].split("/")[-1]] = item["value"]
        for consumer in [name for kind, name in out if kind == "consumers"]:
            answer = self.api.get(f"/consumers/{consumer}/credentials")
            if answer.status != 404:
                for item in answer.expect(200)["list"]:
                    out["credentials", f"{consumer}/{item['value']['id']}"] = item["value"]
        return out

    def difference(self, wanted):
        """Changes that lead from what is there to what is wanted."""
        there = self.dump()
        gone = [("delete", key) for key in there if key not in wanted]
        made = [("put", key) for key, value in wanted.items() if key not in there or comparable(key, value) != comparable(key, there[key])]
        order = {"delete": DELETES, "put": PUTS}
        return sorted(gone + made, key=lambda change: (change[0] == "put", order[change[0]].index(change[1][0])))

    def sync(self, wanted):
        """Carries the changes out, one kind after the other."""
        done = {"put": [], "deleted": [], "failed": []}
        changes = self.difference(wanted)
        # A service and the upstream of its id are one change to ADC.
        both = {key[1] for what, key in changes if key[0] == "services"}
        changes = [(what, key) for what, key in changes if not (key[0] == "upstreams" and key[1] in both)]
        while changes:
            first = (changes[0][0], changes[0][1][0])
            group = [change for change in changes if (change[0], change[1][0]) == first]
            changes = changes[len(group):]
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                for (what, key), failed in zip(group, pool.map(lambda change: self.carry_out(*change, wanted), group)):
                    done["failed" if failed else "put" if what == "put" else "deleted"].append(list(key))
        return done

    def carry_out(self, what, key, wanted):
        """One change; what was answered if it failed."""
        kind, name = key
        if kind == "services":
            keys = [key, ("upstreams", name)] if what == "delete" else [("upstreams", name), key]
        else:
            keys = [key]
        for kind, name in keys:
            for attempt in range(1 + RETRIES):
                if attempt:
                    time.sleep(PAUSE)
                if what == "delete":
                    answer = self.api.delete(path_of(kind, name))
                else:
                    answer = self.api.put(path_of(kind, name), wanted[kind, name])
                if answer.status < 300:
                    break
            else:
                return str(answer)
        return None


def comparable(key, value):
    """What ADC compares: neither times nor id, and no private key."""
    hidden = {"id", "create_time", "update_time"} | ({"key", "keys"} if key[0] == "ssls" else set())
    return {name: member for name, member in value.items() if name not in hidden}
