//! Addresses of nodes that are configured by name.
//!
//! One task looks up every name that live upstreams use and keeps the last
//! answer when a look-up fails, so a dead name server changes nothing for names
//! that were known before.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::handle::Upstream;
use super::node::Node;
use super::peer;

/// How often a known name is looked up again. The system resolver gives no TTL; this is the
/// compromise between noticing a move and asking too often.
const REFRESH: Duration = Duration::from_secs(10);
/// How long one look-up may take.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
/// Look-ups at the same time: a name server that does not answer holds up few others, and the
/// system's resolver takes a thread for each.
const AT_ONCE: usize = 16;

/// Tells the task about upstreams; cheap to clone.
#[derive(Clone)]
pub struct Resolver {
    watched: Arc<Mutex<Watched>>,
    /// Says that something is new, no more: one message is enough for any number of upstreams.
    wake: mpsc::Sender<()>,
}

/// The task's end.
pub struct Lookups {
    watched: Arc<Mutex<Watched>>,
    wake: mpsc::Receiver<()>,
}

/// The upstreams with names.
#[derive(Default)]
struct Watched {
    /// By the handle's address, so that one announced again is there once.
    all: HashMap<usize, Weak<Upstream>>,
    /// Announced since the task looked last.
    new: Vec<Weak<Upstream>>,
}

/// A name to be looked up.
struct Wanted {
    upstream: Weak<Upstream>,
    node: Arc<Node>,
}

impl Resolver {
    /// The handle and the task that has to be run.
    pub fn new() -> (Resolver, Lookups) {
        let (wake, woken) = mpsc::channel(1);
        let watched = Arc::<Mutex<Watched>>::default();
        let lookups = Lookups {
            watched: Arc::clone(&watched),
            wake: woken,
        };
        (Resolver { watched, wake }, lookups)
    }

    /// Has the names of an upstream looked up now and kept fresh.
    pub fn watch(&self, upstream: &Arc<Upstream>) {
        if upstream.shape().nodes.iter().any(|node| node.is_domain()) {
            let weak = Arc::downgrade(upstream);
            let mut watched = lock(&self.watched);
            watched.new.push(Weak::clone(&weak));
            watched.all.insert(Arc::as_ptr(upstream) as usize, weak);
            drop(watched);
            // Full: the task is about to look anyway.
            let _ = self.wake.try_send(());
        }
    }
}

impl Lookups {
    /// Looks names up until every [`Resolver`] is gone.
    pub async fn run(self) {
        self.run_with(|node| async move { lookup(&node.host, node.port).await })
            .await;
    }

    async fn run_with<F>(mut self, lookup: impl Fn(Arc<Node>) -> F)
    where
        F: Future<Output = Result<IpAddr, String>>,
    {
        let mut tick = tokio::time::interval_at(Instant::now() + REFRESH, REFRESH);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut queue = VecDeque::new();
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                woken = self.wake.recv() => match woken {
                    // Before those that are looked up again: requests may wait for these.
                    Some(()) => {
                        let known = std::mem::replace(&mut queue, self.new_names());
                        queue.extend(known);
                    }
                    None => return,
                },
                // What is left of the last time comes first.
                _ = tick.tick(), if queue.is_empty() => queue = self.all_names(),
                Some(()) = running.next(), if !running.is_empty() => {}
            }
            while running.len() < AT_ONCE
                && let Some(wanted) = queue.pop_front()
            {
                running.push(resolve(wanted, &lookup));
            }
        }
    }

    fn new_names(&self) -> VecDeque<Wanted> {
        let new = std::mem::take(&mut lock(&self.watched).new);
        new.iter().flat_map(names).collect()
    }

    fn all_names(&self) -> VecDeque<Wanted> {
        let mut watched = lock(&self.watched);
        watched
            .all
            .retain(|_, upstream| upstream.strong_count() > 0);
        watched.all.values().flat_map(names).collect()
    }
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The nodes of an upstream that are configured by name.
fn names(upstream: &Weak<Upstream>) -> Vec<Wanted> {
    let Some(live) = upstream.upgrade() else {
        return Vec::new();
    };
    let shape = live.shape();
    let names = shape.nodes.iter().filter(|node| node.is_domain());
    names
        .map(|node| Wanted {
            upstream: Weak::clone(upstream),
            node: Arc::clone(node),
        })
        .collect()
}

