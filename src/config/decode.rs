//! From a raw document to a checked, typed resource, or to everything that is wrong with it.

use std::sync::Arc;

use lockgate_plugin::schema::cached;
use lockgate_plugin::{Problem, Problems};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::catalogue::Catalogue;
use super::kind::{Key, Kind};
use super::resource::{
    Aws, Consumer, ConsumerGroup, Credential, Gcp, GlobalRule, PluginConfig, Proto, Route, Service,
    Ssl, StreamRoute, Upstream, Vault, unknown_manager,
};

mod fingerprint;
mod layout;
mod meta;
mod plugins;
#[cfg(test)]
mod tests;

pub use fingerprint::fingerprint;
pub use layout::{Slot, split};
pub use meta::split_meta;
use plugins::Owner;

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
    name(key, &mut noted);
    warnings.extend(noted);
    result.map_err(|mut problems| {
        name(key, &mut problems);
        problems
    })
}

fn name(key: &Key, problems: &mut Problems) {
    problems
        .iter_mut()
        .for_each(|problem| problem.resource = key.to_string());
}

fn decode_kind(
    key: &Key,
    raw: &Value,
    catalogue: &Catalogue,
    warnings: &mut Problems,
) -> Result<Resource, Problems> {
    let Some(map) = raw.as_object() else {
        return Err(Problem::new("", "wrong type: a resource is an object").into());
    };
    let mut out = Problems::default();
    let resource = read(key, raw, &mut out, warnings);
    let owner = match key.kind {
        Kind::Route
        | Kind::Service
        | Kind::PluginConfig
        | Kind::ConsumerGroup
        | Kind::GlobalRule => Some(Owner::Requests),
        Kind::Consumer => Some(Owner::Consumer),
        Kind::Credential => Some(Owner::Credential),
        _ => None,
    };
    // Even when the rest is not valid: whoever corrects the one wants to know of the other.
    if let Some(owner) = owner {
        plugins::check(map.get("plugins"), owner, catalogue, &mut out, warnings);
    }
    if key.kind == Kind::PluginMetadata {
        plugins::check_metadata(&key.id, &metadata(map), catalogue, &mut out, warnings);
    }
    out.into_result()?;
    // Without a resource there was a problem.
    resource.ok_or_else(|| Problem::new("", "the resource cannot be read").into())
}

/// The typed resource, without its plugins. `None` when it is not valid, and then `out` says why.
fn read(key: &Key, raw: &Value, out: &mut Problems, warnings: &mut Problems) -> Option<Resource> {
    Some(match key.kind {
        Kind::Route => {
            if let Some(vars) = raw.get("vars").filter(|vars| vars.is_array()) {
                meta::expression("vars", vars, out);
            }
            let route: Route = typed(raw, out)?;
            route.check(out);
            if let Some(upstream) = &route.upstream {
                upstream.warnings(&mut warnings.at("upstream"));
            }
            Resource::Route(Box::new(route))
        }
        Kind::Service => {
            let service: Service = typed(raw, out)?;
            service.check(out);
            if let Some(upstream) = &service.upstream {
                upstream.warnings(&mut warnings.at("upstream"));
            }
            Resource::Service(Box::new(service))
        }
        Kind::Upstream => {
            let upstream: Upstream = typed(raw, out)?;
            upstream.check(out);
            upstream.warnings(warnings);
            Resource::Upstream(Box::new(upstream))
        }
        Kind::Consumer => Resource::Consumer(Box::new(typed::<Consumer>(raw, out)?)),
        Kind::Credential => Resource::Credential(Box::new(typed::<Credential>(raw, out)?)),
        Kind::ConsumerGroup => Resource::ConsumerGroup(Box::new(typed::<ConsumerGroup>(raw, out)?)),
        Kind::PluginConfig => Resource::PluginConfig(Box::new(typed::<PluginConfig>(raw, out)?)),
        Kind::GlobalRule => Resource::GlobalRule(Box::new(typed::<GlobalRule>(raw, out)?)),
        Kind::Ssl => {
            let ssl: Ssl = typed(raw, out)?;
            ssl.check(out);
            Resource::Ssl(Box::new(ssl))
        }
        Kind::PluginMetadata => Resource::PluginMetadata(raw.as_object().map(metadata)?),
        Kind::Proto | Kind::Secret | Kind::StreamRoute => {
            unserved(key, raw, out)?;
            if out.is_empty() {
                let text = format!("{} are not served by this version", key.kind.plural());
                warnings.add("", text);
            }
            Resource::Unserved
        }
    })
}

/// Checks what nothing here runs.
fn unserved(key: &Key, raw: &Value, out: &mut Problems) -> Option<()> {
    let manager = key.id.split('/').next().unwrap_or_default();
    match (key.kind, manager) {
        (Kind::Proto, _) => drop(typed::<Proto>(raw, out)?),
        (Kind::StreamRoute, _) => typed::<StreamRoute>(raw, out)?.check(out),
        (_, "vault") => drop(typed::<Vault>(raw, out)?),
        (_, "aws") => drop(typed::<Aws>(raw, out)?),
        (_, "gcp") => typed::<Gcp>(raw, out)?.check(out),
        _ => {
            out.push(unknown_manager(&key.id));
            return None;
        }
    }
    Some(())
}

/// The schema of a resource. Of a plugin's metadata, and of a secret whose manager is not known,
/// there is none here.
pub fn schema_of(key: &Key) -> Option<Arc<Value>> {
    let manager = key.id.split('/').next().unwrap_or_default();
    Some(match (key.kind, manager) {
        (Kind::Route, _) => cached::<Route>(),
        (Kind::Service, _) => cached::<Service>(),
        (Kind::Upstream, _) => cached::<Upstream>(),
        (Kind::Consumer, _) => cached::<Consumer>(),
        (Kind::Credential, _) => cached::<Credential>(),
        (Kind::ConsumerGroup, _) => cached::<ConsumerGroup>(),
        (Kind::PluginConfig, _) => cached::<PluginConfig>(),
        (Kind::GlobalRule, _) => cached::<GlobalRule>(),
        (Kind::Ssl, _) => cached::<Ssl>(),
        (Kind::Proto, _) => cached::<Proto>(),
        (Kind::StreamRoute, _) => cached::<StreamRoute>(),
        (Kind::Secret, "vault") => cached::<Vault>(),
        (Kind::Secret, "aws") => cached::<Aws>(),
        (Kind::Secret, "gcp") => cached::<Gcp>(),
        (Kind::PluginMetadata | Kind::Secret, _) => return None,
    })
}

/// Metadata without what names it.
fn metadata(map: &Map<String, Value>) -> Value {
    let mut map = map.clone();
    map.retain(|name, _| !matches!(name.as_str(), "id" | "modifiedIndex"));
    Value::Object(map)
}

fn typed<T: DeserializeOwned + JsonSchema + 'static>(raw: &Value, out: &mut Problems) -> Option<T> {
    match lockgate_plugin::plugin::typed(raw) {
        Ok(typed) => Some(typed),
        Err(problems) => {
            out.extend(problems);
            None
        }
    }
}
