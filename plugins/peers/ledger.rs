//! What this gateway counts for all: the keys of the partitions it owns.
//!
//! A [partition](crate::partition) is here, elsewhere, or expected: its counts are on their way from the gateway that owned it
//! before. One lock each, so that a count is charged or handed over, and never both. Nothing waits here:
//! whoever asks for what is expected is told so, and when to ask again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockgate_quota::{Account, Micros, Verdict};
use smallvec::SmallVec;
use tokio::sync::watch;

use crate::frame::{Charged, Question, Reply};
use crate::kept::{Kept, Part, apart};
use crate::members::View;
use crate::partition::{Partition, Place};
use crate::place::{KeyId, PARTITIONS};

/// About what all counts may take, in bytes: a million keys, fewer with permits out. Beyond it new keys are not counted here, and
/// each gateway lets them have its share; no count is given up.
pub(crate) const MOST_BYTES: usize = 128 << 20;
/// For how long counts are expected. They come within some milliseconds, unless who sends them is in
/// trouble; until then nobody is granted anything of theirs.
pub(crate) const EXPECTED: Duration = Duration::from_secs(2);
/// Gateways that hold permits of one key. There are fewer, unless some were started anew.
const MOST_HOLDERS: usize = 128;
/// Partitions that are swept at a time.
const SWEPT: usize = 32;

/// See the module.
pub(crate) struct Ledger {
    parts: Box<[Mutex<Partition>]>,
    bytes: AtomicUsize,
    most: usize,
    next_swept: AtomicUsize,
    /// Whether anything may be expected.
    expects: AtomicBool,
    /// Whether anything was ever here.
    counted: AtomicBool,
    /// Changes when a partition does.
    changed: watch::Sender<u64>,
}

/// What becomes of a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    /// That.
    Answered(Reply),
    /// It may be asked again when [`Ledger::changes`] says so.
    Expected,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::new(MOST_BYTES)
    }
}

impl Ledger {
    /// Nothing is here.
    pub(crate) fn new(most: usize) -> Ledger {
        Ledger {
            parts: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            bytes: AtomicUsize::new(0),
            most,
            next_swept: AtomicUsize::new(0),
            expects: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            changed: watch::Sender::new(0),
        }
    }

