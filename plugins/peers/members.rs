//! Who takes part, and since when.
//!
//! A [`Roll`] is the whole membership at one revision of etcd, so that the revision says it all: gateways
//! that act by the same *epoch* have the same [`Table`]. When a roll is acted upon is each gateway's own
//! affair: at once if somebody is gone, else after [`SETTLE`], so that who comes and goes moves nothing; and
//! at once when a peer already does.
//!
//! Pure: time is an argument.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lockgate_quota::Nanos;

use crate::place::{MOST_NODES, Table};

/// How long somebody has to be there to be given partitions.
pub const SETTLE: Duration = Duration::from_secs(2);
/// How long a peer's higher epoch is taken for one that is still to be learnt, from when a peer on the roll
/// spoke of it last: as long as one acts by it, counts may be elsewhere. Nobody does any more after etcd was
/// restored from an older copy.
const HEARSAY: Duration = Duration::from_secs(5);
/// Rolls that wait. More of them in [`SETTLE`] and the oldest is not waited for.
const MOST_WAITING: usize = 64;

/// A gateway that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it listens for peers, `host:port`; its name, too.
    pub name: String,
    /// Which start of it: counts do not outlive the process.
    pub run: u64,
    /// Its share of the partitions; 0 while it leaves.
    pub weight: u32,
    /// The revision of its entry.
    pub revision: u64,
}

/// Everybody, at one revision.
///
/// The revision is that of the last *change* of the membership, the same for all who see the same members:
/// of the last put or delete of an entry, and never that of the store as a whole when it was read. Who begins
/// puts its entry, lists all as of the revision of that, and watches from the one behind it: a deletion
/// between two reads would be missed otherwise. An entry that is put again has another revision, by
/// which a gateway learns that it was taken for gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roll {
    /// Of etcd; grows with each change.
    pub revision: u64,
    /// By name, each once.
    pub nodes: Vec<Node>,
}

impl Roll {
    /// A roll in order. Beyond [`MOST_NODES`] nobody takes part: the same ones on every gateway.
    pub fn new(revision: u64, mut nodes: Vec<Node>) -> Roll {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes.dedup_by(|b, a| a.name == b.name);
        nodes.truncate(MOST_NODES);
        Roll { revision, nodes }
    }

    /// Who has this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| (*node.name).cmp(name));
        at.ok().and_then(|at| self.nodes.get(at))
    }

    /// Whether all of another roll are here, as they are there.
    fn has_all_of(&self, other: &Roll) -> bool {
        other.nodes.iter().all(|node| {
            let same = self.node(&node.name);
            same.is_some_and(|same| same.run == node.run && same.weight == node.weight)
        })
    }

    fn without(&self, name: &str) -> Roll {
        let others = self.nodes.iter().filter(|node| node.name != name);
        let nodes: Vec<Node> = others.cloned().collect();
        // The revision of this one is yet to be acted upon.
        let last = nodes.iter().map(|node| node.revision).max();
        Roll {
            revision: last.unwrap_or(0),
            nodes,
        }
    }
}

/// What a gateway acts by.
#[derive(Clone, Debug)]
pub struct View {
    /// The roll.
    pub roll: Roll,
    /// The number of this gateway in it.
    pub me: Option<u8>,
    /// Who owns what.
    pub table: Table,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Table")
    }
}

impl View {
    fn new(roll: Roll, (me, run): (&str, u64)) -> View {
        let mut nodes = roll.nodes.iter();
        // Another start of this gateway, its successor, is another gateway.
        let at = nodes.position(|node| node.name == me && node.run == run);
        let table = Table::new(roll.nodes.iter().map(|n| (n.name.as_str(), n.weight)));
        View {
            me: at.and_then(|at| u8::try_from(at).ok()),
            roll,
            table,
        }
    }

    /// Its revision.
    pub fn epoch(&self) -> u64 {
        self.roll.revision
    }

