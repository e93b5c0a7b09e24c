//! Counting in Redis: a round trip to come, none to leave.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use lockgate_plugin::{BuildCx, Ctx, Flow, Plugin, Step};
use lockgate_quota::{Entered, Places, Seat, key_text};
use smallvec::SmallVec;

use super::{Conf, Held, Limit, LimitConn};
use crate::traffic::limits::{LONGEST_WAIT, nanos, now, places, posts, store, undecided, wait};

/// Places that several gateways share.
pub(super) struct Shared {
    places: Arc<Places>,
    /// What tells counts in Redis from those of others.
    owner: Box<str>,
}

impl Shared {
    pub(super) fn build(conf: &Conf, bx: &BuildCx<'_>) -> Option<Shared> {
        let life = Duration::from_secs(conf.key_ttl);
        Some(Shared {
            places: conf.store.places(bx, life)?,
            owner: format!("{}:{}", LimitConn::NAME, bx.owner).into(),
        })
    }
}

/// What a request asks for, and the limit of each with its `conn`.
type Seats<'a> = (Vec<Seat>, SmallVec<[(&'a Limit, u64); 1]>);

impl LimitConn {
    pub(super) fn ask_central<'a>(&'a self, shared: &'a Shared, cx: &'a mut Ctx<'_>) -> Step<'a> {
        let Some((seats, limits)) = self.seats(shared, cx) else {
            return self.undecided("a variable has no usable number");
        };
        if seats.is_empty() {
            return self.undecided("no rule applies");
        }
        let now = now(&self.engine, cx);
        Step::Wait(Box::pin(async move {
            let mut held = Held::default();
            match shared.places.enter(&seats, now).await {
                Entered::In(place, there) => {
                    held.place = Some(place);
                    let each = limits.iter().zip(&there);
                    let delays = each.map(|((_, conn), there)| self.delay(*conn, *there));
                    let sum = delays.fold(Duration::ZERO, Duration::saturating_add);
                    held.waited = sum.min(LONGEST_WAIT);
                    for (((limit, _), seat), there) in limits.iter().zip(&seats).zip(there) {
                        let mut decision = places(true, seat.most, there);
                        decision.delay = nanos(held.waited);
                        posts::note(&limit.post, &decision, true, (cx, now));
                    }
                }
                Entered::Full(there) => {
                    for (((limit, _), seat), there) in limits.iter().zip(&seats).zip(there) {
                        // As here, a limit that had room says nothing to who is refused by another.
                        if there >= seat.most {
                            let decision = places(false, seat.most, there);
                            posts::note(&limit.post, &decision, false, (cx, now));
                        }
                    }
                    return Ok(Flow::Reply(self.refusal.clone()));
                }
                Entered::Away(away, place) => {
                    store::tell(&away);
                    if !self.degrades {
                        return Ok(Flow::Reply(undecided("Redis cannot be asked")));
                    }
                    for (limit, _) in &limits {
                        limit.post.passed_unasked(now);
                    }
                    held.place = Some(place);
                }
            }
            let wait = wait(cx, held.waited);
            *cx.local() = held;
            if let Some(wait) = wait {
                wait.await;
            }
            Ok(Flow::Next)
        }))
    }

    /// What applies to a request; `None` when a number cannot be found.
    fn seats(&self, shared: &Shared, cx: &Ctx<'_>) -> Option<Seats<'_>> {
        let (mut seats, mut limits) = (Vec::with_capacity(self.limits.len()), SmallVec::new());
        for limit in &self.limits {
            let (rule, text) = match limit.key.text(cx) {
                Some(text) => (Cow::Borrowed(&*limit.rule_name), text),
                None if self.skips => continue,
                None => store::address(&limit.rule_name, cx),
            };
            let (conn, burst) = match limit.numbers(cx) {
                Some(numbers) => numbers,
                None if self.skips => continue,
                None => return None,
            };
            let scope = if self.skips {
                shared.owner.to_string()
            } else {
                format!("{}.{}", shared.owner, store::slot(&text))
            };
            seats.push(Seat {
                key: key_text(&scope, &rule, &text),
                most: conn.saturating_add(burst),
            });
            limits.push((limit, conn));
        }
        Some((seats, limits))
    }
}
