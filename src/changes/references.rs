//! What resources refer to, and what may be there only once, over everything that would be there.

use std::collections::{HashMap, HashSet};

use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

use super::draft::{Rules, Step};
use crate::config::kind::{Key, Kind};
use crate::config::resource::Id;
use crate::store::{Item, Listing};

/// Deleted ids that texts are searched for before they are read as JSON; more of them, and reading is
/// faster.
const SEARCHED: usize = 16;

/// A reference of a resource.
struct Reference {
    /// The member that holds it.
    member: String,
    /// The path of what it names.
    target: String,
    /// Whether a resource with a reference to nothing is refused, as a single write of it is.
    needed: bool,
}

/// Everything a resource refers to.
fn references(key: &Key, value: &Value) -> Vec<Reference> {
    let mut out = Vec::new();
    let mut add = |member: String, folder: &str, found: Option<&Value>, needed: bool| {
        if let Some(id) = found.and_then(Id::text) {
            out.push(Reference {
                member,
                target: format!("{folder}/{id}"),
                needed,
            });
        }
    };
    let kind = key.kind;
    let mut named = |member: &str, folder: &str| {
        add(member.to_owned(), folder, value.get(member), true);
    };
    if matches!(kind, Kind::Route | Kind::Service | Kind::StreamRoute) {
        named("upstream_id", "upstreams");
    }
    if matches!(kind, Kind::Route | Kind::StreamRoute) {
        named("service_id", "services");
    }
    if kind == Kind::Route {
        named("plugin_config_id", "plugin_configs");
    }
    if kind == Kind::Consumer {
        named("group_id", "consumer_groups");
    }
    if kind == Kind::StreamRoute {
        let superior = value.pointer("/protocol/superior_id");
        add(
            "protocol.superior_id".to_owned(),
            "stream_routes",
            superior,
            true,
        );
    }
    let cert = match kind {
        Kind::Upstream => Some(("tls.client_cert_id", "/tls/client_cert_id")),
        Kind::Route | Kind::Service | Kind::StreamRoute => Some((
            "upstream.tls.client_cert_id",
            "/upstream/tls/client_cert_id",
        )),
        _ => None,
    };
    if let Some((member, place)) = cert {
        add(member.to_owned(), "ssls", value.pointer(place), true);
    }
    let transcode = value.pointer("/plugins/grpc-transcode/proto_id");
    add(
        "plugins.grpc-transcode.proto_id".to_owned(),
        "protos",
        transcode,
        false,
    );
    let rules = value.pointer("/plugins/traffic-split/rules");
    let rules = rules.and_then(Value::as_array).into_iter().flatten();
    for (at, rule) in rules.enumerate() {
        let weighted = rule.get("weighted_upstreams").and_then(Value::as_array);
        for (place, upstream) in weighted.into_iter().flatten().enumerate() {
            let member = format!(
                "plugins.traffic-split.rules[{at}].weighted_upstreams[{place}].upstream_id"
            );
            add(member, "upstreams", upstream.get("upstream_id"), false);
        }
    }
    if let (Kind::Credential, Some((consumer, _))) = (kind, key.id.split_once("/credentials/")) {
        out.push(Reference {
            member: String::new(),
            target: format!("consumers/{consumer}"),
            needed: true,
        });
    }
    out
}

/// The paths that a resource refers to, as it will be.
pub(super) fn targets(step: &Step) -> Vec<String> {
    let value = step.after.iter();
    let all = value.flat_map(|value| references(&step.key, value));
    all.filter(|reference| reference.needed)
        .map(|reference| reference.target)
        .collect()
}

/// Whether a certificate is one that nodes are shown.
fn is_for_nodes(value: &Value) -> bool {
    value["type"] == "client" && value["status"] != 0
}

/// What would be there after the steps.
struct After<'a> {
    listing: &'a Listing,
    steps: HashMap<&'a str, &'a Step>,
    rules: &'a Rules<'a>,
}

impl<'a> After<'a> {
    fn has(&self, path: &str) -> bool {
        match self.steps.get(path) {
            Some(step) => step.after.is_some(),
            None => self.listing.find(path).is_some(),
        }
    }

