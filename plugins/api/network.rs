//! Addresses and networks as they are written in configurations.

use std::net::IpAddr;

use ipnet::IpNet;

/// An address or a network such as `10.0.0.0/8`; bits beyond the prefix do not matter.
pub fn network(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address)
}
