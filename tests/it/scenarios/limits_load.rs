//! Load on several gateways at once, with what became of each request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::get;
use crate::client::{Answer, Connection, Target};

/// After a connection that could not be made.
const PAUSE: Duration = Duration::from_millis(10);

/// One request, as its client saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Which stream it belongs to.
    pub(super) stream: usize,
    /// When it was sent, since the load began.
    pub(super) at: Duration,
    /// Until the end of its answer.
    pub(super) took: Duration,
    /// 0 when there was no complete answer.
    pub(super) status: u16,
    /// What the answer said is left.
    pub(super) left: Option<u64>,
}

/// Clients of one gateway that ask for one path, again and again.
#[derive(Clone)]
pub(super) struct Stream {
    pub(super) target: Target,
    pub(super) path: String,
    pub(super) clients: usize,
    /// Each sends one in this time; the next one later if an answer takes longer.
    pub(super) every: Duration,
}

/// Running streams.
pub(super) struct Load {
    begun: Instant,
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    clients: JoinSet<()>,
}

impl Load {
    /// Starts the clients.
    pub(super) fn start(streams: &[Stream]) -> Load {
        let mut load = Load {
            begun: Instant::now(),
            stop: Arc::default(),
            samples: Arc::default(),
            clients: JoinSet::new(),
        };
        for (number, stream) in streams.iter().enumerate() {
            for _ in 0..stream.clients {
                let client = Client {
                    stream: number,
                    begun: load.begun,
                    stop: Arc::clone(&load.stop),
                    samples: Arc::clone(&load.samples),
                };
                load.clients.spawn(client.run(stream.clone()));
            }
        }
        load
    }

    /// How long it runs.
    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// What was answered so far, by the time of the answer.
    pub(super) fn samples(&self) -> MutexGuard<'_, Vec<Sample>> {
        lock(&self.samples)
    }

    /// Whether there is such an answer to what was sent after `from`.
    pub(super) fn has(&self, from: Duration, is: impl Fn(&Sample) -> bool) -> bool {
        let samples = self.samples();
        samples.iter().any(|sample| sample.at >= from && is(sample))
    }

    /// Stops, and gives everything.
    pub(super) async fn stop(mut self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        while self.clients.join_next().await.is_some() {}
        std::mem::take(&mut lock(&self.samples))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Client {
    stream: usize,
    begun: Instant,
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
}

impl Client {
    async fn run(self, stream: Stream) {
        let message = get(&stream.path, "limits");
        let mut due = tokio::time::interval(stream.every);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut connection: Option<Connection> = None;
        loop {
            due.tick().await;
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let sent = Instant::now();
            let answer = match connection.take() {
                Some(mut open) => {
                    let answer = open.exchange(&message).await;
                    if ends_well(&answer) {
                        connection = Some(open);
                    }
                    answer
                }
                None => match Connection::open(&stream.target).await {
                    Ok(mut open) => {
                        let answer = open.exchange(&message).await;
                        if ends_well(&answer) {
                            connection = Some(open);
                        }
                        answer
                    }
                    Err(error) => {
                        tokio::time::sleep(PAUSE).await;
                        Answer::failed(&error)
                    }
                },
            };
            let sample = Sample {
                stream: self.stream,
                at: sent - self.begun,
                took: sent.elapsed(),
                status: answer.status.filter(|_| !answer.cut).unwrap_or(0),
                left: left(&answer),
            };
            lock(&self.samples).push(sample);
        }
    }
}

fn ends_well(answer: &Answer) -> bool {
    answer.status.is_some() && !answer.cut && answer.all("connection") != ["close"]
}

/// `X-RateLimit-Remaining`, or the `r` of the first member of `RateLimit`.
fn left(answer: &Answer) -> Option<u64> {
    if let [left] = answer.all("x-ratelimit-remaining")[..] {
        return left.parse().ok();
    }
    let line = answer.all("ratelimit").first().copied()?;
    let after = line.split(";r=").nth(1)?;
    after.split([';', ',']).next()?.trim().parse().ok()
}

/// How many there were of each status.
pub(super) fn statuses<'a>(samples: impl Iterator<Item = &'a Sample>) -> BTreeMap<u16, usize> {
    let mut out = BTreeMap::new();
    for sample in samples {
        *out.entry(sample.status).or_default() += 1;
    }
    out
}
