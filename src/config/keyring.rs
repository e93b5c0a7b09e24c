//! What APISIX keeps encrypted in etcd, and how: private keys, and the secret members of plugins.
//!
//! The cipher is AES in CBC with the key as its start, in base64, so equal texts have equal
//! ciphers. It keeps secrets out of a casual look at etcd, no more; it is here so that gateways and
//! APISIX can share one.

use openssl::base64::{decode_block, encode_block};
use openssl::symm::{Cipher, decrypt, encrypt};
use serde_json::{Map, Value};

use super::kind::{Key, Kind};

/// Keys of 16 or 32 bytes. The first one encrypts, all of them decrypt. Without any, nothing is done.
#[derive(Clone, Default)]
pub struct Keyring {
    keys: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Keyring {
    /// Without the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring {{ {} keys }}", self.keys.len())
    }
}

/// How private keys begin; what begins so is not encrypted yet.
const PEM: &str = "---";

/// Members of plugins that are encrypted: plugin, path. A list on the way stands for each of its items.
/// Source: APISIX 3.18.
const PLUGINS: &[(&str, &[&str])] = &[
    ("key-auth", &["key"]),
    ("basic-auth", &["password"]),
    ("jwt-auth", &["secret"]),
    ("hmac-auth", &["secret_key"]),
    ("jwe-decrypt", &["key", "secret"]),
    ("csrf", &["key"]),
    (
        "openid-connect",
        &["client_secret", "client_rsa_private_key"],
    ),
    ("authz-keycloak", &["client_secret"]),
    ("authz-casdoor", &["client_secret"]),
    ("cas-auth", &["cookie.secret"]),
    ("ldap-auth-advanced", &["ldap_password"]),
    ("limit-count", &["redis_password", "sentinel_password"]),
    ("limit-conn", &["redis_password"]),
    ("limit-req", &["redis_password"]),
    (
        "limit",
        &["store.redis_password", "store.sentinel_password"],
    ),
    ("http-logger", &["auth_header"]),
    ("clickhouse-logger", &["password"]),
    ("elasticsearch-logger", &["auth.password", "headers"]),
    ("loki-logger", &["headers"]),
    ("kafka-logger", &["brokers.sasl_config.password"]),
    ("kafka-proxy", &["sasl.password"]),
    ("splunk-hec-logging", &["endpoint.token"]),
    ("google-cloud-logging", &["auth_config.private_key"]),
    ("sls-logger", &["access_key_secret"]),
    ("tencent-cloud-cls", &["secret_key"]),
    ("rocketmq-logger", &["secret_key"]),
    ("loggly", &["customer_token"]),
    ("lago", &["token"]),
    ("openwhisk", &["service_token"]),
    ("openfunction", &["authorization.service_token"]),
    ("azure-functions", &["authorization.apikey"]),
];
/// Members that are secrets and stay as they are in etcd, as APISIX, which may read the same prefix, keeps
/// them there in clear; they are not shown.
const ONLY_HIDDEN: &[(&str, &[&str])] = &[
    ("limit-conn", &["sentinel_password"]),
    ("limit-req", &["sentinel_password"]),
];
/// The same as `PLUGINS` of their metadata.
const METADATA: &[(&str, &[&str])] = &[
    ("azure-functions", &["master_apikey"]),
    (
        "error-log-logger",
        &["clickhouse.password", "kafka.brokers.sasl_config.password"],
    ),
];

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Seal,
    Open,
}

impl Keyring {
    /// A ring of keys.
    ///
    /// # Errors
    /// When one has a length that no cipher takes.
    pub fn new(keys: Vec<String>) -> Result<Keyring, String> {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(String::into_bytes).collect();
        match keys.iter().find(|key| cipher(key).is_none()) {
            Some(key) => Err(format!("a key has 16 or 32 bytes, not {}", key.len())),
            None => Ok(Keyring { keys }),
        }
    }

    /// Whether it does anything.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a private key looks encrypted. Where nothing is, none does.
    pub fn is_sealed(&self, key: &str) -> bool {
        let bytes = decode_block(key).unwrap_or_default();
        !self.is_empty() && !bytes.is_empty()
    }

    /// Encrypts what is to be stored.
    pub fn seal(&self, key: &Key, value: &mut Value) {
        self.turn(Way::Seal, key, value);
    }

    /// Decrypts what was stored. What is not encrypted stays as it is.
    pub fn open(&self, key: &Key, value: &mut Value) {
        self.turn(Way::Open, key, value);
    }

