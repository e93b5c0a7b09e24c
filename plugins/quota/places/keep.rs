//! The task beside requests: it gives back what was left, and keeps what is held.

use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::{AGAIN, HEARTBEATS, Leaving, Places};
use crate::talk::Question;

/// What is due is looked for so often in the life of a place.
const LOOKS: u32 = 12;

/// What one look of the task found.
#[derive(Default)]
struct Round {
    leave: FxHashMap<Arc<str>, Vec<u64>>,
    gone: Vec<Leaving>,
    keep: FxHashMap<Arc<str>, Vec<u64>>,
}

impl Round {
    fn is_empty(&self) -> bool {
        self.leave.is_empty() && self.keep.is_empty()
    }
}

impl Places {
    /// What is to be said now to the server at the end of this line. `None` when there is nothing to keep, and
    /// the task ends.
    fn due(&self, at: Instant, line: u64) -> Option<Round> {
        let mut held = self.held();
        if held.places.is_empty() && held.leaving.is_empty() {
            held.kept = false;
            return None;
        }
        if held.line != line {
            // Another server, or the same after it lost everything.
            held.line = line;
            held.look = at;
            let told = held.places.values_mut().filter_map(|one| one.due.as_mut());
            told.for_each(|due| *due = at);
        }
        let mut round = Round::default();
        let looks = at >= held.look;
        // However many leave, those who stay have their half.
        let most = if looks {
            self.per_round / 2
        } else {
            self.per_round
        };
        held.leaving.retain(|gone| gone.until > at);
        let from = held.leaving.len().saturating_sub(most);
        round.gone = held.leaving.split_off(from);
        for gone in &round.gone {
            for key in &gone.keys {
                let numbers = round.leave.entry(Arc::clone(key)).or_default();
                numbers.push(gone.number);
            }
        }
        if !looks {
            return Some(round);
        }
        held.look = at + self.life / LOOKS;
        let mut room = self.per_round - round.gone.len();
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= at);
        for (number, one) in held.places.iter_mut().filter(|(_, one)| is_due(one.due)) {
            if room == 0 {
                // The rest is next.
                held.look = at;
                break;
            }
            room -= 1;
            one.told = true;
            for key in &one.keys {
                let numbers = round.keep.entry(Arc::clone(key)).or_default();
                numbers.push(*number);
            }
        }
        Some(round)
    }

    /// Says it, and learns from what comes back. False when the server gave no answer to some of it.
    async fn say(&self, round: Round) -> bool {
        let now = self.now();
        let talk = self.central.talk();
        let left = round.leave.iter().map(|(key, numbers)| async move {
            let mut command = redis::cmd("ZREM");
            command.arg(&**key);
            numbers.iter().for_each(|n| _ = command.arg(self.name(*n)));
            let command = &|_| command.clone();
            talk.ask(&Question::safe(key, command), now).await.is_ok()
        });
        let left = futures::future::join_all(left).await;
        let kept = round.keep.iter().map(|(key, numbers)| async move {
            let command = &|text| {
                let mut command = self.begin(&[key], text, "keep");
                numbers.iter().for_each(|n| _ = command.arg(self.name(*n)));
                command
            };
            let sent = Instant::now();
            let answered = talk.ask(&Question::safe(key, command), now).await.is_ok();
            if answered {
                self.still_there(numbers, sent);
            }
            answered
        });
        let kept = futures::future::join_all(kept).await;
        let left = left.into_iter().all(|answered| answered);
        if !left {
            // Said twice does no harm.
            self.leaves(round.gone);
        }
        left && kept.into_iter().all(|answered| answered)
    }

    /// The server has heard of these.
    fn still_there(&self, numbers: &[u64], sent: Instant) {
        let mut held = self.held();
        for number in numbers {
            if let Some(one) = held.places.get_mut(number) {
                one.due = Some(sent + self.life / HEARTBEATS);
            }
        }
    }
}

