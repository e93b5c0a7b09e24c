//! Checks plugin configurations by the plugins' own rules.

use lockgate_plugin::schema::is_secret_ref;
use lockgate_plugin::{PluginDef, Problem, Problems};
use serde_json::Value;

use super::meta;
use crate::config::catalogue::{Catalogue, Found};

/// Whose plugins they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A resource whose plugins run.
    Requests,
    /// A consumer: authentication plugins hold what the consumer is recognised by, others run.
    Consumer,
    /// A further credential of a consumer: one authentication plugin.
    Credential,
}

/// Checks each configuration in `plugins`, the raw value. A value that is no mapping is left to
/// the schema of its resource.
pub(super) fn check(
    plugins: Option<&Value>,
    owner: Owner,
    catalogue: &Catalogue,
    out: &mut Problems,
    warnings: &mut Problems,
) {
    let Some(plugins) = plugins.and_then(Value::as_object) else {
        return;
    };
    let (mut out, mut warnings) = (out.at("plugins"), warnings.at("plugins"));
    if owner == Owner::Credential && plugins.len() > 1 {
        out.add("", "expect object to have at most 1 properties");
    }
    for (name, conf) in plugins {
        if catalogue.skips_unknown() && matches!(catalogue.find(name), Found::Unknown(_)) {
            let text = "unknown plugin: the resource is served without it";
            warnings.push(Problem::new(name.as_str(), text));
            continue;
        }
        if let Some(def) = find(name, catalogue, &mut out) {
            check_one(def, conf, owner, &mut out, &mut warnings);
        }
    }
}

/// The plugin of a name. What there is to say about the name is said.
fn find(name: &str, catalogue: &Catalogue, out: &mut Problems) -> Option<&'static PluginDef> {
    let unknown = Problem::new(name, format!("unknown plugin [{name}]"));
    let problem = match catalogue.find(name) {
        Found::Ready(def) => return Some(def),
        // Without it the resource would be served unguarded.
        Found::NotEnabled => unknown.hint("it is not in the `plugins` list of config.yaml"),
        Found::NotAvailable => Problem::new(
            name,
            format!("plugin {name} is not available in this version"),
        ),
        Found::Unknown(Some(close)) => unknown.hint(format!("did you mean `{close}`?")),
        Found::Unknown(None) => unknown,
    };
    out.push(problem);
    None
}

fn check_one(
    def: &'static PluginDef,
    conf: &Value,
    owner: Owner,
    out: &mut Problems,
    warnings: &mut Problems,
) {
    let (plain, meta, mut found) = meta::split(conf);
    // Without a mapping there is nothing to look into.
    if found.is_empty() || conf.is_object() {
        match (owner, &def.credential) {
            (Owner::Requests, _) | (Owner::Consumer, None) => (def.check)(&plain, &mut found),
            (Owner::Credential, None) => {
                found.add("", "only supports auth type plugins in consumer credential");
            }
            (_, Some(credential)) => {
                if let Err(problems) = (credential.parse)(&plain) {
                    found.extend(problems);
                }
            }
        }
        // Taken as they are written, they would be passwords that everybody can read here.
        references(&plain, &mut found);
    }
    if meta.disable && !found.is_empty() {
        let hint = found
            .iter()
            .next()
            .map(ToString::to_string)
            .unwrap_or_default();
        let text = "the configuration is not valid; accepted since the plugin is disabled";
        warnings.push(Problem::new(def.name, text).hint(hint));
    } else {
        out.at(def.name).extend(found);
    }
}

/// Names each reference to a secret: nobody resolves them yet.
fn references(value: &Value, out: &mut Problems) {
    match value {
        Value::String(text) if is_secret_ref(text) => {
            out.add("", "references to secrets are not resolved by this version");
        }
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(at, item)| references(item, &mut out.at_index(at)));
        }
        Value::Object(map) => map
            .iter()
            .for_each(|(name, item)| references(item, &mut out.at(name))),
        _ => {}
    }
}

/// Checks the metadata of the plugin `name`.
pub(super) fn check_metadata(
    name: &str,
    value: &Value,
    catalogue: &Catalogue,
    out: &mut Problems,
    warnings: &mut Problems,
) {
    match catalogue.find(name) {
        Found::Ready(def) => match &def.metadata {
            Some((_, check)) => {
                check(value, out);
                references(value, out);
            }
            None => warnings.add("", "the plugin has no metadata: this has no effect"),
        },
        Found::NotEnabled => warnings.add(
            "",
            "the plugin is not in the `plugins` list of config.yaml: this has no effect",
        ),
        Found::NotAvailable => {
            warnings.add(
                "",
                format!("plugin {name} is not available in this version: this has no effect"),
            );
        }
        Found::Unknown(close) => {
            let mut problem = Problem::new("id", "invalid plugin name");
            problem.hint = Some(match close {
                Some(close) => format!("did you mean `{close}`?"),
                None => "the id of metadata is the name of its plugin".to_owned(),
            });
            out.push(problem);
        }
    }
}
