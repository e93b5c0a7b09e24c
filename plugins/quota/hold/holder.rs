//! Where permits are held: which key is where, and what a request is told.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::RandomState;

use super::agenda::Agenda;
use super::lease::Lease;
use super::slot::{Beside, Found, Slot};
use super::sums::{Held, Sums};
use super::terms::Terms;
use super::told::{Part, never, passed, refused};
use crate::Nanos;
use crate::charge::Law;
use crate::key::Name;
use crate::store::Outcome;

/// Keys under one lock, and places that a key may be in.
const WAYS: usize = 8;
/// Marks of one fixed window may differ by so much, in microseconds.
const SAME_WINDOW: u64 = 5_000;

/// What a request asks of a limit.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Whose count.
    pub name: Name<'a>,
    /// The limit, and how its permits are taken ahead.
    pub terms: &'a Terms,
    /// For how much. With 0 nothing is spent, but there has to be something left.
    pub cost: u64,
}

/// What it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spend {
    /// Yes or no.
    Known(Outcome),
    /// It has to wait for the answer to an ask.
    Wait,
    /// It would have to, but the store is away.
    Away,
    /// There is no place for this key: it has to ask for itself.
    Full,
}

/// Where a key is, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spot(pub(crate) u32);

impl Spot {
    /// Which keys it is among: who waits for one of them may be woken for another.
    pub fn set(self) -> usize {
        self.0 as usize / WAYS
    }
}

/// What a request spent, so that it can be put back.
pub type Mark = u64;

/// See the module.
#[derive(Debug)]
pub struct Holder {
    slots: Box<[Slot<AtomicU64>]>,
    pub(super) sets: Box<[Mutex<[Option<Box<Lease>>; WAYS]>]>,
    pub(super) agenda: Agenda,
    pub(super) sums: Sums,
    /// The last ask.
    number: AtomicU64,
    /// Clients choose keys, but not which of them meet.
    hash: RandomState,
}

/// One set of keys, locked.
pub(super) type Set<'a> = MutexGuard<'a, [Option<Box<Lease>>; WAYS]>;

impl Holder {
    /// For about so many keys: rounded up to a power of two, at least 8.
    pub fn new(keys: usize) -> Holder {
        let sets = keys.div_ceil(WAYS).next_power_of_two();
        Holder {
            slots: (0..sets * WAYS).map(|_| Slot::default()).collect(),
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            agenda: Agenda::default(),
            sums: Sums::default(),
            number: AtomicU64::new(0),
            hash: RandomState::new(),
        }
    }

    /// Spends permits, or says what to do. The flag says that there is something to ask, for
    /// [`Holder::due`].
    pub fn spend(&self, claim: &Claim<'_>, now: Nanos) -> (Spend, bool) {
        if claim.cost > claim.terms.limit {
            return (Spend::Known(never()), false);
        }
        let tag = self.tag(claim);
        let Some(place) = self.find(tag) else {
            return self.spend_slowly(claim, tag, now);
        };
        match self.slots[place].spend(tag, claim.cost, now) {
            Found::Spent {
                permits,
                low,
                beside,
            } => {
                let due = low && self.runs_low(place, tag);
                (Spend::Known(passed(permits, &beside, now)), due)
            }
            Found::Blocked { permits, beside } => {
                (Spend::Known(refused(permits, &beside, now)), false)
            }
            Found::Short | Found::Busy => self.spend_slowly(claim, tag, now),
        }
    }

