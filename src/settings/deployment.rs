//! `deployment`: the role, and where the configuration comes from.

use lockgate_plugin::Problem;

use super::read::Reader;
use super::{Home, SourceKind};

/// What to write instead of a provider that this version does not have.
const USE_A_FILE: &str = "this version reads routes from a file; set deployment.role: data_plane and \
                          deployment.role_data_plane.config_provider: yaml, and put the routes into \
                          apisix.yaml beside this file";

/// The file that routes come from.
pub(super) fn source(read: &mut Reader<'_>, home: &Home) -> SourceKind {
    let yaml = || SourceKind::Yaml(home.beside("apisix.yaml"));
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
            (path, read.choice(path, &["etcd", "yaml"]))
        }
        _ => ("deployment.role", "control_plane"),
    };
    match provider {
        "yaml" => {
            // There the original takes its configuration from the Admin API, not from a file.
            if role == "traditional" && read.flag("apisix.enable_admin", true) {
                read.warn(
                    Problem::new(
                        path,
                        "this version has no Admin API: routes come from apisix.yaml beside this file",
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
                format!("{other} is not available: {USE_A_FILE}"),
            );
            yaml()
        }
    }
}
