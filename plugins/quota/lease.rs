//! Permits taken ahead, to be spent without asking.
//!
//! A permit is handed out once, before it is spent: however late, lost or repeated an answer is, no more
//! than the limit pass in a window. What is handed out gets smaller as the limit comes near: half of
//! what is left, divided among the gateways that were seen.

use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use crate::central::{Script, numbers};

/// What a gateway asks for one limit.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Where the limit is counted.
    pub key: String,
    /// How many in a window.
    pub limit: u64,
    /// How long.
    pub window: Duration,
    /// Grows with each ask of this gateway for this key. The same number again, because the answer was
    /// lost, gets the same answer.
    pub number: u64,
    /// Permits wanted; 0 only gives back and looks.
    pub want: u64,
    /// Permits given back.
    pub back: u64,
    /// Requests let pass without a permit.
    pub over: u64,
    /// The window that the last two belong to, as [`Grant::window`] said; for another they are void.
    pub of: u64,
}

/// What it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Permits, for this window.
    pub permits: u64,
    /// What is left to hand out.
    pub left: u64,
    /// Until the window ends, by the server's clock.
    pub reset: Duration,
    /// Which window it is.
    pub window: u64,
    /// Gateways that ask for this key.
    pub nodes: u64,
}

impl Ask {
    pub(crate) fn command(&self, script: &Script, node: &str, text: bool) -> Cmd {
        let mut command = script.command(1, text);
        command
            .arg(&self.key)
            .arg(self.limit)
            .arg(u64::try_from(self.window.as_micros()).unwrap_or(u64::MAX))
            .arg(node)
            .arg(self.number)
            .arg(self.want)
            .arg(self.back)
            .arg(self.over)
            .arg(self.of);
        command
    }
}

impl Grant {
    pub(crate) fn read(value: &Value) -> RedisResult<Grant> {
        let [permits, left, reset, window, nodes] = numbers(value)?;
        let whole = |n: i64| u64::try_from(n).unwrap_or(0);
        Ok(Grant {
            permits: whole(permits),
            left: whole(left),
            reset: Duration::from_micros(whole(reset)),
            window: whole(window),
            nodes: whole(nodes),
        })
    }
}