    /// As [`Holder::spend`], when the word alone does not say it.
    #[cold]
    fn spend_slowly(&self, claim: &Claim<'_>, tag: u64, now: Nanos) -> (Spend, bool) {
        let first = self.first(tag);
        let mut set = self.set(first);
        let found = set
            .iter()
            .position(|held| held.as_ref().is_some_and(|held| held.tag == tag));
        let way = match found {
            Some(way) => way,
            None => {
                let Some(way) = self.free_way(&set, tag) else {
                    self.sums.full.add(1);
                    return (Spend::Full, false);
                };
                let lease = Lease::new(tag, claim.name.key(), *claim.terms, now);
                let slot = &self.slots[first + way];
                slot.seal();
                slot.open(tag, 0, Beside::default());
                set[way] = Some(Box::new(lease));
                let tick = now.saturating_add(claim.terms.tick);
                self.agenda.tick_at(place(first + way), tick);
                way
            }
        };
        let slot = &self.slots[first + way];
        // Another request may have brought some.
        match slot.spend(tag, claim.cost, now) {
            Found::Spent {
                permits,
                low,
                beside,
            } => {
                let due = low && self.lower(&mut set, first + way);
                return (Spend::Known(passed(permits, &beside, now)), due);
            }
            Found::Blocked { permits, beside } => {
                return (Spend::Known(refused(permits, &beside, now)), false);
            }
            Found::Short | Found::Busy => {}
        }
        let Some(lease) = &mut set[way] else {
            return (Spend::Full, false);
        };
        let passes = lease.lacks(claim.cost, now, &self.sums);
        let failing = lease.failing;
        let due = self.queue(lease, first + way);
        let spend = if passes {
            Spend::Known(passed(slot.permits(), &slot.beside(), now))
        } else if failing {
            Spend::Away
        } else {
            Spend::Wait
        };
        (spend, due)
    }

    /// Puts back what a request spent, as another limit refused it or it cost less: if its window is still
    /// the same. `mark` is [`Outcome::mark`]. Says whether it was.
    pub fn give_back(&self, claim: &Claim<'_>, mark: Mark, now: Nanos) -> bool {
        let tag = self.tag(claim);
        // More than may be held is none of what is held: it was spent long ago, and only the store knows what
        // it is worth now.
        let room = |permits| claim.terms.most.is_none_or(|most| permits <= most);
        let may = |current: u64, permits| match claim.terms.law {
            Law::Fixed { .. } => current.abs_diff(mark) <= SAME_WINDOW,
            Law::Sliding { .. } => current == mark && room(permits),
            // What is held of a bucket is as good as what is in it.
            _ => room(permits),
        };
        self.find(tag)
            .is_some_and(|place| self.slots[place].give(tag, claim.cost, may, now))
    }

    /// Charges what a request cost beyond what it was charged, whether there is room for it or not. False
    /// if the key is not held: then the store has to be told. The other flag is as with
    /// [`Holder::spend`].
    pub fn charge(&self, claim: &Claim<'_>, now: Nanos) -> (bool, bool) {
        let tag = self.tag(claim);
        let Some(at) = self.find(tag) else {
            return (false, false);
        };
        if let Found::Spent { low, .. } = self.slots[at].spend(tag, claim.cost, now) {
            return (true, low && self.runs_low(at, tag));
        }
        let mut set = self.set(at);
        match &mut set[at % WAYS] {
            Some(lease) if lease.tag == tag => {
                lease.owes(claim.cost);
                (true, self.queue(lease, at))
            }
            _ => (false, false),
        }
    }

    /// What became of permits. Walks all keys.
    pub fn held(&self) -> Held {
        let held = self.slots.iter().map(Slot::permits).sum::<u64>();
        let seen: u64 = self.leases(|lease| lease.seen());
        Held {
            granted: self.sums.granted.read(),
            // What was spent since it was counted is what is missing in the words.
            spent: self.sums.spent.read().wrapping_add(seen).wrapping_sub(held),
            held,
            returned: self.sums.returned.read(),
            stranded: self.sums.stranded.read(),
            overdraft: self.sums.overdraft.read(),
            waits: self.sums.waits.read(),
            full: self.sums.full.read(),
            asks: self.sums.asks.read(),
            keys: self.leases(|_| 1),
        }
    }

    fn leases(&self, of: impl Fn(&Lease) -> u64) -> u64 {
        let set = |at| {
            let set = self.set(at);
            set.iter().flatten().map(|lease| of(lease)).sum::<u64>()
        };
        (0..self.slots.len()).step_by(WAYS).map(set).sum()
    }

