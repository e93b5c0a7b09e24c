//! Resources as the user writes them: plain data with the names and limits of APISIX.
//!
//! The JSON Schema of each is generated from its type, so what is documented is
//! what is checked. Rules between fields are in `check` functions.

mod checks;
mod consumer;
mod nodes;
mod plugins;
mod route;
mod service;
mod shared;
mod ssl;
mod unserved;
mod upstream;

pub use checks::{
    Active, ActiveHealthy, ActiveUnhealthy, Checks, Passive, PassiveHealthy, PassiveUnhealthy,
};
pub use consumer::{Consumer, ConsumerGroup, Credential};
pub use nodes::{Node, Nodes};
pub use plugins::{GlobalRule, PluginConfig, Plugins};
pub use route::Route;
pub use service::Service;
pub use shared::{Id, Timeout};
pub use ssl::Ssl;
pub(crate) use unserved::unknown_manager;
pub use unserved::{Aws, Gcp, Proto, StreamRoute, Vault};
pub use upstream::{KeepalivePool, Tls, Upstream};
