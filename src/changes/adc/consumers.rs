//! Consumers with their credentials, and certificates.

use serde_json::{Value, json};

use super::convert::{Made, Managed, Members, described, join, taken};
use super::defaults;
use crate::config::kind::Kind;

const CONSUMER: &[&str] = &[
    "username",
    "description",
    "labels",
    "plugins",
    "credentials",
];
const CREDENTIAL: &[&str] = &["id", "name", "description", "labels", "type", "config"];
const SSL: &[&str] = &[
    "id",
    "labels",
    "type",
    "snis",
    "certificates",
    "client",
    "ssl_protocols",
];
const CERTIFICATE: &[&str] = &["certificate", "key"];
/// Plugins that a credential may be for.
const CREDENTIALS: &[&str] = &["key-auth", "basic-auth", "jwt-auth", "hmac-auth"];

impl Made {
    pub(super) fn consumer(&mut self, item: &Members, place: &str) {
        self.known(item, CONSUMER, place);
        let Some(name) = self.name(item, "username", place) else {
            return;
        };
        let mut consumer = taken(item, &["username", "plugins"]);
        described(item, &mut consumer, Managed::Yes);
        self.add(Kind::Consumer, &name, place, consumer);
        self.each(item, "credentials", place, |made, item, place| {
            made.credential(item, place, &name);
        });
    }

    fn credential(&mut self, item: &Members, place: &str, consumer: &str) {
        self.known(item, CREDENTIAL, place);
        let Some((_, id)) = self.named(item, place, consumer) else {
            return;
        };
        let plugin = item.get("type").and_then(Value::as_str);
        let Some(plugin) = plugin.filter(|plugin| CREDENTIALS.contains(plugin)) else {
            let text = format!("is required: one of {}", CREDENTIALS.join(", "));
            self.out.add(&join(place, "type"), text);
            return;
        };
        let Some(Value::Object(config)) = item.get("config") else {
            let text = "is required: the configuration of that plugin";
            self.out.add(&join(place, "config"), text);
            return;
        };
        let mut credential = taken(item, &["name"]);
        described(item, &mut credential, Managed::No);
        credential.insert("plugins".to_owned(), json!({ plugin: config }));
        let id = format!("{consumer}/credentials/{id}");
        self.add(Kind::Credential, &id, place, credential);
    }

    pub(super) fn ssl(&mut self, item: &Members, place: &str) {
        self.known(item, SSL, place);
        let names = item.get("snis").and_then(Value::as_array);
        let names = names.map(|names| names.iter().filter_map(Value::as_str).collect::<Vec<_>>());
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            let text = "is required: the names that the certificate is for";
            self.out.add(&join(place, "snis"), text);
            return;
        };
        // A certificate's id is made of its names, whatever it belongs to.
        let Some(id) = self.id(item, place, &names.join(","), "") else {
            return;
        };
        let mut ssl = taken(item, &["snis", "type", "client", "ssl_protocols"]);
        described(item, &mut ssl, Managed::Yes);
        defaults::ssl(&mut ssl);
        ssl.insert("status".to_owned(), json!(1));
        let before = self.out.len();
        let mut pairs = Vec::new();
        self.each(item, "certificates", place, |made, pair, place| {
            made.known(pair, CERTIFICATE, place);
        });
        let list = item.get("certificates").and_then(Value::as_array);
        for (at, pair) in list.into_iter().flatten().enumerate() {
            let part = |name: &str| pair.get(name).filter(|part| part.is_string()).cloned();
            match (part("certificate"), part("key")) {
                (Some(cert), Some(key)) => pairs.push((cert, key)),
                _ => self.out.add(
                    &join(place, &format!("certificates[{at}]")),
                    "needs `certificate` and `key`",
                ),
            }
        }
        if self.out.len() > before {
            return;
        }
        let (certs, keys): (Vec<Value>, Vec<Value>) = pairs.into_iter().unzip();
        let (mut certs, mut keys) = (certs.into_iter(), keys.into_iter());
        let (Some(cert), Some(key)) = (certs.next(), keys.next()) else {
            self.out
                .add(&join(place, "certificates"), "needs at least one");
            return;
        };
        ssl.insert("cert".to_owned(), cert);
        ssl.insert("key".to_owned(), key);
        if certs.len() > 0 {
            ssl.insert("certs".to_owned(), certs.collect());
            ssl.insert("keys".to_owned(), keys.collect());
        }
        self.add(Kind::Ssl, &id, place, ssl);
    }
}