    /// Tells when partitions come or go.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether nothing was ever counted here.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.counted.load(Ordering::Acquire)
    }

    /// About what all counts take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Answers what is asked about keys. `node` is who asks.
    pub(crate) fn ask(&self, node: u64, question: &Question, now: Micros) -> Asked {
        let (keys, one): (&[Charged], _) = match question {
            Question::Check(charges) => (charges, None),
            Question::Settle(charge, more, mark) => {
                return self.on(charge.key, |part, room| {
                    let kept = part.kept(charge, now, room)?;
                    let now = kept.time(now);
                    kept.account.settle(charge.law, *more, *mark, now);
                    Some(Reply::Done(true))
                });
            }
            Question::Take(key, ask) => {
                let charge = Charged {
                    key: *key,
                    law: ask.law,
                    cost: 0,
                };
                return self.on(*key, |part, room| {
                    let kept = part.kept(&charge, now, room)?;
                    let now = kept.time(now);
                    let holders = &mut kept.account.holders;
                    if holders.len() >= MOST_HOLDERS && holders.iter().all(|h| h.node != node) {
                        // Whoever still holds something is not forgotten.
                        let ended = holders.iter().position(|held| held.ends <= now)?;
                        holders.remove(ended);
                    }
                    Some(Reply::Granted(kept.account.grant(node, ask, now)))
                });
            }
            Question::Look(key, law) => (&[], Some((*key, Some(*law)))),
            Question::Forget(key) => (&[], Some((*key, None))),
            // Not about keys.
            Question::Hand { .. } | Question::Done(..) => return Asked::Answered(Reply::Later),
        };
        match one {
            Some((key, Some(law))) => self.on(key, |part, _| {
                let look = |account: &Account, now| account.standing(law, now);
                Some(Reply::Standing(part.look(key, law, now, look)))
            }),
            Some((key, None)) => self.on(key, |part, room| {
                Some(Reply::Done(part.forget(key, now, room)))
            }),
            None => self.check(keys, now),
        }
    }

    /// Charges all or none.
    fn check(&self, charges: &[Charged], now: Micros) -> Asked {
        let mut numbers: SmallVec<[usize; 2]> = charges
            .iter()
            .map(|charge| charge.key.partition())
            .collect();
        // In one order, or two requests could wait for each other.
        numbers.sort_unstable();
        numbers.dedup();
        let mut parts: SmallVec<[MutexGuard<'_, Partition>; 2]> = SmallVec::new();
        for number in &numbers {
            let part = self.part(*number);
            if let Some(asked) = part.not_here() {
                return asked;
            }
            parts.push(part);
        }
        let at = |key: KeyId| numbers.binary_search(&key.partition()).unwrap_or(0);
        let looked: SmallVec<[_; 2]> = charges
            .iter()
            .map(|charge| {
                let look = |account: &Account, now| account.look(charge.law, charge.cost, now);
                parts[at(charge.key)].look(charge.key, charge.law, now, look)
            })
            .collect();
        let allowed = looked.iter().all(|outcome| outcome.allowed);
        let charged = charges.iter().any(|charge| charge.cost > 0);
        if !allowed || !charged {
            let outcomes = looked;
            return Asked::Answered(Reply::Verdict(Verdict { allowed, outcomes }));
        }
        // Room for all of them first: none is charged alone.
        for (number, part) in numbers.iter().zip(&mut parts) {
            let new = charges.iter().filter(|charge| {
                charge.key.partition() == *number && !part.keys.contains_key(&charge.key)
            });
            if new.count() > 0 && !self.has_room(part, now) {
                return Asked::Answered(Reply::Full);
            }
        }
        let mut outcomes = SmallVec::new();
        for charge in charges {
            let part = &mut parts[at(charge.key)];
            let before = part.size_of(charge.key);
            if let Some(kept) = part.kept(charge, now, true) {
                let now = kept.time(now);
                outcomes.push(kept.account.check(charge.law, charge.cost, now));
            }
            let after = part.size_of(charge.key);
            self.grew(before, after);
        }
        Asked::Answered(Reply::Verdict(Verdict { allowed, outcomes }))
    }

    /// Does something with a key's partition, if it is here.
    fn on(&self, key: KeyId, work: impl FnOnce(&mut Partition, bool) -> Option<Reply>) -> Asked {
        let mut part = self.part(key.partition());
        if let Some(asked) = part.not_here() {
            return asked;
        }
        let room = part.keys.contains_key(&key) || self.bytes() < self.most;
        let before = part.size_of(key);
        let reply = work(&mut part, room);
        let after = part.size_of(key);
        self.grew(before, after);
        Asked::Answered(reply.unwrap_or(Reply::Full))
    }

    fn has_room(&self, part: &mut Partition, now: Micros) -> bool {
        if self.bytes() >= self.most {
            self.sweep_one(part, now);
        }
        self.bytes() < self.most
    }

    /// Acts by another view: what leaves, to be sent.
    pub(crate) fn turn(&self, old: &View, new: &View, now: Micros) -> Vec<Part> {
        let mut leaving = Vec::new();
        let is_first = old.epoch() == 0;
        let expected = |lost| Place::Expected {
            until: now.saturating_add(micros(EXPECTED)),
            epoch: new.epoch(),
            lost,
        };
        let was_away = was_away(old, new);
        for (number, part) in self.parts.iter().enumerate() {
            let mut part = lock(part);
            match (part.place, new.is_mine(number)) {
                (Place::Elsewhere, true) => {
                    let before = old.owner(number);
                    let is_alone = new.roll.nodes.len() == 1;
                    part.place = match before {
                        Some(gone) if !new.has(gone) => Place::Here(Some(now)),
                        _ if is_first && is_alone => Place::Here(None),
                        _ if is_alone => Place::Here(Some(now)),
                        _ => {
                            self.expects.store(true, Ordering::Release);
                            expected(None)
                        }
                    };
                    if matches!(part.place, Place::Here(_)) {
                        self.counted.store(true, Ordering::Release);
                    }
                }
                // Others may have counted it in the meantime, too: what they have joins what is here.
                (Place::Here(lost) | Place::Expected { lost, .. }, true) if was_away => {
                    self.expects.store(true, Ordering::Release);
                    part.place = expected(lost);
                }
                (Place::Here(lost) | Place::Expected { lost, .. }, false) => {
                    let keys = std::mem::take(&mut part.keys);
                    let size: usize = keys.values().map(Kept::size).sum();
                    self.grew(size, 0);
                    // Those that were expected here come to the new owner by another way.
                    let more = matches!(part.place, Place::Expected { .. });
                    part.place = Place::Elsewhere;
                    // Who does not take part any more keeps its counts to itself: others have begun anew.
                    if new.me.is_some() && !(more && keys.is_empty()) {
                        leaving.push(Part {
                            partition: u16::try_from(number).unwrap_or(0),
                            number: 0,
                            more,
                            lost,
                            keys: keys.into_iter().collect(),
                        });
                    }
                }
                _ => {}
            }
        }
        self.tell();
        leaving
    }

    /// Takes over counts that `node` sent when its clock showed `sent`. Each part once, however often it
    /// comes.
    pub(crate) fn take_over(
        &self,
        node: u64,
        parts: Vec<Part>,
        (sent, now): (Micros, Micros),
    ) -> Reply {
        let mut all_here = true;
        for came in parts {
            let mut part = self.part(usize::from(came.partition));
            if part.place == Place::Elsewhere {
                all_here = false;
                continue;
            }
            if part.had(node, came.number) {
                continue;
            }
            let by_mine = |at: Micros| at.saturating_add_signed(apart(0, now, sent));
            let mut lost = came.lost.map(by_mine);
            for (key, kept) in came.keys {
                let kept = kept.arrived(sent, now);
                let before = part.size_of(key);
                if before == 0 && self.bytes() >= self.most {
                    // Who is not known begins with a part of its limit.
                    lost = Some(now);
                    continue;
                }
                match part.keys.get_mut(&key) {
                    Some(here) => here.join(kept, now),
                    None => _ = part.keys.insert(key, kept),
                }
                let after = part.size_of(key);
                self.grew(before, after);
            }
            part.came(lost, came.more);
            if matches!(part.place, Place::Here(_)) {
                self.counted.store(true, Ordering::Release);
            }
        }
        self.tell();
        if all_here {
            Reply::Done(true)
        } else {
            Reply::Moved
        }
    }

    /// Nothing more is to be expected of what was sent by this epoch: all have said so. Who is not known
    /// begins with a part of its limit, unless nobody has ever counted.
    pub(crate) fn all_came(&self, epoch: u64, nobody_counted: bool, now: Micros) {
        let lost = if nobody_counted { None } else { Some(now) };
        self.open_expected(|_, by| by <= epoch, lost);
    }

    /// What should have come by now does not.
    pub(crate) fn give_up(&self, now: Micros) {
        self.open_expected(|until, _| until <= now, Some(now));
    }

    fn open_expected(&self, is_due: impl Fn(Micros, u64) -> bool, now: Option<Micros>) {
        if !self.expects.swap(false, Ordering::AcqRel) {
            return;
        }
        let (mut changed, mut expects) = (false, false);
        for part in &self.parts {
            let mut part = lock(part);
            match part.place {
                Place::Expected { until, epoch, lost } if is_due(until, epoch) => {
                    part.place = Place::Here(lost.max(now));
                    changed = true;
                }
                Place::Expected { .. } => expects = true,
                _ => {}
            }
        }
        if expects {
            self.expects.store(true, Ordering::Release);
        }
        if changed {
            self.counted.store(true, Ordering::Release);
            self.tell();
        }
    }

    /// The counts are not those that were: as after a crash that nobody here noticed.
    pub(crate) fn doubt(&self, now: Micros) {
        for part in &self.parts {
            let mut part = lock(part);
            if matches!(part.place, Place::Here(None) | Place::Expected { .. }) {
                part.place = Place::Here(Some(now));
            }
        }
        self.counted.store(true, Ordering::Release);
        self.tell();
    }

    /// How many partitions are here, and how many are expected.
    pub(crate) fn places(&self) -> (usize, usize) {
        self.parts
            .iter()
            .fold((0, 0), |(here, expected), part| match lock(part).place {
                Place::Here(_) => (here + 1, expected),
                Place::Expected { .. } => (here, expected + 1),
                Place::Elsewhere => (here, expected),
            })
    }

    /// Everything is here.
    #[cfg(test)]
    pub(crate) fn open_all(&self) {
        for part in &self.parts {
            lock(part).place = Place::Here(None);
        }
    }

    /// Drops what is over, of some partitions.
    pub(crate) fn sweep(&self, now: Micros) {
        let first = self.next_swept.fetch_add(SWEPT, Ordering::Relaxed);
        for number in first..first + SWEPT {
            let mut part = self.part(number % PARTITIONS);
            self.sweep_one(&mut part, now);
        }
    }

    fn sweep_one(&self, part: &mut Partition, now: Micros) {
        let mut freed = 0;
        part.keys.retain(|_, kept| {
            let stays = !kept.account.is_stale(kept.law, kept.time(now));
            freed += if stays { 0 } else { kept.size() };
            stays
        });
        self.grew(freed, 0);
    }

    fn part(&self, number: usize) -> MutexGuard<'_, Partition> {
        lock(&self.parts[number])
    }

    fn grew(&self, before: usize, after: usize) {
        if after >= before {
            self.bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    fn tell(&self) {
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
    }
}

fn lock(part: &Mutex<Partition>) -> MutexGuard<'_, Partition> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this gateway was taken for gone and did not notice: it was entered anew.
fn was_away(old: &View, new: &View) -> bool {
    let node = |view: &View| {
        view.me
            .and_then(|me| view.roll.nodes.get(usize::from(me)).cloned())
    };
    match (node(old), node(new)) {
        // One that begins to leave, or stays after all, enters that itself.
        (Some(old), Some(new)) => old.revision != new.revision && old.weight == new.weight,
        _ => false,
    }
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX >> 1)
}