    /// What is held of a key, for whoever looks into it.
    pub fn part(&self, claim: &Claim<'_>, now: Nanos) -> Option<Part> {
        let slot = &self.slots[self.find(self.tag(claim))?];
        let beside = slot.beside();
        let rest = |at: Nanos| Duration::from_nanos(at.saturating_sub(now));
        Some(Part {
            permits: if now < beside.until {
                slot.permits()
            } else {
                0
            },
            good: rest(beside.until),
            blocked: rest(beside.blocked),
            left: beside.left,
            reset: rest(beside.reset),
        })
    }

    /// Where a request waits.
    pub(crate) fn spot(&self, claim: &Claim<'_>) -> Spot {
        Spot(place(self.first(self.tag(claim))))
    }

    /// A request waits, however it goes on.
    pub(crate) fn waits(&self) {
        self.sums.waits.add(1);
    }

    /// The number of the next ask. Grows from one holder of a process to the next, too: time does.
    pub(super) fn number(&self, now: Nanos) -> u64 {
        // Microseconds, about: numbers of scripts are exact up to 2^53.
        let least = now >> 10;
        let next = |last: u64| Some(last.max(least) + 1);
        let update = self
            .number
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        update.unwrap_or(0).max(least) + 1
    }

    /// Permits run low: more are to be asked for.
    #[cold]
    fn runs_low(&self, at: usize, tag: u64) -> bool {
        let mut set = self.set(at);
        match &set[at % WAYS] {
            Some(lease) if lease.tag == tag => self.lower(&mut set, at),
            _ => false,
        }
    }

    fn lower(&self, set: &mut Set<'_>, at: usize) -> bool {
        let Some(lease) = &mut set[at % WAYS] else {
            return false;
        };
        lease.wants();
        self.queue(lease, at)
    }

    /// Puts a key on the list, if it has something to ask and is not on it.
    pub(super) fn queue(&self, lease: &mut Lease, at: usize) -> bool {
        if lease.queued || !lease.may_ask() {
            return false;
        }
        lease.queued = true;
        self.agenda.push(place(at));
        true
    }

    fn tag(&self, claim: &Claim<'_>) -> u64 {
        let mut hasher = self.hash.build_hasher();
        claim.name.hash(&mut hasher);
        // Another limit on the same key has permits of its own.
        let (kind, a, b) = match claim.terms.law {
            Law::Fixed { limit, window } => (0u8, limit, window.as_nanos() as u64),
            Law::Sliding { limit, window } => (1, limit, window.as_nanos() as u64),
            Law::Log { limit, window } => (2, limit, window.as_nanos() as u64),
            Law::Bucket { interval_us, holds } => (3, interval_us.to_bits(), holds.to_bits()),
        };
        (kind, a, b).hash(&mut hasher);
        hasher.finish().max(1)
    }

    /// The first place of a tag's set.
    fn first(&self, tag: u64) -> usize {
        // The number of sets is a power of two.
        let sets = self.sets.len() as u64;
        (tag >> 8 & (sets - 1)) as usize * WAYS
    }

    /// Where a tag is, starting from the place that it likes best.
    fn find(&self, tag: u64) -> Option<usize> {
        let first = self.first(tag);
        (0..WAYS)
            .map(|n| first + (tag as usize + n) % WAYS)
            .find(|at| self.slots[*at].tag() == tag)
    }

    fn free_way(&self, set: &Set<'_>, tag: u64) -> Option<usize> {
        (0..WAYS)
            .map(|n| (tag as usize + n) % WAYS)
            .find(|way| set[*way].is_none())
    }

    pub(super) fn slot(&self, at: usize) -> &Slot<AtomicU64> {
        &self.slots[at]
    }

    /// The set that a place is in.
    pub(super) fn set(&self, at: usize) -> Set<'_> {
        self.sets[at / WAYS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn way(at: usize) -> usize {
        at % WAYS
    }
}

fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
