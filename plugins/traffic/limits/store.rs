//! Where limits count: in this gateway's memory, or in a Redis that several gateways share.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use lockgate_plugin::{BuildCx, Ctx, Problem, Problems};
use lockgate_quota::{
    Access, Away, Central, LONGEST_LIFE, Later, Leases, Place, Places, QuotaStore, Server, key_text,
};
use rustc_hash::FxBuildHasher;
use schemars::JsonSchema;
use serde::Deserialize;

/// Where limits count.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Policy {
    // In this gateway's memory.
    #[default]
    Local,
    // In a Redis server.
    Redis,
    // In a Redis cluster.
    RedisCluster,
    // In the Redis server that Sentinels call the master.
    RedisSentinel,
}

/// Attributes about the place where limits count.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub(crate) struct Store {
    /// Where requests are counted: in this gateway's memory, in a Redis server, in a Redis cluster, or
    /// in the server that Sentinels know.
    #[serde(default)]
    policy: Policy,
    /// `redis`: host of the server.
    #[serde(default)]
    #[schemars(length(min = 2))]
    redis_host: Option<String>,
    /// `redis`: port of the server.
    #[serde(default = "redis_port")]
    #[schemars(range(min = 1))]
    redis_port: u16,
    /// User of an access list; the default user when left out.
    #[serde(default)]
    #[schemars(length(min = 1))]
    redis_username: Option<String>,
    /// Password.
    #[serde(default)]
    redis_password: Option<String>,
    /// Number of the database.
    #[serde(default)]
    #[schemars(range(min = 0))]
    redis_database: i64,
    /// The longest a request waits for an answer; after failures Redis is not asked for a moment. Unit:
    /// milliseconds.
    #[serde(default = "second")]
    #[schemars(range(min = 1))]
    redis_timeout: u64,
    /// `redis`: TLS.
    #[serde(default)]
    redis_ssl: bool,
    /// `redis`: checks the server's certificate.
    #[serde(default)]
    redis_ssl_verify: bool,
    /// `redis-cluster`: nodes as `host:port`; one that answers is enough.
    #[serde(default)]
    #[schemars(length(min = 1))]
    redis_cluster_nodes: Option<Vec<String>>,
    /// `redis-cluster`: a name, which is not used.
    #[serde(default)]
    redis_cluster_name: Option<String>,
    /// `redis-cluster`: TLS.
    #[serde(default)]
    redis_cluster_ssl: bool,
    /// `redis-cluster`: checks the servers' certificates.
    #[serde(default)]
    redis_cluster_ssl_verify: bool,
    /// `redis-sentinel`: the Sentinels; one that answers is enough.
    #[serde(default)]
    #[schemars(length(min = 1))]
    redis_sentinels: Option<Vec<Sentinel>>,
    /// `redis-sentinel`: what they call the master.
    #[serde(default)]
    #[schemars(length(min = 1))]
    redis_master_name: Option<String>,
    /// `redis-sentinel`: `master`, as counts are written.
    #[serde(default)]
    redis_role: Role,
    /// `redis-sentinel`: user at the Sentinels.
    #[serde(default)]
    #[schemars(length(min = 1))]
    sentinel_username: Option<String>,
    /// `redis-sentinel`: password at the Sentinels.
    #[serde(default)]
    sentinel_password: Option<String>,
    /// `redis-sentinel`: the longest a request waits for an answer. Unit: milliseconds.
    #[serde(default = "second")]
    #[schemars(range(min = 1))]
    redis_read_timeout: u64,
}

/// A Sentinel.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub(crate) struct Sentinel {
    /// Name or address.
    #[schemars(length(min = 2))]
    host: String,
    /// Port.
    #[schemars(range(min = 1))]
    port: u16,
}

/// Which server of a Sentinel's group.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    #[default]
    Master,
    Slave,
}

fn redis_port() -> u16 {
    6_379
}

fn second() -> u64 {
    1_000
}

impl Policy {
    pub(crate) const ALL: [Policy; 4] = [
        Policy::Local,
        Policy::Redis,
        Policy::RedisCluster,
        Policy::RedisSentinel,
    ];

    /// Those that several gateways share.
    pub(crate) const SHARED: [Policy; 3] =
        [Policy::Redis, Policy::RedisCluster, Policy::RedisSentinel];

