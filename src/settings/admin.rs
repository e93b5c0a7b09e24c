//! `deployment.admin`: where the Admin API listens and who may use it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use lockgate_plugin::Problem;
use serde_json::Value;

use super::Home;
use super::listen;
use super::read::Reader;

/// The Admin API's listener.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// `admin_listen`.
    pub listen: SocketAddr,
    /// `allow_admin`: clients that may connect; everybody when empty.
    pub allow: Vec<IpNet>,
    /// `admin_key`. Empty: one is made at the first start.
    pub keys: Vec<AdminKey>,
    /// `admin_key_required`.
    pub key_required: bool,
    /// `enable_admin_cors`.
    pub cors: bool,
    /// `https_admin` and `admin_api_mtls`.
    pub tls: Option<AdminTls>,
    /// Whether stream routes may be written: `apisix.proxy_mode`.
    pub stream_mode: bool,
}

/// A key and what it opens.
#[derive(Clone)]
pub struct AdminKey {
    /// What the history calls whoever has it.
    pub name: String,
    /// The key.
    pub key: String,
    /// It only reads.
    pub viewer: bool,
}

impl fmt::Debug for AdminKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdminKey {{ {}, viewer: {} }}", self.name, self.viewer)
    }
}

/// Files for HTTPS.
#[derive(Clone, Debug)]
pub struct AdminTls {
    /// The certificate and its chain.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who signs the certificates of clients; then they have to show one.
    pub client_ca: Option<PathBuf>,
}

/// What a role other than `viewer` is allowed, it is allowed by any name, as in APISIX.
const VIEWER: &str = "viewer";

/// The listener; `None` where there is none.
pub(super) fn admin(read: &mut Reader<'_>, home: &Home) -> AdminSettings {
    let ip = listen::address(
        read,
        "deployment.admin.admin_listen.ip",
        Ipv4Addr::LOCALHOST.into(),
    );
    let port = read.integer("deployment.admin.admin_listen.port", 1, 65_535);
    let port = port.and_then(|port| u16::try_from(port).ok());
    let key_required = read.flag("deployment.admin.admin_key_required", true);
    if !key_required {
        let text = "whoever reaches the Admin API may change everything";
        let path = "deployment.admin.admin_key_required";
        read.warn(Problem::new(path, text).hint("leave it out and send X-API-KEY"));
    }
    version(read);
    AdminSettings {
        listen: SocketAddr::new(ip, port.unwrap_or(9180)),
        allow: allowed(read),
        keys: keys(read),
        key_required,
        cors: read.flag("deployment.admin.enable_admin_cors", true),
        tls: tls(read, home),
        stream_mode: stream_mode(read),
    }
}

/// The older form of answers is not offered: whoever reads it would find nothing in the newer one, and
/// take an empty list for an empty configuration.
fn version(read: &mut Reader<'_>) {
    let path = "deployment.admin.admin_api_version";
    let given = read
        .text(path)
        .filter(|text| !matches!(text.as_str(), "" | "v3"));
    if let Some(given) = given {
        let text = format!("answers in the form of `{given}` are not offered, only `v3`");
        read.fail(path, text);
    }
}

/// This machine, unless something is written: an empty list is everybody, as in APISIX.
fn allowed(read: &mut Reader<'_>) -> Vec<IpNet> {
    let path = "deployment.admin.allow_admin";
    if let Some(nets) = read.networks(path) {
        return nets;
    }
    if read.is_null(path) {
        return Vec::new();
    }
    let local = [
        (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 24),
        (IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128),
    ];
    local
        .into_iter()
        .filter_map(|(ip, length)| IpNet::new(ip, length).ok())
        .collect()
}

fn keys(read: &mut Reader<'_>) -> Vec<AdminKey> {
    let path = "deployment.admin.admin_key";
    // What is no list is reported with the table of keys.
    let Some(Value::Array(list)) = read.value(path) else {
        return Vec::new();
    };
    let mut keys = Vec::new();
    for (at, item) in list.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let Value::Object(map) = item else {
            read.wrong(&path, "a mapping of name, key and role", item);
            continue;
        };
        for (name, value) in map {
            let known = matches!(name.as_str(), "name" | "key" | "role");
            if !known {
                read.fail(&format!("{path}.{name}"), format!("unknown key `{name}`"));
            } else if !value.is_string() && !value.is_null() {
                read.wrong(&format!("{path}.{name}"), "a text", value);
            }
        }
        let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
        let viewer = text("role") == VIEWER;
        match text("key") {
            // APISIX makes one up for the role admin; so does the store.
            "" if !viewer => {}
            "" => read.fail(&path, "a viewer needs a key"),
            key => keys.push(AdminKey {
                name: text("name").to_owned(),
                key: key.to_owned(),
                viewer,
            }),
        }
    }
    keys
}

fn stream_mode(read: &mut Reader<'_>) -> bool {
    let mode = read.text("apisix.proxy_mode");
    matches!(mode.as_deref(), Some("stream" | "http&stream"))
}

fn tls(read: &mut Reader<'_>, home: &Home) -> Option<AdminTls> {
    if !read.flag("deployment.admin.https_admin", false) {
        return None;
    }
    let mut file = |name: &str| {
        let path = format!("deployment.admin.admin_api_mtls.{name}");
        let text = read.text(&path).filter(|text| !text.is_empty());
        text.map(|text| home.path(&text))
    };
    let (cert, key, client_ca) = (
        file("admin_ssl_cert"),
        file("admin_ssl_cert_key"),
        file("admin_ssl_ca_cert"),
    );
    match (cert, key) {
        (Some(cert), Some(key)) => Some(AdminTls {
            cert,
            key,
            client_ca,
        }),
        _ => {
            read.fail(
                "deployment.admin.https_admin",
                "needs admin_api_mtls.admin_ssl_cert and admin_ssl_cert_key",
            );
            None
        }
    }
}
