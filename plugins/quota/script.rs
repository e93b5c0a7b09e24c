//! Scripts that Redis runs, and their answers.

use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};

/// A script, with the hash under which the server keeps it.
pub(crate) struct Script {
    text: String,
    hash: String,
}

impl Script {
    /// A script by itself.
    pub(crate) fn new(text: &str) -> Script {
        let hash = redis::Script::new(text).get_hash().to_owned();
        let text = text.to_owned();
        Script { text, hash }
    }

    /// A script that counts by the laws.
    pub(crate) fn of_laws(text: &str) -> Script {
        Script::new(&(include_str!("scripts/laws.lua").to_owned() + text))
    }

    /// The beginning of a call, by the script's text or hash.
    pub(crate) fn command(&self, keys: usize, text: bool) -> Cmd {
        let mut command = redis::cmd(if text { "EVAL" } else { "EVALSHA" });
        command.arg(if text { &self.text } else { &self.hash });
        command.arg(keys);
        command
    }
}

/// An answer of so many numbers.
pub(crate) fn numbers<const N: usize>(value: &Value) -> RedisResult<[i64; N]> {
    let numbers: Vec<i64> = redis::from_redis_value_ref(value)?;
    numbers.try_into().map_err(|_| unexpected())
}

/// A number that should not be negative.
pub(crate) fn whole(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

pub(crate) fn unexpected() -> RedisError {
    (
        ErrorKind::UnexpectedReturnType,
        "not the answer of the script",
    )
        .into()
}
