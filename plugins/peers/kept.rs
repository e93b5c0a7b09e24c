//! Counts on their way from one gateway to another, and how a count begins whose keeper is gone.
//!
//! A key goes on by the clock that it was first counted by, wherever it is counted: what was charged to a
//! window is given back to that window after any number of moves, though clocks differ by hours.

use std::collections::VecDeque;

use lockgate_quota::{Account, Count, Holding, Law, Micros};

use crate::frame::{MOST, bounded, read_law, write_law};
use crate::place::{KeyId, PARTITIONS};
use crate::wire::{Bad, Reader, Writer};

/// Partitions in one frame.
const MOST_PARTS: usize = PARTITIONS;
/// Counts in one frame.
const MOST_KEYS: usize = 4_096;
/// Times of one log, and gateways that hold permits of one key: what a count has at most.
const MOST_TIMES: usize = 2_000;
const MOST_HOLDERS: usize = 256;

/// What is kept for a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// By which law it was counted last.
    pub law: Law,
    /// What was counted.
    pub account: Account,
    /// By how much its clock is ahead of the clock where it is counted now, in microseconds.
    pub ahead: i64,
}

/// Counts of one partition, or some of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Which.
    pub partition: u16,
    /// What the sender calls it: it may come twice, and counts once.
    pub number: u64,
    /// Whether more of it follows.
    pub more: bool,
    /// Since when counts of it are lost, if some are, by the sender's clock.
    pub lost: Option<Micros>,
    /// The counts.
    pub keys: Vec<(KeyId, Kept)>,
}

impl Kept {
    /// The time by its clock.
    pub fn time(&self, now: Micros) -> Micros {
        now.saturating_add_signed(self.ahead)
    }

    /// Sent by a clock that showed `sent`, and here by one that shows `now`. What it took on its way makes
    /// windows so much longer, and never shorter.
    pub fn arrived(mut self, sent: Micros, now: Micros) -> Kept {
        self.ahead = apart(self.ahead, sent, now);
        self
    }

    /// What another gateway counted joins what was counted here in the meantime: all of it counts.
    pub fn join(&mut self, other: Kept, now: Micros) {
        let other = other.by_clock(self.ahead);
        let (law, now) = (self.law, self.time(now));
        let (mine, its) = (&mut self.account, other.account);
        for held in its.holders {
            match mine.holders.iter_mut().find(|h| h.node == held.node) {
                Some(mine) if mine.number >= held.number => {}
                Some(mine) => *mine = held,
                None => mine.holders.push(held),
            }
        }
        if mine.holders.len() > MOST_HOLDERS {
            // Those that end last.
            mine.holders
                .sort_unstable_by_key(|held| std::cmp::Reverse(held.ends));
            mine.holders.truncate(MOST_HOLDERS);
        }
        mine.before = mine.before.max(its.before);
        mine.end = mine.end.max(its.end);
        mine.count = both(law, std::mem::take(&mut mine.count), its.count, now);
    }

    /// The same, by another clock.
    fn by_clock(mut self, ahead: i64) -> Kept {
        let by = ahead.saturating_sub(self.ahead);
        self.ahead = ahead;
        if by == 0 {
            return self;
        }
        let at = |time: Micros| time.saturating_add_signed(by);
        let account = &mut self.account;
        if account.end > 0 {
            account.end = at(account.end);
        }
        for held in &mut account.holders {
            held.ends = at(held.ends);
        }
        let length = window(self.law);
        match &mut account.count {
            Count::Nothing => {}
            Count::Fixed { end, .. } => *end = at(*end),
            // By the middle of the window.
            Count::Sliding { number, .. } => {
                *number = at(number.saturating_mul(length).saturating_add(length / 2)) / length;
            }
            Count::Log(times) => times.iter_mut().for_each(|time| *time = at(*time)),
            Count::Bucket { due } => *due = (*due + by as f64).max(0.0),
        }
        self
    }

