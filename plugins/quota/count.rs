//! The laws on memory: what `scripts/laws.lua` does in Redis, for a gateway that counts for others, and
//! as the model that the scripts are tested against.
//!
//! Time comes in as microseconds, as the scripts have it; so do fractions, so that both decide alike.

use std::collections::VecDeque;
use std::time::Duration;

use crate::charge::Law;
use crate::store::Outcome;

/// Microseconds on the clock of whoever counts.
pub type Micros = u64;

/// What is kept for one key. As plain as it is, it may be handed to another gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Count {
    /// Nothing, or what was kept for another law.
    #[default]
    Nothing,
    /// A window that began with its first request.
    Fixed {
        /// When it ends.
        end: Micros,
        /// What was charged.
        used: u64,
    },
    /// Two windows.
    Sliding {
        /// Which window this is.
        number: u64,
        /// What was charged in the one before.
        before: u64,
        /// And in this one.
        count: u64,
    },
    /// A time for each request, the oldest first.
    Log(VecDeque<Micros>),
    /// When the next request would be due if all came evenly.
    Bucket {
        /// That time; fractions count.
        due: f64,
    },
}

/// How much debt a bucket takes, in what it holds: one dear answer shuts nobody out for ever.
const DEBT: f64 = 10.0;
/// The same of windows, in limits.
const DEBT_LIMITS: u64 = 10;

/// What a law says before anything is charged.
pub(crate) struct Look {
    pub passes: bool,
    pub remaining: u64,
    pub reset: u64,
    /// `None`: never.
    pub retry: Option<u64>,
    pub mark: u64,
}

impl Count {
    /// Whether a request passes; nothing is charged.
    pub(crate) fn look(&self, law: Law, cost: u64, now: Micros) -> Look {
        match law {
            Law::Fixed { limit, window } => self.look_fixed(limit, micros(window), cost, now),
            Law::Sliding { limit, window } => self.look_sliding(limit, micros(window), cost, now),
            Law::Log { limit, window } => self.look_log(limit, micros(window), cost, now),
            Law::Bucket { interval_us, holds } => {
                self.look_bucket(interval_us, interval_us * holds, cost, now)
            }
        }
    }

    /// Charges a request if it passes.
    pub(crate) fn take(&mut self, law: Law, cost: u64, now: Micros) -> Look {
        let look = self.look(law, cost, now);
        if look.passes && cost > 0 {
            self.charge(law, cost, now);
        }
        look
    }

    /// Charges, whether it passes or not.
    fn charge(&mut self, law: Law, cost: u64, now: Micros) {
        *self = match law {
            Law::Fixed { limit, window } => {
                let (used, left) = self.fixed(micros(window), now);
                Count::Fixed {
                    end: now + left,
                    used: used.saturating_add(owed(cost, used, limit)),
                }
            }
            Law::Sliding { limit, window } => {
                let (number, _, before, count) = self.sliding(micros(window), now);
                Count::Sliding {
                    number,
                    before,
                    count: count.saturating_add(owed(cost, count, limit)),
                }
            }
            Law::Log { limit, window } => {
                let mut times = self.times(micros(window), now);
                // Debt is bounded, and so is memory.
                let room = limit.saturating_mul(2).saturating_sub(times.len() as u64);
                times.extend((0..cost.min(limit).min(room)).map(|_| now));
                Count::Log(times)
            }
            Law::Bucket { interval_us, holds } => {
                let debt = now as f64 + DEBT * interval_us * holds;
                let due = self.due(interval_us * holds, now) + cost as f64 * interval_us;
                Count::Bucket { due: due.min(debt) }
            }
        };
    }

    /// Charges without a question, or gives back what was charged to the mark.
    pub(crate) fn settle(&mut self, law: Law, more: i64, mark: u64, now: Micros) {
        let less = more.unsigned_abs();
        if more >= 0 {
            if more > 0 {
                self.charge(law, less, now);
            }
            return;
        }
        match (law, &mut *self) {
            (Law::Fixed { .. }, Count::Fixed { end, used }) if *end > now && *end == mark => {
                *used = used.saturating_sub(less);
            }
            (Law::Sliding { window, .. }, Count::Sliding { .. }) => {
                let (number, _, mut before, mut count) = self.sliding(micros(window), now);
                if mark == number {
                    count = count.saturating_sub(less);
                } else if mark.checked_add(1) == Some(number) {
                    before = before.saturating_sub(less);
                } else {
                    return;
                }
                *self = Count::Sliding {
                    number,
                    before,
                    count,
                };
            }
            (Law::Log { .. }, Count::Log(times)) => {
                let mut left = less;
                times.retain(|time| {
                    let mine = *time == mark && left > 0;
                    left -= u64::from(mine);
                    !mine
                });
            }
            (Law::Bucket { interval_us, holds }, Count::Bucket { due }) => {
                // Of a charge that has drained in part, only the rest can be given back.
                let rest = (mark as f64 - now as f64).max(0.0);
                let back = (less as f64 * interval_us).min(rest);
                let debt = now as f64 + DEBT * interval_us * holds;
                let new = (due.max(now as f64) - back).min(debt);
                // As good as new, also when the clock goes back.
                *due = if new > now as f64 { new } else { 0.0 };
            }
            _ => {}
        }
    }

    /// From when on it says nothing any more.
    pub(crate) fn ends(&self, law: Law) -> Micros {
        match (self, law) {
            (Count::Fixed { end, .. }, _) => *end,
            (Count::Sliding { number, .. }, Law::Sliding { window, .. }) => {
                number.saturating_add(2).saturating_mul(micros(window))
            }
            (Count::Log(times), Law::Log { window, .. }) => times
                .back()
                .map_or(0, |last| last.saturating_add(micros(window))),
            // As a number that cannot be negative.
            (Count::Bucket { due }, _) => due.ceil() as u64,
            _ => 0,
        }
    }

