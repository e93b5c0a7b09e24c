//! `deployment`: the role, and where the configuration comes from.

use lockgate_plugin::Problem;

use super::admin::{AdminSettings, admin};
use super::read::Reader;
use super::{Home, SourceKind};

/// What to write instead of a provider that this version does not have.
const INSTEAD: &str = "leave deployment.etcd and config_provider out, and this version keeps the configuration \
                       itself; or put it into apisix.yaml beside this file, and set deployment.role: data_plane \
                       and deployment.role_data_plane.config_provider: yaml";

/// Where the configuration comes from, and the Admin API that changes it.
pub(super) fn source(read: &mut Reader<'_>, home: &Home) -> (SourceKind, Option<AdminSettings>) {
    let yaml = || SourceKind::Yaml(home.beside("apisix.yaml"));
    let store = read.text("lockgate.store");
    let store = home.path(store.as_deref().unwrap_or("data/lockgate.redb"));
    let role = read.choice(
        "deployment.role",
        &["traditional", "control_plane", "data_plane"],
    );
    let (path, provider) = match role {
        "data_plane" => {
            let path = "deployment.role_data_plane.config_provider";
            (path, read.choice(path, &["etcd", "yaml", "json", "xds"]))
        }
        "traditional" => {
            let path = "deployment.role_traditional.config_provider";
            let words = ["embedded", "etcd", "yaml"];
            let named = ["deployment.etcd", "etcd"]
                .iter()
                .find(|path| read.value(path).is_some());
            match (read.value(path), named) {
                // Whoever names servers wants the configuration to be there.
                (None, Some(named)) => (*named, "etcd"),
                _ => (path, read.choice(path, &words)),
            }
        }
        _ => ("deployment.role", "control_plane"),
    };
    let source = match provider {
        "embedded" => {
            let on = read.flag("apisix.enable_admin", true);
            let admin = on.then(|| admin(read, home));
            return (SourceKind::Embedded(store), admin);
        }
        "yaml" => {
            // There the original takes its configuration from the Admin API, not from a file.
            if role == "traditional" && read.flag("apisix.enable_admin", true) {
                read.warn(
                    Problem::new(
                        path,
                        "with a file there is no Admin API in this version: routes come from apisix.yaml \
                         beside this file",
                    )
                    .hint("set apisix.enable_admin: false"),
                );
            }
            yaml()
        }
        "json" => SourceKind::Json(home.beside("apisix.json")),
        other => {
            // Where nothing was written, the problem is shown at what is there.
            let known = read.value(path).is_some();
            read.fail(
                if known { path } else { "deployment" },
                format!("{other} is not available: {INSTEAD}"),
            );
            yaml()
        }
    };
    (source, None)
}
