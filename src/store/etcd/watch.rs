//! A watch over etcd: what changes below the prefix, and whether the server is still there.
//!
//! A server that says nothing is asked for a sign of life. Its answer is no progress to go on from:
//! before 3.4.25 and 3.5.8 etcd may send it ahead of changes that are older. What it sends by itself
//! for the watch comes in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use etcd_client::{
    EventType, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream,
};
use tokio::sync::mpsc;

use super::members::Members;
use super::{item, number, signed};
use crate::store::{Event, Watch, WatchError};

/// Changes that wait for whoever watches.
const WAITING: usize = 64;

/// What is told: changes and their revision, or why no more come.
type Told = Result<(Vec<Event>, u64), WatchError>;

/// The watch of one server.
pub(super) struct Watched {
    /// What all keys begin with.
    pub(super) prefix: String,
    /// What is known already.
    pub(super) after: u64,
    /// The longest the server may say nothing.
    pub(super) patience: Duration,
    /// All servers, and which of them this is.
    pub(super) members: Arc<Members>,
    /// See `members`.
    pub(super) at: usize,
}

/// What is asked for.
pub(super) fn options(after: u64) -> WatchOptions {
    WatchOptions::new()
        .with_prefix()
        .with_start_revision(signed(after.saturating_add(1)))
        .with_progress_notify()
}

impl Watched {
    /// Follows a stream on its own task, until it ends or nobody listens.
    pub(super) fn follow(
        self,
        asking: WatchRequestSender,
        told: WatchResponseStream,
    ) -> Box<dyn Watch> {
        let (out, events) = mpsc::channel(WAITING);
        tokio::spawn(self.run(asking, told, out));
        Box::new(Follow { events })
    }

    async fn run(
        mut self,
        mut asking: WatchRequestSender,
        mut told: WatchResponseStream,
        out: mpsc::Sender<Told>,
    ) {
        let mut asked = false;
        loop {
            let wait = tokio::time::timeout(self.patience / 2, told.message());
            let next = tokio::select! {
                next = wait => next,
                () = out.closed() => return,
            };
            let told = match next {
                Ok(Ok(Some(message))) => {
                    asked = false;
                    self.read(&message)
                }
                Ok(Ok(None)) => Some(self.broken("etcd ended it".to_owned())),
                Ok(Err(error)) => Some(self.broken(error.to_string())),
                Err(_) if asked => {
                    Some(self.broken(format!("etcd said nothing for {:?}", self.patience)))
                }
                Err(_) => {
                    asked = true;
                    let sent = asking.request_progress().await;
                    sent.err().map(|error| self.broken(error.to_string()))
                }
            };
            let Some(told) = told else {
                continue;
            };
            let is_last = told.is_err();
            if out.send(told).await.is_err() || is_last {
                return;
            }
        }
    }

    fn broken(&self, text: String) -> Told {
        self.members.failed(self.at, Instant::now());
        Err(WatchError::Broken(text))
    }

    /// What a message comes to, if to anything.
    fn read(&mut self, message: &WatchResponse) -> Option<Told> {
        let now = message.header().map_or(0, |h| number(h.revision()));
        let after = self.after;
        if message.compact_revision() > 0 {
            return Some(Err(WatchError::Forgotten(after)));
        }
        if message.canceled() {
            return Some(Err(WatchError::Broken(message.cancel_reason().to_owned())));
        }
        if !message.events().is_empty() {
            // Not the header's revision: more may follow that is older than it.
            let changed = message.events().iter().filter_map(|e| e.kv());
            let revision = changed.map(|kv| number(kv.mod_revision())).max();
            self.after = revision.unwrap_or(after).max(after);
            let events = message.events().iter();
            let events = events.filter_map(|e| event(&self.prefix, e));
            return Some(Ok((events.collect(), self.after)));
        }
        if now < after {
            // etcd takes a watch of a revision that is yet to come, and would keep silent until then.
            return Some(Err(WatchError::WentBack { after, now }));
        }
        // Of what is asked for the number is -1, see the module.
        let in_order = !message.created() && message.watch_id() >= 0;
        (in_order && now > after).then(|| {
            self.after = now;
            Ok((Vec::new(), now))
        })
    }
}

fn event(prefix: &str, event: &etcd_client::Event) -> Option<Event> {
    let kv = event.kv()?;
    match event.event_type() {
        EventType::Put => item(prefix, kv).map(Event::Put),
        EventType::Delete => {
            let path = super::path(prefix, kv)?;
            Some(Event::Gone(path.into(), number(kv.mod_revision())))
        }
    }
}

struct Follow {
    events: mpsc::Receiver<Told>,
}

#[async_trait]
impl Watch for Follow {
    async fn next(&mut self) -> Told {
        let gone = || Err(WatchError::Broken("etcd is closed".to_owned()));
        self.events.recv().await.unwrap_or_else(gone)
    }
}
