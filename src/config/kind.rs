//! The kinds of resources, and how one is named.

use std::fmt;
use std::sync::Arc;

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Settings of a plugin for all its instances.
    PluginMetadata,
    /// Where requests go.
    Upstream,
    /// A certificate.
    Ssl,
    /// Plugins shared by routes.
    PluginConfig,
    /// Plugins, hosts and upstream shared by routes.
    Service,
    /// Plugins shared by consumers.
    ConsumerGroup,
    /// Who may call.
    Consumer,
    /// A further credential of a consumer.
    Credential,
    /// Plugins for every request.
    GlobalRule,
    /// What matches a request.
    Route,
    /// A protobuf definition; not served by this version.
    Proto,
    /// A secret manager; not served by this version.
    Secret,
    /// A TCP or UDP route; not served by this version.
    StreamRoute,
}

impl Kind {
    /// All kinds, in the order in which a change is worked on: what is referred to comes first.
    pub const ALL: [Kind; 13] = [
        Kind::PluginMetadata,
        Kind::Upstream,
        Kind::Ssl,
        Kind::PluginConfig,
        Kind::Service,
        Kind::ConsumerGroup,
        Kind::Consumer,
        Kind::Credential,
        Kind::GlobalRule,
        Kind::Route,
        Kind::Proto,
        Kind::Secret,
        Kind::StreamRoute,
    ];

    /// The plural used as a key in files and as a folder in etcd.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::PluginMetadata => "plugin_metadata",
            Kind::Upstream => "upstreams",
            Kind::Ssl => "ssls",
            Kind::PluginConfig => "plugin_configs",
            Kind::Service => "services",
            Kind::ConsumerGroup => "consumer_groups",
            Kind::Consumer => "consumers",
            Kind::Credential => "credentials",
            Kind::GlobalRule => "global_rules",
            Kind::Route => "routes",
            Kind::Proto => "protos",
            Kind::Secret => "secrets",
            Kind::StreamRoute => "stream_routes",
        }
    }

    /// Whether this version does anything with such resources.
    pub fn is_served(self) -> bool {
        !matches!(self, Kind::Proto | Kind::Secret | Kind::StreamRoute)
    }
}

/// Names a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its id; unique among its kind. Of a credential: `CONSUMER/credentials/ID`.
    pub id: Arc<str>,
}

impl Key {
    /// A key.
    pub fn new(kind: Kind, id: &str) -> Key {
        Key {
            kind,
            id: id.into(),
        }
    }
}

impl Key {
    /// The resource at a path of a store, as [`Display`](fmt::Display) writes it. `None` for what is
    /// kept there besides.
    pub fn from_path(path: &str) -> Option<Key> {
        let (folder, id) = path.split_once('/')?;
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| kind.plural() == folder && *kind != Kind::Credential)?;
        let kind = match kind {
            Kind::Consumer if id.contains("/credentials/") => Kind::Credential,
            // Of a service there may be more below its path, which is no service.
            Kind::Secret => Kind::Secret,
            _ if id.is_empty() || id.contains('/') => return None,
            kind => kind,
        };
        Some(Key::new(kind, id))
    }
}

impl fmt::Display for Key {
    /// `routes/1`; a credential is shown below its consumer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Credential => write!(f, "consumers/{}", self.id),
            kind => write!(f, "{}/{}", kind.plural(), self.id),
        }
    }
}
