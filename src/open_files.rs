//! How many files, and so how many connections, the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One file in so many is not for clients: when they have taken all others, there still have to be
/// upstream connections, logs and the file of the configuration.
const RESERVE: u64 = 8;

/// Raises the limit to what the process may raise it to, and says how many connections of clients
/// that leaves room for, `max_connections` at most. Most systems start processes with a soft limit
/// of 1,024, for programs that still use `select`; beyond it nothing is accepted.
pub(crate) fn raise(max_connections: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if raised != limit
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    // As it is now. Without a limit there is nothing to be short of.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let before = limit.current.unwrap_or(u64::MAX);
    tracing::info!(files, before, "limit of open files");
    let room = connections(files);
    if room < max_connections {
        tracing::warn!(
            files,
            max_connections,
            kept = room,
            "too few files may be open for `lockgate.max_connections`: fewer connections are kept; \
             raise the hard limit (LimitNOFILE, ulimit -Hn)"
        );
    }
    room.min(max_connections)
}

fn connections(files: u64) -> u64 {
    files - files / RESERVE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_are_not_for_clients() {
        assert_eq!(connections(1_024), 896);
        assert_eq!(connections(1_048_576), 917_504);
        assert_eq!(connections(0), 0);
    }
}
