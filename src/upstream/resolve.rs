//! Addresses of nodes that are configured by name.
//!
//! One task looks up every name that live upstreams use and keeps the last
//! answer when a look-up fails, so a dead name server changes nothing for names
//! that were known before.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;

use super::handle::Upstream;
use super::peer;

/// How often a known name is looked up again. The system resolver gives no TTL; this is the
/// compromise between noticing a move and asking too often.
const REFRESH: Duration = Duration::from_secs(10);
/// How long one look-up may take.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
/// Upstreams waiting to be seen by the task. More are resolved at the next refresh.
const QUEUE: usize = 4096;

/// Tells the task about upstreams; cheap to clone.
#[derive(Clone)]
pub struct Resolver {
    new: mpsc::Sender<Weak<Upstream>>,
}

/// The task's end.
pub struct Lookups {
    new: mpsc::Receiver<Weak<Upstream>>,
    known: Vec<Weak<Upstream>>,
}

impl Resolver {
    /// The handle and the task that has to be run.
    pub fn new() -> (Resolver, Lookups) {
        let (new, rx) = mpsc::channel(QUEUE);
        (
            Resolver { new },
            Lookups {
                new: rx,
                known: Vec::new(),
            },
        )
    }

    /// Has the names of an upstream looked up now and kept fresh.
    pub fn watch(&self, upstream: &Arc<Upstream>) {
        if upstream.shape().nodes.iter().any(|node| node.is_domain()) {
            // A full queue is no loss: the refresh finds the upstream when it is announced again.
            let _ = self.new.try_send(Arc::downgrade(upstream));
        }
    }
}

impl Lookups {
    /// Looks names up until every [`Resolver`] is gone.
    pub async fn run(mut self) {
        let mut tick = tokio::time::interval(REFRESH);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                next = self.new.recv() => match next {
                    Some(upstream) => {
                        if let Some(live) = upstream.upgrade() {
                            resolve(&live).await;
                        }
                        if !self.known.iter().any(|known| known.ptr_eq(&upstream)) {
                            self.known.push(upstream);
                        }
                    }
                    None => return,
                },
                _ = tick.tick() => {
                    self.known.retain(|upstream| upstream.strong_count() > 0);
                    for upstream in &self.known {
                        if let Some(live) = upstream.upgrade() {
                            resolve(&live).await;
                        }
                    }
                }
            }
        }
    }
}

async fn resolve(upstream: &Upstream) {
    let shape = upstream.shape();
    let names = shape.nodes.iter().filter(|node| node.is_domain());
    let lookups = names.map(|node| {
        let shape = &shape;
        async move {
            match lookup(&node.host, node.port).await {
                Ok(ip) => node.set_addr(ip, |addr| peer::peer(&shape.spec, addr)),
                Err(error) => tracing::warn!(
                    upstream = %upstream.key, host = %node.host, error,
                    "name of an upstream node not resolved, the last known address stays"
                ),
            }
        }
    });
    futures::future::join_all(lookups).await;
}

/// IPv4 first, as APISIX.
async fn lookup(host: &str, port: u16) -> Result<IpAddr, String> {
    let found = tokio::time::timeout(LOOKUP_LIMIT, tokio::net::lookup_host((host, port)))
        .await
        .map_err(|_| format!("no answer within {} s", LOOKUP_LIMIT.as_secs()))?
        .map_err(|e| e.to_string())?;
    let mut ips: Vec<IpAddr> = found.map(|addr| addr.ip()).collect();
    ips.sort_by_key(|ip| ip.is_ipv6());
    ips.first()
        .copied()
        .ok_or_else(|| "the name has no address".to_owned())
}
