//! How a server is asked: whether at all, over which connection, and what becomes of that.
//!
//! A cluster is many servers. One of its shards that is frozen or gone is away for its keys only, so there
//! is a [`Breaker`] for each of some ranges of slots.

use std::fmt;
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use crate::Nanos;
use crate::breaker::{Admitted, Breaker};
use crate::figures::{Calls, Tally};
use crate::line::{Line, Numbered};
use crate::patience::Patience;
use crate::server::Server;
use crate::store::Away;

/// Slots of a cluster.
const SLOTS: usize = 16_384;
/// Ranges of slots that are away by themselves. A shard has many of them, and each costs some requests
/// their deadline until it is known; few of them are of two shards.
const RANGES: usize = 64;

/// See the module.
pub(crate) struct Talk {
    line: Line,
    patience: Patience,
    /// One, or one for each range of slots.
    breakers: Box<[Breaker]>,
    tally: Tally,
}

/// What is asked.
pub(crate) struct Question<'a> {
    /// One of its keys; in a cluster all are in one slot.
    pub key: &'a str,
    /// The command; if a script, with its hash or (`true`) its text.
    pub command: &'a (dyn Fn(bool) -> Cmd + Sync),
    /// Whether it may be asked twice.
    pub repeat: Repeat,
}

impl<'a> Question<'a> {
    /// One that may be asked twice.
    pub(crate) fn safe(key: &'a str, command: &'a (dyn Fn(bool) -> Cmd + Sync)) -> Question<'a> {
        let repeat = Repeat::Safe;
        Question {
            key,
            command,
            repeat,
        }
    }
}

/// Whether a question may be asked once more when the connection broke before an answer came: the server
/// may have worked it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Never,
}

impl Talk {
    pub(crate) fn new(server: Server, patience: Patience) -> Talk {
        let breakers = if server.is_cluster() { RANGES } else { 1 };
        Talk {
            line: Line::new(server),
            patience,
            breakers: (0..breakers).map(|_| Breaker::default()).collect(),
            tally: Tally::default(),
        }
    }

    /// Asks with the hash of the script, and with its text if the server does not know it.
    pub(crate) async fn ask(&self, question: &Question<'_>, now: Nanos) -> Result<Value, Away> {
        let ended = self.ask_uncounted(question, now).await;
        self.tally.count(&ended);
        ended
    }

    async fn ask_uncounted(&self, question: &Question<'_>, now: Nanos) -> Result<Value, Away> {
        let breaker = self.breaker(question.key);
        let deadline = self.patience.deadline();
        let admitted = breaker.admit(now, deadline);
        if admitted == Admitted::No {
            return Err(Away::Known);
        }
        let (mut used, mut begun) = (None, None);
        let asked = async {
            let line = self.line.get().await?;
            used = Some(line.number);
            // What it takes to connect says nothing about answers.
            begun = Some(Instant::now());
            let (fresh, number) = (line.fresh, line.number);
            match say(line, question).await {
                // Ended while it was idle, or with the server that it led to: another may do.
                Err(error) if error.is_io_error() && !fresh && question.repeat == Repeat::Safe => {
                    self.line.lost(number);
                    let line = self.line.get().await?;
                    (used, begun) = (Some(line.number), Some(Instant::now()));
                    say(line, question).await
                }
                answered => answered,
            }
        };
        match tokio::time::timeout(deadline, asked).await {
            Ok(Ok(value)) => {
                breaker.answered();
                if let Some(begun) = begun {
                    self.patience.answered(begun.elapsed());
                }
                Ok(value)
            }
            Ok(Err(error)) => {
                if ends_connection(&error) {
                    used.into_iter().for_each(|number| self.line.lost(number));
                    breaker.failed(admitted, now);
                } else {
                    // It is there. What it says about one key is nothing to the others.
                    breaker.answered();
                }
                Err(Away::Failed(Box::new(error)))
            }
            Err(_) => {
                // What it answers later has nobody who waits for it.
                used.into_iter().for_each(|number| self.line.lost(number));
                self.patience.late();
                let waited = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
                breaker.failed(admitted, now.saturating_add(waited));
                Err(Away::Late(deadline))
            }
        }
    }

    /// How long a question waits now.
    pub(crate) fn deadline(&self) -> Duration {
        self.patience.deadline()
    }

    /// Which connection this is. With another one there may be a server that knows nothing.
    pub(crate) fn line(&self) -> u64 {
        self.line.number()
    }

    /// Whether somewhere nobody is asked.
    pub(crate) fn is_away(&self) -> bool {
        self.breakers.iter().any(Breaker::is_open)
    }

    /// How questions ended.
    pub(crate) fn calls(&self) -> Calls {
        self.tally.read()
    }

    fn breaker(&self, key: &str) -> &Breaker {
        match &*self.breakers {
            [one] => one,
            all => &all[usize::from(slot(key)) * all.len() / SLOTS],
        }
    }
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Talk")
            .field("patience", &self.patience)
            .field("away", &self.is_away())
            .finish_non_exhaustive()
    }
}

async fn say(mut line: Numbered, question: &Question<'_>) -> RedisResult<Value> {
    let command = (question.command)(false);
    let answered = line.live.ask(&command).await.and_then(Value::extract_error);
    match answered {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            let again = (question.command)(true);
            line.live.ask(&again).await.and_then(Value::extract_error)
        }
        answered => answered,
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

/// The slot of a key, as a cluster has it: CRC-16 (XMODEM) of what is between its first braces.
fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or(key, |(tag, _)| if tag.is_empty() { key } else { tag });
    let bit = |crc: u16, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
    let byte = |crc: u16, byte: u8| (0..8).fold(crc ^ (u16::from(byte) << 8), bit);
    tag.bytes().fold(0, byte) % SLOTS as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_slots_that_a_cluster_gives_them() {
        // As `CLUSTER KEYSLOT` says.
        let slots = [("123456789", 12_739), ("foo", 12_182), ("", 0)];
        for (key, expected) in slots {
            assert_eq!(slot(key), expected, "{key}");
        }
        assert_eq!(slot("gw:{foo}:r:x"), 12_182);
        assert_eq!(slot("lease:gw:{foo}:r:{x}"), 12_182);
        assert_ne!(slot("{}foo"), slot("foo"));
    }
}
