//! Arguments → run → exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Prints the version.
    Version,
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Run { config, upgrade } => lockgate::gateway::run(&config, upgrade),
        Command::Check { config } => lockgate::inspect::check(&config),
        Command::Routes { config } => lockgate::inspect::routes(&config),
        Command::Version => lockgate::inspect::version(),
    }
}
