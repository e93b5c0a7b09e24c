//! All limits of a process: who asks for how much, under which rule, and when.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use smallvec::SmallVec;

use crate::exact::{Exact, Record, Tried};
use crate::packed::Packed;
use crate::rule::{Kind, Rule};
use crate::sketch::{self, Sketch};
use crate::slot::Key;
use crate::stats::{Lost, Stats};
use crate::table::{Outcome, Room, Table};
use crate::{Clock, Concurrency, Decision, Desk, Nanos, Overrides, Slot};

/// A key for which there is no room is let pass unseen until it has used this part of its limit.
const UNSEEN_PART: u64 = 8;

/// All limits of a process.
pub struct Engine {
    clock: Clock,
    /// The secret that keeps clients from choosing keys that meet in one set.
    secret: ahash::RandomState,
    table: Table,
    /// Both are made when they are needed, which in most processes is never.
    sketch: OnceLock<Sketch>,
    exact: OnceLock<Exact>,
    concurrency: Arc<Concurrency>,
    lost: Arc<Lost>,
    desk: Desk,
    overrides: Overrides,
}

/// What two processes have to have in common to count in the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The secret of the keys.
    pub secret: [u64; 4],
    /// A time, and an instant at which it was that.
    pub time: (Instant, Nanos),
}

/// One request's question to one rule.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// Who asks.
    pub key: Key,
    /// For how much. With 0 nothing is charged, and the limit must not be used up.
    pub cost: u64,
}

/// What was charged, for [`Engine::give_back`] and [`Engine::settle`].
#[derive(Debug)]
#[must_use = "without it a charge cannot be taken back; drop it if that is meant"]
pub struct Receipt {
    cost: u64,
    mark: u64,
    /// It was counted by the sketch.
    unseen: Option<sketch::Counted>,
    /// The rule that charged it, where that was not the one of the question.
    pub(crate) by: Option<Box<Rule>>,
}

/// What several rules say to one request.
#[derive(Debug)]
pub struct All {
    /// Whether all of them let it pass. If not, none was charged.
    pub allowed: bool,
    /// In the order of the questions.
    pub decisions: SmallVec<[Decision; 4]>,
    /// In the same order; empty after a refusal.
    pub receipts: SmallVec<[Receipt; 4]>,
}

/// Makes a [`Key`] of its parts, without putting them together first.
pub struct KeyHasher(ahash::AHasher);

impl KeyHasher {
    /// Adds bytes. Two parts are not the same as one that is both.
    #[must_use]
    pub fn bytes(mut self, part: &[u8]) -> KeyHasher {
        self.add(part);
        self
    }

    /// Adds bytes.
    pub fn add(&mut self, part: &[u8]) {
        self.0.write(part);
        self.0.write_usize(part.len());
    }

    /// Adds the part at a place of a key that has several. The same part at another place makes another
    /// key, so it does not matter which of them are missing.
    pub fn add_at(&mut self, place: usize, part: &[u8]) {
        self.0.write_usize(place);
        self.add(part);
    }

    /// Adds an address; one of IPv4 is the same when it comes as IPv6.
    #[must_use]
    pub fn address(mut self, ip: IpAddr) -> KeyHasher {
        let bits = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        self.0.write_u128(bits);
        self
    }

    /// The key.
    pub fn done(&self) -> Key {
        Key(self.0.finish())
    }
}

impl Default for Engine {
    /// An engine with a table of 16 MiB: a million keys.
    fn default() -> Engine {
        Engine::with_bytes(Engine::DEFAULT_BYTES)
    }
}

impl Engine {
    /// The size of the table unless another is asked for.
    pub const DEFAULT_BYTES: usize = 16 << 20;

    /// Changes whenever a word of the table means something else: processes of different layouts must
    /// not count in the same words.
    pub const LAYOUT: u32 = 1;

    /// An engine with a table of about this size, rounded to a power of two.
    pub fn with_bytes(bytes: usize) -> Engine {
        let table = Table::with_bytes(bytes);
        Engine::with(table, ahash::RandomState::new(), Clock::default())
    }

    /// How many words [`Engine::over`] takes for a table of about this size.
    pub fn words_for(bytes: usize) -> usize {
        Table::<Slot>::words_for(bytes)
    }

    /// An engine that counts in these words, in which others may count that have the same origin. `None`
    /// unless there are as many as it takes, and the first one is at the beginning of a cache line.
    pub fn over(words: &'static [Slot], bytes: usize, origin: Origin) -> Option<Engine> {
        let [a, b, c, d] = origin.secret;
        let (instant, nanos) = origin.time;
        let secret = ahash::RandomState::with_seeds(a, b, c, d);
        Some(Engine::with(
            Table::over(words, bytes)?,
            secret,
            Clock::showing(instant, nanos),
        ))
    }

    fn with(table: Table, secret: ahash::RandomState, clock: Clock) -> Engine {
        Engine {
            clock,
            secret,
            table,
            sketch: OnceLock::new(),
            exact: OnceLock::new(),
            concurrency: Arc::default(),
            lost: Arc::default(),
            desk: Desk::default(),
            overrides: Overrides::default(),
        }
    }

