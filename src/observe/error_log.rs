//! The process's own log, on standard error or in a file.
//!
//! Pingora writes lines that anybody who can open a connection can cause: a
//! port scan and a load balancer's TCP check are failed handshakes to it, at the
//! level of an error. Here such a line is one for who looks for it (`debug`), and
//! whatever else Pingora says is bounded, so that clients cannot fill a disk.

use std::fmt::{Debug, Write};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use super::log_limit::LogLimit;
use crate::settings::ErrorLog;

/// How Pingora's lines about handshakes begin, failed and overdue ones.
const HANDSHAKE: &str = "Downstream handshake";

/// Opens the log; everything from here on is written to it. `RUST_LOG` says what, where it is set.
pub fn start(settings: &ErrorLog) -> std::io::Result<()> {
    // Pingora's own lines below `warn` are about every connection.
    let filter = format!(
        "{0},pingora_core={1},pingora_proxy={1}",
        settings.level, "warn"
    );
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter));
    let bounded = Bounded {
        debug: filter.max_level_hint() >= Some(LevelFilter::DEBUG),
        limit: LogLimit::default(),
    };
    let lines = match &settings.path {
        Some(path) => {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)?;
            let lines = fmt::layer().with_ansi(false).with_writer(Mutex::new(file));
            lines.with_filter(bounded).boxed()
        }
        None => {
            let colours = std::io::stderr().is_terminal();
            let lines = fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
            lines.with_filter(bounded).boxed()
        }
    };
    registry().with(lines).with(filter).init();
    Ok(())
}

/// Bounds what Pingora says.
struct Bounded {
    debug: bool,
    limit: LogLimit,
}

impl<S: Subscriber> Filter<S> for Bounded {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        if *event.metadata().level() > Level::WARN {
            return true;
        }
        let mut said = Said::default();
        event.record(&mut said);
        !said.by_pingora || self.allow(&said.message, SystemTime::now())
    }
}

impl Bounded {
    fn allow(&self, message: &str, now: SystemTime) -> bool {
        (self.debug || !message.starts_with(HANDSHAKE)) && self.limit.allow(now)
    }
}

/// What matters of a line: Pingora's come through the `log` crate, which names the module in a field.
#[derive(Default)]
struct Said {
    by_pingora: bool,
    message: String,
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "log.target" {
            self.by_pingora = value.starts_with("pingora");
        } else if field.name() == "message" {
            self.message.push_str(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // Writing to a string does not fail.
            let _ = write!(self.message, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Lines that get through.
    struct Count(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn written(debug: bool, say: impl FnOnce()) -> usize {
        let count = Arc::<AtomicUsize>::default();
        let limit = LogLimit::default();
        let layer = Count(Arc::clone(&count)).with_filter(Bounded { debug, limit });
        tracing::subscriber::with_default(registry().with(layer), say);
        count.load(Ordering::Relaxed)
    }

    /// As a line of Pingora arrives.
    fn pingora(message: &str) {
        tracing::error!(
            log.target = "pingora_core::services::listening",
            "{message}"
        );
    }

    #[test]
    fn failed_handshakes_are_for_who_looks_for_them() {
        let handshake = || pingora("Downstream handshake error from 192.0.2.1:4000: eof");
        assert_eq!(written(false, handshake), 0);
        assert_eq!(written(true, handshake), 1);
        assert_eq!(written(false, || pingora("Accept() failed")), 1);
    }

    #[test]
    fn pingora_is_bounded_and_we_are_not() {
        // A second may end in the middle.
        let many = written(false, || (0..100).for_each(|_| pingora("Accept() failed")));
        assert!((10..=20).contains(&many), "{many}");
        let ours = || (0..100).for_each(|_| tracing::error!("a line of ours"));
        assert_eq!(written(false, ours), 100);
    }
}
