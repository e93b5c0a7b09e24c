//! How many files, and so how many connections, the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a connection that is being served may take beside the client's own file: one upstream
/// connection.
const FILES_EACH: u64 = 2;

/// Raises the limit to what the process may raise it to. Most systems start processes with a soft
/// limit of 1,024, for programs that still use `select`; beyond it nothing is accepted.
pub(crate) fn raise(max_connections: u64) {
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
    if files < max_connections.saturating_mul(FILES_EACH) {
        tracing::warn!(
            files,
            max_connections,
            "fewer files may be open than `lockgate.max_connections` needs at most, two for each; \
             raise the hard limit (LimitNOFILE, ulimit -Hn)"
        );
    }
}