async fn resolve<F>(wanted: Wanted, lookup: &impl Fn(Arc<Node>) -> F)
where
    F: Future<Output = Result<IpAddr, String>>,
{
    let Wanted { upstream, node } = wanted;
    let found = lookup(Arc::clone(&node)).await;
    let Some(upstream) = upstream.upgrade() else {
        return;
    };
    match found {
        Ok(ip) => {
            // The settings of now, not those of before the look-up. They change on this thread.
            let shape = upstream.shape();
            node.set_addr(ip, |addr| peer::peer(&shape.spec, addr));
        }
        Err(error) => {
            node.not_found();
            tracing::warn!(
                upstream = %upstream.key, host = %node.host, error,
                "name of an upstream node not resolved, the last known address stays"
            );
        }
    }
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::sync::Notify;

    use super::*;
    use crate::upstream::{NodeSpec, Timeouts, UpstreamSpec};

    const FOUND: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    /// Far beyond what any test takes.
    const HOUR: Duration = Duration::from_secs(3600);

    fn spec(host: &str) -> UpstreamSpec {
        UpstreamSpec {
            nodes: vec![NodeSpec {
                host: host.into(),
                port: 80,
                weight: 1,
                priority: 0,
            }],
            ..UpstreamSpec::default()
        }
    }

    fn upstream(host: &str) -> Arc<Upstream> {
        Arc::new(Upstream::new("upstreams/1".into(), spec(host)))
    }

    fn node(upstream: &Upstream) -> Arc<Node> {
        Arc::clone(&upstream.shape().nodes[0])
    }

    /// Runs the look-ups as long as `test` runs.
    async fn beside<F>(
        lookups: Lookups,
        lookup: impl Fn(Arc<Node>) -> F,
        test: impl Future<Output = ()>,
    ) where
        F: Future<Output = Result<IpAddr, String>>,
    {
        tokio::select! {
            () = lookups.run_with(lookup) => panic!("the task ended"),
            () = test => {}
        }
    }

    #[tokio::test]
    async fn any_number_of_upstreams_can_be_announced_before_the_task_runs() {
        let (resolver, lookups) = Resolver::new();
        let all: Vec<_> = (0..5_000)
            .map(|n| upstream(&format!("n{n}.test")))
            .collect();
        all.iter().for_each(|upstream| resolver.watch(upstream));
        let found = async |_| Ok(FOUND);
        beside(lookups, found, async {
            for upstream in &all {
                assert!(node(upstream).wait_ready(HOUR).await.is_some());
            }
        })
        .await;
    }

    #[tokio::test]
    async fn names_that_are_not_answered_hold_up_no_others() {
        let (resolver, lookups) = Resolver::new();
        let slow: Vec<_> = (1..AT_ONCE).map(|_| upstream("slow.test")).collect();
        slow.iter().for_each(|upstream| resolver.watch(upstream));
        let asked = Notify::new();
        let lookup = async |node: Arc<Node>| {
            if &*node.host == "slow.test" {
                asked.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(FOUND)
        };
        beside(lookups, lookup, async {
            asked.notified().await;
            let fast = upstream("fast.test");
            resolver.watch(&fast);
            assert!(node(&fast).wait_ready(HOUR).await.is_some());
        })
        .await;
    }

    #[tokio::test]
    async fn settings_changed_during_a_look_up_are_those_of_the_peer() {
        let (resolver, lookups) = Resolver::new();
        let upstream = upstream("a.test");
        resolver.watch(&upstream);
        let (asked, answer) = (Notify::new(), Notify::new());
        let lookup = async |_| {
            asked.notify_one();
            answer.notified().await;
            Ok(FOUND)
        };
        beside(lookups, lookup, async {
            asked.notified().await;
            let read = Duration::from_secs(7);
            upstream.update(UpstreamSpec {
                timeouts: Timeouts {
                    read,
                    ..Timeouts::default()
                },
                ..spec("a.test")
            });
            answer.notify_one();
            let ready = node(&upstream).wait_ready(HOUR).await.unwrap();
            assert_eq!(ready.peer.options.read_timeout, Some(read));
        })
        .await;
    }

    #[tokio::test]
    async fn nobody_waits_for_a_name_that_was_not_found() {
        let (resolver, lookups) = Resolver::new();
        let upstream = upstream("none.test");
        resolver.watch(&upstream);
        let lookup = async |_| Err("no such name".to_owned());
        beside(lookups, lookup, async {
            for _ in 0..2 {
                assert!(node(&upstream).wait_ready(HOUR).await.is_none());
            }
        })
        .await;
    }

    #[tokio::test]
    async fn the_task_ends_with_the_last_resolver() {
        let (resolver, lookups) = Resolver::new();
        resolver.watch(&upstream("a.test"));
        drop(resolver);
        lookups.run_with(async |_| Ok(FOUND)).await;
    }
}
