//! The servers of one etcd: which is asked, and what happens when it does not answer.
//!
//! One is asked until it fails; then the next, and the one that failed is left alone for a while.
//! The client library would spread requests over all of them, those that are down or frozen
//! included, and each of these would cost its share of the requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, Error};

use super::transport::Transport;

/// The least time a server gets for an answer before another is asked: a busy one is slow at times.
const ATTEMPT_LEAST: Duration = Duration::from_secs(1);

// Codes of gRPC that tell of the server or the way to it, and not of the request. The library does
// not give them a name.
const CANCELLED: i32 = 1;
const UNKNOWN: i32 = 2;
const DEADLINE_EXCEEDED: i32 = 4;
const OUT_OF_RANGE: i32 = 11;
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;

/// See the module.
pub(super) struct Members {
    list: Vec<Member>,
    connect: Connect,
    /// The one that is asked first.
    current: AtomicUsize,
    /// How long one may take for an answer.
    attempt: Duration,
    /// How long one that failed is left alone.
    rest: Duration,
}

/// How servers are connected to.
pub(super) struct Connect {
    pub(super) options: ConnectOptions,
    pub(super) transport: Transport,
}

struct Member {
    url: String,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    client: Option<Client>,
    rests_until: Option<Instant>,
}

impl Members {
    /// Servers at these addresses. `timeout` is for a request and all its attempts.
    pub(super) fn new(
        urls: &[String],
        connect: Connect,
        timeout: Duration,
        rest: Duration,
    ) -> Members {
        let count = u32::try_from(urls.len()).unwrap_or(u32::MAX).max(1);
        let member = |url: &String| Member {
            url: url.clone(),
            held: Mutex::default(),
        };
        Members {
            list: urls.iter().map(member).collect(),
            connect,
            current: AtomicUsize::new(0),
            attempt: (timeout / count).max(ATTEMPT_LEAST.min(timeout)),
            rest,
        }
    }

    /// How long one may take for an answer.
    pub(super) fn attempt(&self) -> Duration {
        self.attempt
    }

    /// The order in which they are asked: from the current one on, and last those that rest.
    pub(super) fn order(&self, now: Instant) -> Vec<usize> {
        let (first, count) = (self.current.load(Ordering::Relaxed), self.list.len());
        let rests = |at: &usize| self.held(*at).rests_until.is_some_and(|until| now < until);
        let all = (first..first + count).map(|at| at % count);
        let (resting, mut order): (Vec<usize>, Vec<usize>) = all.partition(rests);
        order.extend(resting);
        order
    }

    /// A client of one. Connects when there is none yet.
    pub(super) async fn client(&self, at: usize) -> Result<Client, Error> {
        if let Some(client) = &self.held(at).client {
            return Ok(client.clone());
        }
        let member = &self.list[at];
        let (options, transport) = (&self.connect.options, &self.connect.transport);
        let (options, transport) = (Some(options.clone()), transport.clone());
        let urls = [&member.url];
        let client = Client::connect_with_balanced_channel(urls, options, transport).await?;
        self.held(at).client = Some(client.clone());
        Ok(client)
    }

    /// One has answered: it is asked from now on.
    pub(super) fn answered(&self, at: usize) {
        self.current.store(at, Ordering::Relaxed);
        self.held(at).rests_until = None;
    }

    /// One has failed: its connection is given up, and it is left alone for a while.
    pub(super) fn failed(&self, at: usize, now: Instant) {
        let mut held = self.held(at);
        held.client = None;
        held.rests_until = Some(now + self.rest);
        drop(held);
        let next = (at + 1) % self.list.len();
        let (was, is) = (Ordering::Relaxed, Ordering::Relaxed);
        // Unless another request has found a better one meanwhile.
        let _ = self.current.compare_exchange(at, next, was, is);
    }

    fn held(&self, at: usize) -> std::sync::MutexGuard<'_, Held> {
        let held = self.list[at].held.lock();
        held.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether another server may do what this one did not.
pub(super) fn is_of_member(error: &Error) -> bool {
    match error {
        Error::TransportError(_)
        | Error::IoError(_)
        | Error::Internal(_)
        | Error::EndpointError(_)
        | Error::WatchError(_) => true,
        Error::GRpcStatus(status) => matches!(
            i32::from(status.code()),
            CANCELLED | UNKNOWN | DEADLINE_EXCEEDED | INTERNAL | UNAVAILABLE
        ),
        _ => false,
    }
}

/// Whether etcd does not know the revision that was asked for: it was compacted away, or is yet to
/// come.
pub(super) fn is_unknown_revision(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if i32::from(status.code()) == OUT_OF_RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect() -> Connect {
        Connect {
            options: ConnectOptions::new(),
            transport: Transport::new(&Default::default()).unwrap(),
        }
    }

    #[test]
    fn the_next_one_is_asked_and_the_failed_one_rests() {
        let second = Duration::from_secs(1);
        let urls = ["a", "b", "c"].map(str::to_owned);
        let members = Members::new(&urls, connect(), 30 * second, 10 * second);
        assert_eq!(members.attempt(), 10 * second);
        let now = Instant::now();
        assert_eq!(members.order(now), [0, 1, 2]);
        members.failed(0, now);
        assert_eq!(members.order(now), [1, 2, 0]);
        members.failed(1, now + second);
        assert_eq!(members.order(now + second), [2, 0, 1]);
        // Another request failed at the same one: that moves nothing.
        members.failed(1, now + second);
        assert_eq!(members.order(now + second), [2, 0, 1]);
        // After its rest one may be asked, not before the current one.
        assert_eq!(members.order(now + 10 * second), [2, 0, 1]);
        members.answered(0);
        assert_eq!(members.order(now + 5 * second), [0, 2, 1]);
    }

    #[test]
    fn an_attempt_has_its_share_of_the_time() {
        let attempt = |timeout: u64, servers: usize| {
            let urls = vec![String::new(); servers];
            let timeout = Duration::from_millis(timeout);
            Members::new(&urls, connect(), timeout, timeout).attempt()
        };
        assert_eq!(attempt(2_000, 1), Duration::from_secs(2));
        assert_eq!(attempt(2_000, 3), Duration::from_secs(1));
        assert_eq!(attempt(300, 3), Duration::from_millis(300));
    }
}
