//! Ranges of keys, read in parts.

use std::sync::Arc;

use etcd_client::{GetOptions, GetResponse};

use super::ask::{Failed, any};
use super::members::{Members, is_unknown_revision};
use super::{kv, revision, signed};

/// Items that are asked for at once where nothing is known of their size: of the largest that etcd
/// takes by default, the answer is not too long. All parts of a list are of one revision.
pub(super) const PART: i64 = 500;
/// Items that are asked for at once when they are small. For each part etcd counts what is left
/// behind it, so a hundred thousand in small parts are counted many times.
const PART_MOST: i64 = 10_000;
/// What an answer should come to.
const PART_BYTES: usize = 4 << 20;
/// Keys that are asked for at once, where values are not.
const PART_OF_KEYS: i64 = 5_000;

/// All keys of a range in parts, as of one revision: `revision`, or the one of the first part.
pub(super) struct Parts {
    pub(super) members: Arc<Members>,
    /// The first key that is not read yet.
    pub(super) next: Vec<u8>,
    pub(super) end: Vec<u8>,
    pub(super) revision: u64,
    pub(super) only_keys: bool,
    /// How many the next part may have, of what is not only keys.
    pub(super) limit: i64,
}

impl Parts {
    /// The next part, and whether there are more.
    pub(super) async fn next(&mut self) -> Result<(GetResponse, bool), Failed> {
        match self.ask().await {
            // The library's word for an answer that is too long is the same as for a revision.
            Err(Failed::Etcd(error)) if self.limit > PART && is_unknown_revision(&error) => {
                self.limit = PART;
                self.ask().await
            }
            done => done,
        }
    }

    async fn ask(&mut self) -> Result<(GetResponse, bool), Failed> {
        let part = match self.only_keys {
            true => GetOptions::new().with_limit(PART_OF_KEYS).with_keys_only(),
            false => GetOptions::new().with_limit(self.limit),
        };
        let part = part.with_range(self.end.clone());
        let part = part.with_revision(signed(self.revision));
        let start = &self.next;
        let (_, found) = any(&self.members, |client| {
            let (start, part) = (start.clone(), part.clone());
            async move { kv(&client).get(start, Some(part)).await }
        })
        .await?;
        if self.revision == 0 {
            self.revision = revision(found.header());
        }
        let last = found.kvs().last().filter(|_| found.more());
        let next = last.map(|last| [last.key(), &[0]].concat());
        let more = next.is_some();
        self.next = next.unwrap_or_default();
        let bytes = found.kvs().iter().map(|kv| kv.value().len()).sum();
        self.limit = limit(found.kvs().len(), bytes);
        Ok((found, more))
    }
}

/// How many items to ask for next, after so many of so many bytes.
fn limit(items: usize, bytes: usize) -> i64 {
    let each = bytes / items.max(1);
    let fitting = PART_BYTES / each.max(1);
    i64::try_from(fitting).map_or(PART_MOST, |fitting| fitting.clamp(PART, PART_MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_what_they_hold() {
        assert_eq!(limit(0, 0), PART_MOST);
        assert_eq!(limit(500, 500 * 1000), 4194);
        assert_eq!(limit(500, 500 * 100), PART_MOST);
        assert_eq!(limit(500, 500 << 20), PART);
    }
}
