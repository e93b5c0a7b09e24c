//! The count that several gateways share.

use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use smallvec::SmallVec;

use crate::Nanos;
use crate::breaker::{Admitted, Breaker};
use crate::charge::{Charge, Law};
use crate::lease::{Ask, Grant};
use crate::line::Line;
use crate::server::Server;

/// One server, as seen by this process.
pub struct Central {
    line: Line,
    deadline: Duration,
    breaker: Breaker,
    check: Script,
    settle: Script,
    lease: Script,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Away {
    /// It failed just before, and was not asked.
    #[error("Redis failed before and is not asked for a moment")]
    Known,
    /// It did not answer in time.
    #[error("Redis did not answer within {} ms", .0.as_millis())]
    Late(Duration),
    /// It could not be reached, or would not.
    #[error("Redis cannot be asked")]
    Failed(#[source] RedisError),
}

/// What all limits say to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether all let it pass. If not, none was charged.
    pub allowed: bool,
    /// In the order of the charges.
    pub outcomes: SmallVec<[Outcome; 2]>,
}

/// What one limit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it lets the request pass.
    pub allowed: bool,
    /// What is left after this request, or of what it was refused for.
    pub remaining: u64,
    /// Until the limit is as good as new, or its window ends.
    pub reset: Duration,
    /// After a refusal: when the same request would pass if nobody else came; `None` if never.
    pub retry: Option<Duration>,
    /// How long a leaky bucket holds the request back.
    pub delay: Duration,
    /// What it was charged to, for [`Central::settle`].
    pub mark: u64,
}

/// What a request really cost.
#[derive(Clone, Debug)]
pub struct Settled {
    /// As it was charged.
    pub charge: Charge,
    /// What is charged on top of it, or given back.
    pub more: i64,
    /// As [`Outcome::mark`] said.
    pub mark: u64,
}

impl Central {
    /// A server that is never waited for longer than `deadline`. Nothing is connected yet.
    pub fn new(server: Server, deadline: Duration) -> Central {
        Central {
            line: Line::new(server),
            deadline,
            breaker: Breaker::default(),
            check: Script::new(include_str!("scripts/check.lua")),
            settle: Script::new(include_str!("scripts/settle.lua")),
            lease: Script::new(include_str!("scripts/lease.lua")),
        }
    }

    /// Charges a request on all its limits, or on none. In a cluster their keys have to have one scope.
    ///
    /// # Errors
    /// When there is no answer. What was charged then is not known: the request may count.
    pub async fn check(&self, charges: &[Charge], now: Nanos) -> Result<Verdict, Away> {
        let command = |text| {
            let mut command = self.check.command(charges.len(), text);
            write(
                &mut command,
                charges
                    .iter()
                    .map(|charge| (charge, whole(charge.cost), None)),
            );
            command
        };
        let value = self.ask(&command, now).await?;
        let read = Verdict::read(charges, &value);
        read.map_err(|error| self.failed(error, now))
    }

    /// Charges afterwards, or gives back: what a request really cost, less what was charged. Nothing is
    /// refused; debts are bounded, and what is given back makes no room in a window it was not charged to.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn settle(&self, charges: &[Settled], now: Nanos) -> Result<(), Away> {
        let command = |text| {
            let mut command = self.settle.command(charges.len(), text);
            let each = charges
                .iter()
                .map(|settled| (&settled.charge, settled.more, Some(settled.mark)));
            write(&mut command, each);
            command
        };
        self.ask(&command, now).await.map(drop)
    }

    /// Asks for permits, and gives some back; as many limits as are due, at once.
    ///
    /// # Errors
    /// For each limit, when there is no answer. Asked again with the same number, nothing is lost.
    pub async fn lease(&self, node: &str, asks: &[Ask], now: Nanos) -> Vec<Result<Grant, Away>> {
        // One connection carries all of them, and writes what is there in one go.
        let each = asks.iter().map(|ask| async move {
            let command = |text| ask.command(&self.lease, node, text);
            let value = self.ask(&command, now).await?;
            Grant::read(&value).map_err(|error| self.failed(error, now))
        });
        futures::future::join_all(each).await
    }

    /// Forgets what was counted. Says how many of the keys there were.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn reset(&self, keys: &[String], now: Nanos) -> Result<u64, Away> {
        let mut gone = 0;
        for key in keys {
            // One by one: they need not be in one slot.
            let mut command = redis::cmd("DEL");
            command.arg(key);
            let value = self.ask(&|_| command.clone(), now).await?;
            gone += u64::from(matches!(value, Value::Int(n) if n > 0));
        }
        Ok(gone)
    }

    /// Whether the server counts as away.
    pub fn is_away(&self) -> bool {
        self.breaker.is_open()
    }

    /// Asks once, with the hash of the script, and with its text if the server does not know it.
    async fn ask(&self, command: &impl Fn(bool) -> Cmd, now: Nanos) -> Result<Value, Away> {
        if self.breaker.admit(now) == Admitted::No {
            return Err(Away::Known);
        }
        let mut used = None;
        let asked = async {
            let mut line = self.line.get().await?;
            used = Some(line.number);
            match line
                .live
                .ask(&command(false))
                .await
                .and_then(Value::extract_error)
            {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    let again = command(true);
                    line.live.ask(&again).await.and_then(Value::extract_error)
                }
                answered => answered,
            }
        };
        let asked = tokio::time::timeout(self.deadline, asked).await;
        match asked {
            Ok(Ok(value)) => {
                self.breaker.answered();
                Ok(value)
            }
            Ok(Err(error)) => {
                if let Some(number) = used.filter(|_| ends_connection(&error)) {
                    self.line.lost(number);
                }
                Err(self.failed(error, now))
            }
            Err(_) => {
                // What it answers later has nobody who waits for it.
                if let Some(number) = used {
                    self.line.lost(number);
                }
                let waited = u64::try_from(self.deadline.as_nanos()).unwrap_or(u64::MAX);
                self.breaker.failed(now.saturating_add(waited));
                Err(Away::Late(self.deadline))
            }
        }
    }

    fn failed(&self, error: RedisError, now: Nanos) -> Away {
        self.breaker.failed(now);
        Away::Failed(error)
    }
}

