"""The collections of the Admin API, each with a resource and what may be done with it."""

import dataclasses

import pem


@dataclasses.dataclass
class Collection:
    """A collection. `patch` None: not allowed."""

    path: str
    called: str
    id: str
    body: dict
    other: dict
    patch: object = None
    post: bool = False
    # What the store adds to what was sent; plugin metadata has no times, a consumer no id.
    has_id: bool = True
    has_times: bool = True
    # Members that GET leaves out.
    hidden: tuple = ()
    # What the collection of an item below another one answers when it is empty.
    empty_is_404: bool = False
    # The id as it is stored, and the key, where they differ from the path.
    stored_id: str = ""
    key: str = ""
    in_body: str = "id"


def collections(upstream):
    """Every collection, those that others refer to first. `upstream`: a node's address."""
    cert, key = pem.pair("walk.test")
    nodes_map, nodes_list = {upstream: 1}, [{"host": "127.0.0.1", "port": int(upstream.split(":")[1]), "weight": 1}]
    return [
        Collection("/upstreams", "upstream", "u1", {"nodes": nodes_map, "type": "roundrobin", "labels": {}},
                   {"nodes": nodes_list, "retries": 0, "desc": "two\nlines"}, {"retries": 1}, post=True),
        Collection("/services", "service", "s1", {"name": "orders", "plugins": {}, "upstream": {"nodes": nodes_map}},
                   {"hosts": ["a.walk.test"], "plugins": {"cors": {}}, "upstream": {"nodes": nodes_list}},
                   {"name": "other"}, post=True),
        Collection("/plugin_configs", "plugin config", "p1", {"plugins": {"request-id": {}}},
                   {"desc": "x", "plugins": {"cors": {"allow_origins": "*"}}}, {"labels": {"a": "b"}}),
        Collection("/consumer_groups", "consumer group", "g1", {"plugins": {"response-rewrite": {"headers": {"set": {"a": "1"}}}}},
                   {"plugins": {}}, {"desc": "patched"}),
        Collection("/routes", "route", "r1", {"uri": "/walk", "upstream": {"nodes": nodes_map}, "vars": [], "labels": {"k": "v"}},
                   {"uris": ["/walk", "/walk/*"], "methods": ["GET"], "priority": 3, "upstream": {"nodes": nodes_list}},
                   {"desc": "patched", "priority": None}, post=True),
        Collection("/consumers", "consumer", "ann", {"username": "ann", "plugins": {"key-auth": {"key": "walk-ann"}}},
                   {"username": "ann", "desc": "x", "labels": {"a": "b"}}, has_id=False, in_body="username"),
        Collection("/consumers/ann/credentials", "credential", "c1", {"name": "one", "plugins": {"key-auth": {"key": "walk-c1"}}},
                   {"plugins": {"key-auth": {"key": "walk-c2"}}, "desc": "x"}, empty_is_404=True,
                   key="/apisix/consumers/ann/credentials/c1"),
        Collection("/ssls", "ssl", "t1", {"cert": cert, "key": key, "snis": ["walk.test"]},
                   {"cert": cert, "key": key, "sni": "walk.test", "labels": {"a": "b"}}, {"labels": {"c": "d"}}, post=True,
                   hidden=("key", "keys")),
        Collection("/global_rules", "global rule", "gr1", {"plugins": {"response-rewrite": {"headers": {"set": {"x-walk": "1"}}}}},
                   {"plugins": {"cors": {}}}, {"plugins": {"cors": {"max_age": 7}}}),
        Collection("/plugin_metadata", "plugin_metadata", "cors", {"allow_origins": {"a": "https://a.test"}},
                   {"allow_origins": {}}, has_times=False),
        Collection("/protos", "proto", "pb1", {"content": 'syntax = "proto3";\nmessage A { string a = 1; }\n'},
                   {"content": 'syntax = "proto3";\nmessage B {}\n', "desc": "x"}, post=True),
        Collection("/secrets/vault", "secret", "v1", {"uri": "http://127.0.0.1:8200", "prefix": "kv/a", "token": "t"},
                   {"uri": "http://127.0.0.1:8201", "prefix": "kv/b", "token": "u"}, {"prefix": "kv/c"},
                   stored_id="vault/v1", key="/apisix/secrets/vault/v1"),
        Collection("/stream_routes", "stream route", "sr1", {"server_port": 9100, "upstream": {"nodes": nodes_map}},
                   {"server_port": 9101, "labels": {"a": "b"}, "upstream": {"nodes": nodes_list}}, post=True),
    ]