    /// What tells whether another process hashes keys alike: with the same secret, but another version
    /// of the hash or another processor, it may not.
    pub fn probe(&self) -> u64 {
        self.secret.hash_one("which keys are these")
    }

    /// The limits that are in use.
    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Keys with another limit.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Counts in this what is lost for want of room.
    #[must_use]
    pub fn counting(mut self, lost: Arc<Lost>) -> Engine {
        self.lost = lost;
        self
    }

    /// Time as rules count it.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Counts of requests under way.
    pub fn concurrency(&self) -> &Arc<Concurrency> {
        &self.concurrency
    }

    /// A number for everything that tells a rule's keys from those of others.
    pub fn scope(&self, parts: &[&str]) -> u64 {
        self.secret.hash_one(parts)
    }

    /// Begins a key in a scope.
    pub fn key(&self, scope: u64) -> KeyHasher {
        let mut hasher = self.secret.build_hasher();
        hasher.write_u64(scope);
        KeyHasher(hasher)
    }

    /// How a key stands under a rule, whatever is in force instead.
    pub(crate) fn look(&self, rule: &Rule, key: Key, now: Nanos) -> Decision {
        self.peek_as_is(&Ask { rule, key, cost: 0 }, now)
    }

    pub(crate) fn peek_as_is(&self, ask: &Ask<'_>, now: Nanos) -> Decision {
        match &ask.rule.kind {
            Kind::Packed(packed) => {
                let state = self.table.get(packed.tag(ask.key));
                packed.take(state, ask.cost, now).decision
            }
            Kind::Buckets(buckets) => self.exact_update(ask.key, now, |record| {
                (buckets.take(record, ask.cost, now).decision, None)
            }),
            Kind::Log(log) => self.exact_update(ask.key, now, |record| {
                (log.take(record, ask.cost, now).decision, None)
            }),
        }
    }

    /// Asks the rule of the question, whatever is in force instead, and charges it if it agrees.
    pub fn take_as_is(&self, ask: &Ask<'_>, now: Nanos) -> (Decision, Receipt) {
        let (cost, key) = (ask.cost, ask.key);
        let receipt = |mark| Receipt {
            cost,
            mark,
            unseen: None,
            by: None,
        };
        let tried = |tried: Tried| ((tried.decision, receipt(tried.mark)), tried.next);
        match &ask.rule.kind {
            Kind::Packed(packed) => self.take_packed(packed, ask, now),
            Kind::Buckets(buckets) => {
                self.exact_update(key, now, |record| tried(buckets.take(record, cost, now)))
            }
            Kind::Log(log) => {
                self.exact_update(key, now, |record| tried(log.take(record, cost, now)))
            }
        }
    }

    fn take_packed(&self, packed: &Packed, ask: &Ask<'_>, now: Nanos) -> (Decision, Receipt) {
        let (cost, key) = (ask.cost, ask.key);
        let change = |state| {
            let taken = packed.take(state, cost, now);
            ((taken.decision, taken.mark), taken.next)
        };
        let counted = Cell::new(None);
        let full = || {
            let (room, place) = self.make_room(packed, ask, now);
            counted.set(Some(place));
            room
        };
        let (decision, mark, unseen) = match self.table.update(packed.tag(key), now, change, full) {
            Outcome::Seen((decision, mark)) => (decision, mark, None),
            Outcome::Unseen((decision, mark)) => {
                self.lost.unseen.fetch_add(1, Ordering::Relaxed);
                (decision, mark, counted.get())
            }
        };
        let by = None;
        (
            decision,
            Receipt {
                cost,
                mark,
                unseen,
                by,
            },
        )
    }

    /// A newcomer finds no word free. Light keys pass unseen: giving each of them a word would
    /// forget others. What they may have used is charged when they turn out to be heavy, so that
    /// nobody gets more than the limit this way.
    #[cold]
    fn make_room(&self, packed: &Packed, ask: &Ask<'_>, now: Nanos) -> (Room, sketch::Counted) {
        let sketch = self.sketch.get_or_init(|| {
            let workers = thread::available_parallelism().map_or(1, usize::from);
            Sketch::new(workers, now)
        });
        let heavy = (ask.rule.limit() / UNSEEN_PART).max(2);
        let (estimate, counted) = sketch.add(ask.key, ask.cost, ask.rule.window(), now);
        if estimate < heavy {
            return (Room::Unseen, counted);
        }
        self.lost.evicted.fetch_add(1, Ordering::Relaxed);
        let unseen = estimate.saturating_sub(ask.cost).min(heavy - 1);
        let start = packed.charge(0, unseen, now).unwrap_or(0);
        (Room::Evict(start), counted)
    }

    /// Takes a charge back. Never gives more than was taken, and nothing once the window has ended.
    pub fn give_back(&self, ask: &Ask<'_>, receipt: Receipt, now: Nanos) {
        self.settle(ask, receipt, 0, now);
    }