    /// About what it takes, in bytes.
    pub fn size(&self) -> usize {
        let times = match &self.account.count {
            Count::Log(times) => times.len() * size_of::<Micros>(),
            _ => 0,
        };
        size_of::<(KeyId, Kept)>() + times + self.account.holders.len() * size_of::<Holding>()
    }

    fn write(&self, out: &mut Writer) {
        write_law(self.law, out);
        out.signed(self.ahead);
        let account = &self.account;
        out.numbers([account.before, account.end].map(|n| n.min(MOST)));
        out.number(account.holders.len() as u64);
        for held in &account.holders {
            out.numbers([held.node, held.number]);
            out.numbers([held.permits, held.held, held.ends].map(|n| n.min(MOST)));
        }
        match &account.count {
            Count::Nothing => out.byte(0),
            Count::Fixed { end, used } => {
                out.byte(1);
                out.numbers([*end, *used].map(|n| n.min(MOST)));
            }
            Count::Sliding {
                number,
                before,
                count,
            } => {
                out.byte(2);
                out.numbers([*number, *before, *count].map(|n| n.min(MOST)));
            }
            Count::Log(times) => {
                out.byte(3);
                out.number(times.len() as u64);
                out.numbers(times.iter().map(|time| (*time).min(MOST)));
            }
            Count::Bucket { due } => {
                out.byte(4);
                out.float(*due);
            }
        }
    }

    fn read(read: &mut Reader<'_>) -> Result<Kept, Bad> {
        let law = read_law(read)?;
        let ahead = read.signed()?;
        if ahead.unsigned_abs() > MOST {
            return Err(Bad::Number);
        }
        let (before, end) = (bounded(read)?, bounded(read)?);
        let count = read.count(MOST_HOLDERS)?;
        let holders = (0..count).map(|_| {
            Ok(Holding {
                node: read.number()?,
                number: read.number()?,
                permits: bounded(read)?,
                held: bounded(read)?,
                ends: bounded(read)?,
            })
        });
        let holders = holders.collect::<Result<_, Bad>>()?;
        let count = match read.byte()? {
            0 => Count::Nothing,
            1 => Count::Fixed {
                end: bounded(read)?,
                used: bounded(read)?,
            },
            2 => Count::Sliding {
                number: bounded(read)?,
                before: bounded(read)?,
                count: bounded(read)?,
            },
            3 => {
                let count = read.count(MOST_TIMES)?;
                let times = (0..count).map(|_| bounded(read));
                Count::Log(times.collect::<Result<VecDeque<_>, Bad>>()?)
            }
            4 => Count::Bucket {
                // Later than any time.
                due: read.float()?.clamp(0.0, MOST as f64),
            },
            word => return Err(Bad::Word(word)),
        };
        Ok(Kept {
            law,
            account: Account {
                count,
                holders,
                before,
                end,
            },
            ahead,
        })
    }
}

/// Two counts of one key as one.
fn both(law: Law, mine: Count, its: Count, now: Micros) -> Count {
    match (mine, its) {
        // A window that is over counts nothing.
        (Count::Fixed { end, .. }, its @ Count::Fixed { .. }) if end <= now => its,
        (mine @ Count::Fixed { .. }, Count::Fixed { end, .. }) if end <= now => mine,
        (Count::Fixed { end, used }, Count::Fixed { end: e, used: u }) => Count::Fixed {
            end: end.max(e),
            used: used.saturating_add(u),
        },
        (mine @ Count::Sliding { .. }, its @ Count::Sliding { .. }) => {
            let number = now / window(law);
            let ([before, count], [b, c]) = (slid(&mine, number), slid(&its, number));
            Count::Sliding {
                number,
                before: before.saturating_add(b),
                count: count.saturating_add(c),
            }
        }
        (Count::Log(times), Count::Log(others)) => {
            let mut all: Vec<Micros> = times.into_iter().chain(others).collect();
            all.sort_unstable();
            let most = all.len().min(MOST_TIMES);
            Count::Log(all.split_off(all.len() - most).into())
        }
        (Count::Bucket { due }, Count::Bucket { due: d }) => {
            // Both debts.
            let now = now as f64;
            let due = now + (due - now).max(0.0) + (d - now).max(0.0);
            Count::Bucket { due }
        }
        (Count::Nothing, its) => its,
        // Counts of different laws: the limit was changed, and one of them has not heard of it.
        (mine, _) => mine,
    }
}

