//! TLS towards clients: certificates by server name, changed while connections live.

mod accept;
mod sni;

pub use accept::{HandshakeFacts, ListenerTls, from_files, listener};
pub use sni::{CertPair, SniEntry, SniTable};
