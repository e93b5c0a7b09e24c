//! From a raw document to a checked, typed resource, or to everything that is wrong with it.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use lockgate_plugin::schema::closest;
use lockgate_plugin::{Expr, Problem, Problems};
use rustc_hash::FxBuildHasher;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::catalogue::{Catalogue, Found};
use super::compile::plan::Meta;
use super::kind::{Key, Kind};
use super::resource::{
    Consumer, ConsumerGroup, Credential, GlobalRule, PluginConfig, Plugins, Route, Service, Ssl,
    Upstream,
};

/// A resource of any kind, checked.
pub enum Resource {
    /// See [`Route`].
    Route(Box<Route>),
    /// See [`Service`].
    Service(Box<Service>),
    /// See [`Upstream`].
    Upstream(Box<Upstream>),
    /// See [`Consumer`].
    Consumer(Box<Consumer>),
    /// See [`Credential`].
    Credential(Box<Credential>),
    /// See [`ConsumerGroup`].
    ConsumerGroup(Box<ConsumerGroup>),
    /// See [`PluginConfig`].
    PluginConfig(Box<PluginConfig>),
    /// See [`GlobalRule`].
    GlobalRule(Box<GlobalRule>),
    /// See [`Ssl`].
    Ssl(Box<Ssl>),
    /// A plugin's metadata, as its own schema wants it.
    PluginMetadata(Value),
    /// A kind that this version does nothing with.
    Unserved,
}

/// Checks a raw resource. `warnings` gets what is accepted but does something else than one may
/// think.
///
/// # Errors
/// Every problem, with the resource and the path inside it.
pub fn decode(
    key: &Key,
    raw: &Value,
    catalogue: &Catalogue,
    warnings: &mut Problems,
) -> Result<Resource, Problems> {
    let mut noted = Problems::default();
    let result = decode_kind(key, raw, catalogue, &mut noted);
    for mut problem in noted {
        problem.resource = key.to_string();
        warnings.push(problem);
    }
    result.map_err(|mut problems| {
        problems.iter_mut().for_each(|problem| problem.resource = key.to_string());
        problems
    })
}

fn decode_kind(
    key: &Key,
    raw: &Value,
    catalogue: &Catalogue,
    warnings: &mut Problems,
) -> Result<Resource, Problems> {
    let mut out = Problems::default();
    if !raw.is_object() {
        return Err(Problem::new("", "a resource is a mapping").into());
    }
    let resource = match key.kind {
        Kind::Route => {
            let route: Route = typed(raw)?;
            route.check(&mut out);
            if let Some(vars) = raw.get("vars")
                && let Err(mut problem) = Expr::parse(vars)
            {
                problem.path = format!("vars{}", problem.path);
                problem.message = format!("failed to validate the 'vars' expression: {}", problem.message);
                out.push(problem);
            }
            check_plugins(route.plugins.as_ref(), catalogue, &mut out, warnings);
            if let Some(upstream) = &route.upstream {
                upstream.warnings(&mut warnings.at("upstream"));
            }
            Resource::Route(Box::new(route))
        }
        Kind::Service => {
            let service: Service = typed(raw)?;
            service.check(&mut out);
            check_plugins(service.plugins.as_ref(), catalogue, &mut out, warnings);
            if let Some(upstream) = &service.upstream {
                upstream.warnings(&mut warnings.at("upstream"));
            }
            Resource::Service(Box::new(service))
        }
        Kind::Upstream => {
            let upstream: Upstream = typed(raw)?;
            upstream.check(&mut out);
            upstream.warnings(warnings);
            Resource::Upstream(Box::new(upstream))
        }
        Kind::Consumer => {
            let consumer: Consumer = typed(raw)?;
            check_consumer_plugins(consumer.plugins.as_ref(), catalogue, &mut out, warnings);
            Resource::Consumer(Box::new(consumer))
        }
        Kind::Credential => {
            let credential: Credential = typed(raw)?;
            check_credential(&credential, catalogue, &mut out, warnings);
            Resource::Credential(Box::new(credential))
        }
        Kind::ConsumerGroup => {
            let group: ConsumerGroup = typed(raw)?;
            check_plugins(Some(&group.plugins), catalogue, &mut out, warnings);
            Resource::ConsumerGroup(Box::new(group))
        }
        Kind::PluginConfig => {
            let config: PluginConfig = typed(raw)?;
            check_plugins(Some(&config.plugins), catalogue, &mut out, warnings);
            Resource::PluginConfig(Box::new(config))
        }
        Kind::GlobalRule => {
            let rule: GlobalRule = typed(raw)?;
            check_plugins(Some(&rule.plugins), catalogue, &mut out, warnings);
            Resource::GlobalRule(Box::new(rule))
        }
        Kind::Ssl => {
            let ssl: Ssl = typed(raw)?;
            ssl.check(&mut out);
            if !ssl.is_server() {
                warnings.add("type", "client certificates by id are not used by this version");
            }
            Resource::Ssl(Box::new(ssl))
        }
        Kind::PluginMetadata => {
            let mut value = raw.clone();
            if let Some(map) = value.as_object_mut() {
                map.retain(|name, _| !matches!(name.as_str(), "id" | "modifiedIndex"));
            }
            check_metadata(&key.id, &value, catalogue, &mut out, warnings);
            Resource::PluginMetadata(value)
        }
        Kind::Proto | Kind::Secret | Kind::StreamRoute => {
            warnings.add("", format!("{} are not served by this version", key.kind.plural()));
            Resource::Unserved
        }
    };
    out.into_result()?;
    Ok(resource)
}

