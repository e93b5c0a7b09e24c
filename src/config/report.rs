//! What the status page and the metrics tell of the configuration.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use lockgate_plugin::Problem;

/// The report, shared by those who know with those who tell.
pub type SharedReport = Arc<Mutex<Report>>;

/// What became of the configuration.
#[derive(Clone, Default)]
pub struct Report {
    /// The revision in use: counts changes since the start.
    pub revision: u64,
    /// When it came into use.
    pub loaded_at: Option<SystemTime>,
    /// Where it comes from.
    pub source: String,
    /// How many resources are in it.
    pub resources: usize,
    /// Of the file's content that is in use, apart from what is rejected. `None` for a store.
    pub print: Option<u64>,
    /// What was not taken when the source was read last, and not more of it than a page can show.
    /// The previous versions stay in use.
    pub rejected: Vec<Problem>,
    /// How many resources these problems are of.
    pub rejected_resources: usize,
    /// The revision of the store that is in use. `None` where the source is a file.
    pub store_revision: Option<u64>,
    /// Whether the store can be reached. `None` where the source is a file.
    pub store: Option<Reach>,
    /// Why what is in use is not what the source holds, though it could be read.
    pub degraded: Option<String>,
    /// Since when what is in use may be out of date.
    pub stale: Option<Instant>,
    /// The file that the gateway would start from without its store.
    pub last_good: Option<Saved>,
}

/// Whether a store can be reached.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Whether it answered last.
    pub connected: bool,
    /// Since when that is so.
    pub since: SystemTime,
    /// Why not.
    pub error: Option<String>,
}

/// What is on disk for a start without the store.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// The revision of the store in it. `None` before the first write.
    pub revision: Option<u64>,
    /// Why the last write failed.
    pub error: Option<String>,
}

impl Report {
    /// How long what is in use may have been out of date: zero while it follows its source.
    pub fn age(&self, now: Instant) -> Duration {
        let since = self.stale.map(|since| now.saturating_duration_since(since));
        since.unwrap_or_default()
    }

    /// The store has answered.
    pub fn found(&mut self) {
        self.reach(None);
        self.settle();
    }

    /// The store does not answer.
    pub fn lost(&mut self, error: &str) {
        self.reach(Some(error));
        self.stale.get_or_insert_with(Instant::now);
    }

    /// What is in use is known to be something else than what the source holds.
    pub fn degrade(&mut self, why: &str) {
        self.degraded = Some(why.to_owned());
        self.stale.get_or_insert_with(Instant::now);
    }

    /// What is in use is what the source holds.
    pub fn recover(&mut self) {
        self.degraded = None;
        self.settle();
    }

    fn settle(&mut self) {
        let reached = self.store.as_ref().is_none_or(|store| store.connected);
        if reached && self.degraded.is_none() {
            self.stale = None;
        }
    }

    fn reach(&mut self, error: Option<&str>) {
        let connected = error.is_none();
        let store = self.store.get_or_insert_with(|| Reach {
            connected,
            since: SystemTime::now(),
            error: None,
        });
        if store.connected != connected {
            store.connected = connected;
            store.since = SystemTime::now();
        }
        store.error = error.map(str::to_owned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_ages_until_the_store_is_back_and_followed() {
        let mut report = Report::default();
        let age = |report: &Report| {
            report
                .age(Instant::now() + Duration::from_secs(9))
                .as_secs()
        };
        report.found();
        assert_eq!(age(&report), 0);
        report.lost("no answer");
        report.degrade("as it was on disk");
        let since = report.store.as_ref().unwrap().since;
        report.lost("still none");
        let store = report.store.clone().unwrap();
        assert!(!store.connected && store.since == since);
        assert_eq!(store.error.as_deref(), Some("still none"));
        assert!(age(&report) >= 9);
        // It answers, and is not followed yet.
        report.found();
        assert!(report.store.as_ref().unwrap().connected && age(&report) >= 9);
        report.recover();
        assert_eq!((age(&report), report.degraded), (0, None));
    }
}
