//! What a resource refers to, who refers to a resource, and what must not be there twice.

use serde_json::Value;

use super::kinds::{Target, called};
use crate::config::catalogue::Catalogue;
use crate::config::keyring::Keyring;
use crate::config::kind::{Key, Kind};
use crate::config::resource::Id;
use crate::endpoint::Answer;
use crate::store::{Guard, Item, Mirror, Store, StoreError};

/// A resource that has to be there.
struct Needed {
    path: String,
    /// The answer when it is not.
    missing: String,
}

/// What a resource refers to, in the order in which APISIX looks.
fn needed(kind: Kind, id: &str, value: &Value) -> Vec<Needed> {
    let mut out = Vec::new();
    let mut add = |member: &str, kind: Kind, info: &str| {
        let Some(id) = value.get(member).and_then(Id::text) else {
            return;
        };
        out.push(Needed {
            path: format!("{}/{id}", kind.plural()),
            missing: format!("failed to fetch {info} info by {info} id [{id}], response code: 404"),
        });
    };
    if matches!(kind, Kind::Route | Kind::Service | Kind::StreamRoute) {
        add("upstream_id", Kind::Upstream, "upstream");
    }
    if matches!(kind, Kind::Route | Kind::StreamRoute) {
        add("service_id", Kind::Service, "service");
    }
    if kind == Kind::Route {
        add("plugin_config_id", Kind::PluginConfig, "plugin config");
    }
    if kind == Kind::Consumer {
        add("group_id", Kind::ConsumerGroup, "consumer group");
    }
    let superior = value.pointer("/protocol/superior_id").and_then(Id::text);
    if let (Kind::StreamRoute, Some(superior)) = (kind, superior)
        && superior != id
    {
        out.push(Needed {
            path: format!("stream_routes/{superior}"),
            missing: format!("failed to fetch stream routes[{superior}], response code: 404"),
        });
    }
    out
}

/// Checks that everything a resource refers to is there; the guards keep it so until it is written.
pub(super) async fn present(
    store: &dyn Store,
    target: &Target,
    id: &str,
    value: &Value,
) -> Result<Result<Vec<Guard>, Answer>, StoreError> {
    let superior = value.pointer("/protocol/superior_id").and_then(Id::text);
    if target.kind == Kind::StreamRoute && superior.is_some_and(|superior| superior == id) {
        return Ok(Err(Answer::bad(
            "stream route can not set itself as superior_id",
        )));
    }
    let mut guards = Vec::new();
    if let Some(ssl) = client_cert(target.kind, value) {
        match shown_to_nodes(store, &ssl).await? {
            Ok(guard) => guards.push(guard),
            Err(answer) => return Ok(Err(answer)),
        }
    }
    for needed in needed(target.kind, id, value) {
        if store.get(&needed.path).await?.is_none() {
            return Ok(Err(Answer::bad(needed.missing)));
        }
        guards.push(Guard::Present(needed.path));
    }
    if let (Kind::Credential, Some(consumer)) = (target.kind, &target.owner) {
        let path = format!("consumers/{consumer}");
        if store.get(&path).await?.is_none() {
            return Ok(Err(Answer::error(404, "consumer not found")));
        }
        guards.push(Guard::Present(path));
    }
    Ok(Ok(guards))
}

/// The `ssl` that an upstream names, wherever it stands.
fn client_cert(kind: Kind, value: &Value) -> Option<String> {
    let place = match kind {
        Kind::Upstream => OWN_CERT,
        Kind::Route | Kind::Service | Kind::StreamRoute => INNER_CERT,
        _ => return None,
    };
    let id = value.pointer(place).and_then(Id::text)?;
    Some(id.into_owned())
}

/// Where an upstream names it.
const OWN_CERT: &str = "/tls/client_cert_id";
/// The same of an upstream inside of something else.
const INNER_CERT: &str = "/upstream/tls/client_cert_id";

/// Checks that an `ssl` is there, and one that is shown to nodes.
async fn shown_to_nodes(store: &dyn Store, id: &str) -> Result<Result<Guard, Answer>, StoreError> {
    let refused = |why: &str| {
        let text = format!("failed to fetch ssl info by ssl id [{id}], {why}");
        Ok(Err(Answer::bad(text)))
    };
    let path = format!("ssls/{id}");
    let Some(item) = store.get(&path).await? else {
        return refused("response code: 404");
    };
    let held: Value = serde_json::from_str(&item.text).unwrap_or_default();
    if held["type"] != "client" {
        return refused("wrong ssl type");
    }
    Ok(Ok(Guard::Modified(path, item.modified)))
}

