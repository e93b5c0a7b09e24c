"""The whole configuration in one call: what ADC's backend `apisix-standalone`, and so the ingress controller, sends."""

import copy

from checks import same

# Milliseconds, as ADC counts versions: more than a double holds exactly once they are added to.
VERSION = 9_007_199_254_740_993


def whole(checks, api, stand):
    route = {"id": "r1", "modifiedIndex": VERSION, "uris": ["/whole"], "service_id": "s1"}
    first = {
        "services": [{"id": "s1", "modifiedIndex": VERSION, "upstream": {"nodes": [{"host": "127.0.0.1", "weight": 1,
                      "port": int(stand.upstream.split(":")[1])}]}}],
        "services_conf_version": VERSION, "routes": [route], "routes_conf_version": VERSION,
        "consumers": [{"username": "jack", "modifiedIndex": VERSION},
                      {"id": "jack/credentials/c1", "name": "c1", "modifiedIndex": VERSION, "plugins": {"key-auth": {"key": "k"}}}],
        "consumers_conf_version": VERSION,
    }

    @checks.one("nothing yet: HEAD without a key, versions of 0")
    def _():
        same(api.ask("HEAD", "", key=None).status, 200)
        same(api.ask("HEAD", "/configs").status, 200)
        body = api.get("/configs").expect(200)
        same(sorted(set(body.values())), [0])
        same(len(body), 13)

    @checks.one("a digest is needed, and a version that is a whole number")
    def _():
        api.put("/configs", first).expect(400, error_msg="missing digest header")
        for wrong in ("1", -1, 1.5, True):
            api.put("/configs", {**first, "routes_conf_version": wrong}, headers={"X-Digest": "a"}).expect(
                400, error_msg="routes_conf_version must be a " + ("number" if isinstance(wrong, (str, bool)) else "whole number"))

    @checks.one("PUT, and it is served")
    def _():
        same([api.put("/configs", first, headers={"X-Digest": "a"}).status, checks.last.text], [202, ""])
        same(checks.last.headers.get("X-Digest"), "a")
        same(stand.served("/whole"), (200, "GET /whole -"))

    @checks.one("what was sent comes back, versions to the last digit")
    def _():
        body = api.get("/configs").expect(200)
        for name in ("X-Last-Modified", "X-Digest"):
            body.pop(name)
        same({name: body[name] for name in first}, first)

    @checks.one("the same digest again changes nothing")
    def _():
        same(api.put("/configs", {"routes": []}, headers={"X-Digest": "a"}).status, 204)
        same(stand.served("/whole")[0], 200)

    @checks.one("a version that is one higher is newer, one lower is refused, the same is kept")
    def _():
        edited = copy.deepcopy(first)
        edited["routes"][0]["uris"] = ["/kept-out"]
        same(api.put("/configs", edited, headers={"X-Digest": "b"}).status, 202)
        same([stand.served("/whole")[0], stand.served("/kept-out")[0]], [200, 404])
        edited["routes_conf_version"] = VERSION - 1
        api.put("/configs", edited, headers={"X-Digest": "c"}).expect(
            400, error_msg=f"routes_conf_version must be greater than or equal to ({VERSION})")
        edited["routes_conf_version"] = VERSION + 1
        edited["routes"][0]["uris"] = ["/edited"]
        same(api.put("/configs", edited, headers={"X-Digest": "d"}).status, 202)
        same([stand.served("/whole")[0], stand.served("/edited")[0]], [404, 200])
        same(api.get("/configs").expect(200)["routes_conf_version"], VERSION + 1)

    @checks.one("other endpoints are not there, validation is")
    def _():
        same(api.get("/routes").status, 404)
        same(api.post("/configs/validate", {"routes": [route]}).expect(200), {})
