//! A client's connection between requests.
//!
//! Serving a request takes a task of some KiB. A connection that has been quiet
//! for a moment waits in a task of its own that holds no more than what is here;
//! there may be many thousands of those.

use std::future::poll_fn;
use std::time::Duration;

use lockgate_plugin::Conn;
use pingora_core::server::ShutdownWatch;
use tokio::time::Instant;

use super::core::{ClientLimits, Counted};
use super::wire::buffers;
use super::wire::deadline::LONGEST;
use crate::link::Link;

/// How long a connection stays where its next request would be served at once.
pub const QUIET: Duration = Duration::from_millis(500);
/// How long a connection that was just accepted may take to send its first request when the
/// process is about to end: the client could not know. The process waits as long.
pub const LAST_MOMENT: Duration = Duration::from_millis(200);

/// A connection, and what is known of it.
pub struct Waiting {
    /// The connection itself.
    pub link: Link,
    /// Who it is.
    pub conn: Conn,
    /// Requests it has carried.
    pub requests: u32,
    /// What was read of the next one.
    pub inb: Vec<u8>,
    /// When the last one ended.
    pub since: Instant,
    /// Says that the process is going to end.
    pub shutdown: ShutdownWatch,
    /// Counts it among the open ones.
    pub open: Counted,
}

impl Waiting {
    /// Waits for the next request. `false` when none will come: the client closed, the time is
    /// over, or the process ends.
    pub async fn has_bytes(&mut self, limits: &ClientLimits) -> bool {
        let limit = match self.requests {
            0 => limits.head,
            _ => limits.keepalive,
        };
        let until = self.since + limit.min(LONGEST);
        let (link, inb) = (&mut self.link, &mut self.inb);
        let mut came = std::pin::pin!(async move {
            let read = poll_fn(|cx| buffers::poll_read(cx, link, inb));
            matches!(read.await, Ok(n) if n > 0)
        });
        tokio::select! {
            // What has arrived is served: when the client sent it, it could not know of the end.
            biased;
            came = &mut came => came,
            () = tokio::time::sleep_until(until) => false,
            () = async {
                // An error means that nobody can send any more: the process is at its end.
                let _ = self.shutdown.wait_for(|ending| *ending).await;
            } => match self.requests {
                0 => tokio::time::timeout(LAST_MOMENT, came).await.unwrap_or(false),
                _ => false,
            },
        }
    }
}