/// The task's hold on its places, which they need even when nobody else has them any more: what is left last
/// has to be given back. If the task ends with its runtime, the next request starts another.
struct Kept(Option<Arc<Places>>);

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(places) = &self.0 {
            places.held().kept = false;
        }
    }
}

/// Gives back what was left, and keeps what is held, as long as there is any of it.
pub(super) async fn keep(places: Arc<Places>) {
    let mut kept = Kept(Some(places));
    while let Some(places) = &kept.0 {
        let Some(round) = places.due(Instant::now(), places.central.talk().line()) else {
            // Which has said that there is no task any more; another may have begun.
            kept.0 = None;
            return;
        };
        let idle = round.is_empty();
        if !places.say(round).await {
            tokio::time::sleep(AGAIN).await;
        } else if idle {
            let woken = places.wake.notified();
            // Who holds places for long wakes nobody.
            let _ = tokio::time::timeout(places.life / LOOKS, woken).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Access, Central, Place, PlaceHeld, Seat, Server};

    const SECOND: Duration = Duration::from_secs(1);

    /// Places at a server that nobody asks, as no task is started.
    fn places(deadline: Duration) -> Arc<Places> {
        let place = Place {
            host: "127.0.0.1".to_owned(),
            port: 1,
        };
        let access = Access::default();
        let central = Central::new(Server::Single { place, access }, deadline);
        let places = Places::new(Arc::new(central), SECOND * 9, "one");
        places.held().kept = true;
        Arc::new(places)
    }

    fn held(places: &Arc<Places>, key: &str, entered: Option<Instant>) -> PlaceHeld {
        let seat = Seat {
            key: key.to_owned(),
            most: 1,
        };
        let place = places.hold(&[seat], 0);
        entered
            .into_iter()
            .for_each(|at| places.entered(place.number, at));
        place
    }

    fn many(by_key: &FxHashMap<Arc<str>, Vec<u64>>) -> usize {
        by_key.values().map(Vec::len).sum()
    }

    #[test]
    fn those_who_leave_take_no_more_than_half_from_those_who_stay() {
        let places = places(SECOND);
        let begun = Instant::now();
        let _staying: Vec<_> = (0..600).map(|_| held(&places, "a", Some(begun))).collect();
        (0..5_000).for_each(|_| drop(held(&places, "b", Some(begun))));
        let round = places.due(begun + SECOND * 4, 0).unwrap();
        assert_eq!((many(&round.leave), many(&round.keep)), (512, 512));
        // The rest at once, and then nobody for a while.
        let round = places.due(begun + SECOND * 4, 0).unwrap();
        assert_eq!((many(&round.leave), many(&round.keep)), (512, 512));
    }

    #[test]
    fn a_round_is_no_more_than_its_deadline_allows() {
        for (ms, expected) in [
            (1, 32),
            (5, 125),
            (20, 500),
            (1_000, 1_024),
            (60_000, 1_024),
        ] {
            let places = places(Duration::from_millis(ms));
            let begun = Instant::now();
            (0..3_000).for_each(|n| drop(held(&places, &n.to_string(), Some(begun))));
            places.held().look = begun + SECOND * 5;
            let round = places.due(begun + SECOND, 0).unwrap();
            assert_eq!(many(&round.leave), expected, "{ms}");
        }
    }

    #[test]
    fn who_waits_for_an_answer_says_nothing_and_a_new_server_hears_of_all() {
        let places = places(SECOND);
        let begun = Instant::now();
        let _asks = held(&places, "a", None);
        let _there = held(&places, "a", Some(begun));
        let kept = |at: Duration, line| many(&places.due(begun + at, line).unwrap().keep);
        assert_eq!(kept(SECOND, 0), 0);
        // Long after all heartbeats were due.
        assert_eq!(kept(SECOND * 8, 0), 1);
        places.still_there(&[1], begun + SECOND * 8);
        assert_eq!(kept(SECOND * 10, 0), 0);
        assert_eq!(kept(SECOND * 10, 1), 1);
    }
}
