//! Places for requests under way, of which all gateways together have so many.
//!
//! A request enters with one round trip and leaves without one: what it held is given back by a task
//! beside it, many at once. A place counts for [`LONGEST_LIFE`] at most unless its gateway says that it
//! still holds it, so those of a gateway that died are free soon, and an answer that was lost costs
//! nobody a place for longer.
//!
//! What this process holds is known here, so that a server that lost everything learns it again.

mod keep;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, RedisResult, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::Nanos;
use crate::central::Central;
use crate::script::unexpected;
use crate::store::Away;
use crate::talk::Question;

/// How long a place counts after its gateway was last heard of: long enough that one lost heartbeat does
/// not free a place that is taken, short enough that nobody notices for long that a gateway died.
pub const LONGEST_LIFE: Duration = Duration::from_secs(10);
/// Gateways say so many times in the life of a place that they hold it.
const HEARTBEATS: u32 = 3;
/// A life is at least this, or heartbeats would be all that a server does.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);
/// Places that are given back or kept together, at most: the server does nothing else meanwhile.
const PER_ROUND: usize = 1_024;
/// And at least, however short the deadline of their answer is.
const LEAST_PER_ROUND: usize = 32;
/// What a place costs a server, one key for each: all of a round are to be answered in a quarter of their
/// deadline.
const EACH: Duration = Duration::from_micros(10);
/// Places that wait to be given back while the server is away; of more, the server learns by their age.
const MOST_LEAVING: usize = 65_536;
/// A server that gave no answer is tried again after this.
const AGAIN: Duration = Duration::from_millis(200);

/// One key that a request needs a place at.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Where it is counted: see [`key_text`](crate::key_text).
    pub key: String,
    /// How many may be there, this request included.
    pub most: u64,
}

impl AsRef<str> for Seat {
    fn as_ref(&self) -> &str {
        &self.key
    }
}

/// Keys of one request; nearly always one.
type Keys = SmallVec<[Arc<str>; 1]>;

/// The places that this process holds at one server.
pub struct Places {
    central: Arc<Central>,
    life: Duration,
    /// Places that are spoken of in one go.
    per_round: usize,
    /// What tells places of this process from those of others.
    node: Box<str>,
    next: AtomicU64,
    wake: Notify,
    held: Mutex<Held>,
}

struct Held {
    /// By number.
    places: FxHashMap<u64, One>,
    leaving: Vec<Leaving>,
    /// Whether there is a task.
    kept: bool,
    /// The connection over which the server was told.
    line: u64,
    /// When the task looks next for places that have to be told again.
    look: Instant,
    /// The time of requests, as the last one told it: the task has no other.
    clock: (Instant, Nanos),
}

struct One {
    keys: Keys,
    /// Whether the server may know of it.
    told: bool,
    /// When it has to be told next; `None` while it is asked whether there is room: who said meanwhile that it
    /// is there would be there in spite of the answer.
    due: Option<Instant>,
}

struct Leaving {
    number: u64,
    keys: Keys,
    /// From then on the server forgets it by itself.
    until: Instant,
}

/// A place that a request holds. Dropping it gives it back.
#[must_use = "dropped, the place is free again"]
pub struct PlaceHeld {
    places: Arc<Places>,
    number: u64,
}

/// What came of it.
pub enum Entered {
    /// There was room, and how many are there now at each key, in order.
    In(PlaceHeld, SmallVec<[u64; 1]>),
    /// There was no room, and how many are there at each key, in order.
    Full(SmallVec<[u64; 1]>),
    /// There was no answer. Who lets the request pass all the same keeps the place: it counts as soon as the
    /// server can be asked.
    Away(Away, PlaceHeld),
}

impl Places {
    /// Places at a server. `life` is how long one counts unless it is kept, within bounds; `node` is
    /// a text that no other process has.
    pub fn new(central: Arc<Central>, life: Duration, node: &str) -> Places {
        let answered = central.talk().deadline() / 4;
        let each = answered.as_micros() / EACH.as_micros();
        let per_round = usize::try_from(each).unwrap_or(PER_ROUND);
        Places {
            central,
            per_round: per_round.clamp(LEAST_PER_ROUND, PER_ROUND),
            life: life.clamp(SHORTEST_LIFE, LONGEST_LIFE),
            node: node.into(),
            next: AtomicU64::new(0),
            wake: Notify::new(),
            held: Mutex::new(Held {
                places: FxHashMap::default(),
                leaving: Vec::new(),
                kept: false,
                line: 0,
                look: Instant::now(),
                clock: (Instant::now(), 0),
            }),
        }
    }

