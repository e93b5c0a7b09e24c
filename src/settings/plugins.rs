//! The `plugins` list.

use lockgate_plugin::Problem;
use lockgate_plugin::schema::closest;
use serde_json::Value;

use super::read::Reader;
use crate::config::catalogue::APISIX;

/// Plugins of APISIX that its default list leaves out.
const NOT_BY_DEFAULT: &[&str] = &[
    "batch-requests",
    "brotli",
    "dubbo-proxy",
    "error-log-logger",
    "error-page",
    "exit-transformer",
    "gm",
    "log-rotate",
    "node-status",
    "ocsp-stapling",
    "opentelemetry",
    "server-info",
    "skywalking",
];

/// The plugins that may be used. A list in the settings replaces the default: APISIX's own, and
/// the plugins that only this gateway has.
pub(super) fn list(read: &mut Reader<'_>, implemented: &[&str]) -> Vec<String> {
    let names: Vec<String> = match read.value("plugins") {
        None => {
            let own = implemented.iter().filter(|name| !APISIX.contains(name));
            let default = APISIX.iter().filter(|name| !NOT_BY_DEFAULT.contains(name));
            return default.chain(own).map(|name| (*name).to_owned()).collect();
        }
        Some(Value::Array(list)) => {
            let mut names = Vec::new();
            for (i, item) in list.iter().enumerate() {
                match item.as_str() {
                    Some(name) => names.push(name.to_owned()),
                    None => read.wrong(&format!("plugins[{i}]"), "a plugin name", item),
                }
            }
            names
        }
        Some(other) => {
            read.wrong("plugins", "a list of plugin names", other);
            Vec::new()
        }
    };
    let absent: Vec<String> = names
        .iter()
        .filter(|name| !implemented.contains(&name.as_str()))
        .map(|name| described(name, implemented))
        .collect();
    if !absent.is_empty() {
        let text = "not available in this version, resources that use them are refused";
        read.warn(Problem::new(
            "plugins",
            format!("{text}: {}", absent.join(", ")),
        ));
    }
    names
}

/// A name that is not available; with the one that was meant, when APISIX does not know it either.
fn described(name: &str, implemented: &[&str]) -> String {
    if APISIX.contains(&name) {
        return name.to_owned();
    }
    match closest(name, implemented.iter().chain(APISIX).copied()) {
        Some(close) => format!("{name} (did you mean {close}?)"),
        None => name.to_owned(),
    }
}