    /// Refuses what a plugin cannot do: a limit that is not enforced where it was meant to be is worse
    /// than none.
    pub(crate) fn check(self, served: &[Policy], out: &mut Problems) {
        if served.contains(&self) {
            return;
        }
        let name = match self {
            Policy::Local => "local",
            Policy::Redis => "redis",
            Policy::RedisCluster => "redis-cluster",
            Policy::RedisSentinel => "redis-sentinel",
        };
        out.add(
            "policy",
            format!("`{name}` is not served by this plugin yet"),
        );
    }
}

impl Store {
    /// Whether other gateways count in the same place.
    pub(crate) fn is_shared(&self) -> bool {
        self.policy != Policy::Local
    }

    /// Whether keys of one call have to be in one slot.
    pub(crate) fn has_slots(&self) -> bool {
        self.policy == Policy::RedisCluster
    }

    /// What a schema cannot say: which attributes a policy needs.
    pub(crate) fn check(&self, served: &[Policy], out: &mut Problems) {
        self.policy.check(served, out);
        let mut need = |there: bool, name: &str| {
            if !there {
                out.push(Problem::new(
                    name,
                    format!("property \"{name}\" is required by this policy"),
                ));
            }
        };
        match self.policy {
            Policy::Local => {}
            Policy::Redis => need(self.redis_host.is_some(), "redis_host"),
            Policy::RedisCluster => {
                need(self.redis_cluster_nodes.is_some(), "redis_cluster_nodes");
                need(self.redis_cluster_name.is_some(), "redis_cluster_name");
                let nodes = self.redis_cluster_nodes.iter().flatten();
                for node in nodes.filter(|node| place(node).is_none()) {
                    out.add(
                        "redis_cluster_nodes",
                        format!("`{node}` is not `host:port`"),
                    );
                }
            }
            Policy::RedisSentinel => {
                need(self.redis_sentinels.is_some(), "redis_sentinels");
                need(self.redis_master_name.is_some(), "redis_master_name");
                if self.redis_role == Role::Slave {
                    out.add(
                        "redis_role",
                        "counts are written, which only the master does",
                    );
                }
            }
        }
    }

    /// The connection to where the limits count, `None` for this gateway's memory. Plugins with the same
    /// server share one.
    pub(crate) fn central(&self, bx: &BuildCx<'_>) -> Option<Arc<Central>> {
        Some(shared(bx, self.server()?, self.deadline()))
    }

    /// Places for requests under way there, each of which counts so long unless it is kept.
    pub(crate) fn places(&self, bx: &BuildCx<'_>, life: Duration) -> Option<Arc<Places>> {
        let server = self.server()?;
        let life = life.min(LONGEST_LIFE);
        let key = format!("{} {}", name(&server, self.deadline()), life.as_secs());
        let central = shared(bx, server, self.deadline());
        let places = || Places::new(central, life, &format!("{:016x}", rand::random::<u64>()));
        Some(bx.states.get(("process", "limit", &key), places))
    }

    /// Who that is, for people and metrics: from the configuration, without secrets.
    pub(crate) fn name(&self) -> Box<str> {
        let list = |nodes: &Option<Vec<String>>| nodes.as_deref().unwrap_or_default().join(",");
        let text = match self.policy {
            Policy::Local => "local".to_owned(),
            Policy::Redis => {
                let host = self.redis_host.as_deref().unwrap_or_default();
                format!("redis {host}:{}/{}", self.redis_port, self.redis_database)
            }
            Policy::RedisCluster => format!("redis-cluster {}", list(&self.redis_cluster_nodes)),
            Policy::RedisSentinel => {
                let master = self.redis_master_name.as_deref().unwrap_or_default();
                format!("redis-sentinel {master}/{}", self.redis_database)
            }
        };
        text.into()
    }

    /// The longest that a request waits for an answer.
    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_millis(match self.policy {
            Policy::RedisSentinel => self.redis_read_timeout,
            _ => self.redis_timeout,
        })
    }

    fn server(&self) -> Option<Server> {
        let access = |tls: Option<bool>| Access {
            username: self.redis_username.clone(),
            password: self.redis_password.clone(),
            database: self.redis_database,
            tls,
        };
        Some(match self.policy {
            Policy::Local => return None,
            Policy::Redis => Server::Single {
                place: Place {
                    host: self.redis_host.clone()?,
                    port: self.redis_port,
                },
                access: access(self.redis_ssl.then_some(self.redis_ssl_verify)),
            },
            Policy::RedisCluster => Server::Cluster {
                nodes: self
                    .redis_cluster_nodes
                    .iter()
                    .flatten()
                    .filter_map(|n| place(n))
                    .collect(),
                access: access(
                    self.redis_cluster_ssl
                        .then_some(self.redis_cluster_ssl_verify),
                ),
            },
            Policy::RedisSentinel => Server::Sentinel {
                sentinels: self
                    .redis_sentinels
                    .iter()
                    .flatten()
                    .map(|one| Place {
                        host: one.host.clone(),
                        port: one.port,
                    })
                    .collect(),
                master: self.redis_master_name.clone()?,
                access: access(None),
                sentinel_access: Access {
                    username: self.sentinel_username.clone(),
                    password: self.sentinel_password.clone(),
                    ..Access::default()
                },
            },
        })
    }
}

