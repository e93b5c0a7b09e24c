"""apisix-client from PyPI: everything it can do, as a program would do it.

It cannot read back what its models have no type for: a route's upstream written in place, and any
plugins. What is read here therefore has neither; what has them is written, and served.
"""

import apisix_client
from apisix_client.common import Pagging
from apisix_client.consumer.models import Consumer
from apisix_client.plugin.models import KeyAuth, KeyAuthSettings, ProxyRewrite
from apisix_client.route.models import Route
from apisix_client.service.models import Service
from apisix_client.upstream.models import Node, Upstream

from checks import holds, same


def sdk(checks, api, stand):
    # The address has to end in a slash: the client adds `apisix/admin`.
    client = apisix_client.ApisixClient(base_url=api.base.removesuffix("apisix/admin"), api_key=api.key)
    host, port = stand.upstream.split(":")
    nodes = [Node(host=host, port=int(port), weight=1)]
    client.upstream.create_or_update(Upstream(nodes=nodes), "of-routes")
    resources(checks, client, nodes)
    client.upstream.delete("of-routes")
    consumers(checks, client)
    together(checks, client, stand, nodes)
    closed = apisix_client.ApisixClient(base_url=api.base.removesuffix("apisix/admin"), api_key="wrong")

    @checks.one("a wrong key makes nothing")
    def _():
        same(closed.upstream.create_with_id_generation(Upstream(name="x", nodes=nodes)), None)
        same(client.upstream.count(), 0)


def resources(checks, client, nodes):
    """Upstreams, services and routes have the same methods."""
    kinds = [
        ("upstream", client.upstream, lambda name: Upstream(name=name, desc="d", nodes=nodes, labels={"a": "b"}, retries=2)),
        ("service", client.service, lambda name: Service(name=name, upstream=Upstream(nodes=nodes), hosts=["sdk.test"])),
        ("route", client.route, lambda name: Route(name=name, uri=f"/{name}", methods=["GET"], upstream_id="of-routes")),
    ]
    for kind, api, make in kinds:
        @checks.one(f"{kind}: create, get, update, list, pages, count, delete")
        def _(api=api, make=make, kind=kind):
            others = 1 if kind == "upstream" else 0
            same([api.get("none"), len(api.get_all()), api.count()], [None, others, others])
            made = api.create_with_id_generation(make("generated"))
            holds(made and made.isdigit() and len(made) == 20, f"an id of {made!r}")
            same(api.create_or_update(make("named"), "by-name"), "by-name")
            got = api.get("by-name")
            same([got.key, got.value.id, got.value.name], [f"/apisix/{kind}s/by-name", "by-name", "named"])
            same(got.created_index, got.modified_index)
            holds(got.created_index > 0 and got.value.create_time.year > 2000, got)
            same(api.create_or_update(make("renamed"), "by-name"), "by-name")
            again = api.get("by-name")
            same([again.value.name, again.created_index], ["renamed", got.created_index])
            holds(again.modified_index > got.modified_index, again)
            same(sorted({item.value.id for item in api.get_all()} - {"of-routes"}), sorted([made, "by-name"]))
            same([len(api.get_all(Pagging(1, 10))), len(api.get_all(Pagging(2, 10))), api.count()], [2 + others, 0, 2 + others])
            same([int(api.delete(made)), int(api.delete(made)), int(api.delete("by-name")), api.count()], [1, 0, 1, others])

        @checks.one(f"{kind}: what is not valid is not made")
        def _(api=api, make=make):
            wrong = make("x" * 300)
            same([api.create_or_update(wrong, "wrong"), api.get("wrong")], [None, None])


def consumers(checks, client):
    api = client.consumer

    @checks.one("consumer: create, get, update, list, count, delete")
    def _():
        same([api.get("sdk"), api.count()], [None, 0])
        same(api.create_or_update(Consumer(username="sdk", labels={"a": "b"})), True)
        got = api.get("sdk")
        same([got.key, got.value.username, got.value.labels], ["/apisix/consumers/sdk", "sdk", {"a": "b"}])
        same(api.create_or_update(Consumer(username="sdk", desc="d")), True)
        same([api.get("sdk").value.desc, len(api.get_all()), len(api.get_all((1, 10))), api.count()], ["d", 1, 1, 1])
        same([api.delete("sdk"), api.delete("sdk"), api.count()], [1, 0, 0])

    @checks.one("consumer: two with one key")
    def _():
        same(api.create_or_update(Consumer(username="a", plugins=[KeyAuth(key="shared")])), True)
        same(api.create_or_update(Consumer(username="b", plugins=[KeyAuth(key="shared")])), False)
        same([api.delete("a"), api.count()], [1, 0])


def together(checks, client, stand, nodes):
    @checks.one("plugins: names, reload")
    def _():
        holds({"key-auth", "proxy-rewrite"} <= set(client.plugin.get_available()), client.plugin.get_available())
        same(client.plugin.reload(), True)

    @checks.one("a route with plugins serves the consumer")
    def _():
        client.upstream.create_or_update(Upstream(name="u", nodes=nodes), "sdk-u")
        client.service.create_or_update(Service(name="s", upstream_id="sdk-u"), "sdk-s")
        plugins = [KeyAuthSettings(), ProxyRewrite(uri="/rewritten")]
        same(client.route.create_or_update(Route(uri="/sdk", service_id="sdk-s", plugins=plugins), "sdk-r"), "sdk-r")
        same(client.consumer.create_or_update(Consumer(username="sdkuser", plugins=[KeyAuth(key="sdk-secret")])), True)
        same(stand.served("/sdk")[0], 401)
        same(stand.served("/sdk", apikey="sdk-secret"), (200, "GET /rewritten sdkuser"))
        # In use: the service and the upstream stay.
        same([client.service.delete("sdk-s"), client.service.count()], [False, 1])
        same([int(client.route.delete("sdk-r")), int(client.service.delete("sdk-s")), int(client.upstream.delete("sdk-u")),
              client.consumer.delete("sdkuser")], [1, 1, 1, 1])