    /// The gateways that count.
    pub fn live(&self) -> usize {
        self.roll
            .nodes
            .iter()
            .filter(|node| node.weight > 0)
            .count()
    }

    /// The node that owns a partition.
    pub fn owner(&self, partition: usize) -> Option<&Node> {
        let number = self.table.owner(partition)?;
        self.roll.nodes.get(usize::from(number))
    }

    /// Whether this gateway owns it.
    pub fn is_mine(&self, partition: usize) -> bool {
        self.me.is_some() && self.table.owner(partition) == self.me
    }

    /// Whether this start of a gateway takes part.
    pub fn has(&self, node: &Node) -> bool {
        let found = self.roll.node(&node.name);
        found.is_some_and(|found| found.run == node.run)
    }
}

/// See the module.
pub struct Members {
    me: String,
    run: u64,
    view: Arc<View>,
    /// Rolls that were seen and are not acted upon, with the time.
    waiting: VecDeque<(Roll, Nanos)>,
    seen: bool,
    /// The highest epoch that a peer spoke of, and when.
    heard: (u64, Nanos),
}

impl Members {
    /// Nobody is known yet.
    pub fn new(me: &str, run: u64) -> Members {
        let nobody = Roll::new(0, Vec::new());
        Members {
            me: me.to_owned(),
            run,
            view: Arc::new(View::new(nobody, (me, run))),
            waiting: VecDeque::new(),
            seen: false,
            heard: (0, 0),
        }
    }

    /// What is acted by.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The latest roll, acted upon or not.
    pub fn latest(&self) -> &Roll {
        self.waiting
            .back()
            .map_or(&self.view.roll, |(roll, _)| roll)
    }

    /// The membership is this. True when that changes what is acted by.
    pub fn see(&mut self, roll: Roll, now: Nanos) -> bool {
        if self.seen && roll == *self.latest() {
            return false;
        }
        if !self.seen {
            return self.see_first(roll, now);
        }
        if roll.revision < self.latest().revision {
            // etcd has been restored from an older copy: what was said of epochs is void.
            self.heard = (0, 0);
            return self.act(roll);
        }
        let kept = self.view.roll.nodes.iter();
        let somebody_is_gone = kept.clone().any(|node| {
            let now = roll.node(&node.name);
            now.is_none_or(|now| now.run != node.run || (now.weight == 0 && node.weight > 0))
        });
        let nobody_came = roll.nodes.len() == kept.len();
        if somebody_is_gone || nobody_came {
            return self.act(roll);
        }
        // All of these were there since then, though others that came with them are gone again.
        let since = self
            .waiting
            .iter()
            .find(|(waits, _)| waits.has_all_of(&roll))
            .map_or(now, |(_, at)| *at);
        // One of which somebody is gone is not to be acted upon any more.
        self.waiting.retain(|(waits, _)| roll.has_all_of(waits));
        if self.waiting.len() == MOST_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((roll, since));
        self.tick(now)
    }

    /// The membership is this, and nobody will come or go.
    pub fn fix(&mut self, roll: Roll) -> bool {
        self.seen = true;
        self.act(roll)
    }

    /// Who comes first has nobody to wait for. Who comes later acts by what the others do until they
    /// have got used to it.
    fn see_first(&mut self, roll: Roll, now: Nanos) -> bool {
        self.seen = true;
        let others = roll.without(&self.me);
        if others.nodes.is_empty() || roll.node(&self.me).is_none() {
            return self.act(roll);
        }
        let changed = self.act(others);
        self.waiting.push_back((roll, now));
        changed
    }

    /// A peer acts by this epoch. True when that changes what is acted by.
    pub fn hear(&mut self, epoch: u64, now: Nanos) -> bool {
        let highest = self.heard(now).max(epoch);
        if epoch >= highest {
            self.heard = (highest, now);
        }
        let due = self
            .waiting
            .iter()
            .rposition(|(roll, _)| roll.revision <= epoch);
        self.act_by(due)
    }

