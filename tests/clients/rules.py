"""What holds for every request, whichever collection it is about: keys, filters, pages, references, requests served."""

import json
import urllib.parse

from checks import holds, same
from stand import VIEWER_KEY


def rules(checks, api, stand):
    access(checks, api)
    lists(checks, api, stand)
    references(checks, api, stand)
    shapes(checks, api, stand)
    schemas(checks, api)
    served(checks, api, stand)


def access(checks, api):
    @checks.one("401 without a key, with an empty one, with a wrong one")
    def _():
        wrong = lambda text: {"error_msg": "failed to check token", "description": text}
        same(api.get("/routes", key=None).expect(401), wrong("missing apikey"))
        same(api.get("/routes", key=None, headers={"X-API-KEY": ""}).expect(401), wrong("missing apikey"))
        same(api.get("/routes", key="other").expect(401), wrong("wrong apikey"))
        same(checks.last.headers.get("X-API-VERSION"), None)

    @checks.one("the key by query and by cookie")
    def _():
        api.get(f"/routes?api_key={api.key}", key=None).expect(200)
        api.get("/routes", key=None, headers={"Cookie": f"x_api_key={api.key}"}).expect(200)

    @checks.one("a viewer reads and writes nothing")
    def _():
        api.get("/routes", key=VIEWER_KEY).expect(200)
        for method in ("PUT", "POST", "PATCH", "DELETE"):
            api.ask(method, "/routes/v", {"uri": "/v"}, key=VIEWER_KEY).expect(
                401, description="invalid method for role viewer")

    @checks.one("HEAD of the root needs no key")
    def _():
        same(api.ask("HEAD", "", key=None).status, 200)
        same(checks.last.headers.get("Server"), "APISIX/3.18.0")

    @checks.one("CORS")
    def _():
        answer = api.ask("OPTIONS", "/routes/1", key=None)
        same(answer.status, 200)
        same({name: answer.headers.get(f"Access-Control-{name}") for name in
              ("Allow-Origin", "Allow-Methods", "Allow-Headers", "Allow-Credentials", "Max-Age")},
             {"Allow-Origin": "*", "Allow-Methods": "POST, GET, PUT, OPTIONS, DELETE, PATCH", "Allow-Headers": "*",
              "Allow-Credentials": "true", "Max-Age": "3600"})
        same(api.get("/routes").headers.get("Access-Control-Allow-Origin"), "*")

    @checks.one("a header name with underscores is no hindrance")
    def _():
        api.get("/routes", headers={"__dashboard__skipInterceptor": "404"}).expect(200)

    @checks.one("what is no collection")
    def _():
        same(api.get("/ssl").expect(404), {"error_msg": "Unsupported resource type: ssl"})
        same(api.get("/ssl/1").expect(404), {"error_msg": "Unsupported resource type: ssl"})

    @checks.one("a body of any type, and none that is too long")
    def _():
        body = json.dumps({"uri": "/typed", "plugins": {}}).encode()
        api.put("/routes/typed", body, headers={"Content-Type": "text/plain"}).expect(201)
        api.delete("/routes/typed").expect(200)
        long = b'{"uri":"/' + b"x" * 1_572_864 + b'"}'
        text = api.put("/routes/long", long).expect(400)["error_msg"]
        holds(text.startswith("invalid request body: request size"), text)


def lists(checks, api, stand):
    nodes = {stand.upstream: 1}

    @checks.one("pages, in the order in which they were made")
    def _():
        for n in reversed(range(12)):
            api.put(f"/routes/l{n:02}", {"uri": f"/l/{n}", "name": f"n-{n}", "labels": {"odd" if n % 2 else "even": "x"},
                                         "upstream": {"nodes": nodes}}).expect(201)
        ids = lambda body: [item["value"]["id"] for item in body["list"]]
        made = [f"l{n:02}" for n in reversed(range(12))]
        same(ids(api.get("/routes?page=1&page_size=10").expect(200, total=12)), made[:10])
        same(ids(api.get("/routes?page=2&page_size=10").expect(200, total=12)), made[10:])
        same(api.get("/routes?page=3&page_size=10").expect(200), {"list": [], "total": 12})
        same(ids(api.get("/routes").expect(200, total=12)), sorted(made))
        for size in (9, 501):
            answer = api.get(f"/routes?page=1&page_size={size}")
            same([answer.status, answer.text], [400, "page_size must be between 10 and 500"])

    @checks.one("filters")
    def _():
        total = lambda query: api.get("/routes?" + query).expect(200)["total"]
        same([total("name=^n-1"), total("label=odd"), total("uri=/l/[78]$"), total("label=odd&name=n-3"), total("labels=x")],
             [3, 6, 2, 1, 12])

    @checks.one("filter by service")
    def _():
        api.put("/services/l", {"upstream": {"nodes": nodes}}).expect(201)
        api.put("/routes/l00", {"uri": "/l/0", "service_id": "l"}).expect(200)
        query = urllib.parse.quote("service_id=l")
        same([item["value"]["id"] for item in api.get(f"/routes?filter={query}").expect(200, total=1)["list"]], ["l00"])

    @checks.one("all of them deleted")
    def _():
        for n in range(12):
            api.delete(f"/routes/l{n:02}").expect(200)
        api.delete("/services/l").expect(200)

    @checks.one("a time to live is a number")
    def _():
        same(api.put("/routes/ttl?ttl=x", {"uri": "/t", "plugins": {}}).expect(400),
             {"error_msg": "invalid argument ttl: should be a number"})
        api.put("/routes/ttl?ttl=600", {"uri": "/t", "plugins": {}}).expect(201)
        api.delete("/routes/ttl").expect(200)