    /// Used and what is left of the window.
    fn fixed(&self, window: u64, now: Micros) -> (u64, u64) {
        match self {
            // One that ends later than it could was begun when windows were longer.
            Count::Fixed { end, used } if *end > now => (*used, (*end - now).min(window)),
            _ => (0, window),
        }
    }

    fn look_fixed(&self, limit: u64, window: u64, cost: u64, now: Micros) -> Look {
        let (used, left) = self.fixed(window, now);
        let free = limit.saturating_sub(used);
        let passes = used <= limit && cost <= free;
        Look {
            passes,
            remaining: if passes { free - cost } else { free },
            reset: left,
            retry: match passes {
                true => Some(0),
                false => (cost <= limit).then_some(left),
            },
            mark: now + left,
        }
    }

    /// Number of the window, what is left of it, and what was charged in the one before and in it.
    fn sliding(&self, window: u64, now: Micros) -> (u64, u64, u64, u64) {
        let number = now / window;
        let left = window - now % window;
        match self {
            Count::Sliding {
                number: kept,
                before,
                count,
            } if *kept == number => (number, left, *before, *count),
            Count::Sliding {
                number: kept,
                count,
                ..
            } if kept.checked_add(1) == Some(number) => (number, left, *count, 0),
            // The clock went back over the edge: the window that had begun goes on.
            Count::Sliding {
                number: kept,
                before,
                count,
            } if number.checked_add(1) == Some(*kept) => (*kept, window, *before, *count),
            _ => (number, left, 0, 0),
        }
    }

    fn look_sliding(&self, limit: u64, window: u64, cost: u64, now: Micros) -> Look {
        let (number, left, before, count) = self.sliding(window, now);
        let [before, count, most, length, rest, cost] =
            [before, count, limit, window, left, cost].map(|n| n as f64);
        let seen = before * rest / length + count;
        let passes = seen + cost <= most;
        let retry = if passes {
            Some(0)
        } else if cost > most {
            None
        } else {
            let wait = if count + cost <= most {
                rest - (most - count - cost) * length / before
            } else {
                rest + (length - (most - cost) * length / count).max(0.0)
            };
            Some(wait.ceil().max(0.0) as u64)
        };
        let free = if passes {
            most - seen - cost
        } else {
            most - seen
        };
        Look {
            passes,
            remaining: free.floor().max(0.0) as u64,
            reset: match passes {
                true => left,
                false => retry.unwrap_or(0),
            },
            retry,
            mark: number,
        }
    }

    /// The requests that are in sight.
    fn times(&self, window: u64, now: Micros) -> VecDeque<Micros> {
        match self {
            Count::Log(times) => times
                .iter()
                .copied()
                .filter(|time| *time > now.saturating_sub(window))
                .collect(),
            _ => VecDeque::new(),
        }
    }

    fn look_log(&self, limit: u64, window: u64, cost: u64, now: Micros) -> Look {
        let times = self.times(window, now);
        let free = limit.saturating_sub(times.len() as u64);
        let passes = times.len() as u64 <= limit && cost <= free;
        let retry = if passes {
            Some(0)
        } else if cost > limit {
            None
        } else {
            // So many have to grow old first.
            let nth = times.len() as u64 + cost - limit - 1;
            let old = usize::try_from(nth).ok().and_then(|nth| times.get(nth));
            Some(old.map_or(0, |old| old + window - now))
        };
        Look {
            passes,
            remaining: if passes { free - cost } else { free },
            reset: match passes {
                true => window,
                false => retry.unwrap_or(0),
            },
            retry,
            mark: now,
        }
    }

    fn due(&self, holds: f64, now: Micros) -> f64 {
        let now = now as f64;
        match self {
            // No debt is larger; what is comes from a time when the bucket was.
            Count::Bucket { due } => due.min(now + DEBT * holds).max(now),
            _ => now,
        }
    }

    fn look_bucket(&self, interval: f64, holds: f64, cost: u64, now: Micros) -> Look {
        let due = self.due(holds, now);
        let now = now as f64;
        let new = due + cost as f64 * interval;
        if new > now + holds {
            let wait = (new - holds - now).ceil() as u64;
            return Look {
                passes: false,
                remaining: ((now + holds - due) / interval).floor().max(0.0) as u64,
                reset: wait,
                retry: (cost as f64 * interval <= holds).then_some(wait),
                mark: due.floor() as u64,
            };
        }
        Look {
            passes: true,
            remaining: ((now + holds - new) / interval).floor() as u64,
            reset: (new - now).ceil() as u64,
            retry: Some(0),
            mark: new.floor() as u64,
        }
    }
}

impl Look {
    pub(crate) fn outcome(&self, law: Law, cost: u64) -> Outcome {
        let us = Duration::from_micros;
        Outcome {
            allowed: self.passes,
            remaining: self.remaining,
            reset: us(self.reset),
            retry: self.retry.map(us),
            delay: law.delay(self.passes, us(self.reset), cost),
            mark: if self.passes { self.mark } else { 0 },
        }
    }
}

/// What is charged of it: no window takes more debt.
fn owed(cost: u64, used: u64, limit: u64) -> u64 {
    cost.min(limit.saturating_mul(DEBT_LIMITS).saturating_sub(used))
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(u64::MAX)
        .max(1)
}