/// Who may refer to a kind: the collection, how it is called there, and the start of the answer.
struct Users {
    folder: &'static str,
    called: &'static str,
    uses: fn(&Value, &str) -> bool,
}

fn is(value: Option<&Value>, id: &str) -> bool {
    value.and_then(Id::text).is_some_and(|text| text == id)
}

/// Who may refer to a resource.
fn users(kind: Kind) -> Vec<Users> {
    let by = |folder, called, uses| Users {
        folder,
        called,
        uses,
    };
    match kind {
        Kind::Service => vec![
            by("routes", "route", |v, id| is(v.get("service_id"), id)),
            by("stream_routes", "stream_route", |v, id| {
                is(v.get("service_id"), id)
            }),
        ],
        Kind::Upstream => vec![
            by("routes", "route", |v, id| is(v.get("upstream_id"), id)),
            by("services", "service", |v, id| is(v.get("upstream_id"), id)),
            by("routes", "plugin in route", splits_to),
            by("services", "plugin in service", splits_to),
            by("plugin_configs", "plugin in plugin_config", splits_to),
            by("consumers", "plugin in consumer", splits_to),
            by("consumer_groups", "plugin in consumer_group", splits_to),
            by("global_rules", "plugin in global_rules", splits_to),
        ],
        Kind::Ssl => {
            let inner = |v: &Value, id: &str| is(v.pointer(INNER_CERT), id);
            vec![
                by("upstreams", "upstream", |v, id| is(v.pointer(OWN_CERT), id)),
                by("routes", "route", inner),
                by("services", "service", inner),
                by("stream_routes", "stream route", inner),
            ]
        }
        Kind::PluginConfig => vec![by("routes", "route", |v, id| {
            is(v.get("plugin_config_id"), id)
        })],
        Kind::ConsumerGroup => vec![by("consumers", "consumer", |v, id| {
            is(v.get("group_id"), id)
        })],
        Kind::Proto => vec![
            by("routes", "route", transcodes),
            by("services", "service", transcodes),
        ],
        Kind::StreamRoute => vec![by("stream_routes", "stream route", |v, id| {
            is(v.pointer("/protocol/superior_id"), id)
        })],
        _ => Vec::new(),
    }
}

/// Whether a rule of traffic-split names an upstream.
fn splits_to(value: &Value, id: &str) -> bool {
    let rules = value
        .pointer("/plugins/traffic-split/rules")
        .and_then(Value::as_array);
    let upstreams = rules
        .into_iter()
        .flatten()
        .filter_map(|rule| rule.get("weighted_upstreams").and_then(Value::as_array))
        .flatten();
    upstreams
        .into_iter()
        .any(|upstream| is(upstream.get("upstream_id"), id))
}

fn transcodes(value: &Value, id: &str) -> bool {
    is(value.pointer("/plugins/grpc-transcode/proto_id"), id)
}

/// Checks that nobody refers to a resource; the guards keep it so until it is deleted.
pub(super) async fn unused(
    store: &dyn Store,
    kind: Kind,
    id: &str,
) -> Result<Result<Vec<Guard>, Answer>, StoreError> {
    let mut guards = Vec::new();
    let mut listed = std::collections::HashMap::new();
    for users in users(kind) {
        let items: &Vec<Item> = match listed.get(users.folder) {
            Some(items) => items,
            None => {
                let listing = store.list(&format!("{}/", users.folder)).await?;
                guards.push(Guard::Unchanged(users.folder, listing.revision));
                listed.entry(users.folder).or_insert(listing.items)
            }
        };
        for item in items {
            // Reading each of many thousand texts as JSON would take long; an id is in its text.
            if !item.text.contains(id) {
                continue;
            }
            let value: Value = serde_json::from_str(&item.text).unwrap_or_default();
            if (users.uses)(&value, id) {
                let user = item.path.split_once('/').map_or("", |(_, id)| id);
                return Ok(Err(Answer::bad(in_use(kind, &users, user))));
            }
        }
    }
    Ok(Ok(guards))
}