/// The connection to a server: one for all plugins that ask the same with the same deadline.
pub(crate) fn shared(bx: &BuildCx<'_>, server: Server, deadline: Duration) -> Arc<Central> {
    let key = name(&server, deadline);
    bx.states.get(("process", "limit", &key), || {
        Central::new(server, deadline)
    })
}

/// What corrects charges in a store afterwards; one for all who charge there.
pub(crate) fn later(bx: &BuildCx<'_>, store: &Arc<dyn QuotaStore>) -> Arc<Later> {
    // The store lives as long as what it is told by.
    let key = format!("{:p}", Arc::as_ptr(store));
    let made = || Later::new(Arc::clone(store));
    bx.states.get(("process", "limit", &key), made)
}

/// Permits that this process holds of one store.
pub(crate) struct HeldPermits(pub(crate) Arc<Leases>);

/// Keys of which permits are held at once; of more, requests ask for themselves.
const HELD_KEYS: usize = 16_384;

/// Permits taken ahead from a store; one place for all who take from there, as the store tells gateways apart and
/// not parts of one.
pub(crate) fn leases(bx: &BuildCx<'_>, store: &Arc<dyn QuotaStore>) -> Arc<HeldPermits> {
    let key = format!("{:p}", Arc::as_ptr(store));
    let made = || HeldPermits(Leases::new(Arc::clone(store), HELD_KEYS));
    bx.states.get(("process", "limit", &key), made)
}

/// What tells a connection from others. The text has no passwords in it, the number has.
fn name(server: &Server, deadline: Duration) -> String {
    let number = FxBuildHasher.hash_one((server, deadline));
    format!("{server:?} {number:x}")
}

fn place(text: &str) -> Option<Place> {
    let (host, port) = text.rsplit_once(':')?;
    Some(Place {
        host: host.trim_matches(['[', ']']).to_owned(),
        port: port.parse().ok()?,
    })
}

/// In a cluster the keys of one request have to be in one slot. A limit alone spreads its keys over this
/// many.
pub(crate) const SLOTS: u32 = 256;

/// Which of them a text belongs to; the same on all gateways.
pub(crate) fn slot(text: &str) -> u32 {
    // FNV-1a.
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, fold) % SLOTS
}

/// Tells in the log why Redis gave no answer. Not while it is known to be away: then nobody asks.
pub(crate) fn tell(away: &Away) {
    if !matches!(away, Away::Known) {
        let cause = std::error::Error::source(away).map(ToString::to_string);
        tracing::warn!(error = %away, cause, "a limit in Redis was not checked");
    }
}

/// Whether who asked has waited for the answer.
pub(crate) fn has_waited(away: &Away) -> bool {
    !matches!(away, Away::Known)
}

/// The key of a limit in Redis. Keys of a limit alone are spread over the slots of a cluster; those of limits
/// that are asked together have to be in one.
pub(crate) fn key(owner: &str, rule: &str, text: &str, spread: bool) -> String {
    key_text(&scope(owner, text, spread), rule, text)
}

/// What names the slot of a key.
pub(crate) fn scope<'a>(owner: &'a str, text: &str, spread: bool) -> Cow<'a, str> {
    match spread {
        true => format!("{owner}.{}", slot(text)).into(),
        false => Cow::Borrowed(owner),
    }
}

/// The rule for keys that are addresses because they have no value.
pub(crate) fn address_rule(rule: &str) -> Cow<'static, str> {
    Cow::Owned(format!("{rule}@"))
}

/// Rule and text of the key of a request that has only its address: never those of a client that sends
/// this address as the value.
pub(crate) fn address<'a>(rule: &str, cx: &Ctx<'_>) -> (Cow<'a, str>, String) {
    let text = cx.client_ip().to_canonical().to_string();
    (address_rule(rule), text)
}
