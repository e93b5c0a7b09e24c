//! What is to be asked of the store, and what it answers.

use super::holder::{Holder, Spot};
use super::lease::RoundTrip;
use crate::Nanos;
use crate::lease::{Ask, Grant};

/// Ticks that are worked off in one go; the rest comes with the next.
const MOST_TICKS: usize = 4_096;

/// An ask, and where its answer belongs.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// Whose it is.
    pub place: Spot,
    /// What to ask.
    pub ask: Ask,
}

impl Holder {
    /// What is to be asked now, up to so many. Whoever takes them has to say what came of each:
    /// [`Holder::granted`] or [`Holder::failed`].
    pub fn due(&self, now: Nanos, most: usize) -> Vec<Due> {
        for _ in 0..MOST_TICKS {
            let Some(place) = self.agenda.ticked(now) else {
                break;
            };
            self.tick(place, now);
        }
        let places = self.agenda.take(most);
        let mut due = Vec::with_capacity(places.len());
        for place in places {
            let at = place as usize;
            let mut set = self.set(at);
            let Some(lease) = &mut set[Holder::way(at)] else {
                continue;
            };
            lease.queued = false;
            let again = lease.failing;
            if let Some(ask) = lease.ask(self.slot(at), now, || self.number(now)) {
                self.sums.asks.add(u64::from(!again));
                due.push(Due {
                    place: Spot(place),
                    ask,
                });
            }
        }
        due
    }

    /// When [`Holder::due`] has something to do next; `None` if no key is held.
    pub fn next(&self) -> Option<Nanos> {
        self.agenda.next()
    }

    /// The answer to an ask. True if there is more to ask.
    pub fn granted(&self, due: &Due, grant: &Grant, trip: RoundTrip) -> bool {
        let at = due.place.0 as usize;
        let mut set = self.set(at);
        match &mut set[Holder::way(at)] {
            Some(lease) if lease.asked(due.ask.number) => {
                lease.granted(self.slot(at), grant, trip, &self.sums);
                self.queue(lease, at)
            }
            // Nobody waits for it any more: its permits lapse where they are.
            _ => false,
        }
    }

    /// An ask has no answer. It is made again after a while.
    pub fn failed(&self, due: &Due, now: Nanos) {
        let at = due.place.0 as usize;
        let mut set = self.set(at);
        if let Some(lease) = &mut set[Holder::way(at)]
            && lease.asked(due.ask.number)
        {
            let again = lease.failed(now);
            self.agenda.tick_at(due.place.0, again);
        }
    }

    fn tick(&self, place: u32, now: Nanos) {
        let at = place as usize;
        let mut set = self.set(at);
        let Some(lease) = &mut set[Holder::way(at)] else {
            return;
        };
        if lease.repeats(now) && !lease.queued {
            lease.queued = true;
            self.agenda.push(place);
        }
        if now < lease.next {
            return;
        }
        match lease.tick(self.slot(at), now, &self.sums) {
            Some(next) => {
                lease.next = next;
                self.queue(lease, at);
                self.agenda.tick_at(place, next);
            }
            None => {
                // Put back since it was looked at: nobody's any more.
                let late = self.slot(at).seal();
                self.sums.spent.add(0u64.wrapping_sub(late));
                self.sums.stranded.add(late);
                self.slot(at).free();
                set[Holder::way(at)] = None;
            }
        }
    }
}