fn in_use(kind: Kind, users: &Users, user: &str) -> String {
    let directly = match kind {
        Kind::Service | Kind::StreamRoute => " directly",
        _ => "",
    };
    let as_what = match kind {
        Kind::StreamRoute => " as superior_id",
        _ => " now",
    };
    format!(
        "can not delete this {}{directly}, {} [{user}] is still using it{as_what}",
        called(kind),
        users.called
    )
}

/// Checks that a global rule has no plugin that another has.
pub(super) async fn plugin_once(
    store: &dyn Store,
    id: &str,
    value: &Value,
) -> Result<Result<Vec<Guard>, Answer>, StoreError> {
    let listing = store.list("global_rules/").await?;
    let names = || {
        value
            .get("plugins")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
    };
    for item in listing
        .items
        .iter()
        .filter(|item| *item.path != *format!("global_rules/{id}"))
    {
        let other: Value = serde_json::from_str(&item.text).unwrap_or_default();
        let held = other.get("plugins").unwrap_or(&Value::Null);
        if let Some((name, _)) = names().find(|(name, _)| held.get(name.as_str()).is_some()) {
            let other = item.path.trim_start_matches("global_rules/");
            let text = format!("plugin '{name}' already exists in global rule with id '{other}'");
            return Ok(Err(Answer::bad(text)));
        }
    }
    Ok(Ok(vec![Guard::Unchanged("global_rules", listing.revision)]))
}

/// All consumers, to see by what they are recognised.
pub(super) struct Consumers<'a> {
    /// Where they are.
    pub(super) store: &'a dyn Store,
    /// What is known of them without asking, if that is enough.
    pub(super) known: Option<&'a Mirror>,
    /// Tells what a plugin recognises them by.
    pub(super) catalogue: &'a Catalogue,
    /// What is encrypted.
    pub(super) keyring: &'a Keyring,
}

impl Consumers<'_> {
    /// Checks that no other consumer or credential is recognised by the same key.
    pub(super) async fn key_once(
        &self,
        path: &str,
        value: &Value,
    ) -> Result<Result<Vec<Guard>, Answer>, StoreError> {
        let keys = self.catalogue.presented(value);
        if keys.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        if let Some(mirror) = self.known {
            let listing = mirror.list("consumers/");
            // Of a store that was restored meanwhile the revision would tell nothing.
            let is_of_store = listing.revision <= self.store.revision().await?;
            if is_of_store && self.same(&listing.items, path, &keys).is_none() {
                return Ok(Ok(vec![Guard::Unchanged("consumers", listing.revision)]));
            }
            // Whoever has the same key may be gone meanwhile.
        }
        let listing = self.store.list("consumers/").await?;
        Ok(match self.same(&listing.items, path, &keys) {
            None => Ok(vec![Guard::Unchanged("consumers", listing.revision)]),
            Some(text) => Err(Answer::bad(text)),
        })
    }

    /// Who else is recognised by one of these keys, as a sentence.
    fn same(
        &self,
        items: &[Item],
        path: &str,
        keys: &[(&'static str, &'static str, String)],
    ) -> Option<String> {
        for item in items.iter().filter(|item| *item.path != *path) {
            let may_have =
                |key: &str| !self.keyring.is_empty() || !is_plain(key) || item.text.contains(key);
            if !keys.iter().any(|(_, _, key)| may_have(key)) {
                continue;
            }
            let mut other: Value = serde_json::from_str(&item.text).unwrap_or_default();
            if let Some(key) = Key::from_path(&item.path) {
                self.keyring.open(&key, &mut other);
            }
            let other = self.catalogue.presented(&other);
            let same = keys.iter().find(|(plugin, _, key)| {
                other
                    .iter()
                    .any(|(name, _, held)| name == plugin && held == key)
            });
            if let Some((plugin, attribute, _)) = same {
                let rest = item.path.trim_start_matches("consumers/");
                let holder = match rest.split_once("/credentials/") {
                    Some((consumer, id)) => format!("credential: {id} of consumer: {consumer}"),
                    None => format!("consumer: {rest}"),
                };
                return Some(format!(
                    "duplicate {attribute} of plugin {plugin} found with {holder}"
                ));
            }
        }
        None
    }
}

/// Whether a text looks the same inside JSON text, whoever wrote that.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.bytes().all(plain)
}
