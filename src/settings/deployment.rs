//! `deployment`: the role, and where the configuration comes from.

use std::path::Path;

use super::admin::{AdminSettings, admin};
use super::etcd::etcd;
use super::read::Reader;
use super::{Home, SourceKind};

/// What to write instead of a provider that this version does not have.
const INSTEAD: &str = "use deployment.role: traditional, which keeps the configuration itself or in etcd; or put it \
                       into apisix.yaml beside this file, and set deployment.role: data_plane and \
                       deployment.role_data_plane.config_provider: yaml";

/// Where the configuration comes from, and the Admin API that changes it. `store` is the file of the
/// embedded store.
pub(super) fn source(
    read: &mut Reader<'_>,
    home: &Home,
    env: &dyn Fn(&str) -> Option<String>,
    store: &Path,
) -> (SourceKind, Option<AdminSettings>) {
    let yaml = || SourceKind::Yaml(home.beside("apisix.yaml"));
    let role = read.choice(
        "deployment.role",
        &["traditional", "control_plane", "data_plane"],
    );
    // The second is the name it had before 3.0.
    let section = ["deployment.etcd", "etcd"]
        .into_iter()
        .find(|path| read.value(path).is_some());
    let (path, provider) = match role {
        "data_plane" => {
            let path = "deployment.role_data_plane.config_provider";
            (path, read.choice(path, &["etcd", "yaml", "json", "xds"]))
        }
        "traditional" => {
            let path = "deployment.role_traditional.config_provider";
            match (read.value(path), section) {
                // Whoever names servers wants the configuration to be there.
                (None, Some(_)) => (path, "etcd"),
                _ => (path, read.choice(path, &["embedded", "etcd", "yaml"])),
            }
        }
        _ => ("deployment.role", "control_plane"),
    };
    let has_admin = role == "traditional" && read.flag("apisix.enable_admin", true);
    let source = match provider {
        "embedded" => SourceKind::Embedded(store.to_owned()),
        "etcd" => {
            let section = section.unwrap_or("deployment.etcd");
            SourceKind::Etcd(Box::new(etcd(read, section, home, env)))
        }
        // Whoever has an Admin API then sends the whole configuration through it, as in the original.
        "yaml" if has_admin => SourceKind::Memory,
        "yaml" => yaml(),
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
    let is_file = matches!(source, SourceKind::Yaml(_) | SourceKind::Json(_));
    let admin = (has_admin && !is_file).then(|| admin(read, home));
    (source, admin)
}
