//! What is behind the word of a key: how much is asked for, when, and what becomes of it. All of it under
//! the lock of the key.

use std::sync::atomic::AtomicU64;

use super::over::Over;
use super::sizes::{HORIZON, Need, blocked, mark, want};
use super::slot::{Beside, Slot};
use super::sums::Sums;
use super::terms::{Terms, nanos};
use crate::Nanos;
use crate::charge::Law;
use crate::lease::{Ask, Grant};

/// Permits that lie idle for so many ticks go back.
const IDLE_TICKS: u8 = 4;
/// What a tick says of the demand; the rest is what was known.
const FRESH: f64 = 0.3;
/// After a failure the same is asked again, this long after: while the store is away that costs nothing,
/// as its breaker answers.
const RETRY: Nanos = 100_000_000;
/// Marks of one fixed window may differ by so much: Redis knows times to live to a millisecond or two.
const SAME_WINDOW: u64 = 5_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Lease {
    pub tag: u64,
    pub key: String,
    pub terms: Terms,
    /// On the list of what is due.
    pub queued: bool,
    /// There was no answer; requests do not wait for the next try.
    pub failing: bool,
    /// When its tick comes.
    pub next: Nanos,
    flight: Option<Flight>,
    /// Permits are wanted, and not only something to be said.
    wanted: bool,
    /// What is held has to be said again, or it lapses.
    renew: bool,
    /// What requests lacked since the last ask.
    lacked: u64,
    /// The dearest of them.
    dearest: u64,
    /// Taken out of the word, to be given back.
    back: u64,
    over: Over,
    /// Permits in a nanosecond.
    demand: f64,
    /// Permits in the word when it was looked at last.
    seen: u64,
    /// Spent since `measured`.
    spent: u64,
    measured: Nanos,
    idle: u8,
    quiet: u8,
    granted: Nanos,
    last_want: u64,
    nodes: u64,
}

/// When an ask was sent, this time, and when its answer came.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// From here on permits are good.
    pub sent: Nanos,
    /// Now.
    pub now: Nanos,
}

/// An ask without an answer.
#[derive(Debug)]
struct Flight {
    ask: Ask,
    under_way: bool,
    first_sent: Nanos,
    again: Nanos,
}

impl Lease {
    pub(super) fn new(tag: u64, key: String, terms: Terms, now: Nanos) -> Lease {
        Lease {
            tag,
            key,
            terms,
            queued: false,
            failing: false,
            next: now.saturating_add(terms.tick),
            flight: None,
            wanted: false,
            renew: false,
            lacked: 0,
            dearest: 0,
            back: 0,
            over: Over::default(),
            demand: 0.0,
            seen: 0,
            spent: 0,
            measured: now,
            idle: 0,
            quiet: 0,
            granted: 0,
            last_want: 0,
            nodes: 0,
        }
    }

    /// A request found too few. True if it may pass all the same.
    pub(super) fn lacks(&mut self, cost: u64, now: Nanos, sums: &Sums) -> bool {
        self.wanted = true;
        let window = match self.terms.law {
            Law::Fixed { window, .. } => nanos(window),
            _ => 0,
        };
        if self.over.take(cost, self.terms.over, now, window) {
            self.spent += cost;
            sums.overdraft.add(cost);
            return true;
        }
        self.lacked = self.lacked.saturating_add(cost.max(1));
        self.dearest = self.dearest.max(cost);
        false
    }

    /// Permits run low.
    pub(super) fn wants(&mut self) {
        self.wanted = true;
    }

    /// What was used without a question is told to the store.
    pub(super) fn owes(&mut self, more: u64) {
        self.over.owe(more);
    }

    /// Whether something is to be asked: nothing is under way, and there is something to say.
    pub(super) fn may_ask(&self) -> bool {
        let says = self.wanted || self.renew || self.back > 0 || self.over.untold() > 0;
        self.flight.is_none() && says
    }

