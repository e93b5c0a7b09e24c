//! Handing counts over to the gateways that own them from now on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use crate::core::{Core, Move};
use crate::frame::{Question, Reply};
use crate::kept::Part;
use crate::ledger::EXPECTED;
use crate::link::Link;

/// What goes into one frame, in bytes as they are in memory: well below the longest frame.
const FRAME: usize = 64 << 10;
/// Partitions in one frame.
const MOST_PARTS: usize = 1_024;
/// Before a frame is sent again that the other side was not ready for.
const PAUSE: Duration = Duration::from_millis(10);

/// Hands over what leaves, each to its owner, and tells all when it is done. Takes no longer than counts are
/// expected.
pub(crate) async fn hand_over(core: &Core, links: &HashMap<String, Arc<Link>>, next: Move) {
    let Move {
        view,
        leaving,
        fresh,
    } = next;
    let epoch = view.epoch();
    let until = Instant::now() + EXPECTED;
    let mut by_owner: BTreeMap<u8, Vec<Part>> = BTreeMap::new();
    for one in leaving {
        by_owner.entry(one.to).or_default().push(one.part);
    }
    let sent = by_owner.into_iter().map(|(to, parts)| {
        let link = view
            .roll
            .nodes
            .get(usize::from(to))
            .and_then(|node| links.get(&node.name));
        async move {
            let Some(link) = link else { return };
            for parts in frames(parts) {
                hand(core, link, epoch, parts, until).await;
            }
        }
    });
    join_all(sent).await;
    if view.me.is_none() {
        return;
    }
    let others = view.roll.nodes.iter().filter(|node| node.name != core.name);
    let told = others
        .filter_map(|node| links.get(&node.name))
        .map(|link| async move {
            while Instant::now() < until {
                if link.ask(Question::Done(epoch, fresh), until).await.is_ok() {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    join_all(told).await;
}

async fn hand(core: &Core, link: &Link, epoch: u64, parts: Vec<Part>, until: Instant) {
    while Instant::now() < until {
        let packed = parts.iter().map(|part| Part {
            keys: {
                let keys = part.keys.iter();
                // As of when it is sent.
                keys.map(|(key, kept)| (*key, kept.clone().packed(core.now())))
                    .collect()
            },
            ..*part
        });
        let question = Question::Hand(epoch, packed.collect());
        match link.ask(question, until).await {
            // What has moved on already is not followed.
            Ok(Reply::Done(_) | Reply::Moved) => return,
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Parts in frames of bounded size.
fn frames(parts: Vec<Part>) -> Vec<Vec<Part>> {
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
                more: part.more || rest,
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