    /// Lets a request in at all keys, or at none. In a cluster they have to have one scope.
    pub async fn enter(self: &Arc<Places>, seats: &[Seat], now: Nanos) -> Entered {
        // Held before the server is asked: if nobody waits for the answer, the place is given back.
        let place = self.hold(seats, now);
        let who = self.name(place.number);
        let command = &|text| {
            let mut command = self.begin(seats, text, "enter");
            command.arg(&who);
            seats.iter().for_each(|seat| _ = command.arg(seat.most));
            command
        };
        let key = seats.first().map_or("", |seat| &seat.key);
        // Who is there already stays.
        let question = Question::safe(key, command);
        let sent = Instant::now();
        let answer = self.central.talk().ask(&question, now).await;
        let read = |value| read(&value, seats.len()).map_err(|error| Away::Failed(error.into()));
        match answer.and_then(read) {
            Ok((true, there)) => {
                self.entered(place.number, sent);
                Entered::In(place, there)
            }
            Ok((false, there)) => {
                place.forget();
                Entered::Full(there)
            }
            Err(away) => {
                self.unanswered(place.number, &away);
                Entered::Away(away, place)
            }
        }
    }

    /// The same for a request that has waited for the server in vain already: it is not asked, and the place
    /// counts as soon as it can be told.
    pub fn enter_unasked(self: &Arc<Places>, seats: &[Seat], now: Nanos) -> Entered {
        let place = self.hold(seats, now);
        self.unanswered(place.number, &Away::Known);
        Entered::Away(Away::Known, place)
    }

    /// How many places this process holds.
    pub fn len(&self) -> usize {
        self.held().places.len()
    }

    /// Whether this process holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn hold(self: &Arc<Places>, seats: &[Seat], now: Nanos) -> PlaceHeld {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let at = Instant::now();
        let one = One {
            keys: seats.iter().map(|seat| seat.key.as_str().into()).collect(),
            told: true,
            due: None,
        };
        let mut held = self.held();
        held.places.insert(number, one);
        held.clock = (at, now);
        let starts = !std::mem::replace(&mut held.kept, true);
        drop(held);
        if starts {
            tokio::spawn(keep::keep(Arc::clone(self)));
        }
        PlaceHeld {
            places: Arc::clone(self),
            number,
        }
    }

    /// The server has heard of it.
    fn entered(&self, number: u64, sent: Instant) {
        let line = self.central.talk().line();
        let mut held = self.held();
        if let Some(one) = held.places.get_mut(&number) {
            one.due = Some(sent + self.life / HEARTBEATS);
        }
        if held.line != line {
            // It may have heard of no other.
            self.wake.notify_one();
        }
    }

    /// The server did not say whether a place is taken. If it was not asked, it is not; whoever keeps the place
    /// all the same has to tell it.
    fn unanswered(&self, number: u64, away: &Away) {
        if let Some(one) = self.held().places.get_mut(&number) {
            one.told = !matches!(away, Away::Known);
            one.due = Some(Instant::now() + AGAIN);
        }
    }

    fn name(&self, number: u64) -> String {
        format!("{}:{number:x}", self.node)
    }

    fn begin(&self, keys: &[impl AsRef<str>], text: bool, what: &str) -> Cmd {
        let mut command = self.central.places.command(keys.len(), text);
        keys.iter().for_each(|key| _ = command.arg(key.as_ref()));
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        command.arg(what).arg(ms(self.life)).arg(ms(LONGEST_LIFE));
        command
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of requests.
    fn now(&self) -> Nanos {
        let (at, now) = self.held().clock;
        let since = u64::try_from(at.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        now.saturating_add(since)
    }

    fn leaves(&self, gone: impl IntoIterator<Item = Leaving>) {
        let mut held = self.held();
        let room = MOST_LEAVING.saturating_sub(held.leaving.len());
        held.leaving.extend(gone.into_iter().take(room));
    }
}

impl PlaceHeld {
    /// There is nothing to give back.
    fn forget(self) {
        self.places.held().places.remove(&self.number);
        // What is dropped now finds nothing.
    }
}

impl Drop for PlaceHeld {
    fn drop(&mut self) {
        let places = &self.places;
        let Some(one) = places.held().places.remove(&self.number) else {
            return;
        };
        if one.told {
            let until = Instant::now() + places.life;
            let (number, keys) = (self.number, one.keys);
            places.leaves([Leaving {
                number,
                keys,
                until,
            }]);
            places.wake.notify_one();
        }
    }
}

impl std::fmt::Debug for PlaceHeld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlaceHeld").finish_non_exhaustive()
    }
}

/// Whether it was let in, and how many are there at each key.
fn read(value: &Value, keys: usize) -> RedisResult<(bool, SmallVec<[u64; 1]>)> {
    let numbers: Vec<i64> = redis::from_redis_value_ref(value)?;
    let [entered, there @ ..] = numbers.as_slice() else {
        return Err(unexpected());
    };
    if there.len() != keys {
        return Err(unexpected());
    }
    let whole = |n: &i64| u64::try_from(*n).unwrap_or(0);
    Ok((*entered == 1, there.iter().map(whole).collect()))
}
