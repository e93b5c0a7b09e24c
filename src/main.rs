//! Arguments → run → exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lockgate::remote;

/// Built without huge pages: one keeps two MiB for the sake of one small buffer, which was 10 MiB
/// of 30 after the start.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// mimalloc's option `purge_delay` in milliseconds, which its crate does not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Milliseconds.
const SOON: std::ffi::c_long = 50;

/// Freed pages go back to the kernel soon. mimalloc waits for a second and then for the next time
/// that somebody frees, and who has just become idle does not: what a burst of requests had borrowed
/// stayed for good. Not at once: the general lane would take its pages back for each request, which
/// doubles what that costs. `MIMALLOC_PURGE_DELAY` in the environment has the last word.
#[allow(unsafe_code)]
fn give_memory_back() {
    // SAFETY: options may be set by one thread at a time, and there is only this one so far.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, SOON) }
}

/// An API gateway that reads Apache APISIX configuration.
#[derive(Parser)]
#[command(name = "lockgate", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves until SIGTERM. Stays in the foreground.
    Run {
        /// The process settings; they say where the routes are.
        #[arg(short, long, default_value = "conf/config.yaml")]
        config: PathBuf,
        /// Takes the listening sockets over from a running lockgate: start this, then send the old
        /// process SIGQUIT.
        #[arg(long)]
        upgrade: bool,
    },
    /// Checks settings and routes; prints every problem. Exit status 1 when there are any.
    Check {
        /// The process settings; they say where the routes are.
        #[arg(short, long, default_value = "conf/config.yaml")]
        config: PathBuf,
    },
    /// Prints the compiled routes and, for each phase, the plugins in order.
    Routes {
        /// The process settings; they say where the routes are.
        #[arg(short, long, default_value = "conf/config.yaml")]
        config: PathBuf,
    },
    /// Tells what becomes of a request, and why: every route that is looked at and the first condition
    /// that failed, the merged plugins, the upstream and the node. Nothing is sent and no plugin runs.
    Explain(Box<lockgate::explain::Args>),
    /// Says what a file of changes, or a whole configuration, would change, field by field, and which
    /// requests would come to something else. Writes nothing.
    Plan(remote::Plan),
    /// Changes everything in a file at once, or nothing.
    Apply(remote::Apply),
    /// Lists who changed what when, or shows one change.
    History(remote::History),
    /// Goes back to a revision, or takes one change back.
    Rollback(remote::Rollback),
    /// Lets a change stay that would go back by itself.
    Confirm(remote::Confirm),
    /// Lists limits, tells how a key stands, resets it, gives it another limit for a while.
    Limits(Box<remote::Limits>),
    /// Prints the version.
    Version,
}

fn main() -> ExitCode {
    give_memory_back();
    match Args::parse().command {
        Command::Run { config, upgrade } => lockgate::gateway::run(&config, upgrade),
        Command::Check { config } => lockgate::inspect::check(&config),
        Command::Routes { config } => lockgate::inspect::routes(&config),
        Command::Explain(args) => lockgate::explain::run(&args),
        Command::Plan(args) => remote::plan(&args),
        Command::Apply(args) => remote::apply(&args),
        Command::History(args) => remote::history(&args),
        Command::Rollback(args) => remote::rollback(&args),
        Command::Confirm(args) => remote::confirm(&args),
        Command::Limits(args) => remote::limits(&args),
        Command::Version => lockgate::inspect::version(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn the_option_is_the_delay_of_purges() {
        // SAFETY: reading an option changes nothing.
        let get = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        // Known by its default, as mimalloc 3 documents it.
        assert_eq!(get(), 1000);
        give_memory_back();
        assert_eq!(get(), SOON);
    }
}
