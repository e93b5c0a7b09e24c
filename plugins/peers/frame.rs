//! What peers say to each other.
//!
//! A frame is its length (four bytes), a word and what belongs to it. After a [`Hello`] each way, who
//! connected sends [`Frame::Asks`] and gets [`Frame::Answers`]; an empty one is a sign of life. Both tell the
//! sender's epoch. Limits travel with every question, about ten bytes: they may come from a request, and
//! nobody has to know what another gateway was configured with.

use std::time::Duration;

use lockgate_quota::{Ask, Grant, Law, Micros, Outcome, Standing, Verdict};
use smallvec::SmallVec;

use crate::kept::{Part, read_parts, write_parts};
use crate::place::KeyId;
use crate::wire::{Bad, Reader, Writer};

/// The protocol. Another number is another protocol.
pub const VERSION: u64 = 1;
/// The longest frame.
pub const LONGEST: usize = 256 << 10;
/// Questions of one frame.
pub const MOST_ASKS: usize = 64;
/// Limits of one request that are asked at once.
pub const MOST_CHARGES: usize = 32;
/// The largest count and cost: beyond it fractions of them are not exact.
pub(crate) const MOST: u64 = 1 << 53;

/// How a connection begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The name of the gateway that says it.
    pub name: String,
    /// Which start of it.
    pub run: u64,
    /// The start of the other side that it knew before; 0 for none. Who was started anew has forgotten
    /// what it counted, and may not know that it ever did.
    pub knew: u64,
    /// Its epoch.
    pub epoch: u64,
}

/// A frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// The first one each way.
    Hello(Hello),
    /// Questions.
    Asks {
        /// Of the sender.
        epoch: u64,
        /// At most [`MOST_ASKS`].
        asks: Vec<Put>,
    },
    /// Answers, in any order.
    Answers {
        /// Of the sender.
        epoch: u64,
        /// By the questions' numbers.
        answers: Vec<(u64, Reply)>,
    },
}

/// A question on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Put {
    /// By which it is answered.
    pub number: u64,
    /// For how long anybody waits for that: nobody is charged later.
    pub within: Duration,
    /// What is asked.
    pub question: Question,
}

/// One limit of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Charged {
    /// Where it is counted.
    pub key: KeyId,
    /// The limit.
    pub law: Law,
    /// For how much.
    pub cost: u64,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// For permits. The ask has no text of the key.
    Take(KeyId, Ask),
    /// To charge all or none.
    Check(SmallVec<[Charged; 2]>),
    /// To charge or give back afterwards: how much more, and to what it was charged.
    Settle(Charged, i64, u64),
    /// Where a limit stands.
    Look(KeyId, Law),
    /// To forget a key.
    Forget(KeyId),
    /// To take over counts.
    Hand {
        /// By which the other side owns them.
        epoch: u64,
        /// The sender's time.
        sent: Micros,
        /// The counts.
        parts: Vec<Part>,
    },
    /// To know that all has come that the sender had by this epoch and has no more; and whether it had
    /// never counted anything: where nobody has, nothing is lost.
    Done(u64, bool),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Permits.
    Granted(Grant),
    /// Whether a request passes.
    Verdict(Verdict),
    /// It is done; whether there was anything to do.
    Done(bool),
    /// Where a limit stands.
    Standing(Standing),
    /// Another gateway counts this, by the epoch of the answer.
    Moved,
    /// It is not known who counts this, for a moment.
    Later,
    /// There is no room for another key.
    Full,
}

impl Frame {
    /// The bytes, with the length in front. Numbers beyond what is read are cut: one of them would end the
    /// connection that all questions share.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer(vec![0; 4]);
        match self {
            Frame::Hello(hello) => {
                out.byte(0);
                out.number(VERSION);
                out.text(&hello.name);
                out.numbers([hello.run, hello.knew, hello.epoch]);
            }
            Frame::Asks { epoch, asks } => {
                out.byte(1);
                out.number(*epoch);
                out.number(asks.len() as u64);
                for ask in asks {
                    out.number(ask.number);
                    out.number(micros(ask.within));
                    ask.question.write(&mut out);
                }
            }
            Frame::Answers { epoch, answers } => {
                out.byte(2);
                out.number(*epoch);
                out.number(answers.len() as u64);
                for (number, reply) in answers {
                    out.number(*number);
                    reply.write(&mut out);
                }
            }
        }
        let mut bytes = out.0;
        let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
        if let Some(head) = bytes.first_chunk_mut() {
            *head = length.to_be_bytes();
        }
        bytes
    }

    /// What is behind the length.
    ///
    /// # Errors
    /// When it is no frame.
    pub fn read(bytes: &[u8]) -> Result<Frame, Bad> {
        let mut read = Reader(bytes);
        let frame = match read.byte()? {
            0 => {
                if read.number()? != VERSION {
                    return Err(Bad::Word(0));
                }
                Frame::Hello(Hello {
                    name: read.text()?.to_owned(),
                    run: read.number()?,
                    knew: read.number()?,
                    epoch: read.number()?,
                })
            }
            1 => Frame::Asks {
                epoch: read.number()?,
                asks: each(&mut read, Put::read)?,
            },
            2 => Frame::Answers {
                epoch: read.number()?,
                answers: each(&mut read, |read| Ok((read.number()?, Reply::read(read)?)))?,
            },
            word => return Err(Bad::Word(word)),
        };
        if read.is_done() {
            Ok(frame)
        } else {
            Err(Bad::Long)
        }
    }
}