fn typed<T: DeserializeOwned + JsonSchema + 'static>(raw: &Value) -> Result<T, Problems> {
    lockgate_plugin::plugin::typed(raw)
}

/// Checks the plugins of anything but a consumer.
fn check_plugins(
    plugins: Option<&Plugins>,
    catalogue: &Catalogue,
    out: &mut Problems,
    warnings: &mut Problems,
) {
    let (mut out, mut warnings) = (out.at("plugins"), warnings.at("plugins"));
    for (name, conf) in plugins.into_iter().flatten() {
        check_plugin(name, conf, catalogue, &mut out, &mut warnings, |def, conf, out| {
            (def.check)(conf, out);
        });
    }
}

/// Checks the plugins of a consumer: authentication plugins hold credentials there.
fn check_consumer_plugins(
    plugins: Option<&Plugins>,
    catalogue: &Catalogue,
    out: &mut Problems,
    warnings: &mut Problems,
) {
    let (mut out, mut warnings) = (out.at("plugins"), warnings.at("plugins"));
    for (name, conf) in plugins.into_iter().flatten() {
        check_plugin(name, conf, catalogue, &mut out, &mut warnings, |def, conf, out| {
            match &def.credential {
                Some(credential) => {
                    if let Err(problems) = (credential.parse)(conf) {
                        out.extend(problems);
                    }
                }
                None => (def.check)(conf, out),
            }
        });
    }
}

fn check_credential(
    credential: &Credential,
    catalogue: &Catalogue,
    out: &mut Problems,
    warnings: &mut Problems,
) {
    let plugins = credential.plugins.as_ref();
    if plugins.is_some_and(|plugins| plugins.len() > 1) {
        out.add("plugins", "expect object to have at most 1 properties");
    }
    for name in plugins.into_iter().flatten().map(|(name, _)| name) {
        let auth = match catalogue.find(name) {
            Found::Ready(def) | Found::NotEnabled(def) => def.credential.is_some(),
            _ => true,
        };
        if !auth {
            out.at("plugins").add(name, "only supports auth type plugins in consumer credential");
        }
    }
    check_consumer_plugins(plugins, catalogue, out, warnings);
}

