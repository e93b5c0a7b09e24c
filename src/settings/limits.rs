//! `lockgate.limit`: what limits count in.

use lockgate_limit::Engine;
use serde_json::Value;

use super::read::Reader;
use super::units;

/// Room for some four thousand clients.
const SMALLEST: u64 = 64 << 10;
/// Room for 268 million clients.
const LARGEST: u64 = 4 << 30;

/// The size of the table. A client that counts takes 16 bytes, and it is best half full.
pub(super) fn table(read: &mut Reader<'_>) -> usize {
    const KEY: &str = "lockgate.limit.table_bytes";
    let Some(value) = read.value(KEY) else {
        return Engine::DEFAULT_BYTES;
    };
    let size = match value {
        Value::Number(_) | Value::String(_) => units::size(value),
        _ => None,
    };
    let fits = size.filter(|n| n.is_power_of_two() && (SMALLEST..=LARGEST).contains(n));
    match fits.and_then(|n| usize::try_from(n).ok()) {
        Some(bytes) => bytes,
        None => {
            read.wrong(KEY, "a power of two from 64k to 4096m, such as 16m", value);
            Engine::DEFAULT_BYTES
        }
    }
}
