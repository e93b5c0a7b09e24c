//! Counts on their way from one gateway to another, and how a count begins whose keeper is gone.
//!
//! Times are told as how long from now, so that clocks need not agree.

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
}

/// Counts of one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Which.
    pub partition: u16,
    /// Whether more of it follows.
    pub more: bool,
    /// The counts, with times from now on instead of times.
    pub keys: Vec<(KeyId, Kept)>,
}

impl Kept {
    /// For the way: times become how long from now.
    pub fn packed(mut self, now: Micros) -> Kept {
        let left = |at: Micros| at.saturating_sub(now);
        let account = &mut self.account;
        account.end = left(account.end);
        account.holders.retain_mut(|held| {
            held.ends = left(held.ends);
            held.ends > 0
        });
        let window = window(self.law);
        match &mut account.count {
            Count::Nothing => {}
            Count::Fixed { end, .. } => *end = left(*end),
            Count::Sliding { number, .. } => *number = (now / window).saturating_sub(*number),
            Count::Log(times) => {
                // Of what is past: how long ago.
                for time in times.iter_mut() {
                    *time = now.saturating_sub(*time);
                }
            }
            Count::Bucket { due } => *due = (*due - now as f64).max(0.0),
        }
        self
    }

    /// And back again, by the clock of who takes it over.
    pub fn unpacked(mut self, now: Micros) -> Kept {
        let at = |left: Micros| now.saturating_add(left);
        let account = &mut self.account;
        if account.end > 0 {
            account.end = at(account.end);
        }
        for held in &mut account.holders {
            held.ends = at(held.ends);
        }
        let window = window(self.law);
        match &mut account.count {
            Count::Nothing => {}
            Count::Fixed { end, .. } => *end = at(*end),
            Count::Sliding { number, .. } => *number = (now / window).saturating_sub(*number),
            Count::Log(times) => {
                for time in times.iter_mut() {
                    *time = now.saturating_sub(*time);
                }
            }
            Count::Bucket { due } => *due += now as f64,
        }
        self
    }

    /// What another gateway counted joins what was counted here in the meantime: all of it counts.
    pub fn join(&mut self, other: Kept) {
        let (mine, its) = (&mut self.account, other.account);
        for held in its.holders {
            match mine.holders.iter_mut().find(|h| h.node == held.node) {
                Some(mine) if mine.number >= held.number => {}
                Some(mine) => *mine = held,
                None => mine.holders.push(held),
            }
        }
        mine.before = mine.before.max(its.before);
        mine.end = mine.end.max(its.end);
        match (&mut mine.count, its.count) {
            (Count::Fixed { end, used }, Count::Fixed { end: e, used: u }) => {
                *end = (*end).max(e);
                *used = used.saturating_add(u);
            }
            (
                Count::Sliding {
                    number,
                    before,
                    count,
                },
                Count::Sliding {
                    number: n,
                    before: b,
                    count: c,
                },
            ) if *number == n => {
                *before = before.saturating_add(b);
                *count = count.saturating_add(c);
            }
            (Count::Log(times), Count::Log(others)) => {
                let mut all: Vec<Micros> = times.drain(..).chain(others).collect();
                all.sort_unstable();
                let most = all.len().min(MOST_TIMES);
                *times = all.split_off(all.len() - most).into();
            }
            (Count::Bucket { due }, Count::Bucket { due: d }) => *due = due.max(d),
            (mine @ Count::Nothing, its) => *mine = its,
            _ => {}
        }
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
                // Further ahead than any debt.
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
        })
    }
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
        out.byte(u8::from(part.more));
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
        let more = read.byte()? != 0;
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
            more,
            keys: keys.collect::<Result<_, Bad>>()?,
        });
    }
    Ok(parts)
}