/// What was charged in the window before this one, and in it.
fn slid(count: &Count, now: u64) -> [u64; 2] {
    match *count {
        Count::Sliding {
            number,
            before,
            count,
        } if number >= now => [before, count],
        Count::Sliding { number, count, .. } if number.checked_add(1) == Some(now) => [count, 0],
        _ => [0, 0],
    }
}

/// How far ahead a clock is here that was so far ahead of another one.
pub(crate) fn apart(ahead: i64, sent: Micros, now: Micros) -> i64 {
    let most = i128::from(MOST);
    let ahead = i128::from(ahead) + i128::from(sent) - i128::from(now);
    i64::try_from(ahead.clamp(-most, most)).unwrap_or(0)
}

/// The count of a key whose keeper is gone, with its counts: as much was charged as an even use would have
/// by now, in a window that began at a whole multiple of its length; a bucket is half full. What was
/// charged before and what passes from now on are together less than twice the limit, by chance one and a
/// half times.
pub fn even(law: Law, now: Micros) -> Count {
    let part = |limit: u64, window: Micros| {
        let product = u128::from(limit) * u128::from(now % window);
        u64::try_from(product.div_ceil(u128::from(window))).unwrap_or(u64::MAX)
    };
    let length = window(law);
    match law {
        Law::Fixed { limit, .. } => Count::Fixed {
            end: now + length - now % length,
            used: part(limit, length),
        },
        Law::Sliding { limit, .. } => Count::Sliding {
            number: now / length,
            before: 0,
            count: part(limit, length),
        },
        Law::Log { limit, .. } => Count::Log((0..part(limit, length)).map(|_| now).collect()),
        Law::Bucket { interval_us, holds } => Count::Bucket {
            due: now as f64 + interval_us * holds / 2.0,
        },
    }
}

/// For how long what was charged can matter.
pub fn window(law: Law) -> Micros {
    let duration = match law {
        Law::Fixed { window, .. } | Law::Sliding { window, .. } | Law::Log { window, .. } => window,
        Law::Bucket { interval_us, holds } => {
            return (interval_us * holds).ceil().max(1.0) as Micros;
        }
    };
    Micros::try_from(duration.as_micros())
        .unwrap_or(Micros::MAX)
        .max(1)
}

pub(crate) fn write_parts(parts: &[Part], out: &mut Writer) {
    out.number(parts.len() as u64);
    for part in parts {
        out.number(u64::from(part.partition));
        out.number(part.number);
        out.byte(u8::from(part.more));
        out.number(part.lost.map_or(0, |at| at.min(MOST - 1) + 1));
        out.number(part.keys.len() as u64);
        for (key, kept) in &part.keys {
            out.key(*key);
            kept.write(out);
        }
    }
}

pub(crate) fn read_parts(read: &mut Reader<'_>) -> Result<Vec<Part>, Bad> {
    let count = read.count(MOST_PARTS)?;
    let mut parts = Vec::new();
    for _ in 0..count {
        let partition = u16::try_from(read.number()?).map_err(|_| Bad::Number)?;
        if usize::from(partition) >= PARTITIONS {
            return Err(Bad::Number);
        }
        let number = read.number()?;
        let more = read.byte()? != 0;
        let lost = bounded(read)?.checked_sub(1);
        let keys = read.count(MOST_KEYS)?;
        let keys = (0..keys).map(|_| {
            let key = read.key()?;
            // A key of another partition would never be found there.
            if key.partition() != usize::from(partition) {
                return Err(Bad::Number);
            }
            Ok((key, Kept::read(read)?))
        });
        parts.push(Part {
            partition,
            number,
            more,
            lost,
            keys: keys.collect::<Result<_, Bad>>()?,
        });
    }
    Ok(parts)
}
