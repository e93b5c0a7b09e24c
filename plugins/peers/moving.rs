//! Handing counts over to the gateways that own them from now on.
//!
//! Whoever owns them when they are sent gets them: a change under way is followed, and what comes back here
//! is counted here. What nobody has taken after [`EXPECTED`] is lost, and said to be.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use crate::core::{Core, Move};
use crate::frame::{Question, Reply};
use crate::kept::Part;
use crate::ledger::EXPECTED;
use crate::members::{Node, View};
use crate::peers::Links;

/// What goes into one frame, in bytes as they are in memory: well below the longest frame.
const FRAME: usize = 64 << 10;
/// Partitions in one frame.
const MOST_PARTS: usize = 1_024;
/// Before a frame is sent again that the other side was not ready for.
const PAUSE: Duration = Duration::from_millis(10);
/// For one answer. A part counts once however often it is sent, and in the meantime it may belong to another.
const TRY: Duration = Duration::from_millis(500);

/// See the module.
pub(crate) struct Way {
    core: Arc<Core>,
    links: Arc<Links>,
    /// Partitions of which parts are on their way, and how many.
    under_way: Mutex<HashMap<u16, usize>>,
}

impl Way {
    pub(crate) fn new(core: Arc<Core>, links: Arc<Links>) -> Way {
        Way {
            core,
            links,
            under_way: Mutex::default(),
        }
    }

    /// Hands over what leaves, each to its owner, and tells each peer when it has all. Takes no longer than
    /// counts are expected. Until the future is made nothing is told of later changes.
    pub(crate) fn hand_over(&self, next: Move) -> impl Future<Output = ()> {
        let until = Instant::from_std(next.at) + EXPECTED;
        let Move {
            view,
            leaving,
            fresh,
            ..
        } = next;
        let mut by_owner: BTreeMap<Option<u8>, Vec<Part>> = BTreeMap::new();
        for part in leaving {
            let to = view.table.owner(usize::from(part.partition));
            by_owner.entry(to).or_default().push(part);
        }
        let by_owner = by_owner.into_values();
        let frames: Vec<_> = by_owner
            .map(|parts| frames(parts, || self.core.next_part()))
            .collect();
        let mut under_way = self.under_way();
        for part in frames.iter().flatten().flatten() {
            *under_way.entry(part.partition).or_default() += 1;
        }
        drop(under_way);
        async move {
            let sent = frames.into_iter().map(|frames| async move {
                for parts in frames {
                    self.deliver(parts, until).await;
                }
            });
            let others = view.roll.nodes.iter();
            let told = others
                .filter(|node| view.me.is_some() && node.name != self.core.name)
                .map(|node| self.tell(&view, node, fresh, until));
            tokio::join!(join_all(sent), join_all(told));
        }
    }

    /// Sends parts until somebody has taken them.
    async fn deliver(&self, parts: Vec<Part>, until: Instant) {
        let mut rest = vec![parts];
        while let Some(parts) = rest.pop() {
            let view = self.core.view();
            let mut by_owner: BTreeMap<Option<u8>, Vec<Part>> = BTreeMap::new();
            for part in parts {
                let to = view.table.owner(usize::from(part.partition));
                by_owner.entry(to).or_default().push(part);
            }
            for (to, parts) in by_owner {
                let node = to.and_then(|to| view.roll.nodes.get(usize::from(to)));
                if self.offer(&view, node, &parts, until).await {
                    self.arrived(&parts);
                } else if Instant::now() < until {
                    rest.push(parts);
                } else {
                    let node = node.map(|node| &*node.name);
                    let keys: usize = parts.iter().map(|part| part.keys.len()).sum();
                    tracing::warn!(peer = node, keys, "counts could not be handed over");
                    self.arrived(&parts);
                }
            }
            if !rest.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn offer(
        &self,
        view: &View,
        node: Option<&Node>,
        parts: &[Part],
        until: Instant,
    ) -> bool {
        let Some(node) = node else { return false };
        let (epoch, sent) = (view.epoch(), self.core.now());
        if node.name == self.core.name {
            let me = (&*self.core.name, self.core.run);
            let taken = self.core.take_over(me, epoch, sent, parts.to_vec());
            return taken == Reply::Done(true);
        }
        let link = self.links.load().get(&node.name).cloned();
        let Some(link) = link.filter(|link| link.is_up()) else {
            return false;
        };
        let parts = parts.to_vec();
        let hand = Question::Hand { epoch, sent, parts };
        let limit = until.min(Instant::now() + TRY);
        matches!(link.tell(hand, limit).await, Ok(Reply::Done(_)))
    }

    /// Tells a peer that it has all.
    async fn tell(&self, view: &View, node: &Node, fresh: bool, until: Instant) {
        while Instant::now() < until {
            let link = self.links.load().get(&node.name).cloned();
            if let Some(link) = link.filter(|link| link.is_up())
                && !self.expects_more(view, node)
            {
                let done = Question::Done(view.epoch(), fresh);
                let limit = until.min(Instant::now() + TRY);
                if let Ok(Reply::Done(_)) = link.tell(done, limit).await {
                    return;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether something is on its way that is for this gateway.
    fn expects_more(&self, view: &View, node: &Node) -> bool {
        let under_way = self.under_way();
        let mut partitions = under_way.keys();
        partitions.any(|partition| view.owner(usize::from(*partition)) == Some(node))
    }

    fn arrived(&self, parts: &[Part]) {
        let mut under_way = self.under_way();
        for part in parts {
            if let Some(count) = under_way.get_mut(&part.partition) {
                *count -= 1;
                if *count == 0 {
                    under_way.remove(&part.partition);
                }
            }
        }
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<u16, usize>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parts in frames of bounded size, each with its number.
fn frames(parts: Vec<Part>, number: impl Fn() -> u64) -> Vec<Vec<Part>> {
    let (mut frames, mut frame, mut size) = (Vec::new(), Vec::new(), 0);
    for part in parts {
        let mut keys = part.keys.into_iter().peekable();
        loop {
            let mut some = Vec::new();
            while size < FRAME
                && let Some((key, kept)) = keys.next()
            {
                size += kept.size();
                some.push((key, kept));
            }
            let rest = keys.peek().is_some();
            frame.push(Part {
                partition: part.partition,
                number: number(),
                more: part.more || rest,
                lost: part.lost,
                keys: some,
            });
            if size >= FRAME || frame.len() >= MOST_PARTS {
                frames.push(std::mem::take(&mut frame));
                size = 0;
            }
            if !rest {
                break;
            }
        }
    }
    frames.push(frame);
    frames.retain(|frame| !frame.is_empty());
    frames
}