def references(checks, api, stand):
    @checks.one("what is referred to has to be there")
    def _():
        text = api.put("/routes/x", {"uri": "/x", "service_id": "none"}).expect(400)["error_msg"]
        same(text, "failed to fetch service info by service id [none], response code: 404")
        text = api.put("/services/x", {"upstream_id": "none"}).expect(400)["error_msg"]
        same(text, "failed to fetch upstream info by upstream id [none], response code: 404")

    @checks.one("what is in use stays, unless by force")
    def _():
        api.put("/upstreams/used", {"nodes": {stand.upstream: 1}}).expect(201)
        api.put("/routes/user", {"uri": "/used", "upstream_id": "used"}).expect(201)
        same(api.delete("/upstreams/used").expect(400),
             {"error_msg": "can not delete this upstream, route [user] is still using it now"})
        api.delete("/upstreams/used?force=yes").expect(400)
        api.delete("/upstreams/used?force=true").expect(200)
        api.delete("/routes/user").expect(200)

    @checks.one("a key has one owner")
    def _():
        for name, status in (("one", 201), ("two", 400)):
            api.put("/consumers", {"username": name, "plugins": {"key-auth": {"key": "same"}}}).expect(status)
        api.delete("/consumers/one").expect(200)

    @checks.one("a credential needs its consumer, and goes with it")
    def _():
        body = {"plugins": {"key-auth": {"key": "with-consumer"}}}
        same(api.put("/consumers/nobody/credentials/c", body).expect(404), {"error_msg": "consumer not found"})
        api.put("/consumers", {"username": "bob"}).expect(201)
        api.put("/consumers/bob/credentials/c", body).expect(201)
        same([item["key"] for item in api.get("/consumers").expect(200, total=1)["list"]], ["/apisix/consumers/bob"])
        api.delete("/consumers/bob").expect(200)
        same(api.get("/consumers/bob/credentials").expect(404), {"message": "Key not found"})
        same(api.delete("/consumers/bob/credentials/c").expect(404), {"message": "Key not found"})

    @checks.one("a plugin is in one global rule")
    def _():
        api.put("/global_rules/1", {"plugins": {"cors": {}}}).expect(201)
        same(api.put("/global_rules/2", {"plugins": {"cors": {}}}).expect(400),
             {"error_msg": "plugin 'cors' already exists in global rule with id '1'"})
        api.delete("/global_rules/1").expect(200)


def shapes(checks, api, stand):
    """JSON comes back as it was sent, to the byte."""
    cases = {
        "nodes as a map": ("upstreams", '{"nodes":{"127.0.0.1:80":1,"a.test:0080":2}}'.replace("0080", "80")),
        "nodes as a list": ("upstreams", '{"nodes":[{"host":"127.0.0.1","port":80,"weight":1,"priority":-1,"metadata":{}}]}'),
        "a node without a port": ("upstreams", '{"nodes":[{"host":"127.0.0.1","weight":0}]}'),
        "no nodes, as a map": ("upstreams", '{"nodes":{}}'),
        "no nodes, as a list": ("upstreams", '{"nodes":[]}'),
        "empty maps and lists": ("routes", '{"uri":"/s","plugins":{},"vars":[],"labels":{},"upstream":{"nodes":[]}}'),
        "no plugins, as a list": ("services", '{"plugins":[],"labels":{}}'),
        "members nobody knows, where APISIX takes them": (
            "routes", '{"uri":"/s","timeout":{"connect":1,"send":1,"read":1.0,"own":[{},[],"x"]},'
                      '"upstream":{"nodes":[{"host":"a","port":1,"weight":1,"own":{"deep":[1,2.50,1e3]}}],'
                      '"checks":{"active":{"http_path":"/","own":{}}}}}'),
        "members of a plugin that it does not know": ("routes", '{"uri":"/s","plugins":{"cors":{"own":{"a":[]},"max_age":5}}}'),
        "large numbers, and small ones": ("routes", '{"uri":"/s","plugins":{"cors":{"own":[18446744073709551615,-9007199254740993,0.1]}}}'),
        "order, blanks, letters and line ends in texts": (
            "services", '{"name":"z","desc":"é — \\u0001 \\"quoted\\" a\\\\b\\nline\\r\\n","hosts":["b.test","a.test"],"enable_websocket":false}'),
    }
    for name, (collection, text) in cases.items():
        @checks.one(f"as it was sent: {name}")
        def _(collection=collection, text=text):
            path = f"/{collection}/shape"
            made = api.put(path, text.encode())
            made.expect(201)
            shown = api.get(path)
            shown.expect(200)
            listed = api.get(f"/{collection}")
            inside = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))[1:-1]
            api.delete(path).expect(200)
            for answer in (made, shown, listed):
                # serde and Python write numbers and escapes alike where they are compared here.
                holds(compact(answer.text).find(compact("{" + inside + ",").rstrip("}")) >= 0,
                      f"{inside}\n  is not in\n{answer.text}")

    @checks.one("members nobody knows are refused in a resource itself")
    def _():
        text = api.put("/routes/own", {"uri": "/s", "plugins": {}, "own": 1}).expect(400)["error_msg"]
        same(text, "invalid configuration: additional properties forbidden, found own")