fn check_plugin(
    name: &str,
    conf: &Value,
    catalogue: &Catalogue,
    out: &mut Problems,
    warnings: &mut Problems,
    check: impl FnOnce(&'static lockgate_plugin::PluginDef, &Value, &mut Problems),
) {
    let def = match catalogue.find(name) {
        Found::Ready(def) => def,
        Found::NotEnabled(def) => {
            warnings.add(name, "the plugin is not in the `plugins` list of config.yaml: it never runs");
            def
        }
        Found::NotAvailable => {
            out.add(name, format!("plugin {name} is not available in this version"));
            return;
        }
        Found::Unknown(close) => {
            let mut problem = Problem::new(name, format!("unknown plugin [{name}]"));
            problem.hint = close.map(|close| format!("did you mean `{close}`?"));
            out.push(problem);
            return;
        }
    };
    let mut found = Problems::default();
    let mut disabled = false;
    match split_meta(conf) {
        Ok((conf, meta)) => {
            disabled = meta.disable;
            check(def, &conf, &mut found);
        }
        Err(problems) => found.extend(problems),
    }
    if disabled && !found.is_empty() {
        warnings.add(name, "the configuration is not valid; accepted since the plugin is disabled");
    } else {
        out.at(name).extend(found);
    }
}

fn check_metadata(
    name: &str,
    value: &Value,
    catalogue: &Catalogue,
    out: &mut Problems,
    warnings: &mut Problems,
) {
    match catalogue.find(name) {
        Found::Ready(def) | Found::NotEnabled(def) => match &def.metadata {
            Some((_, check)) => check(value, out),
            None => warnings.add("", "the plugin has no metadata: this has no effect"),
        },
        Found::NotAvailable => {
            warnings.add("", format!("plugin {name} is not available in this version: this has no effect"));
        }
        Found::Unknown(_) => out.add("", "invalid plugin name"),
    }
}

/// The names `_meta` may have.
const META: [&str; 5] = ["disable", "priority", "filter", "error_response", "pre_function"];

/// Takes `_meta` out of a plugin configuration.
///
/// # Errors
/// Everything that is wrong with `_meta`, or that the configuration is not a mapping.
pub fn split_meta(conf: &Value) -> Result<(Value, Meta), Problems> {
    // Lua cannot tell `[]` from `{}`.
    let empty = serde_json::Map::new();
    let map = match conf {
        Value::Object(map) => map,
        Value::Array(list) if list.is_empty() => &empty,
        other => return Err(Problem::new("", format!("wrong type: a plugin's configuration is a mapping, found {other}")).into()),
    };
    let Some(raw) = map.get("_meta") else { return Ok((Value::Object(map.clone()), Meta::default())) };
    let mut out = Problems::default();
    let mut meta = Meta::default();
    {
        let mut out = out.at("_meta");
        let Some(raw) = raw.as_object() else {
            return Err(Problem::new("_meta", "wrong type: expected object").into());
        };
        for (name, value) in raw {
            match (name.as_str(), value) {
                ("disable", Value::Bool(disable)) => meta.disable = *disable,
                ("priority", Value::Number(n)) if n.as_f64().is_some_and(|f| f.fract() == 0.0) => {
                    // Priorities are small; an absurd one is cut to the range.
                    meta.priority = n.as_f64().map(|f| f.clamp(-1e9, 1e9) as i32);
                }
                ("error_response", Value::String(text)) => {
                    meta.on_error = Some(Bytes::copy_from_slice(text.as_bytes()));
                }
                ("error_response", Value::Object(_)) => {
                    meta.on_error = Some(Bytes::from(format!("{value}\n")));
                }
                ("filter", value) => match Expr::parse(value) {
                    Ok(expr) => meta.gate = Some(Arc::new(expr)),
                    Err(mut problem) => {
                        problem.path = format!("filter{}", problem.path);
                        problem.message =
                            format!("failed to validate the 'vars' expression: {}", problem.message);
                        out.push(problem);
                    }
                },
                ("pre_function", _) => out.add(name, "Lua source is not run by this version: remove pre_function"),
                ("disable", _) => out.add(name, "wrong type: expected boolean"),
                ("priority", _) => out.add(name, "wrong type: expected integer"),
                ("error_response", _) => out.add(name, "wrong type: expected one of string, object"),
                (other, _) => {
                    let mut problem = Problem::new(other, format!("additional properties forbidden, found {other}"));
                    problem.hint = closest(other, META.into_iter()).map(|c| format!("did you mean `{c}`?"));
                    out.push(problem);
                }
            }
        }
    }
    out.into_result()?;
    let mut rest = map.clone();
    rest.shift_remove("_meta");
    Ok((Value::Object(rest), meta))
}

/// A hash of a document that does not depend on the order of members. Equal documents have equal
/// hashes within a process; 128 bits make a collision not worth thinking about.
pub fn fingerprint(value: &Value) -> u128 {
    let hash = |seed: u64, text: &str| {
        let mut hasher = FxBuildHasher.build_hasher();
        (seed, text).hash(&mut hasher);
        hasher.finish()
    };
    let leaf = |tag: u64, text: &str| {
        (u128::from(hash(tag, text)) << 64) | u128::from(hash(tag ^ 0x9e37_79b9_7f4a_7c15, text))
    };
    let mix = |a: u128, b: u128| (a ^ b).wrapping_mul(0x2d99_787e_9f3c_2d3a_2b9e_3779_b97f_4a7d).rotate_left(47);
    match value {
        Value::Null => 1,
        Value::Bool(b) => leaf(2, if *b { "1" } else { "0" }),
        // `1` and `1.0` mean the same to everything that reads them.
        Value::Number(n) => leaf(3, &n.as_f64().map_or_else(|| n.to_string(), |f| f.to_string())),
        Value::String(text) => leaf(4, text),
        Value::Array(list) => list.iter().fold(5, |sum, item| mix(sum, fingerprint(item))),
        Value::Object(map) => map
            .iter()
            .map(|(name, item)| mix(leaf(6, name), fingerprint(item)))
            .fold(7, u128::wrapping_add),
    }
}

/// Splits a whole document (the layout of `apisix.yaml`) into resources, each with its path.
///
/// # Errors
/// Unknown top-level keys, values that are not lists, and ids that occur twice.
pub fn split(document: &Value) -> Result<Vec<(Key, &Value, String)>, Problems> {
    let mut out = Problems::default();
    let mut found: Vec<(Key, &Value, String)> = Vec::new();
    let mut seen = std::collections::HashMap::new();
    let Some(map) = document.as_object() else {
        return Err(Problem::new("", "a configuration is a mapping of lists such as `routes:`").into());
    };
    let kinds = || Kind::ALL.into_iter().filter(|kind| *kind != Kind::Credential);
    for (name, value) in map {
        let Some(kind) = kinds().find(|kind| kind.plural() == name) else {
            // Versions that clients of the API-driven mode send, and the dynamic plugin list.
            if !name.ends_with("_conf_version") && name != "plugins" {
                let names = kinds().map(Kind::plural);
                let mut problem = Problem::new(name.as_str(), format!("unknown key `{name}`"));
                problem.hint = closest(name, names).map(|close| format!("did you mean `{close}`?"));
                out.push(problem);
            }
            continue;
        };
        let items: Vec<&Value> = match value {
            Value::Array(list) => list.iter().collect(),
            Value::Null => continue,
            Value::Object(map) if map.is_empty() => continue,
            _ => {
                out.add(name, "expected a list");
                continue;
            }
        };
        for (i, item) in items.into_iter().enumerate() {
            let path = format!("{name}[{i}]");
            let id = item_id(item, i);
            let kind = match kind {
                Kind::Consumer if id.contains("/credentials/") => Kind::Credential,
                kind => kind,
            };
            let key = Key::new(kind, &id);
            if let Some(first) = seen.insert(key.clone(), path.clone()) {
                out.add(&path, format!("found duplicate id {id} in {name}, first at {first}"));
                continue;
            }
            found.push((key, item, path));
        }
    }
    out.into_result()?;
    Ok(found)
}

/// `id`, else `username`, else the position from 1 as `arr_N`.
fn item_id(item: &Value, position: usize) -> String {
    let text = |name: &str| match item.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(n)) => Some(n.to_string()),
        _ => None,
    };
    // A consumer is known by its name, whatever its id.
    match (text("id"), text("username")) {
        (Some(id), Some(_)) if id.contains("/credentials/") => id,
        (_, Some(name)) => name,
        (Some(id), None) => id,
        (None, None) => format!("arr_{}", position + 1),
    }
}

#[cfg(test)]
mod tests;