    /// The highest epoch that is acted by somewhere, as far as is known.
    pub fn heard(&self, now: Nanos) -> u64 {
        let (epoch, at) = self.heard;
        if now.saturating_sub(at) > nanos(HEARSAY) {
            return 0;
        }
        epoch
    }

    /// When something is due that was seen before.
    pub fn due(&self) -> Option<Nanos> {
        let at = self.waiting.iter().map(|(_, at)| *at).min()?;
        Some(at.saturating_add(nanos(SETTLE)))
    }

    /// Time has passed. True when that changes what is acted by.
    pub fn tick(&mut self, now: Nanos) -> bool {
        let settled = |at: &Nanos| at.saturating_add(nanos(SETTLE)) <= now;
        let due = self.waiting.iter().rposition(|(_, at)| settled(at));
        self.act_by(due)
    }

    fn act_by(&mut self, waiting: Option<usize>) -> bool {
        let Some(at) = waiting else { return false };
        let Some((roll, _)) = self.waiting.remove(at) else {
            return false;
        };
        let rest = self.waiting.split_off(at);
        let changed = self.act(roll);
        self.waiting = rest;
        changed
    }

    /// Nothing older is waited for any more.
    fn act(&mut self, roll: Roll) -> bool {
        self.waiting.clear();
        if roll == self.view.roll {
            return false;
        }
        self.view = Arc::new(View::new(roll, (&self.me, self.run)));
        true
    }
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn node(name: &str, run: u64) -> Node {
        Node {
            name: name.to_owned(),
            run,
            weight: 1,
            revision: 1,
        }
    }

    fn roll(revision: u64, names: &str) -> Roll {
        Roll::new(
            revision,
            names.split_whitespace().map(|n| node(n, 1)).collect(),
        )
    }