    /// What to ask now, if anything.
    pub(super) fn ask(
        &mut self,
        slot: &Slot<AtomicU64>,
        now: Nanos,
        number: impl FnOnce() -> u64,
    ) -> Option<Ask> {
        if let Some(flight) = &mut self.flight {
            if flight.under_way || now < flight.again {
                return None;
            }
            flight.under_way = true;
            return Some(flight.ask.clone());
        }
        let beside = slot.beside();
        let held = if now < beside.until {
            slot.permits()
        } else {
            0
        };
        let need = Need {
            demand: self.demand,
            last: self.last_want,
            since: now.saturating_sub(self.granted),
            nodes: self.nodes,
            lacked: self.lacked,
            cost: self.dearest,
            held,
        };
        let ask = Ask {
            key: self.key.clone(),
            law: self.terms.law,
            number: number(),
            want: match self.wanted {
                true => want(&self.terms, &need),
                false => 0,
            },
            back: std::mem::take(&mut self.back),
            over: self.over.untold(),
            mark: beside.mark,
            held,
            most: self.terms.most,
            keeps: self.terms.keeps,
        };
        (self.wanted, self.renew) = (false, false);
        (self.lacked, self.dearest) = (0, 0);
        self.flight = Some(Flight {
            ask: ask.clone(),
            under_way: true,
            first_sent: now,
            again: 0,
        });
        Some(ask)
    }

    /// The answer to the ask under way.
    pub(super) fn granted(
        &mut self,
        slot: &Slot<AtomicU64>,
        grant: &Grant,
        RoundTrip { sent, now }: RoundTrip,
        sums: &Sums,
    ) {
        let Some(Flight { ask, .. }) = self.flight.take() else {
            return;
        };
        self.failing = false;
        if grant.nodes == 0 {
            // No window runs: there was nothing to give back to, and nothing is known of the next one.
            return;
        }
        let fixed = matches!(self.terms.law, Law::Fixed { .. });
        let old = slot.beside();
        let another = fixed && old.mark.abs_diff(grant.mark) > SAME_WINDOW;
        let mut held = self.take(slot, sums);
        if now >= old.until || another {
            // Of a window that is over.
            sums.stranded.add(std::mem::take(&mut held));
        }
        sums.granted.add(grant.permits);
        let mark = mark(&self.terms, held, old.mark, grant);
        let until = sent.saturating_add(nanos(grant.good));
        let mut permits = held.saturating_add(grant.permits);
        if until <= now {
            sums.stranded.add(std::mem::take(&mut permits));
        }
        if ask.want > 0 {
            // Whoever still lacks some says so again.
            self.wanted = false;
            (self.lacked, self.dearest) = (0, 0);
        }
        self.over.told(ask.over, another, until);
        self.nodes = grant.nodes;
        self.last_want = ask.want;
        self.granted = now;
        let round_trip = now.saturating_sub(sent) as f64;
        let low = (permits / 4).max((2.0 * round_trip * self.demand).ceil() as u64);
        let beside = Beside {
            until,
            blocked: match ask.want {
                0 => old.blocked,
                _ => blocked(&self.terms, ask.want, grant, now),
            },
            low: low.min(permits.saturating_sub(1)),
            left: grant.left,
            reset: now.saturating_add(nanos(grant.reset)),
            mark,
        };
        self.put(slot, permits, beside);
    }

    /// Whether this is the ask that waits for an answer.
    pub(super) fn asked(&self, number: u64) -> bool {
        let flight = self.flight.as_ref();
        flight.is_some_and(|flight| flight.under_way && flight.ask.number == number)
    }

    /// There was no answer. Says when to ask again.
    pub(super) fn failed(&mut self, now: Nanos) -> Nanos {
        let again = now.saturating_add(RETRY);
        if let Some(flight) = &mut self.flight {
            flight.under_way = false;
            flight.again = again;
            self.failing = true;
        }
        again
    }

    /// Whether an ask that failed is to be made again.
    pub(super) fn repeats(&self, now: Nanos) -> bool {
        let flight = self.flight.as_ref();
        flight.is_some_and(|flight| !flight.under_way && now >= flight.again)
    }