def compact(text):
    """JSON text without what two writers may do differently: how they write a number or a control character."""
    return text.replace("1e3", "1000.0").replace("2.50", "2.5")


def schemas(checks, api):
    @checks.one("plugins: names, and everything about them")
    def _():
        names = api.get("/plugins/list").json
        holds(isinstance(names, list) and {"cors", "key-auth"} <= set(names), names)
        same(checks.last.headers.get("X-API-VERSION"), None)
        everything = api.get("/plugins?all=true").expect(200)
        same(sorted(everything), sorted(names))
        order = [everything[name]["priority"] for name in names]
        same(order, sorted(order, reverse=True))
        auth = everything["key-auth"]
        same([auth["type"], auth["priority"], sorted(auth["consumer_schema"]["required"])], ["auth", 2500, ["key"]])
        for name, plugin in everything.items():
            holds(plugin["schema"]["type"] == "object" and isinstance(plugin["schema"].get("properties", {}), dict), name)
            holds(plugin.get("metadata_schema") != {}, f"{name}: an empty metadata schema")

    @checks.one("a plugin's schema, under both names")
    def _():
        same(api.get("/schema/plugins/cors").expect(200), api.get("/plugins/cors").expect(200))
        holds("key" in api.get("/plugins/key-auth?schema_type=consumer").expect(200)["properties"], "no key")
        same(api.get("/plugins/none").expect(404), {"error_msg": "plugin not found in subsystem http"})

    @checks.one("schemas of resources")
    def _():
        for name in ("route", "service", "upstream", "consumer", "ssl", "global_rule", "plugin_config", "consumer_group"):
            holds(api.get(f"/schema/{name}").expect(200)["type"] == "object", name)
        same(api.get("/schema/none").expect(400), {"error_msg": "not found schema: none"})

    @checks.one("a resource is validated without being stored")
    def _():
        same([api.post("/schema/validate/routes", {"uri": "/a", "plugins": {}}).status, checks.last.text], [200, ""])
        holds("error_msg" in api.post("/schema/validate/routes", {"uris": []}).expect(400), "no error_msg")
        api.get("/routes").expect(200, total=0)

    @checks.one("a whole configuration is validated, every mistake is told")
    def _():
        same(api.post("/configs/validate", {"routes": [{"id": "a", "uri": "/a", "plugins": {}}]}).expect(200), {})
        body = {"routes": [{"id": "a", "uri": "/a", "plugins": {}}, {"id": "a", "uris": []}], "services": [{"id": "s", "own": 1}]}
        errors = api.post("/configs/validate", body).expect(400, error_msg="Configuration validation failed")["errors"]
        same(sorted({(e["resource_type"], e["resource_id"], e["index"]) for e in errors}),
             [["routes", "a", 1], ["services", "s", 0]])

    @checks.one("plugins/reload")
    def _():
        answer = api.put("/plugins/reload", None)
        same([answer.status, answer.text.strip()], [200, "done"])
        same(api.get("/plugins/reload").status, 405)


def served(checks, api, stand):
    @checks.one("what a PUT was answered for is served by the next request")
    def _():
        for n in range(20):
            api.put("/routes/live", {"uri": f"/live/{n}", "upstream": {"nodes": {stand.upstream: 1}}}).expect(201 if n == 0 else 200)
            same(stand.served(f"/live/{n}"), (200, f"GET /live/{n} -"))
            if n:
                same(stand.served(f"/live/{n - 1}")[0], 404)
        api.delete("/routes/live").expect(200)
        same(stand.served("/live/19")[0], 404)

    @checks.one("a credential opens a route")
    def _():
        api.put("/consumers", {"username": "eve"}).expect(201)
        api.put("/routes/closed", {"uri": "/closed", "plugins": {"key-auth": {}}, "upstream": {"nodes": {stand.upstream: 1}}}).expect(201)
        same(stand.served("/closed", apikey="eve-key")[0], 401)
        api.put("/consumers/eve/credentials/c", {"plugins": {"key-auth": {"key": "eve-key"}}}).expect(201)
        same(stand.served("/closed", apikey="eve-key"), (200, "GET /closed eve"))
        # Clients compare what they sent with what GET shows.
        same(api.get("/consumers/eve/credentials/c").expect(200)["value"]["plugins"], {"key-auth": {"key": "eve-key"}})
        for path in ("/routes/closed", "/consumers/eve"):
            api.delete(path).expect(200)
