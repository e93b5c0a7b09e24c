//! The rule by which permits are handed out, on memory: what `scripts/lease.lua` does in Redis.
//!
//! Pure: time comes in, nothing is asked. A gateway that owns keys keeps an [`Account`] for each; tests
//! hold the script against it.

use std::time::Duration;

use crate::charge::Law;
use crate::count::{Count, Micros, micros};
use crate::lease::{Ask, Grant};
use crate::store::{Outcome, Standing};

/// What is kept for one key: its count, and who took permits of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// What was charged, permits included.
    pub count: Count,
    /// Who took permits.
    pub holders: Vec<Holding>,
    /// Gateways to be expected because of the window before.
    pub before: u64,
    /// The window that both belong to: its end. 0 where no window ends them.
    pub end: Micros,
}

/// What a gateway may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The gateway.
    pub node: u64,
    /// Number of its last ask that was counted.
    pub number: u64,
    /// What it got.
    pub permits: u64,
    /// What it may not have spent yet.
    pub held: u64,
    /// Until when.
    pub ends: Micros,
}

#[derive(Clone, Copy)]
struct Given {
    permits: u64,
    nodes: u64,
    others: u64,
    ends: Micros,
}

/// What there is to say before a window has begun.
fn no_window(law: Law, now: Micros) -> Grant {
    let all = Count::Nothing.look(law, 0, now);
    let reset = Duration::from_micros(all.reset);
    Grant {
        permits: 0,
        left: all.remaining,
        reset,
        retry: Duration::ZERO,
        good: reset,
        mark: all.mark,
        nodes: 0,
        others: 0,
    }
}

impl Account {
    /// Charges a request if it passes. For several limits, [`Account::look`] at all first.
    pub fn check(&mut self, law: Law, cost: u64, now: Micros) -> Outcome {
        self.count.take(law, cost, now).outcome(law, cost)
    }

    /// Whether a request would pass.
    pub fn look(&self, law: Law, cost: u64, now: Micros) -> Outcome {
        self.count.look(law, cost, now).outcome(law, cost)
    }

    /// Charges without a question, or gives back, as [`Settled`](crate::Settled) says.
    pub fn settle(&mut self, law: Law, more: i64, mark: u64, now: Micros) {
        self.count.settle(law, more, mark, now);
    }

    /// Where the limit stands.
    pub fn standing(&self, law: Law, now: Micros) -> Standing {
        let (all, one) = (self.count.look(law, 0, now), self.count.look(law, 1, now));
        let counted = self.is_counted(law, now);
        let live = || {
            let fixed = matches!(law, Law::Fixed { .. });
            let all = self.holders.iter();
            all.filter(move |held| held.ends > now && (counted || !fixed))
        };
        Standing {
            remaining: all.remaining,
            reset: Duration::from_micros(all.reset),
            retry: Duration::from_micros(one.retry.unwrap_or(0)),
            nodes: live().count() as u64,
            held: live().map(|held| held.held).sum(),
        }
    }

    /// Whether it is the same as none. Whoever keeps many may drop it.
    pub fn is_stale(&self, law: Law, now: Micros) -> bool {
        let book = match law {
            // Who came in a window is likely to come in the next.
            Law::Fixed { window, .. } => self.end.saturating_add(micros(window)),
            _ => self.holders.iter().map(|held| held.ends).max().unwrap_or(0),
        };
        now >= book && now >= self.count.ends(law)
    }

    /// Hands out permits.
    pub fn grant(&mut self, node: u64, ask: &Ask, now: Micros) -> Grant {
        let law = ask.law;
        let fixed = matches!(law, Law::Fixed { .. });
        if fixed && ask.want == 0 && ask.over == 0 && !self.is_counted(law, now) {
            // No window runs, and none begins because of what is given back to another.
            return no_window(law, now);
        }
        let good = self.turn(ask, now);
        let mine = self.holders.iter().position(|held| held.node == node);
        let others = self.holders.iter().filter(|held| held.node != node);
        let others = others.map(|held| held.held).sum();
        let seen = self.holders.len() as u64 + u64::from(mine.is_none());
        let nodes = seen.max(self.before);

        // The same ask once more, because its answer was lost: the same answer. An older one, which was
        // under way for long: its gateway does not wait for it any more.
        if let Some(mine) = mine.and_then(|mine| self.holders.get(mine))
            && ask.number <= mine.number
        {
            let permits = if ask.number == mine.number {
                mine.permits
            } else {
                0
            };
            let given = Given {
                permits,
                nodes,
                others,
                ends: mine.ends,
            };
            return self.answer(law, given, now);
        }
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        if ask.back > 0 {
            self.count.settle(law, -whole(ask.back), ask.mark, now);
        }
        if ask.over > 0 {
            self.count.settle(law, whole(ask.over), ask.mark, now);
        }
        let left = self.count.look(law, 0, now).remaining;
        let mut permits = 0;
        if ask.want > 0 && left > 0 {
            permits = (left / (2 * nodes)).min(ask.want).clamp(1, left);
            if let Some(most) = ask.most {
                permits = permits.min(most.saturating_sub(others).saturating_sub(ask.held));
            }
        }
        if permits > 0 {
            self.count.take(law, permits, now);
        }
        let holding = Holding {
            node,
            number: ask.number,
            permits,
            held: ask.held.saturating_add(permits),
            ends: now.saturating_add(good),
        };
        match mine {
            Some(mine) => self.holders[mine] = holding,
            None => self.holders.push(holding),
        }
        let given = Given {
            permits,
            nodes,
            others,
            ends: holding.ends,
        };
        self.answer(law, given, now)
    }

    /// What is over is forgotten. Says for how long permits are good.
    fn turn(&mut self, ask: &Ask, now: Micros) -> u64 {
        let Law::Fixed { window, .. } = ask.law else {
            self.end = 0;
            self.holders.retain(|held| held.ends > now);
            return micros(ask.keeps);
        };
        let end = self.count.look(ask.law, 0, now).mark;
        if !self.is_counted(ask.law, now) || self.end != end {
            // Another window. A node that came in the last one is likely to come again: the first must
            // not take half.
            let fresh = self.end > 0 && now < self.end.saturating_add(micros(window));
            let seen = (self.holders.len() as u64).max(self.before);
            self.before = if fresh { seen.div_ceil(4) } else { 0 };
            self.holders.clear();
            self.end = end;
        }
        self.end - now
    }

    /// Whether anything was charged that still counts.
    fn is_counted(&self, law: Law, now: Micros) -> bool {
        self.count.ends(law) > now
    }

    fn answer(&self, law: Law, given: Given, now: Micros) -> Grant {
        let Given {
            permits,
            nodes,
            others,
            ends,
        } = given;
        let (all, one) = (self.count.look(law, 0, now), self.count.look(law, 1, now));
        Grant {
            permits,
            left: all.remaining,
            reset: Duration::from_micros(all.reset),
            retry: Duration::from_micros(one.retry.unwrap_or(0)),
            good: Duration::from_micros(ends.saturating_sub(now)),
            mark: match law {
                Law::Fixed { .. } => self.end,
                _ => all.mark,
            },
            nodes,
            others,
        }
    }
}