    /// Permits when they were looked at last.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Time has passed. Says when to come again, or `None` if nothing is left to keep.
    pub(super) fn tick(
        &mut self,
        slot: &Slot<AtomicU64>,
        now: Nanos,
        sums: &Sums,
    ) -> Option<Nanos> {
        let spent = self.measure(slot, now, sums);
        let beside = slot.beside();
        if self.seen > 0 && now >= beside.until {
            sums.stranded.add(self.take(slot, sums));
            self.put(slot, 0, beside);
        }
        if self.flight.is_none() && self.seen > 0 {
            self.tidy(slot, beside, now, sums);
        }
        self.quiet = if spent == 0 && self.lacked == 0 {
            self.quiet.saturating_add(1)
        } else {
            0
        };
        let lost = match &self.flight {
            Some(flight) => self.failing && self.is_lost(flight, now),
            None => false,
        };
        if lost {
            // Whether it was counted is not known: what it gave back is given up.
            self.flight = None;
            self.failing = false;
        }
        let keeps = self.seen > 0
            || self.flight.is_some()
            || self.may_ask()
            || now < beside.blocked
            || self.over.counts(now)
            || self.quiet == 0;
        keeps.then_some(now.saturating_add(self.terms.tick))
    }

    /// Whether an ask that nobody answers is given up: nobody needs the answer, or it could not be told from
    /// another any more. The book forgets a gateway when its permits have lapsed; a return that was
    /// counted before that must not be told again after it.
    fn is_lost(&self, flight: &Flight, now: Nanos) -> bool {
        let old = self.terms.keeps / 2;
        let forgotten = !old.is_zero() && now >= flight.first_sent.saturating_add(nanos(old));
        forgotten || self.quiet >= IDLE_TICKS
    }

    /// Gives back what lies idle, and keeps alive what is used slowly.
    fn tidy(&mut self, slot: &Slot<AtomicU64>, mut beside: Beside, now: Nanos, sums: &Sums) {
        let mut keep = (self.demand * self.terms.tick as f64 * HORIZON).ceil() as u64;
        self.idle = if self.seen > keep.saturating_mul(2) {
            self.idle + 1
        } else {
            0
        };
        let quiet = self.quiet.saturating_add(1);
        if quiet >= IDLE_TICKS || self.idle >= IDLE_TICKS && quiet + 1 >= IDLE_TICKS {
            // Nobody comes any more: all at once, as each return makes others ask for a little.
            (keep, self.idle) = (0, IDLE_TICKS);
        }
        if self.idle >= IDLE_TICKS {
            self.idle = 0;
            let held = self.take(slot, sums);
            let kept = held.min(keep);
            self.back += held - kept;
            sums.returned.add(held - kept);
            beside.low = beside.low.min(kept / 4);
            self.put(slot, kept, beside);
        } else if self.terms.most.is_some()
            && beside.until.saturating_sub(now) <= nanos(self.terms.keeps) / 2
        {
            self.wanted = self.demand > 0.0;
            self.renew = true;
        }
    }

    /// What was spent since the last tick.
    fn measure(&mut self, slot: &Slot<AtomicU64>, now: Nanos, sums: &Sums) -> u64 {
        self.note(slot.permits(), sums);
        let elapsed = now.saturating_sub(self.measured);
        if elapsed < self.terms.tick / 2 {
            return self.spent;
        }
        let rate = self.spent as f64 / elapsed as f64;
        self.demand = match self.demand > 0.0 {
            true => self.demand + (rate - self.demand) * FRESH,
            false => rate,
        };
        // As good as none: not less and less for ever.
        if self.demand * (self.terms.tick as f64) < 1e-3 {
            self.demand = 0.0;
        }
        self.measured = now;
        std::mem::take(&mut self.spent)
    }

    /// Counts what was spent, or put back, since the word was looked at last.
    fn note(&mut self, permits: u64, sums: &Sums) {
        let spent = self.seen.wrapping_sub(permits);
        sums.spent.add(spent);
        self.spent = self.spent.wrapping_add(spent);
        if self.spent > u64::MAX / 2 {
            self.spent = 0;
        }
        self.seen = permits;
    }

    fn take(&mut self, slot: &Slot<AtomicU64>, sums: &Sums) -> u64 {
        let held = slot.seal();
        self.note(held, sums);
        self.seen = 0;
        held
    }

    fn put(&mut self, slot: &Slot<AtomicU64>, permits: u64, beside: Beside) {
        slot.open(self.tag, permits, beside);
        self.seen = permits;
    }
}
