//! Ports for gateways: free a moment ago, and not the kernel's to give away.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// Below the ephemeral range, so that no outgoing connection takes a port between choice and use.
const PORTS: std::ops::Range<u16> = 17_000..32_000;

/// Hands out ports that were free a moment ago.
pub(crate) struct Ports(AtomicU16);

impl Ports {
    /// Starts at a place that differs from process to process.
    pub(crate) fn new() -> Self {
        let spread = u32::from(PORTS.end - PORTS.start);
        let offset = std::process::id().wrapping_mul(97) % spread;
        Ports(AtomicU16::new(
            PORTS.start + u16::try_from(offset).unwrap_or(0),
        ))
    }

    /// The next free one.
    pub(crate) fn take(&self) -> Result<u16> {
        for _ in PORTS {
            let port = self.0.fetch_add(1, Ordering::Relaxed);
            if !PORTS.contains(&port) {
                self.0.store(PORTS.start, Ordering::Relaxed);
                continue;
            }
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(port);
            }
        }
        bail!("no free port")
    }
}