    fn turn(&self, way: Way, key: &Key, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        walk(key, value, &mut |place, text| {
            if place == Place::Member || text.starts_with(PEM) == (way == Way::Seal) {
                self.text(way, text);
            }
        });
    }

    fn text(&self, way: Way, text: &mut String) {
        let turned = match way {
            Way::Seal => self.keys.first().and_then(|key| sealed(key, text)),
            Way::Open => self.keys.iter().find_map(|key| opened(key, text)),
        };
        if let Some(turned) = turned {
            *text = turned;
        }
    }
}

/// Where a secret is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A private key.
    Pem,
    /// A member of a plugin.
    Member,
}

/// Does something with every secret of a resource.
fn walk(key: &Key, value: &mut Value, with: &mut dyn FnMut(Place, &mut String)) {
    let pem = |value: &mut Value, with: &mut dyn FnMut(Place, &mut String)| {
        if let Value::String(text) = value {
            with(Place::Pem, text);
        }
    };
    match key.kind {
        Kind::Ssl => {
            let key = value.get_mut("key");
            key.into_iter().for_each(|key| pem(key, with));
            let more = value.get_mut("keys").and_then(Value::as_array_mut);
            more.into_iter().flatten().for_each(|key| pem(key, with));
        }
        Kind::Upstream => {
            let key = value.pointer_mut("/tls/client_key");
            key.into_iter().for_each(|key| pem(key, with));
        }
        Kind::PluginMetadata => {
            let fields = METADATA.iter().find(|(name, _)| *name == &*key.id);
            for path in fields.iter().flat_map(|(_, paths)| paths.iter()) {
                member(value, path, with);
            }
        }
        _ => {
            let key = value.pointer_mut("/upstream/tls/client_key");
            key.into_iter().for_each(|key| pem(key, with));
            let Some(plugins) = value.get_mut("plugins").and_then(Value::as_object_mut) else {
                return;
            };
            members(plugins, PLUGINS, with);
        }
    }
}

fn members(
    plugins: &mut Map<String, Value>,
    of: &[(&str, &[&str])],
    with: &mut dyn FnMut(Place, &mut String),
) {
    for (name, paths) in of {
        if let Some(conf) = plugins.get_mut(*name) {
            paths.iter().for_each(|path| member(conf, path, with));
        }
    }
}

fn member(value: &mut Value, path: &str, with: &mut dyn FnMut(Place, &mut String)) {
    if let Value::Array(list) = value {
        list.iter_mut().for_each(|item| member(item, path, with));
        return;
    }
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    match value.get_mut(name) {
        None => {}
        Some(inner) if !rest.is_empty() => member(inner, rest, with),
        Some(inner) => all(inner, with),
    }
}

/// Every text in a value.
fn all(value: &mut Value, with: &mut dyn FnMut(Place, &mut String)) {
    match value {
        Value::String(text) => with(Place::Member, text),
        Value::Array(list) => list.iter_mut().for_each(|item| all(item, with)),
        Value::Object(map) => map.values_mut().for_each(|item| all(item, with)),
        _ => {}
    }
}

/// What stands for a secret that is not shown.
const HIDDEN: &str = "***";

/// Puts a mark in the place of every secret of a resource: whether a store encrypts or not, and
/// whether this one was encrypted or not. The shape stays.
pub fn hide(key: &Key, value: &mut Value) {
    walk(key, value, &mut |_, text| HIDDEN.clone_into(text));
    if let Some(plugins) = value.get_mut("plugins").and_then(Value::as_object_mut) {
        members(plugins, ONLY_HIDDEN, &mut |_, text| HIDDEN.clone_into(text));
    }
    if key.kind == Kind::Secret {
        // What it takes to get into a vault; how that is called differs from one to the next.
        for (name, inner) in value.as_object_mut().into_iter().flatten() {
            if !OPEN.contains(&name.as_str()) {
                all(inner, &mut |_, text| HIDDEN.clone_into(text));
            }
        }
    }
    hide_private_keys(value);
}

/// What says where a vault is, and not how to get in.
const OPEN: &[&str] = &[
    "id",
    "uri",
    "prefix",
    "namespace",
    "region",
    "endpoint_url",
    "auth_file",
    "desc",
    "labels",
];

/// Members that hold a private key, whatever they are in.
const PRIVATE: &[&str] = &["client_key", "private_key", "client_rsa_private_key"];
/// What a private key has in it, under whatever name.
const PEM_PRIVATE: &str = "PRIVATE KEY-----";