    /// Corrects a charge to what was really used, by the rule that charged it: takes back the rest, or charges
    /// what is missing, whether it fits or not.
    #[allow(clippy::needless_pass_by_value)] // A receipt is good for one settlement.
    pub fn settle(&self, ask: &Ask<'_>, receipt: Receipt, used: u64, now: Nanos) {
        let Receipt {
            cost,
            mark,
            unseen,
            by,
        } = receipt;
        let (rule, key) = (by.as_deref().unwrap_or(ask.rule), ask.key);
        let (less, more) = (cost.saturating_sub(used), used.saturating_sub(cost));
        if less == 0 && more == 0 {
            return;
        }
        if let (Some(counted), true) = (unseen, less > 0) {
            if let Some(sketch) = self.sketch.get() {
                sketch.sub(key, less, counted);
            }
            return;
        }
        match &rule.kind {
            Kind::Packed(packed) if more > 0 => {
                let change = |state| ((), packed.charge(state, more, now));
                let ask = Ask {
                    rule,
                    key,
                    cost: more,
                };
                let full = || self.make_room(packed, &ask, now).0;
                self.table.update(packed.tag(key), now, change, full);
            }
            Kind::Packed(packed) => {
                let change = |state| packed.give(state, less, mark, now);
                self.table.change(packed.tag(key), change);
            }
            Kind::Buckets(buckets) => self.exact_update(key, now, |record| {
                let next = if more > 0 {
                    buckets.charge(record, more, now)
                } else {
                    buckets.give(record, less, mark, now)
                };
                ((), next)
            }),
            Kind::Log(log) => self.exact_update(key, now, |record| {
                let next = if more > 0 {
                    log.charge(record, more, now)
                } else {
                    log.give(record, less, mark, now)
                };
                ((), next)
            }),
        }
    }

    /// Asks the rules of the questions, whatever is in force instead, and charges all of them or none.
    ///
    /// A refusal is found without writing anything, so a flood of requests that are refused stays
    /// out of the other workers' way. Two requests that race for the last of two limits may both be
    /// refused; never do both pass.
    pub fn take_all_as_is(&self, asks: &[Ask<'_>], now: Nanos) -> All {
        let mut all = All {
            allowed: true,
            decisions: SmallVec::new(),
            receipts: SmallVec::new(),
        };
        if let [ask] = asks {
            let (decision, receipt) = self.take_as_is(ask, now);
            all.allowed = decision.allowed;
            all.decisions.push(decision);
            if decision.allowed {
                all.receipts.push(receipt);
            }
            return all;
        }
        if asks.iter().any(|ask| !self.peek_as_is(ask, now).allowed) {
            return self.refused(asks, now, all);
        }
        for (at, ask) in asks.iter().enumerate() {
            let (decision, receipt) = self.take_as_is(ask, now);
            if !decision.allowed {
                for (ask, receipt) in asks.iter().zip(std::mem::take(&mut all.receipts)) {
                    self.give_back(ask, receipt, now);
                }
                all.decisions.clear();
                let mut all = self.refused(asks, now, all);
                all.decisions[at] = decision;
                return all;
            }
            all.decisions.push(decision);
            all.receipts.push(receipt);
        }
        all
    }

    /// What each rule says when one of them refuses: those that would not have are not charged, so
    /// they tell what is left without this request.
    fn refused(&self, asks: &[Ask<'_>], now: Nanos, mut all: All) -> All {
        all.allowed = false;
        for ask in asks {
            let mut decision = self.peek_as_is(ask, now);
            if !decision.allowed {
                // Writes nothing, unless the state is from before an edit of the rule.
                let (again, receipt) = self.take_as_is(ask, now);
                if again.allowed {
                    self.give_back(ask, receipt, now);
                }
            } else {
                decision = self.peek_as_is(&Ask { cost: 0, ..*ask }, now);
            }
            all.decisions.push(decision);
        }
        all
    }

    fn exact_update<R>(
        &self,
        key: Key,
        now: Nanos,
        f: impl FnOnce(&Record) -> (R, Option<Record>),
    ) -> R {
        let exact = self.exact.get_or_init(Exact::new);
        let lost = || {
            self.lost.evicted.fetch_add(1, Ordering::Relaxed);
        };
        exact.update(key, now, f, lost)
    }

    /// Forgets what a key has used; says whether anything was known. Requests under way go on, and so does
    /// what is counted of keys for which there was no room.
    pub fn forget(&self, key: Key) -> bool {
        let exact = self.exact.get().is_some_and(|exact| exact.remove(key));
        self.table.clear(key) | exact
    }

    /// Numbers about the engine; walks the whole table.
    pub fn stats(&self, now: Nanos) -> Stats {
        let (live, room) = self.table.fill(now);
        Stats {
            live,
            room,
            exact: self.exact.get().map_or(0, Exact::len),
            unseen: self.lost.unseen(),
            evicted: self.lost.evicted(),
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
