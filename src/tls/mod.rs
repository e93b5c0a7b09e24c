//! TLS towards clients: certificates by server name, changed while connections live.

mod accept;
mod sni;

pub use accept::{HandshakeFacts, ListenerTls, listener};
pub use sni::{CertPair, SniEntry, SniTable};