fn each<T>(
    read: &mut Reader<'_>,
    one: impl Fn(&mut Reader<'_>) -> Result<T, Bad>,
) -> Result<Vec<T>, Bad> {
    let count = read.count(MOST_ASKS)?;
    (0..count).map(|_| one(read)).collect()
}

impl Put {
    fn read(read: &mut Reader<'_>) -> Result<Put, Bad> {
        Ok(Put {
            number: read.number()?,
            within: read_duration(read)?,
            question: Question::read(read)?,
        })
    }
}

impl Question {
    fn write(&self, out: &mut Writer) {
        match self {
            Question::Take(key, ask) => {
                out.byte(0);
                out.key(*key);
                write_law(ask.law, out);
                let [want, back, over, held] =
                    [ask.want, ask.back, ask.over, ask.held].map(|n| n.min(MOST));
                out.numbers([ask.number, want, back, over, ask.mark, held]);
                out.number(ask.most.map_or(0, |most| most.saturating_add(1)));
                out.number(micros(ask.keeps));
            }
            Question::Check(charges) => {
                out.byte(1);
                out.number(charges.len() as u64);
                charges.iter().for_each(|charge| charge.write(out));
            }
            Question::Settle(charge, more, mark) => {
                out.byte(2);
                charge.write(out);
                out.signed((*more).clamp(-(MOST as i64), MOST as i64));
                out.number(*mark);
            }
            Question::Look(key, law) => {
                out.byte(3);
                out.key(*key);
                write_law(*law, out);
            }
            Question::Forget(key) => {
                out.byte(4);
                out.key(*key);
            }
            Question::Hand { epoch, sent, parts } => {
                out.byte(5);
                out.numbers([*epoch, (*sent).min(MOST)]);
                write_parts(parts, out);
            }
            Question::Done(epoch, fresh) => {
                out.byte(6);
                out.number(*epoch);
                out.byte(u8::from(*fresh));
            }
        }
    }

    fn read(read: &mut Reader<'_>) -> Result<Question, Bad> {
        Ok(match read.byte()? {
            0 => {
                let key = read.key()?;
                let law = read_law(read)?;
                let ask = Ask {
                    key: String::new(),
                    law,
                    number: read.number()?,
                    want: bounded(read)?,
                    back: bounded(read)?,
                    over: bounded(read)?,
                    mark: read.number()?,
                    held: bounded(read)?,
                    most: read.number()?.checked_sub(1).map(|most| most.min(MOST)),
                    keeps: read_duration(read)?,
                };
                Question::Take(key, ask)
            }
            1 => {
                let count = read.count(MOST_CHARGES)?;
                let charges = (0..count).map(|_| Charged::read(read));
                Question::Check(charges.collect::<Result<_, Bad>>()?)
            }
            2 => {
                let charge = Charged::read(read)?;
                let more = read.signed()?;
                if more.unsigned_abs() > MOST {
                    return Err(Bad::Number);
                }
                Question::Settle(charge, more, read.number()?)
            }
            3 => Question::Look(read.key()?, read_law(read)?),
            4 => Question::Forget(read.key()?),
            5 => Question::Hand {
                epoch: read.number()?,
                sent: bounded(read)?,
                parts: read_parts(read)?,
            },
            6 => Question::Done(read.number()?, flag(read)?),
            word => return Err(Bad::Word(word)),
        })
    }
}

impl Charged {
    fn write(&self, out: &mut Writer) {
        out.key(self.key);
        write_law(self.law, out);
        out.number(self.cost.min(MOST));
    }

    fn read(read: &mut Reader<'_>) -> Result<Charged, Bad> {
        Ok(Charged {
            key: read.key()?,
            law: read_law(read)?,
            cost: bounded(read)?,
        })
    }
}

impl Reply {
    fn write(&self, out: &mut Writer) {
        match self {
            Reply::Granted(grant) => {
                out.byte(0);
                let [permits, left, nodes, others] =
                    [grant.permits, grant.left, grant.nodes, grant.others].map(|n| n.min(MOST));
                out.numbers([permits, left, grant.mark, nodes, others]);
                out.numbers([grant.reset, grant.retry, grant.good].map(micros));
            }
            Reply::Verdict(verdict) => {
                out.byte(1);
                out.byte(u8::from(verdict.allowed));
                out.number(verdict.outcomes.len() as u64);
                for outcome in &verdict.outcomes {
                    write_outcome(outcome, out);
                }
            }
            Reply::Done(was) => {
                out.byte(2);
                out.byte(u8::from(*was));
            }
            Reply::Standing(standing) => {
                out.byte(3);
                let [remaining, nodes] = [standing.remaining, standing.nodes].map(|n| n.min(MOST));
                out.numbers([remaining, nodes, standing.held]);
                out.numbers([standing.reset, standing.retry].map(micros));
            }
            Reply::Moved => out.byte(4),
            Reply::Later => out.byte(5),
            Reply::Full => out.byte(6),
        }
    }

    fn read(read: &mut Reader<'_>) -> Result<Reply, Bad> {
        Ok(match read.byte()? {
            0 => Reply::Granted(Grant {
                permits: bounded(read)?,
                left: bounded(read)?,
                mark: read.number()?,
                nodes: bounded(read)?,
                others: bounded(read)?,
                reset: read_duration(read)?,
                retry: read_duration(read)?,
                good: read_duration(read)?,
            }),
            1 => {
                let allowed = flag(read)?;
                let count = read.count(MOST_CHARGES)?;
                let outcomes = (0..count).map(|_| read_outcome(read));
                Reply::Verdict(Verdict {
                    allowed,
                    outcomes: outcomes.collect::<Result<_, Bad>>()?,
                })
            }
            2 => Reply::Done(flag(read)?),
            3 => Reply::Standing(Standing {
                remaining: bounded(read)?,
                nodes: bounded(read)?,
                held: read.number()?,
                reset: read_duration(read)?,
                retry: read_duration(read)?,
            }),
            4 => Reply::Moved,
            5 => Reply::Later,
            6 => Reply::Full,
            word => return Err(Bad::Word(word)),
        })
    }
}

fn write_outcome(outcome: &Outcome, out: &mut Writer) {
    out.byte(u8::from(outcome.allowed));
    out.numbers([outcome.remaining.min(MOST), outcome.mark]);
    out.numbers([outcome.reset, outcome.delay].map(micros));
    out.number(outcome.retry.map_or(0, |d| micros(d).saturating_add(1)));
}

fn read_outcome(read: &mut Reader<'_>) -> Result<Outcome, Bad> {
    Ok(Outcome {
        allowed: flag(read)?,
        remaining: bounded(read)?,
        mark: read.number()?,
        reset: read_duration(read)?,
        delay: read_duration(read)?,
        retry: read.number()?.checked_sub(1).map(Duration::from_micros),
    })
}

/// A limit; one that cannot be counted is none.
pub(crate) fn write_law(law: Law, out: &mut Writer) {
    let (word, limit, window) = match law {
        Law::Fixed { limit, window } => (0, limit, window),
        Law::Sliding { limit, window } => (1, limit, window),
        Law::Log { limit, window } => (2, limit, window),
        Law::Bucket { interval_us, holds } => {
            out.byte(3);
            out.float(interval_us);
            out.float(holds);
            return;
        }
    };
    out.byte(word);
    out.number(limit);
    out.number(micros(window));
}

pub(crate) fn read_law(read: &mut Reader<'_>) -> Result<Law, Bad> {
    let word = read.byte()?;
    let law = if word == 3 {
        Law::Bucket {
            interval_us: read.float()?,
            holds: read.float()?,
        }
    } else {
        let (limit, window) = (read.number()?, read_duration(read)?);
        match word {
            0 => Law::Fixed { limit, window },
            1 => Law::Sliding { limit, window },
            2 => Law::Log { limit, window },
            word => return Err(Bad::Word(word)),
        }
    };
    law.checked().map_err(|_| Bad::Law)
}

fn flag(read: &mut Reader<'_>) -> Result<bool, Bad> {
    match read.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        word => Err(Bad::Word(word)),
    }
}

/// A number that sums of some of them stay exact with.
pub(crate) fn bounded(read: &mut Reader<'_>) -> Result<u64, Bad> {
    let n = read.number()?;
    (n <= MOST).then_some(n).ok_or(Bad::Number)
}

fn read_duration(read: &mut Reader<'_>) -> Result<Duration, Bad> {
    Ok(Duration::from_micros(bounded(read)?))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(MOST)
        .min(MOST)
}