    /// Whether a certificate is one that nodes are shown.
    fn is_for_nodes(&self, path: &str) -> bool {
        let of = is_for_nodes;
        match self.steps.get(path) {
            Some(step) => step.after.as_ref().is_some_and(of),
            None => {
                let item = self.listing.find(path);
                let value = item.and_then(|item| serde_json::from_str(&item.text).ok());
                value.is_some_and(|value| of(&value))
            }
        }
    }

    /// Items that no step touches, below a folder or all.
    fn untouched(&self, folder: &'a str) -> impl Iterator<Item = &'a Item> {
        let items = &self.listing.items;
        let from = items.partition_point(|item| *item.path < *folder);
        let below = items[from..].iter();
        below
            .take_while(move |item| item.path.starts_with(folder))
            .filter(|item| !self.steps.contains_key(&*item.path))
    }

    fn read(&self, item: &Item) -> Option<(Key, Value)> {
        let key = Key::from_path(&item.path)?;
        Some((key.clone(), self.rules.plain(&key, &item.text)))
    }
}

/// Checks everything that resources have to do with each other.
pub(super) fn check(steps: &[Step], listing: &Listing, rules: &Rules<'_>, out: &mut Problems) {
    let after = After {
        listing,
        steps: steps.iter().map(|step| (&*step.path, step)).collect(),
        rules,
    };
    for step in steps {
        let Some(value) = &step.after else { continue };
        for reference in references(&step.key, value) {
            let gone = after.steps.get(&*reference.target);
            let gone = gone.is_some_and(|target| target.after.is_none());
            if (reference.needed || gone) && !after.has(&reference.target) {
                let text = format!("there is no {}", reference.target);
                out.add(&below(&step.place, &reference.member), text);
            } else if reference.target.starts_with("ssls/")
                && !after.is_for_nodes(&reference.target)
            {
                let text = format!("{} is not of type client", reference.target);
                out.add(&below(&step.place, &reference.member), text);
            }
        }
    }
    still_used(&after, steps, out);
    plugins_once(&after, steps, out);
    keys_once(&after, steps, out);
}

/// Reports what is deleted, or no longer what it is used as, though something that stays as it is refers to it.
fn still_used(after: &After<'_>, steps: &[Step], out: &mut Problems) {
    let may_be_used = |step: &&Step| match &step.after {
        Some(value) => step.key.kind == Kind::Ssl && !is_for_nodes(value),
        None => {
            matches!(
                step.key.kind,
                Kind::Upstream
                    | Kind::Ssl
                    | Kind::Service
                    | Kind::PluginConfig
                    | Kind::ConsumerGroup
                    | Kind::Consumer
                    | Kind::Proto
                    | Kind::StreamRoute
            )
        }
    };
    let gone: HashMap<&str, &Step> = steps
        .iter()
        .filter(may_be_used)
        .map(|step| (&*step.path, step))
        .collect();
    if gone.is_empty() {
        return;
    }
    let ids: HashSet<&str> = gone.values().map(|step| &*step.key.id).collect();
    for item in after.untouched("") {
        let searched = ids.len() <= SEARCHED;
        if searched
            && !ids
                .iter()
                .any(|id| item.text.contains(id) || item.path.contains(id))
        {
            continue;
        }
        let Some((key, value)) = after.read(item) else {
            continue;
        };
        for reference in references(&key, &value) {
            if let Some(step) = gone.get(&*reference.target) {
                let text = match reference.member.as_str() {
                    "" => format!("{key} belongs to it"),
                    member => format!("{key} still refers to it ({member})"),
                };
                let text = match step.after {
                    None => format!("cannot be deleted: {text}"),
                    Some(_) => format!("{text}: it has to stay of type client, with status 1"),
                };
                out.push(Problem::new(&*step.place, text));
            }
        }
    }
}

/// Reports a plugin that two global rules would have.
fn plugins_once(after: &After<'_>, steps: &[Step], out: &mut Problems) {
    let is_rule = |step: &&Step| step.key.kind == Kind::GlobalRule && step.after.is_some();
    if !steps.iter().any(|step| is_rule(&step)) {
        return;
    }
    let names = |value: &Value| -> Vec<String> {
        let plugins = value.get("plugins").and_then(Value::as_object);
        plugins
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect()
    };
    let mut holders: HashMap<String, String> = HashMap::new();
    for item in after.untouched("global_rules/") {
        if let Some((key, value)) = after.read(item) {
            for name in names(&value) {
                holders.insert(name, key.id.to_string());
            }
        }
    }
    for step in steps.iter().filter(is_rule) {
        for name in step.after.iter().flat_map(names) {
            match holders.get(&name) {
                Some(other) => {
                    let text = format!("global rule {other} has this plugin, too");
                    out.add(&below(&step.place, &format!("plugins.{name}")), text);
                }
                None => {
                    holders.insert(name, step.key.id.to_string());
                }
            }
        }
    }
}

/// Reports a key by which two consumers would be recognised.
fn keys_once(after: &After<'_>, steps: &[Step], out: &mut Problems) {
    let of_consumer = |step: &&Step| {
        matches!(step.key.kind, Kind::Consumer | Kind::Credential) && step.after.is_some()
    };
    if !steps.iter().any(|step| of_consumer(&step)) {
        return;
    }
    let mut holders: HashMap<(&str, String), String> = HashMap::new();
    for item in after.untouched("consumers/") {
        if let Some((key, value)) = after.read(item) {
            for (plugin, _, secret) in after.rules.catalogue.presented(&value) {
                holders.insert((plugin, secret), key.to_string());
            }
        }
    }
    for step in steps.iter().filter(of_consumer) {
        let presented = step.after.iter();
        for (plugin, attribute, secret) in
            presented.flat_map(|value| after.rules.catalogue.presented(value))
        {
            match holders.get(&(plugin, secret.clone())) {
                Some(other) => {
                    let path = below(&step.place, &format!("plugins.{plugin}.{attribute}"));
                    out.add(&path, format!("{other} is recognised by the same"));
                }
                None => {
                    holders.insert((plugin, secret), step.path.clone());
                }
            }
        }
    }
}

/// Routes that are told one by one: of more, all are meant.
const MOST_AFFECTED: usize = 1000;

/// The routes whose requests the steps may change, by id; `None` for all of them.
pub fn affected(steps: &[Step], listing: &Listing, rules: &Rules<'_>) -> Option<Vec<String>> {
    let narrow = |step: &Step| {
        matches!(
            step.key.kind,
            Kind::Route
                | Kind::Service
                | Kind::Upstream
                | Kind::PluginConfig
                | Kind::Proto
                | Kind::Secret
                | Kind::StreamRoute
        )
    };
    if !steps.iter().all(narrow) {
        return None;
    }
    let after = After {
        listing,
        steps: steps.iter().map(|step| (&*step.path, step)).collect(),
        rules,
    };
    let mut touched: HashSet<String> = steps.iter().map(|step| step.path.clone()).collect();
    let refers = |touched: &HashSet<String>, key: &Key, value: &Value| {
        let mut all = references(key, value).into_iter();
        all.any(|reference| touched.contains(&reference.target))
    };
    let mut routes: Vec<String> = steps
        .iter()
        .filter(|step| step.key.kind == Kind::Route && step.after.is_some())
        .map(|step| step.key.id.to_string())
        .collect();
    for folder in ["services/", "plugin_configs/", "routes/"] {
        for item in after.untouched(folder) {
            let Some((key, value)) = after.read(item) else {
                continue;
            };
            if !refers(&touched, &key, &value) {
                continue;
            }
            if key.kind == Kind::Route {
                routes.push(key.id.to_string());
            } else {
                touched.insert(item.path.to_string());
            }
        }
    }
    (routes.len() <= MOST_AFFECTED).then_some(routes)
}

/// A path below the place of a resource.
pub(super) fn below(place: &str, path: &str) -> String {
    match (place.is_empty(), path.is_empty()) {
        (true, _) => path.to_owned(),
        (_, true) => place.to_owned(),
        _ if path.starts_with('[') => format!("{place}{path}"),
        _ => format!("{place}.{path}"),
    }
}
