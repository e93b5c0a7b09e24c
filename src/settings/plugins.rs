//! The `plugins` list.

use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

use super::read::Reader;
use crate::config::catalogue::APISIX;

/// Plugins of APISIX that its default list leaves out.
const NOT_BY_DEFAULT: &[&str] = &[
    "batch-requests", "brotli", "dubbo-proxy", "error-log-logger", "error-page", "exit-transformer",
    "gm", "log-rotate", "node-status", "ocsp-stapling", "opentelemetry", "server-info", "skywalking",
];

/// The plugins that may be used. A list in the settings replaces the default.
pub(super) fn list(read: &mut Reader<'_>, implemented: &[&str], warnings: &mut Problems) -> Vec<String> {
    let names: Vec<String> = match read.value("plugins") {
        None => {
            let default = APISIX.iter().filter(|name| !NOT_BY_DEFAULT.contains(name));
            return default.map(|name| (*name).to_owned()).collect();
        }
        Some(Value::Array(list)) => {
            let mut names = Vec::new();
            for (i, item) in list.iter().enumerate() {
                match item.as_str() {
                    Some(name) => names.push(name.to_owned()),
                    None => read.fail(&format!("plugins[{i}]"), format!("expected a plugin name, found {item}")),
                }
            }
            names
        }
        Some(other) => {
            read.fail("plugins", format!("expected a list of plugin names, found {other}"));
            Vec::new()
        }
    };
    let absent: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !implemented.contains(name)).collect();
    if !absent.is_empty() {
        let text = format!("not available in this version, resources that use them are refused: {}", absent.join(", "));
        warnings.push(Problem::new("plugins", text));
    }
    names
}