/// Private keys, wherever they are: upstreams are inside of plugins, too, and plugins have their own.
/// What was read is not nested too deeply for this.
fn hide_private_keys(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(PEM_PRIVATE) => HIDDEN.clone_into(text),
        Value::Array(list) => list.iter_mut().for_each(hide_private_keys),
        Value::Object(map) => {
            for (name, inner) in map {
                match PRIVATE.contains(&name.as_str()) {
                    true => all(inner, &mut |_, text| HIDDEN.clone_into(text)),
                    false => hide_private_keys(inner),
                }
            }
        }
        _ => {}
    }
}

fn cipher(key: &[u8]) -> Option<Cipher> {
    match key.len() {
        16 => Some(Cipher::aes_128_cbc()),
        32 => Some(Cipher::aes_256_cbc()),
        _ => None,
    }
}

fn sealed(key: &[u8], text: &str) -> Option<String> {
    let bytes = encrypt(cipher(key)?, key, Some(key.get(..16)?), text.as_bytes()).ok()?;
    Some(encode_block(&bytes))
}

fn opened(key: &[u8], text: &str) -> Option<String> {
    // An empty block would be accepted, and mean nothing.
    let bytes = decode_block(text).ok().filter(|bytes| !bytes.is_empty())?;
    let bytes = decrypt(cipher(key)?, key, Some(key.get(..16)?), &bytes).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ring(keys: &[&str]) -> Keyring {
        Keyring::new(keys.iter().map(|key| (*key).to_owned()).collect()).unwrap()
    }

    #[test]
    fn as_in_apisix() {
        let ring = ring(&["qeddd145sfvddff3", "edd1c9f0985e76a2"]);
        let check = |path: &str, plain: Value, stored: Value| {
            let key = Key::from_path(path).unwrap();
            let mut got = plain.clone();
            ring.seal(&key, &mut got);
            assert_eq!(got, stored, "{path}");
            ring.open(&key, &mut got);
            assert_eq!(got, plain, "{path}");
        };
        check(
            "consumers/jack",
            json!({"plugins": {"key-auth": {"key": "auth-one"}}}),
            json!({"plugins": {"key-auth": {"key": "4y+JvURBE6ZwRbbgaryrhg=="}}}),
        );
    }

    #[test]
    fn what_is_hidden() {
        let check = |path: &str, mut value: Value, shown: Value| {
            hide(&Key::from_path(path).unwrap(), &mut value);
            assert_eq!(value, shown, "{path}");
        };
        check(
            "secrets/vault/1",
            json!({"uri": "http://vault.test", "prefix": "kv", "token": "t", "namespace": "n"}),
            json!({"uri": "http://vault.test", "prefix": "kv", "token": "***", "namespace": "n"}),
        );
        check(
            "secrets/gcp/1",
            json!({"auth_config": {"private_key": "k", "scope": ["s"]}}),
            json!({"auth_config": {"private_key": "***", "scope": ["***"]}}),
        );
        let split = |key: &str| {
            let upstream = json!({"nodes": {}, "tls": {"client_cert": "c", "client_key": key}});
            json!({"plugins": {"traffic-split": {"rules": [{"weighted_upstreams": [{"upstream": upstream}]}]}}})
        };
        check("routes/1", split("k"), split("***"));
        let upstream = |key: &str| json!({"tls": {"client_cert": "c", "client_key": key}});
        check("upstreams/1", upstream("k"), upstream("***"));
        // In places where none belongs, too.
        check(
            "routes/1",
            json!({"client_key": ["k"]}),
            json!({"client_key": ["***"]}),
        );
        let strange = |key: &str| json!({"plugins": {"x": {"tls": [{"client_key": {"pem": key}}], "cert": "c"}}});
        check("routes/1", strange("k"), strange("***"));
        let pem = "-----BEGIN EC PRIVATE KEY-----\nx\n-----END EC PRIVATE KEY-----";
        let named = |text: &str| json!({"plugins": {"x": {"identity": text}}});
        check("services/1", named(pem), named("***"));
    }

    /// Values of a schema that have one text each: one whose name says that it is a secret.
    fn secrets(root: &Value, schema: &Value, name: &str) -> Vec<Value> {
        if let Some(place) = schema["$ref"].as_str() {
            return secrets(root, root.pointer(&place[1..]).unwrap(), name);
        }
        let parts = ["password", "secret", "token"];
        let is_text = schema["type"].to_string().contains("\"string\"");
        let mut out = Vec::new();
        if is_text && parts.iter().any(|part| name.contains(part)) {
            out.push(json!("SECRET"));
        }
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            let inner = secrets(root, inner, name).into_iter();
            out.extend(inner.map(|inner| json!({ name: inner })));
        }
        let items = secrets_of(root, &schema["items"], name);
        out.extend(items.into_iter().map(|item| json!([item])));
        for more in ["anyOf", "oneOf", "allOf"] {
            let more = schema[more].as_array().into_iter().flatten();
            out.extend(more.flat_map(|schema| secrets(root, schema, name)));
        }
        out
    }

    fn secrets_of(root: &Value, schema: &Value, name: &str) -> Vec<Value> {
        match schema.is_object() {
            true => secrets(root, schema, name),
            false => Vec::new(),
        }
    }

    #[test]
    fn no_secret_of_a_schema_is_shown() {
        let mut seen = 0;
        for def in lockgate_plugins::ALL {
            let plugin = [Some((def.schema)()), def.credential.map(|c| (c.schema)())];
            for schema in plugin.into_iter().flatten() {
                for conf in secrets(&schema, &schema, "") {
                    let mut value = json!({ "plugins": { def.name: conf } });
                    let told = value.to_string();
                    hide(&Key::new(Kind::Route, "1"), &mut value);
                    assert!(!value.to_string().contains("SECRET"), "{told}");
                    seen += 1;
                }
            }
            if let Some(schema) = def.metadata.map(|(schema, _)| schema()) {
                for mut value in secrets(&schema, &schema, "") {
                    hide(&Key::new(Kind::PluginMetadata, def.name), &mut value);
                    assert!(
                        !value.to_string().contains("SECRET"),
                        "{} {value}",
                        def.name
                    );
                }
            }
        }
        assert!(seen > 6, "{seen}: where are those of the limits?");
    }

    #[test]
    fn every_place() {
        let ring = ring(&["qeddd145sfvddff3", "0123456789abcdef0123456789abcdef"]);
        let check = |path: &str, plain: Value, hidden: usize| {
            let key = Key::from_path(path).unwrap();
            let mut got = plain.clone();
            ring.seal(&key, &mut got);
            let shown = got.to_string();
            assert_eq!(shown.matches("SECRET").count(), hidden, "{shown}");
            ring.open(&key, &mut got);
            assert_eq!(got, plain, "{path}");
        };
        let tls = json!({"client_cert": "SECRET", "client_key": "---SECRET"});
        check(
            "ssls/1",
            json!({"cert": "SECRET", "key": "---SECRET", "keys": ["---SECRET"]}),
            1,
        );
        check("upstreams/1", json!({"tls": tls}), 1);
        check(
            "routes/1",
            json!({"upstream": {"tls": tls}, "plugins": {"csrf": {"key": "SECRET"}}}),
            1,
        );
        check(
            "routes/1",
            json!({"plugins": {"loki-logger": {"headers": {"a": "SECRET", "b": ["SECRET"]}}}}),
            0,
        );
        check(
            "routes/1",
            json!({"plugins": {"kafka-logger": {"brokers": [{"sasl_config": {"password": "SECRET"}}]}}}),
            0,
        );
        check(
            "plugin_metadata/azure-functions",
            json!({"master_apikey": "SECRET", "other": "SECRET"}),
            1,
        );
        check(
            "consumers/a/credentials/b",
            json!({"plugins": {"basic-auth": {"username": "SECRET", "password": "SECRET"}}}),
            1,
        );
        // With the second key it can be read, too; without the right one it stays.
        let key = Key::from_path("consumers/a").unwrap();
        let other = self::ring(&["0123456789abcdef0123456789abcdef"]);
        let plain = json!({"plugins": {"key-auth": {"key": "SECRET"}}});
        let mut value = plain.clone();
        other.seal(&key, &mut value);
        let stored = value.clone();
        ring.open(&key, &mut value);
        assert_eq!(value, plain);
        let mut value = stored.clone();
        self::ring(&["aaaaaaaaaaaaaaaa"]).open(&key, &mut value);
        assert_eq!(value, stored);
        assert!(ring.is_sealed(&sealed(b"aaaaaaaaaaaaaaaa", "---SECRET").unwrap()));
        assert!(!ring.is_sealed("---SECRET") && !ring.is_sealed(""));
        assert!(!Keyring::default().is_sealed("AAAA"));
        // Nor is anything done without keys.
        let mut value = plain.clone();
        Keyring::default().seal(&key, &mut value);
        assert_eq!(value, plain);
        assert!(Keyring::new(vec!["short".into()]).is_err());
    }
}