    fn names(members: &Members) -> String {
        let nodes = members.view().roll.nodes.iter();
        nodes.map(|n| n.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn who_is_gone_is_gone_and_who_comes_waits() {
        let mut members = Members::new("a", 1);
        assert!(members.see(roll(5, "a"), 0));
        assert_eq!(
            (names(&members).as_str(), members.view().me),
            ("a", Some(0))
        );
        assert!(!members.see(roll(6, "a b"), SECOND));
        assert_eq!(members.due(), Some(3 * SECOND));
        assert!(!members.tick(3 * SECOND - 1));
        assert!(members.tick(3 * SECOND));
        assert_eq!(
            (names(&members).as_str(), members.view().epoch()),
            ("a b", 6)
        );
        // Gone at once, together with who came before.
        assert!(!members.see(roll(7, "a b c"), 4 * SECOND));
        assert!(members.see(roll(8, "a c"), 4 * SECOND));
        assert_eq!((names(&members).as_str(), members.due()), ("a c", None));
    }

    #[test]
    fn who_comes_and_goes_moves_nothing() {
        let mut members = Members::new("a", 1);
        members.see(roll(1, "a b"), 0);
        members.tick(2 * SECOND);
        let before = members.view().table.clone();
        for n in 1..100 {
            members.see(roll(2 * n, "a b c"), 3 * SECOND + n);
            members.see(roll(2 * n + 1, "a b"), 3 * SECOND + n);
        }
        assert!(before == members.view().table);
        assert_eq!((members.view().epoch(), members.due()), (199, None));
    }

    #[test]
    fn a_newcomer_acts_by_what_the_others_do() {
        let mut members = Members::new("c", 1);
        assert!(members.see(roll(9, "a b c"), 0));
        assert_eq!((names(&members).as_str(), members.view().me), ("a b", None));
        assert!(members.tick(2 * SECOND));
        assert_eq!((members.view().me, members.view().epoch()), (Some(2), 9));
    }

    #[test]
    fn a_peer_that_acts_already_is_followed() {
        let mut members = Members::new("a", 1);
        members.see(roll(1, "a"), 0);
        members.see(roll(4, "a b"), 0);
        members.see(roll(6, "a b c"), 0);
        assert!(!members.hear(3, 1));
        assert!(members.hear(5, 2));
        assert_eq!(
            (names(&members).as_str(), members.view().epoch()),
            ("a b", 4)
        );
        assert!(members.hear(8, 3));
        assert_eq!((names(&members).as_str(), members.heard(4)), ("a b c", 8));
        assert_eq!(members.heard(6 * SECOND), 0);
    }

    #[test]
    fn another_start_of_a_gateway_is_another_gateway() {
        let mut members = Members::new("a", 1);
        members.see(roll(1, "a b"), 0);
        members.tick(2 * SECOND);
        let old = members.view().roll.nodes[1].clone();
        let again = Roll::new(2, vec![node("a", 1), node("b", 2)]);
        assert!(members.see(again, 3 * SECOND));
        assert!(!members.view().has(&old));
        // One that leaves owns nothing from then on.
        let mut leaving = node("b", 2);
        leaving.weight = 0;
        assert!(members.see(Roll::new(3, vec![node("a", 1), leaving]), 3 * SECOND));
        assert_eq!(
            (members.view().live(), members.view().table.share(0)),
            (1, 4096)
        );
    }

    #[test]
    fn who_is_gone_again_is_not_acted_for() {
        let mut members = Members::new("a", 1);
        members.see(roll(1, "a"), 0);
        members.see(roll(6, "a b"), SECOND);
        members.see(roll(7, "a b c"), 2 * SECOND);
        // One of the newcomers is gone before its time; the other has been there all the while.
        assert!(!members.see(roll(8, "a c"), 2 * SECOND + 1));
        assert!(!members.tick(4 * SECOND - 1));
        assert_eq!(names(&members), "a");
        assert_eq!(members.due(), Some(4 * SECOND));
        assert!(members.tick(4 * SECOND));
        assert_eq!(names(&members), "a c");
    }

    #[test]
    fn an_older_etcd_is_believed() {
        let mut members = Members::new("a", 1);
        members.see(roll(90, "a"), 0);
        members.hear(100, 1);
        assert!(members.see(roll(7, "a b"), 2));
        assert_eq!((members.view().epoch(), members.heard(3)), (7, 0));
    }

    proptest! {
        // A table takes a while without optimization.
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// However late each of them sees what happens: once they have seen all and time has passed,
        /// all act by the same; and who acts by the same epoch has the same table, at any time.
        #[test]
        fn one_epoch_is_one_table(
            changes in proptest::collection::vec((0usize..6, any::<bool>()), 1..40),
            delays in proptest::collection::vec((0u64..3 * SECOND, 0u64..3 * SECOND), 40),
        ) {
            let mut there = [true, false, false, false, false, false];
            let mut rolls = vec![roll(1, "n0")];
            for (at, (who, comes)) in changes.iter().enumerate() {
                there[*who] = *comes;
                let names: Vec<String> =
                    (0..6).filter(|n| there[*n]).map(|n| format!("n{n}")).collect();
                rolls.push(roll(at as u64 + 2, &names.join(" ")));
            }
            let mut seen: std::collections::BTreeMap<u64, Roll> = Default::default();
            // One that is never on the roll, and two that come and go on it.
            let each = ["watcher", "n0", "n3"].into_iter();
            for (me, late) in each.flat_map(|me| [(me, false), (me, true)]) {
                let mut members = Members::new(me, 1);
                let mut now = 0;
                for (roll, (a, b)) in rolls.iter().zip(&delays) {
                    now += if late { *a } else { *b };
                    members.tick(now);
                    members.see(roll.clone(), now);
                    let acts = members.view().roll.clone();
                    let first = seen.entry(acts.revision).or_insert_with(|| acts.clone());
                    prop_assert_eq!(&*first, &acts);
                }
                members.tick(now + 2 * SECOND);
                prop_assert_eq!(&members.view().roll.nodes, &rolls[rolls.len().min(41) - 1].nodes);
            }
        }
    }
}