/// Whether another connection may do better: this one is broken, or leads to a server that is none
/// any more. What a server says about the request itself is no reason.
fn ends_connection(error: &RedisError) -> bool {
    use ServerErrorKind::{
        BusyLoading, ClusterDown, CrossSlot, ExecAbort, MasterDown, NoPerm, NoScript, ReadOnly,
        ResponseError, TryAgain,
    };
    match error.kind() {
        // A master that became a replica, one that has just started, a cluster without a master.
        ErrorKind::Server(ReadOnly | MasterDown | BusyLoading | ClusterDown) => true,
        ErrorKind::Server(ResponseError | ExecAbort | NoScript | TryAgain | CrossSlot | NoPerm)
        | ErrorKind::Extension
        | ErrorKind::UnexpectedReturnType => false,
        _ => true,
    }
}

/// Keys, and for each of them law, number, limit, window and the mark if there is one.
fn write<'a>(
    command: &mut Cmd,
    charges: impl Iterator<Item = (&'a Charge, i64, Option<u64>)> + Clone,
) {
    for (charge, ..) in charges.clone() {
        command.arg(&charge.key);
    }
    for (charge, number, mark) in charges {
        let (law, limit, window) = charge.law.words();
        command.arg(law).arg(number).arg(limit).arg(window);
        if let Some(mark) = mark {
            command.arg(mark);
        }
    }
}

fn whole(cost: u64) -> i64 {
    // Beyond 2^53 nothing passes any limit.
    i64::try_from(cost.min(1 << 53)).unwrap_or(i64::MAX)
}

/// A script, with the hash under which the server keeps it.
pub(crate) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    fn new(text: &'static str) -> Script {
        let hash = redis::Script::new(text).get_hash().to_owned();
        Script { text, hash }
    }

    /// The beginning of a call, by the script's text or hash.
    pub(crate) fn command(&self, keys: usize, text: bool) -> Cmd {
        let mut command = redis::cmd(if text { "EVAL" } else { "EVALSHA" });
        command.arg(if text { self.text } else { self.hash.as_str() });
        command.arg(keys);
        command
    }
}

impl Verdict {
    fn read(charges: &[Charge], value: &Value) -> RedisResult<Verdict> {
        let numbers: Vec<i64> = redis::from_redis_value_ref(value)?;
        if numbers.len() != charges.len() * WORDS {
            return Err(unexpected());
        }
        let outcomes: SmallVec<[Outcome; 2]> = charges
            .iter()
            .zip(numbers.as_chunks::<WORDS>().0)
            .map(|(charge, words)| Outcome::read(charge, words))
            .collect();
        Ok(Verdict {
            allowed: outcomes.iter().all(|outcome| outcome.allowed),
            outcomes,
        })
    }
}

/// Numbers that check.lua says of each limit.
const WORDS: usize = 5;

impl Outcome {
    fn read(charge: &Charge, &[passed, remaining, reset, retry, mark]: &[i64; WORDS]) -> Outcome {
        let whole = |n: i64| u64::try_from(n).unwrap_or(0);
        let us = |n: i64| Duration::from_micros(whole(n));
        let allowed = passed == 1;
        let delay = match charge.law {
            // It is due when those before it are: not later because it costs more itself.
            Law::Bucket { interval_us, .. } if allowed => us(reset).saturating_sub(
                Duration::from_secs_f64(interval_us * charge.cost as f64 / 1e6),
            ),
            _ => Duration::ZERO,
        };
        Outcome {
            allowed,
            remaining: whole(remaining),
            reset: us(reset),
            retry: (retry >= 0).then(|| us(retry)),
            delay,
            mark: whole(mark),
        }
    }
}

/// An answer of so many numbers.
pub(crate) fn numbers<const N: usize>(value: &Value) -> RedisResult<[i64; N]> {
    let numbers: Vec<i64> = redis::from_redis_value_ref(value)?;
    numbers.try_into().map_err(|_| unexpected())
}

fn unexpected() -> RedisError {
    (
        ErrorKind::UnexpectedReturnType,
        "not the answer of the script",
    )
        .into()
}
