//! Where the server is and how it is talked to.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisFuture, RedisResult, TlsMode, Value,
};

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// What it takes to be let in.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// The user of an access list; the default user when absent.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Number of the database; a cluster has only 0.
    pub database: i64,
    /// TLS, and whether the certificate is checked.
    pub tls: Option<bool>,
}

/// A password is nobody's business.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("database", &self.database)
            .field("tls", &self.tls)
            .finish()
    }
}

/// A server to count on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// One.
    Single {
        /// Where.
        place: Place,
        /// How.
        access: Access,
    },
    /// The master that Sentinels know.
    Sentinel {
        /// All of them: one that answers is enough.
        sentinels: Vec<Place>,
        /// What they call it.
        master: String,
        /// How to talk to the master.
        access: Access,
        /// User and password of the Sentinels themselves.
        sentinel_access: Access,
    },
    /// A cluster.
    Cluster {
        /// All of its nodes: one that answers is enough.
        nodes: Vec<Place>,
        /// How.
        access: Access,
    },
}

/// A connection that any number of requests share.
#[derive(Clone)]
pub(crate) enum Live {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Server {
    /// Whether it is many servers.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Server::Cluster { .. })
    }

    /// Connects, within this time.
    pub(crate) async fn connect(&self, limit: Duration) -> RedisResult<Live> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            // Each request has a deadline of its own.
            .set_response_timeout(None);
        match self {
            Server::Single { place, access } => {
                let client = Client::open(info(place, access)?)?;
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                Ok(Live::One(connection.await?))
            }
            Server::Sentinel {
                sentinels,
                master,
                access,
                sentinel_access,
            } => {
                let places = sentinels.iter().map(|place| addr(place, sentinel_access));
                let mut builder =
                    SentinelClientBuilder::new(places, master, SentinelServerType::Master)?
                        .set_client_to_redis_db(access.database);
                if let Some(mode) = tls_mode(access) {
                    builder = builder.set_client_to_redis_tls_mode(mode);
                }
                if let Some(mode) = tls_mode(sentinel_access) {
                    builder = builder.set_client_to_sentinel_tls_mode(mode);
                }
                if let Some(name) = &access.username {
                    builder = builder.set_client_to_redis_username(name);
                }
                if let Some(password) = &access.password {
                    builder = builder.set_client_to_redis_password(password);
                }
                if let Some(name) = &sentinel_access.username {
                    builder = builder.set_client_to_sentinel_username(name);
                }
                if let Some(password) = &sentinel_access.password {
                    builder = builder.set_client_to_sentinel_password(password);
                }
                let mut client = builder.build()?;
                let connection = client.get_async_connection_with_config(&config);
                Ok(Live::One(connection.await?))
            }
            Server::Cluster { nodes, access } => {
                let client = cluster(nodes, access, limit)?;
                Ok(Live::Cluster(client.get_async_connection().await?))
            }
        }
    }
}

fn cluster(nodes: &[Place], access: &Access, limit: Duration) -> RedisResult<ClusterClient> {
    let places = nodes.iter().map(|place| addr(place, access));
    let mut builder = ClusterClientBuilder::new(places)
        .connection_timeout(limit)
        .response_timeout(limit)
        // A slot that moved is asked for again; what takes longer is the caller's to decide.
        .retries(2);
    if let Some(mode) = tls_mode(access) {
        builder = builder.tls(mode);
    }
    if let Some(name) = &access.username {
        builder = builder.username(name);
    }
    if let Some(password) = &access.password {
        builder = builder.password(password);
    }
    builder.build()
}

fn tls_mode(access: &Access) -> Option<TlsMode> {
    access.tls.map(|checked| match checked {
        true => TlsMode::Secure,
        false => TlsMode::Insecure,
    })
}

fn addr(place: &Place, access: &Access) -> ConnectionAddr {
    let (host, port) = (place.host.clone(), place.port);
    match access.tls {
        None => ConnectionAddr::Tcp(host, port),
        Some(checked) => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: !checked,
            tls_params: None,
        },
    }
}

fn info(place: &Place, access: &Access) -> RedisResult<ConnectionInfo> {
    let mut settings = RedisConnectionInfo::default().set_db(access.database);
    if let Some(name) = &access.username {
        settings = settings.set_username(name);
    }
    if let Some(password) = &access.password {
        settings = settings.set_password(password);
    }
    let info = addr(place, access).into_connection_info()?;
    Ok(info.set_redis_settings(settings))
}

impl Live {
    /// Asks.
    pub(crate) fn ask<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Live::One(connection) => connection.req_packed_command(command),
            Live::Cluster(connection) => connection.req_packed_command(command),
        }
    }
}
