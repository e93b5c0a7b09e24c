//! A file of ADC. Ids were made with `printf NAME | sha1sum`.

use super::*;
use crate::document::read_yaml;

const SHOP: &str = "5042d146667518a1a5017644946b8650aafca44c";
const CART: &str = "e45f23531dbbf2d9649c1670b0e9b1e9fae6369a";
const CANARY: &str = "1b60218f3f97e0b00a839c93cca7be7215a13ce2";
const CERT: &str = "4df1a0ee959f7ced5301c4121a7326a17fd8ce0d";
const PHONE: &str = "2bee521c4e357da3ce498dc53c19f378d8547c2c";

const FILE: &str = r#"
services:
  - name: shop
    description: the shop
    labels: {team: orders, regions: [eu, us]}
    hosts: [shop.test]
    upstream:
      nodes: [{host: 127.0.0.1, port: 8080, weight: 1}]
    upstreams:
      - name: canary
        nodes: [{host: 127.0.0.1, port: "8081", weight: 1}]
        checks: {active: {http_path: /up, unhealthy: {timeouts: 1}}}
    routes:
      - name: cart
        uris: [/cart/*]
        methods: [GET]
        timeout: {connect: 1, send: 2, read: "3"}
        plugins: {key-auth: {}}
      - {name: pay, id: pay, uris: [/pay], priority: 7}
  - name: bare
    routes: [{name: r, uris: [/bare], plugins: {mocking: {response_example: bare}}}]
consumers:
  - username: ann
    credentials:
      - {name: phone, type: key-auth, config: {key: ann-key}}
ssls:
  - snis: [shop.test, www.shop.test]
    certificates:
      - {certificate: one, key: --one}
      - {certificate: two, key: --two}
global_rules:
  cors: {max_age: 7}
plugin_metadata:
  cors: {allow_origins: {own: "https://shop.test"}}
"#;

fn document_of(text: &str) -> Value {
    read_yaml(text.as_bytes(), "adc.yaml")
        .unwrap()
        .value()
        .clone()
}

/// The resources of a file, by path.
fn resources(text: &str) -> Vec<(String, Value)> {
    let found = document(&document_of(text), "", Ids::Needed, None);
    let (format, wants) = found.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(format, Format::Adc);
    let wants = wants.into_iter().map(|want| match want.what {
        What::Value(value) => (want.key.to_string(), value),
        other => panic!("{other:?}"),
    });
    wants.collect()
}

#[test]
fn everything_becomes_what_adc_sends() {
    let upstream = |name: &str, port: u16| {
        json!({"name": name, "nodes": [{"host": "127.0.0.1", "port": port, "weight": 1, "priority": 0}],
               "type": "roundrobin", "scheme": "http", "pass_host": "pass"})
    };
    let mut canary = upstream("canary", 8081);
    canary["labels"] = json!({"__ADC_UPSTREAM_SERVICE_ID": SHOP});
    canary["checks"] = json!({"active": {
        "http_path": "/up", "type": "http", "timeout": 1, "concurrency": 10, "https_verify_certificate": true,
        "unhealthy": {"timeouts": 1, "interval": 1, "http_failures": 5, "tcp_failures": 2,
            "http_statuses": [429, 404, 500, 501, 502, 503, 504, 505]}}});
    let bare = "b9e2c5c9b81ab1605f269dab3ed81a8dd42016cb";
    let expected = [
        (format!("upstreams/{SHOP}"), upstream("shop", 8080)),
        (
            format!("services/{SHOP}"),
            json!({"name": "shop", "desc": "the shop", "upstream_id": SHOP, "hosts": ["shop.test"],
                   "labels": {"team": "orders", "regions": "[\"eu\",\"us\"]", "managed-by": "adc"}}),
        ),
        (format!("upstreams/{CANARY}"), canary),
        (
            format!("routes/{CART}"),
            json!({"name": "cart", "uris": ["/cart/*"], "methods": ["GET"], "plugins": {"key-auth": {}},
                   "timeout": {"connect": 1, "send": 2, "read": 3},
                   "labels": {"managed-by": "adc"}, "service_id": SHOP, "status": 1}),
        ),
        (
            "routes/pay".to_owned(),
            json!({"name": "pay", "uris": ["/pay"], "priority": 7, "labels": {"managed-by": "adc"},
                   "service_id": SHOP, "status": 1}),
        ),
        (
            format!("services/{bare}"),
            json!({"name": "bare", "labels": {"managed-by": "adc"}}),
        ),
        (
            "routes/95bbd735d82cad3464f28d77e82dfb0dba37efdb".to_owned(),
            json!({"name": "r", "uris": ["/bare"], "labels": {"managed-by": "adc"}, "service_id": bare, "status": 1,
                   "plugins": {"mocking": {"response_example": "bare"}}}),
        ),
        (
            format!("ssls/{CERT}"),
            json!({"snis": ["shop.test", "www.shop.test"], "type": "server", "status": 1,
                   "cert": "one", "key": "--one", "certs": ["two"], "keys": ["--two"],
                   "labels": {"managed-by": "adc"}}),
        ),
        (
            "consumers/ann".to_owned(),
            json!({"username": "ann", "labels": {"managed-by": "adc"}}),
        ),
        (
            format!("consumers/ann/credentials/{PHONE}"),
            json!({"name": "phone", "plugins": {"key-auth": {"key": "ann-key"}}}),
        ),
        (
            "global_rules/cors".to_owned(),
            json!({"plugins": {"cors": {"max_age": 7}}}),
        ),
        (
            "plugin_metadata/cors".to_owned(),
            json!({"allow_origins": {"own": "https://shop.test"}}),
        ),
    ];
    assert_eq!(resources(FILE), expected);
}

#[test]
fn an_id_that_is_written_stays() {
    let ids = |item: &str| {
        let text = format!("services: [{{name: shop, id: s, routes: [{item}]}}]");
        let found = resources(&text);
        found.into_iter().map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(
        ids("{name: cart, uris: [/]}"),
        ["services/s", &format!("routes/{CART}")]
    );
    assert_eq!(
        ids("{name: cart, id: c, uris: [/]}"),
        ["services/s", "routes/c"]
    );
    // The plain hash of the name: ADC takes it for one of its own, and makes that of both names.
    let plain = "{name: cart, id: 8bfb4e1aa590eab8f08f837b97acf5803a5737ed, uris: [/]}";
    assert_eq!(ids(plain), ["services/s", &format!("routes/{CART}")]);
}

#[test]
fn mistakes_are_told_where_they_are() {
    let check = |text: &str, expected: &[&str]| {
        let found = document(&document_of(text), "", Ids::Needed, Some(Format::Adc));
        let got = found.err().map(|e| problems(&e)).unwrap_or_default();
        assert_eq!(got, expected, "{text}");
    };
    check(
        "services: [{nam: a}, 7, {name: b, id: b/c}, {name: c, path_prefix: /c, upstream: 1, upstreams: [{}]}]",
        &[
            "services[0].nam: unknown key `nam` (did you mean `name`?)",
            "services[0].name: is required: ADC knows the resource by it",
            "services[1]: wrong type: expected a mapping",
            "services[2].id: expected a text of letters, digits, `-`, `_` and `.`",
            "services[3].path_prefix: has no effect in APISIX: ADC leaves it out there (write the prefix into `uris`, and `proxy-rewrite` to take it away)",
            "services[3].upstream: wrong type: expected a mapping",
            "services[3].upstreams[0].name: is required: ADC knows the resource by it",
        ],
    );
    check(
        "routes: []",
        &[
            "routes: unknown key `routes` (ADC allows: services, ssls, consumers, consumer_groups, global_rules, plugin_metadata)",
        ],
    );
    check(
        "consumers: [{username: ann, credentials: [{name: a}, {name: b, type: key-auth}]}]\nssls: [{}, {snis: [a], certificates: [{key: k}]}, {snis: [b]}]\nglobal_rules: [{id: 1}]\nconsumer_groups: [{name: g}]",
        &[
            "ssls[0].snis: is required: the names that the certificate is for",
            "ssls[1].certificates[0]: needs `certificate` and `key`",
            "ssls[2].certificates: needs at least one",
            "consumers[0].credentials[0].type: is required: one of key-auth, basic-auth, jwt-auth, hmac-auth",
            "consumers[0].credentials[1].config: is required: the configuration of that plugin",
            "global_rules: wrong type: ADC has a mapping here, from the names of plugins to their configurations",
            "consumer_groups: ADC reads consumer groups and never sends them: they would be lost (make them in the layout of apisix.yaml, or through the Admin API)",
        ],
    );
}

#[tokio::test]
async fn what_adc_does_not_see_stays() {
    let world = world();
    let own = [
        put("plugin_configs", "p", json!({"plugins": {}})),
        put("upstreams", "alone", upstream()),
        put(
            "routes",
            "alone",
            json!({"uri": "/alone", "upstream_id": "alone"}),
        ),
        put("services", "old", json!({"name": "old"})),
        put(
            "routes",
            "old",
            json!({"uri": "/old", "service_id": "old", "upstream": upstream()}),
        ),
        put("global_rules", "1", json!({"plugins": {"cors": {}}})),
        put("consumers", "bob", json!({"username": "bob"})),
    ];
    world.apply(json!({ "changes": own })).await;
    let text = FILE.split("ssls:").next().unwrap();
    let draft = world
        .plan(json!({ "resources": document_of(text) }))
        .await
        .unwrap();
    let mut gone: Vec<&str> = draft
        .steps
        .iter()
        .filter(|step| step.after.is_none())
        .map(|step| &*step.path)
        .collect();
    gone.sort_unstable();
    assert_eq!(
        gone,
        [
            "consumers/bob",
            "global_rules/1",
            "routes/old",
            "services/old"
        ]
    );
    world.write(&draft, "apply", Vec::new()).await;
    // The same again, as a body of its own, is no change.
    let again = world.plan(document_of(text)).await.unwrap();
    assert_eq!((again.steps.len(), again.unchanged), (0, 9));
}
